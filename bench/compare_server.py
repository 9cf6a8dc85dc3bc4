#!/usr/bin/env python3
"""Held-out loss with and without a parameter server: all-reduce, then servers in step, apart, and apart within a bound.

    python3 bench/compare_server.py [--workers 4] [--servers 2] [--steps 300] [trireme settings, such as --train.lr=1e-3]

Trains the quickstart once for each and prints a table: the held-out loss, bytes that a worker sends in a step, and the
ratio of each held-out loss to that of all-reduce. The learning rate is a quarter of the quickstart's: gradients of weights
that three other updates have changed since do not bear more. Fails when servers in step differ from all-reduce, or when another
has not come down to within 10% of it. Needs nothing beyond Python.
"""
import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TRIREME = ROOT / "build/release/src/trireme/trireme"


def train(folder, settings):
    """The last held-out loss, and the last step's bytes sent."""
    done = subprocess.run([TRIREME, "train", f"--output.dir={folder}", *settings], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(done.stderr)
    lines = [json.loads(line) for line in (Path(folder) / "metrics.jsonl").read_text().splitlines()]
    held_out = [line["eval_loss"] for line in lines if line.get("eval_loss") is not None]
    return held_out[-1], lines[-1]["sent_bytes"], lines[0]["loss"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--servers", type=int, default=2)
    parser.add_argument("--steps", type=int, default=300)
    a, more = parser.parse_known_args()
    common = [f"--parallel.mesh=dp={a.workers}", "--parallel.zero=0", "--replay=0", f"--train.steps={a.steps}",
              "--runtime.threads=1"]
    common += more if any(m.startswith("--train.lr=") for m in more) else ["--train.lr=7.5e-4", *more]
    failed = False
    print(f"dp={a.workers} servers={a.servers}, {a.steps} steps")
    print("| parallel.server | held-out loss | of all-reduce | bytes a worker sends in a step |")
    print("|---|---|---|---|")
    reference = None
    for mode in ("none", "sync", "async", "ssp:2"):
        servers = [] if mode == "none" else [f"--parallel.server={mode}", f"--parallel.servers={a.servers}"]
        with tempfile.TemporaryDirectory() as folder:
            loss, sent, _ = train(f"{folder}/run", [*common, *servers])
        reference = reference or loss
        ratio = loss / reference
        failed |= abs(ratio - 1) > (1e-3 if mode == "sync" else 0.1)
        print(f"| {mode} | {loss:.4f} | {ratio:.4f} | {sent:,} |", flush=True)
    if failed:
        sys.exit("some losses are not what they should be")


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""What a memory limit costs: predicted time of a step with rematerialisation alone, with offload of activations alone, and
with both decided together (memory.remat = "optimal", memory.offload_policy = "dynamic").

    python3 bench/compare_limit.py [--limits 8] [trireme settings for another model, such as --model.layers=24]

Prints a table and fails when the joint choice is slower than the better of the two, or does not fit where one does.
Nothing is run: the programs are compiled and their time predicted. Needs nothing beyond Python.
"""
import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TRIREME = ROOT / "build/release/src/trireme/trireme"
MODEL = ["--model.family=gpt2", "--model.layers=12", "--model.width=256", "--model.heads=8", "--model.context=128",
         "--model.vocab=256", "--train.batch=8", "--output.staging=4KiB", "--runtime.threads=2", "--parallel.mesh=dp=1"]
WAYS = {"remat": ["--memory.remat=optimal"],
        "offload": ["--memory.offload=activations"],
        "both": ["--memory.remat=optimal", "--memory.offload=activations"]}


def plan(settings):
    """Peak, nominal seconds and what the limit led to; nothing where the limit is too small."""
    done = subprocess.run([TRIREME, "memory", "--brief", "--json", *settings], capture_output=True, text=True)
    if done.returncode != 0:
        if "memory.limit" not in done.stderr:
            sys.exit(done.stderr)
        return None
    made = json.loads(done.stdout)
    return made["ranks"][0]["predicted_peak_bytes"], made["nominal_step_s"], made.get("limit", {})


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--limits", type=int, default=8)
    a, more = parser.parse_known_args()
    with tempfile.TemporaryDirectory() as folder:
        tokens = Path(folder) / "tokens.bin"
        tokens.write_bytes(bytes(b for i in range(1 << 16) for b in ((i * 7919 + 13) % 251, 0)))
        model = [f"--data.tokens={tokens}", *MODEL, *more]
        peak, seconds, _ = plan(model)
        # The least that both together reach, by halving.
        low, high = 0, peak
        while high - low > peak // 512:
            middle = (low + high) // 2
            reached = plan([*model, *WAYS["both"], f"--memory.limit={middle}"])
            low, high = (low, reached[0]) if reached else (middle, high)
        print(f"plain step: {peak:,} B; times as multiples of its predicted {seconds * 1e3:.1f} ms")
        print("| limit | of plain | " + " | ".join(WAYS) + " | both: activations that leave |")
        print("|" + "---|" * (len(WAYS) + 3))
        for i in range(a.limits):
            limit = peak - (peak - high) * i // (a.limits - 1)
            found = {way: plan([*model, *settings, f"--memory.limit={limit}"]) for way, settings in WAYS.items()}
            both = found["both"]
            alone = [found[way][1] for way in ("remat", "offload") if found[way]]
            if alone and (both is None or both[1] > min(alone)):
                sys.exit(f"at {limit:,} B both together are worse than one alone: {both} against {min(alone)}")
            cells = [f"{f[1] / seconds:.3f}×" if f else "–" for f in found.values()]
            print(f"| {limit:,} | {limit / peak:.2f} | " + " | ".join(cells) + f" | {both[2].get('moved', 0)} |")


if __name__ == "__main__":
    main()

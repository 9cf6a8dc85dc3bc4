#!/usr/bin/env python3
"""Trains the quickstart in f32 and in lower precision from several seeds and compares held-out losses, time and memory.

    bench/compare_precision.py [--precision bf16] [--seeds N] [--jobs N] [--section.key=value …]

A third run of each seed does the same arithmetic as f32 in another order (two micro-batches): how far it ends from
plain f32 is what rounding alone does, the noise that a difference must be judged by.

Prints a table; exits 1 when the mean held-out loss is not within 1% of f32's.
"""
import argparse
import concurrent.futures
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TRIREME = ROOT / "build/release/src/trireme/trireme"
QUICKSTART_BATCH = 8


def train(settings):
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        subprocess.run([TRIREME, "train", f"--output.dir={out}", *settings], check=True, cwd=folder,
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        return json.loads((out / "metrics.jsonl").read_text().splitlines()[-1])


def memory(settings):
    report = subprocess.run([TRIREME, "memory", "--json", *settings], check=True, capture_output=True, text=True)
    return json.loads(report.stdout)["ranks"][0]


def spread(percents):
    error = statistics.stdev(percents) / len(percents) ** 0.5 if len(percents) > 1 else float("nan")
    return f"mean {statistics.mean(percents):+.2f}% ± {error:.2f}, from {min(percents):+.2f}% to {max(percents):+.2f}%"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--precision", default="bf16")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=1, help="runs at a time; give each its --runtime.threads")
    options, rest = parser.parse_known_args()
    low = options.precision
    kinds = {"f32": [], "f32 again": [f"--train.micro_batch={QUICKSTART_BATCH // 2}"], low: [f"--train.precision={low}"]}
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        runs = {(seed, kind): pool.submit(train, [*rest, *extra, f"--train.seed={seed}"])
                for seed in range(1, options.seeds + 1) for kind, extra in kinds.items()}
        results = {key: run.result() for key, run in runs.items()}

    print(f"{'held-out loss':14}" + "".join(f"{kind:>12}" for kind in kinds))
    off = {"f32 again": [], low: []}
    for seed in range(1, options.seeds + 1):
        losses = {kind: results[seed, kind]["eval_loss"] for kind in kinds}
        print(f"seed {seed:<9}" + "".join(f"{losses[kind]:>12.4f}" for kind in kinds))
        for kind, percents in off.items():
            percents.append(100 * (losses[kind] / losses["f32"] - 1))
    for kind, percents in off.items():
        print(f"{kind} against f32: {spread(percents)}")

    tables = {kind: memory([*rest, *extra]) for kind, extra in kinds.items() if kind != "f32 again"}
    print(f"\n{'bytes':14}{'f32':>14}{low:>14}{'ratio':>9}")
    for key in ("predicted_peak_bytes", "weights", "gradients", "optimizer", "activations", "workspace"):
        a, b = tables["f32"][key], tables[low][key]
        print(f"{key.removeprefix('predicted_'):14}{a:>14,}{b:>14,}{b / a if a else 0:>9.3f}")
    seconds = {kind: statistics.median(results[s, kind]["wall_s"] for s in range(1, options.seeds + 1)) for kind in kinds}
    print(f"{'seconds':14}{seconds['f32']:>14.1f}{seconds[low]:>14.1f}{seconds[low] / seconds['f32']:>9.3f}")
    if abs(statistics.mean(off[low])) > 1:
        sys.exit(f"{low} does not end within 1% of f32's held-out loss")


if __name__ == "__main__":
    main()

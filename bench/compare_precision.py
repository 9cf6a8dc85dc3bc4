#!/usr/bin/env python3
"""Trains the quickstart in f32 and in lower precision from several seeds and compares held-out losses, time and memory.

    bench/compare_precision.py [--precision bf16 fp16] [--activations bf16 int8] [--seeds N] [--first-seed N]
                               [--jobs N] [--section.key=value …]

--precision compares values of train.precision, --activations of memory.activations (in f32); without either it is
--precision bf16.

A third run of each seed does the same arithmetic as f32 in another order (two micro-batches): how far it ends from
plain f32 is what rounding alone does, the noise that a difference must be judged by.

Prints a table; exits 1 when a mean held-out loss is not within 1% of f32's.
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
    parser.add_argument("--precision", nargs="+", default=[])
    parser.add_argument("--activations", nargs="+", default=[])
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--first-seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=1, help="runs at a time; give each its --runtime.threads")
    options, rest = parser.parse_known_args()
    lower = {kind: [f"--train.precision={kind}"] for kind in options.precision}
    lower |= {f"saved {kind}": [f"--memory.activations={kind}"] for kind in options.activations}
    if not lower:
        lower = {"bf16": ["--train.precision=bf16"]}
    kinds = {"f32": [], "f32 again": [f"--train.micro_batch={QUICKSTART_BATCH // 2}"], **lower}
    seeds = range(options.first_seed, options.first_seed + options.seeds)
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        runs = {(seed, kind): pool.submit(train, [*rest, *extra, f"--train.seed={seed}"])
                for seed in seeds for kind, extra in kinds.items()}
        results = {key: run.result() for key, run in runs.items()}

    print(f"{'held-out loss':14}" + "".join(f"{kind:>12}" for kind in kinds))
    off = {kind: [] for kind in kinds if kind != "f32"}
    for seed in seeds:
        losses = {kind: results[seed, kind]["eval_loss"] for kind in kinds}
        print(f"seed {seed:<9}" + "".join(f"{losses[kind]:>12.4f}" for kind in kinds))
        for kind, percents in off.items():
            percents.append(100 * (losses[kind] / losses["f32"] - 1))
    for kind, percents in off.items():
        print(f"{kind} against f32: {spread(percents)}")

    tables = {kind: memory([*rest, *extra]) for kind, extra in kinds.items() if kind != "f32 again"}
    print(f"\n{'bytes':14}" + "".join(f"{kind:>14}" + ("" if kind == "f32" else f"{'ratio':>8}") for kind in tables))
    for key in ("predicted_peak_bytes", "weights", "gradients", "optimizer", "activations", "workspace"):
        print(row(key.removeprefix("predicted_"), {kind: table[key] for kind, table in tables.items()}, ",d"))
    print(row("seconds", {kind: statistics.median(results[s, kind]["wall_s"] for s in seeds) for kind in tables}, ".1f"))
    if far := [kind for kind in lower if abs(statistics.mean(off[kind])) > 1]:
        sys.exit(f"{', '.join(far)}: not within 1% of f32's held-out loss")


def row(name, values, form):
    first = values["f32"]
    cells = [f"{v:>14{form}}" + ("" if kind == "f32" else f"{v / first if first else 0:>8.3f}") for kind, v in values.items()]
    return f"{name:14}" + "".join(cells)


if __name__ == "__main__":
    main()

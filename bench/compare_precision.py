#!/usr/bin/env python3
"""Trains the quickstart in f32 and in bf16 with the same seed and compares final held-out losses, time and memory.

    bench/compare_precision.py [--steps N] [--section.key=value …]

Prints a table; exits 1 when bf16's held-out loss is not within 1% of f32's.
"""
import json
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TRIREME = ROOT / "build/release/src/trireme/trireme"


def run(precision, arguments):
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        settings = [f"--train.precision={precision}", f"--output.dir={out}", *arguments]
        subprocess.run([TRIREME, "train", *settings], check=True, stdout=subprocess.DEVNULL, cwd=folder)
        steps = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
        recent = [m["loss"] for m in steps[-100:]]
        last = steps[-1] | {"loss": sum(recent) / len(recent)}
        report = subprocess.run([TRIREME, "memory", "--json", *settings], check=True, capture_output=True, text=True, cwd=folder)
        return last, json.loads(report.stdout)["ranks"][0]


def main():
    arguments = sys.argv[1:]
    if "--steps" in arguments:
        at = arguments.index("--steps")
        arguments[at:at + 2] = [f"--train.steps={arguments[at + 1]}"]
    results = {p: run(p, arguments) for p in ("f32", "bf16")}
    print(f"{'':14}{'f32':>14}{'bf16':>14}{'ratio':>9}")
    rows = [("held-out loss", lambda m, r: m["eval_loss"], ".4f"), ("last 100 steps", lambda m, r: m["loss"], ".4f"), ("seconds", lambda m, r: m["wall_s"], ".1f")]
    rows += [(k, lambda m, r, k=k: r[k], ",") for k in ("predicted_peak_bytes", "weights", "gradients", "optimizer", "activations", "workspace")]
    for name, value, form in rows:
        a, b = value(*results["f32"]), value(*results["bf16"])
        print(f"{name.removeprefix('predicted_'):14}{a:>14{form}}{b:>14{form}}{b / a if a else 0:>9.3f}")
    a, b = (results[p][0]["eval_loss"] for p in ("f32", "bf16"))
    if abs(b - a) > 0.01 * a:
        sys.exit(f"bf16 ends {100 * (b - a) / a:+.2f}% from f32's held-out loss")


if __name__ == "__main__":
    main()

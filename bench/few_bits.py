#!/usr/bin/env python3
"""Trains a model of bytes on this machine's C++ headers, stores its weights in fewer and fewer bits and prints, for each way, the bits of a
stored weight, the size and the held-out loss and perplexity, with a picture of the loss against the bits.

    python3 bench/few_bits.py [--layers 4 --width 128 --heads 4 --steps 300] [--run FOLDER] [--check] [--markdown]

--run uses a run that is there. --check exits with 1 unless the laws hold: int8 within 0.5% of f32's perplexity, with integer inputs within 1%; of int4 per channel,
compensation at least halves the loss increase of rounding to nearest; of int4:64, it makes the layers' output error at least a third smaller.
Steps, data order and results do not depend on the machine's load.
"""
import argparse
import json
import math
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
WAYS = [  # name, --weights, rows of calibration
    ("int8", "int8", 0),
    ("int8, inputs too", "int8", 128),
    ("int4:32", "int4:32", 128),
    ("int4:32 to nearest", "int4:32", 0),
    ("int4:64", "int4:64", 128),
    ("int4:64 to nearest", "int4:64", 0),
    ("int4", "int4", 128),
    ("int4 to nearest", "int4", 0),
    ("int4, inputs int8", "int4", 128),
]


def call(a, *words):
    done = subprocess.run([a.program, *map(str, words)], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"trireme {' '.join(map(str, words))}\n{done.stdout}{done.stderr}")
    return done.stdout


def train(a, folder):
    call(a, "train", "--parallel.mesh=dp=1", "--model.family=gpt2", f"--model.layers={a.layers}", f"--model.width={a.width}", f"--model.heads={a.heads}",
         f"--model.context={a.context}", f"--train.steps={a.steps}", f"--train.batch={a.batch}", f"--train.lr={a.lr}", "--replay=0",
         f"--output.dir={folder}")


def compress(a, run, out, way, rows, inputs):
    said = call(a, "compress", run, "--out", out, "--weights", way, "--calibrate", rows, "--decode", 0, "--batches", a.batches,
                *(["--activations", "int8"] if inputs else []))
    number = lambda pattern: float(re.search(pattern, said).group(1))
    row = {"before": number(r"before .*loss ([0-9.]+)"), "loss": number(r"after .*loss ([0-9.]+)"), "smaller": number(r"change +([0-9.]+)×")}
    if found := re.search(r"mean relative error ([0-9.]+)%, rounded to nearest ([0-9.]+)%", said):
        row["output"], row["nearest"] = float(found.group(1)), float(found.group(2))
    return row


def picture(rows, exact):
    """Loss above f32's, one line for each way."""
    most = max(row["loss"] - exact for _, row in rows)
    for name, row in rows:
        above = row["loss"] - exact
        print(f"  {name:<20}{'#' * max(0, round(50 * above / most)):<51}{above:+.4f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--context", type=int, default=128)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--batches", type=int, default=0, help="of 8 held-out rows for each loss; 0: all")
    parser.add_argument("--run", help="use this run instead of training one")
    parser.add_argument("--program", default=ROOT / "build/release/src/trireme/trireme")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--markdown", action="store_true")
    a = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        run = a.run or str(Path(folder) / "run")
        if not a.run:
            train(a, run)
        rows = [(name, compress(a, run, Path(folder) / name.replace(" ", "-").replace(":", "-"), way, calibration, "inputs" in name))
                for name, way, calibration in WAYS]
    exact = rows[0][1]["before"]
    bar = "|" if a.markdown else " "
    print(f"{bar} weights {bar} times smaller {bar} loss {bar} perplexity {bar} above f32 {bar} layers' output error {bar}")
    if a.markdown:
        print("|---|---|---|---|---|---|")
    print(f"{bar} f32 {bar} 1.00 {bar} {exact:.4f} {bar} {math.exp(exact):.3f} {bar} {bar} {bar}")
    for name, row in rows:
        output = f"{row['output']:.2f}% (to nearest {row['nearest']:.2f}%)" if "output" in row else ""
        print(f"{bar} {name} {bar} {row['smaller']:.2f} {bar} {row['loss']:.4f} {bar} {math.exp(row['loss']):.3f} {bar} "
              f"{100 * (math.exp(row['loss'] - exact) - 1):+.2f}% {bar} {output} {bar}")
    print("\nloss above f32's:")
    picture(rows, exact)
    if not a.check:
        return
    row = dict(rows)
    laws = {
        "int8 within 0.5% of f32's perplexity": abs(math.exp(row["int8"]["loss"] - exact) - 1) <= 0.005,
        "int8, inputs too: within 1% of f32's perplexity": abs(math.exp(row["int8, inputs too"]["loss"] - exact) - 1) <= 0.01,
        "int4: compensation at least halves the loss increase": row["int4"]["loss"] - exact <= 0.5 * (row["int4 to nearest"]["loss"] - exact),
        "int4:64: layers' output error at least a third smaller": row["int4:64"]["output"] <= row["int4:64"]["nearest"] * 2 / 3,
    }
    for law, holds in laws.items():
        print(f"{'holds ' if holds else 'BROKEN'}  {law}")
    sys.exit(0 if all(laws.values()) else 1)


main()

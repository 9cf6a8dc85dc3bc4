#!/usr/bin/env python3
"""Trains a model of bytes on this machine's C++ headers, stores its weights in fewer and fewer bits and prints, for each way, the bits of a
stored weight, the size and the held-out loss and perplexity, with a picture of the loss against the bits.

    python3 bench/few_bits.py [--layers 4 --width 128 --heads 4 --steps 300] [--run FOLDER] [--check] [--markdown]
    python3 bench/few_bits.py --extra 100 [--weights int4] [--bits 'wte.*=4'] [--seeds 3] [--check] [--markdown]

With --extra each training goes on for so many steps, at the rate --min-lr that it has decayed to, in two ways: as before, which is the control, and for
these weights (train.quantize). Both have the same steps, batches and learning rates. Printed are the control's loss in f32, what rounding its weights
adds, to nearest and compensated, and what is left in the model that was trained for it and rounded to nearest: loss above the control's in f32.

--run uses a run that is there. --check exits with 1 unless the laws hold: int8 within 0.5% of f32's perplexity, with integer inputs within 1%; of int4 per channel,
compensation at least halves the loss increase of rounding to nearest; of int4:64, it makes the layers' output error at least a third smaller. With
--extra: rounding to nearest adds more than its spread over the seeds, and training for it closes at least half of what compensation leaves.
Steps, data order and results do not depend on the machine's load.
"""
import argparse
import json
import math
import re
import shutil
import statistics
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


def train(a, folder, *more):
    call(a, "train", "--parallel.mesh=dp=1", "--model.family=gpt2", f"--model.layers={a.layers}", f"--model.width={a.width}", f"--model.heads={a.heads}",
         f"--model.context={a.context}", f"--train.steps={a.steps}", f"--train.batch={a.batch}", f"--train.lr={a.lr}", f"--train.min_lr={a.min_lr}",
         "--replay=0", f"--data.holdout={a.holdout}", f"--output.dir={folder}", *more)


def compress(a, run, out, way, rows, inputs):
    said = call(a, "compress", run, "--out", out, "--weights", way, "--calibrate", rows, "--decode", 0, "--batches", a.batches,
                *(["--activations", "int8"] if inputs else []), *(["--bits", *a.bits] if a.bits else []))
    number = lambda pattern: float(re.search(pattern, said).group(1))
    row = {"before": number(r"before .*loss ([0-9.]+)"), "loss": number(r"after .*loss ([0-9.]+)"), "smaller": number(r"change +([0-9.]+)×")}
    if found := re.search(r"mean relative error ([0-9.]+)%, rounded to nearest ([0-9.]+)%", said):
        row["output"], row["nearest"] = float(found.group(1)), float(found.group(2))
    return row


def trained_for_it(a, folder, seed):
    """The last steps in f32 and for few bits: losses of both, as they are stored."""
    folder = Path(folder) / f"seed-{seed}"
    whole = f"--train.decay_steps={a.steps}"
    rounded = [f"--train.quantize={a.weights}", *([f"--memory.weight_bits={json.dumps(a.bits)}"] if a.bits else [])]
    train(a, folder / "f32", whole, f"--train.seed={seed}")
    shutil.copytree(folder / "f32", folder / "rounded")
    for name, more in (("f32", []), ("rounded", rounded)):
        call(a, "train", folder / name, "--resume", f"--train.steps={a.steps + a.extra}", whole, "--replay=0", *more)
    nearest = compress(a, folder / "f32", folder / "nearest", a.weights, 0, False)
    return {"f32": nearest["before"], "nearest": nearest["loss"],
            "compensated": compress(a, folder / "f32", folder / "compensated", a.weights, 128, False)["loss"],
            "trained": compress(a, folder / "rounded", folder / "stored", a.weights, 0, False)["loss"]}


def compare_training(a, folder):
    rows = [trained_for_it(a, folder, seed) for seed in range(1, a.seeds + 1)]
    bar, middle, end = ("| ", " | ", " |") if a.markdown else ("  ", "  ", "")
    print(bar + middle.join(["seed", "f32 control", "to nearest", "compensated", f"trained for {a.weights}"]) + end)
    if a.markdown:
        print("|" + 5 * "---|")
    above = {way: [row[way] - row["f32"] for row in rows] for way in ("nearest", "compensated", "trained")}
    for i, row in enumerate(rows):
        print(bar + middle.join([f"{i + 1}", f"{row['f32']:.4f}", *[f"{above[way][i]:+.4f}" for way in above]]) + end)
    mean = {way: statistics.mean(values) for way, values in above.items()}
    spread = {way: statistics.stdev(values) if len(values) > 1 else 0 for way, values in above.items()}
    print(bar + middle.join(["mean", f"{statistics.mean(row['f32'] for row in rows):.4f}",
                             *[f"{mean[way]:+.4f} ± {spread[way]:.4f}" for way in above]]) + end)
    for way in ("nearest", "compensated"):
        if mean[way] > 0:
            print(f"of what rounding adds ({way}), training for {a.weights} closes {100 * (1 - mean['trained'] / mean[way]):.0f}%")
    return {
        "rounding to nearest adds more than its spread": mean["nearest"] > spread["nearest"],
        "training for it closes at least half of that": mean["trained"] <= 0.5 * mean["nearest"],
        "training for it closes at least half of what compensation leaves": mean["trained"] <= 0.5 * mean["compensated"],
    }


def judge(laws):
    for law, holds in laws.items():
        print(f"{'holds ' if holds else 'BROKEN'}  {law}")
    sys.exit(0 if all(laws.values()) else 1)


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
    parser.add_argument("--min-lr", type=float, default=3e-4)
    parser.add_argument("--batches", type=int, default=0, help="of 8 held-out rows for each loss; 0: all")
    parser.add_argument("--extra", type=int, default=0, help="steps that are done in f32 and for --weights")
    parser.add_argument("--weights", default="int4", help="with --extra")
    parser.add_argument("--bits", nargs="*", default=[], help="of weights by name, as of trireme compress: wte.*=4")
    parser.add_argument("--seeds", type=int, default=3, help="with --extra")
    parser.add_argument("--holdout", type=float, default=0.05, help="share of the text that is held out")
    parser.add_argument("--run", help="use this run instead of training one")
    parser.add_argument("--program", default=ROOT / "build/release/src/trireme/trireme")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--markdown", action="store_true")
    a = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if a.extra:
            laws = compare_training(a, folder)
            return judge(laws) if a.check else None
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
    judge(laws)


main()

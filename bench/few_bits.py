#!/usr/bin/env python3
"""Trains a model of bytes on this machine's C++ headers, stores its weights in fewer and fewer bits and prints, for each way, the bits of a
stored weight, the size and the held-out loss and perplexity, with a picture of the loss against the bits.

    python3 bench/few_bits.py [quickstart | --layers 4 --width 128 --heads 4 --steps 300] [--run FOLDER...] [--seeds 3] [--check] [--markdown]
    python3 bench/few_bits.py [quickstart] --extra 100 [--weights int4] [--bits 'wte.*=4'] [--run FOLDER...] [--seeds 3] [--check] [--markdown]

A configuration is trained as it is; without one it is a GPT-2 of the shape that the options say. A model is trained for each of --seeds.

With --extra each training goes on for so many steps, at the rate that it has decayed to or (--decay) at one that decays to nothing, in two ways: as before, which is the control, and for
these weights (train.quantize). Both have the same steps, batches and learning rates. Printed are the control's loss in f32, what rounding its weights
adds, to nearest and compensated, and what is left in the model that was trained for it and rounded to nearest: loss above the control's in f32.

--run uses runs that are there, each in place of a seed. --check exits with 1 unless the laws hold, without --extra for every model: int8 within 0.5% of f32's perplexity,
with integer inputs within 1%; of int4 per channel, compensation at least halves the loss increase of rounding to nearest; of int4:64, it makes the layers' output error at
least a third smaller (where 64 does not divide a row, groups are of 32). With --extra: rounding to nearest adds more than its spread over the seeds, and training for it
closes at least half of what compensation leaves. Losses are in f32. Steps, data order and results do not depend on the machine's load.
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
    if a.config:
        model = [a.config]
    else:
        model = ["--model.family=gpt2", f"--model.layers={a.layers}", f"--model.width={a.width}", f"--model.heads={a.heads}", f"--model.context={a.context}",
                 f"--train.steps={a.steps}", f"--train.batch={a.batch}", f"--train.lr={a.lr}", f"--train.min_lr={a.min_lr}", f"--data.holdout={a.holdout}"]
    call(a, "train", *model, "--parallel.mesh=dp=1", "--replay=0", f"--output.dir={folder}", *more)


def trained(a, folder, seed):
    """The run of a seed: one that is there, or a new one."""
    if a.run:
        return a.run[seed - 1]
    run = Path(folder) / f"run-{seed}"
    train(a, run, f"--train.seed={seed}")
    return run


def steps_of(run):
    return max(int(path.name.split("-")[1]) for path in Path(run).glob("checkpoints/step-*"))


def compress(a, run, out, way, rows, inputs):
    bits = list(a.bits)
    if way == "int4:64":  # rows that 64 does not divide
        bits += [f"{name}=4:32" for name in a.odd_rows]
    said = call(a, "compress", run, "--out", out, "--weights", way, "--calibrate", rows, "--decode", 0, "--batches", a.batches, "--train.precision=f32",
                *(["--activations", "int8"] if inputs else []), *(["--bits", *bits] if bits else []))
    number = lambda pattern: float(re.search(pattern, said).group(1))
    row = {"before": number(r"before .*loss ([0-9.]+)"), "loss": number(r"after .*loss ([0-9.]+)"), "smaller": number(r"change +([0-9.]+)×")}
    if found := re.search(r"mean relative error ([0-9.]+)%, rounded to nearest ([0-9.]+)%", said):
        row["output"], row["nearest"] = float(found.group(1)), float(found.group(2))
    shutil.rmtree(out)
    return row


def trained_for_it(a, folder, seed):
    """The last steps in f32 and for few bits: losses of both, as they are stored."""
    run = trained(a, folder, seed)
    steps = steps_of(run)
    folder = Path(folder) / f"seed-{seed}"
    whole = [f"--train.decay_steps={steps + a.extra}", "--train.min_lr=0"] if a.decay else [f"--train.decay_steps={steps}"]
    rounded = [f"--train.quantize={a.weights}", *([f"--memory.weight_bits={json.dumps(a.bits)}"] if a.bits else [])]
    for name, more in (("f32", []), ("rounded", rounded)):
        shutil.copytree(run, folder / name)
        call(a, "train", folder / name, "--resume", f"--train.steps={steps + a.extra}", *whole, "--replay=0", *more)
    nearest = compress(a, folder / "f32", folder / "nearest", a.weights, 0, False)
    row = {"f32": nearest["before"], "nearest": nearest["loss"],
           "compensated": compress(a, folder / "f32", folder / "compensated", a.weights, 128, False)["loss"],
           "trained": compress(a, folder / "rounded", folder / "stored", a.weights, 0, False)["loss"]}
    shutil.rmtree(folder)
    return row


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


def compare_ways(a, folder, seed):
    """The rows of one model, by the name of the way, and which laws hold."""
    run = trained(a, folder, seed)
    shape = (Path(run) / "config.toml").read_text()
    ffn = re.search(r"^ffn = (\d+)", shape, re.M)
    a.odd_rows = ["*.down.weight"] if ffn and int(ffn[1]) % 64 else []
    row = {name: compress(a, run, Path(folder) / "small", way, calibration, "inputs" in name) for name, way, calibration in WAYS if name in a.only}
    exact = next(iter(row.values()))["before"]
    above = lambda name: row[name]["loss"] - exact
    laws = [
        ("int8 within 0.5% of f32's perplexity", {"int8"}, lambda: abs(math.exp(above("int8")) - 1) <= 0.005),
        ("int8, inputs too: within 1% of f32's perplexity", {"int8, inputs too"}, lambda: abs(math.exp(above("int8, inputs too")) - 1) <= 0.01),
        ("int4: compensation at least halves the loss increase", {"int4", "int4 to nearest"}, lambda: above("int4") <= 0.5 * above("int4 to nearest")),
        ("int4:64: layers' output error at least a third smaller", {"int4:64"}, lambda: row["int4:64"]["output"] <= row["int4:64"]["nearest"] * 2 / 3),
    ]
    return row, {law: holds() for law, names, holds in laws if names <= row.keys()}


def compare_models(a, folder):
    models = [compare_ways(a, folder, seed) for seed in range(1, a.seeds + 1)]
    mean = lambda name, key: statistics.mean(row[name][key] for row, _ in models)
    exact = mean(a.only[0], "before")
    bar, edge = (" | ", "| ") if a.markdown else ("  ", "")
    print(edge + bar.join(["weights", "times smaller", "loss", "perplexity", "loss above f32's", "perplexity above", "layers' output error"]) + edge[::-1])
    if a.markdown:
        print("|" + 7 * "---|")
    print(edge + bar.join(["f32", "1.00", f"{exact:.4f}", f"{math.exp(exact):.3f}", "", "", ""]) + edge[::-1])
    means = []
    for name in a.only:
        above = [row[name]["loss"] - row[name]["before"] for row, _ in models]
        spread = f" ± {statistics.stdev(above):.4f}" if len(above) > 1 else ""
        output = f"{mean(name, 'output'):.2f}% (to nearest {mean(name, 'nearest'):.2f}%)" if "output" in models[0][0][name] else ""
        means.append((name, {"loss": mean(name, "loss")}))
        print(edge + bar.join([name, f"{mean(name, 'smaller'):.2f}", f"{mean(name, 'loss'):.4f}", f"{math.exp(mean(name, 'loss')):.3f}",
                               f"{statistics.mean(above):+.4f}{spread}", f"{100 * (math.exp(statistics.mean(above)) - 1):+.2f}%", output]) + edge[::-1])
    print("\nloss above f32's:")
    picture(means, exact)
    if {"int4 to nearest", "int4"} <= set(a.only):
        nearest, left = ([row[name]["loss"] - row[name]["before"] for row, _ in models] for name in ("int4 to nearest", "int4"))
        print("of what int4 adds to nearest, compensation leaves " + ", ".join(f"{100 * l / n:.0f}%" for n, l in zip(nearest, left) if n > 0))
    return {law: all(laws[law] for _, laws in models) for law in models[0][1]}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("config", nargs="?", help="a configuration, such as quickstart; without it a GPT-2 of the shape that the options say")
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
    parser.add_argument("--decay", action="store_true", help="the rate of these steps decays to nothing, as if training had been planned so long")
    parser.add_argument("--weights", default="int4", help="with --extra")
    parser.add_argument("--bits", nargs="*", default=[], help="of weights by name, as of trireme compress: wte.*=4")
    parser.add_argument("--seeds", type=int, default=0, help="models, each from another seed; 0: 3 with --extra, else 1")
    parser.add_argument("--holdout", type=float, default=0.05, help="share of the text that is held out")
    parser.add_argument("--run", nargs="*", help="use these runs instead of training")
    parser.add_argument("--only", nargs="*", default=[name for name, _, _ in WAYS], help="some of the ways, by name, and the laws of these")
    parser.add_argument("--program", default=ROOT / "build/release/src/trireme/trireme")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--markdown", action="store_true")
    a = parser.parse_args()
    a.seeds = len(a.run) if a.run else a.seeds or (3 if a.extra else 1)
    a.odd_rows = []
    with tempfile.TemporaryDirectory() as folder:
        laws = compare_training(a, folder) if a.extra else compare_models(a, folder)
    if a.check:
        judge(laws)


main()

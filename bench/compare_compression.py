#!/usr/bin/env python3
"""Trains the quickstart over four ranks with every kind of gradient compression and prints, for each, the bytes that a rank
sends in a step after the warm-up and in the whole run, next to what a ring all-reduce of the f32 gradients sends,
2S(N-1)/N, and the final held-out loss next to the uncompressed run's with the same optimizer.

    python3 bench/compare_compression.py [--steps 1200] [--only onebit,topk:0.01] [--sgd-lr 0.03] [--markdown]
    python3 bench/compare_compression.py --warmups 20,40,80,160 [--rates 0.03,0.1,0.3] [--small] [--steps 240]

SGD with momentum unless the row says AdamW. onebit and topk send everything in the first quarter of the steps. The bytes
are the communicators' own counts (`sent_bytes` of metrics.jsonl): at the last step, when every warm-up is over, and
summed over all steps. A run has the four ranks on the cores there are; nothing is emulated.

With --warmups it looks for the shortest warm-up instead: SGD at each of the rates, then onebit and topk at the best of
them with each of the warm-ups, and which of these end within 1% of SGD. --small has a model and batch of a few seconds.
"""
import argparse
import json
import os
import subprocess
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TRIREME = ROOT / "build/release/src/trireme/trireme"
RANKS = 4
SMALL = ["--model.layers=2", "--model.width=64", "--model.context=64", "--train.batch=16"]


def runs(a):
    """Name, keys, the run it is compared with."""
    sgd = ["--train.optimizer=sgd", f"--train.lr={a.sgd_lr}"]
    warm = [f"--parallel.compress_warmup={a.warmup or a.steps // 4}"]
    off = ["--parallel.error_feedback=false"]
    kinds = [("bf16", []), ("int8", []), ("onebit", warm), ("topk:0.01", warm), ("powersgd:4", [])]
    yield "sgd", sgd, None
    for kind, extra in kinds:
        yield kind, sgd + [f"--parallel.compress={kind}", *extra], "sgd"
    for kind, extra in kinds[2:]:
        yield f"{kind} without feedback", sgd + [f"--parallel.compress={kind}", *extra, *off], "sgd"
    masking = ["--parallel.momentum_masking=true"]
    yield "topk:0.01 with masking", sgd + ["--parallel.compress=topk:0.01", *warm, *masking], "sgd"
    yield "adamw", [], None
    yield "onebit AdamW", ["--parallel.compress=onebit", *warm], "adamw"
    yield "onebit AdamW without feedback", ["--parallel.compress=onebit", *warm, *off], "adamw"


def train(keys, a, folder):
    command = [TRIREME, "train", f"--parallel.mesh=dp={RANKS}", "--parallel.zero=0", f"--train.steps={a.steps}",
               f"--output.dir={folder}",
               "--overwrite", "--replay=0", *(SMALL if a.small else []), *keys]
    subprocess.run(command, check=True, capture_output=True, text=True)
    lines = [json.loads(line) for line in (Path(folder) / "metrics.jsonl").read_text().splitlines()]
    losses = [line["eval_loss"] for line in lines if "eval_loss" in line]
    sent = [line["sent_bytes"] for line in lines if "sent_bytes" in line]
    return {"loss": losses[-1], "sent": sent[-1], "mean": sum(sent) / len(sent)}


def parameters(folder):
    return json.loads((Path(folder) / "run.json").read_text())["parameters"]


def sweep(a):
    """How short the warm-up may be at SGD's own best rate."""
    def sgd(rate, *keys):
        with tempfile.TemporaryDirectory() as folder:
            return train(["--train.optimizer=sgd", f"--train.lr={rate}", *keys], a, folder)
    print(f"{len(os.sched_getaffinity(0))} cores, {RANKS} ranks, {a.steps} steps", flush=True)
    plain = {}
    for rate in a.rates.split(","):
        plain[rate] = sgd(rate)
        print(f"sgd, lr {rate}: held-out loss {plain[rate]['loss']:.4f}", flush=True)
    best = min(plain, key=lambda rate: plain[rate]["loss"])
    for kind in [k for k in a.only.split(",") if k] or ["onebit", "topk:0.01"]:
        shortest = None
        for steps in sorted(map(int, a.warmups.split(","))):
            r = sgd(best, f"--parallel.compress={kind}", f"--parallel.compress_warmup={steps}")
            off = r["loss"] / plain[best]["loss"] - 1
            share = plain[best]["mean"] / r["mean"]
            print(f"{kind}, lr {best}, warm-up {steps}: held-out loss {r['loss']:.4f} ({100 * off:+.2f}%), "
                  f"1/{share:.1f} of the run's bytes", flush=True)
            if off <= 0.01 and shortest is None:
                shortest = steps
            elif off > 0.01:
                shortest = None  # a longer one that is worse: it was luck
        print(f"{kind}: " + ("no warm-up is within 1%" if shortest is None else f"within 1% from {shortest} on"), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=1200)
    parser.add_argument("--sgd-lr", type=float, default=0.03)
    parser.add_argument("--warmup", type=int, default=0, help="steps before onebit and topk begin; 0: a quarter of all")
    parser.add_argument("--only", default="", help="kinds, separated by commas; those they are compared with run too")
    parser.add_argument("--markdown", action="store_true")
    parser.add_argument("--warmups", default="", help="steps, separated by commas: look for the shortest that will do")
    parser.add_argument("--rates", default="0.03,0.1,0.3", help="with --warmups: SGD's learning rates to choose from")
    parser.add_argument("--small", action="store_true", help="a model of 2 layers of 64, 16 sequences of 64 in a batch")
    a = parser.parse_args()
    if a.warmups:
        sweep(a)
        return
    chosen = [k for k in a.only.split(",") if k]
    todo = list(runs(a))
    needed = {base for name, _, base in todo if not chosen or name in chosen}
    results = {}
    print(f"{len(os.sched_getaffinity(0))} cores, {RANKS} ranks, {a.steps} steps, SGD lr {a.sgd_lr}", flush=True)
    head = ["", "sent per step", "of the ring's", "of the run's", "held-out loss", "difference"]
    rule = "|" + "---|" * len(head)
    print("| " + " | ".join(head) + " |\n" + rule if a.markdown else
          f"{head[0]:30} {head[1]:>14} {head[2]:>14} {head[3]:>14} {head[4]:>14} {head[5]:>11}", flush=True)
    for name, keys, base in todo:
        if chosen and name not in chosen and name not in needed:
            continue
        with tempfile.TemporaryDirectory() as folder:
            results[name] = r = train(keys, a, folder)
            ring = 2 * 4 * parameters(folder) * (RANKS - 1) / RANKS
        share = f"1/{ring / r['sent']:.1f}"
        off = "" if base is None else f"{100 * (r['loss'] / results[base]['loss'] - 1):+.2f}%"
        row = [name, f"{r['sent']:,} B", share, f"1/{ring / r['mean']:.1f}", f"{r['loss']:.4f}", off]
        print("| " + " | ".join(row) + " |" if a.markdown else
              f"{row[0]:30} {row[1]:>14} {row[2]:>14} {row[3]:>14} {row[4]:>14} {row[5]:>11}", flush=True)


if __name__ == "__main__":
    main()

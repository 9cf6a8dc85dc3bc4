#!/usr/bin/env python3
"""What structured pruning gives in time and memory: a byte-vocabulary GPT-2 of 12x768 before and after `trireme compress
--prune neurons:0.3,heads:0.3`, with random weights: a step, a decoded token, and the planned peak.

    python3 bench/compare_shrunk.py [--prune neurons:0.3,heads:0.3] [--layers 12] [--width 768] [--heads 12] [--rounds 5]

The two are measured in turns; medians and their ratio are printed. A third model, with as many zeros that are scattered, shows
that those save no time.
"""
import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TRIREME = ROOT / "build/release/src/trireme/trireme"


def run(*arguments):
    done = subprocess.run([TRIREME, *arguments], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"trireme {' '.join(map(str, arguments))}\n{done.stderr}")
    return done.stdout


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--prune", default="neurons:0.3,heads:0.3")
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--width", type=int, default=768)
    parser.add_argument("--heads", type=int, default=12)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--tokens", type=int, default=64)
    a = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        keys = [f"--model.layers={a.layers}", f"--model.width={a.width}", f"--model.heads={a.heads}", "--model.context=128",
                "--parallel.mesh=dp=1", f"--train.batch={a.batch}"]
        run("train", *keys, "--train.steps=0", f"--output.dir={folder}/dense", "--replay=0", "--data.holdout=0")
        for name, prune in (("shrunk", a.prune), ("zeros", "unstructured:0.3")):
            print(run("compress", f"{folder}/dense", "--out", f"{folder}/{name}", "--prune", prune, "--decode", "0",
                      "--data.holdout=0").strip(), flush=True)
        names = ["dense", "shrunk", "zeros"]
        steps = {name: [] for name in names}
        tokens = {name: [] for name in names}
        for _ in range(a.rounds):
            for name in names:
                step = json.loads(run("bench", "step", f"{folder}/{name}", "--steps=3", "--warmup=1", "--json"))
                steps[name].append(step["step_ms"])
                made = json.loads(run("bench", "generate", "--from", f"{folder}/{name}", f"--tokens={a.tokens}", "--json"))
                tokens[name].append(made["tokens_per_s"])
        peak = {name: json.loads(run("memory", f"{folder}/{name}", "--json", "--brief"))["ranks"][0]["predicted_peak_bytes"]
                for name in names}
        for name in names:
            step, speed = statistics.median(steps[name]), statistics.median(tokens[name])
            print(f"{name:<8} step {step:8.1f} ms ({statistics.median(steps['dense']) / step:.2f}x as fast)   "
                  f"decode {speed:7.1f} tokens/s ({speed / statistics.median(tokens['dense']):.2f}x)   "
                  f"planned peak {peak[name] / 2**20:8.1f} MiB ({peak[name] / peak['dense']:.2f})")


if __name__ == "__main__":
    main()

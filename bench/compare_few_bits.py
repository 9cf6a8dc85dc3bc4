#!/usr/bin/env python3
"""Decode speed of weights in few bits at GPT-2's 124M shape, head included, against bf16: tokens per second of both, measured in turns by
`trireme compress`, medians of five times 64 tokens, for each of several repetitions.

    python3 bench/compare_few_bits.py [--repeats 3] [--layers 12 --width 768 --vocab 50257] [--device cuda] [--check]

The weights are random: speed does not depend on them. --check exits with 1 unless the median of int8 is at least 1.6 times and of int4 at least
2.2 times bf16's, as on a CPU it should be.
"""
import argparse
import re
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
WAYS = [("int8", 1.6), ("int4", 2.2), ("int4:64", None)]


def call(a, *words):
    done = subprocess.run([a.program, *map(str, words)], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"trireme {' '.join(map(str, words))}\n{done.stdout}{done.stderr}")
    return done.stdout


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--width", type=int, default=768)
    parser.add_argument("--heads", type=int, default=12)
    parser.add_argument("--vocab", type=int, default=50257)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--program", default=ROOT / "build/release/src/trireme/trireme")
    parser.add_argument("--check", action="store_true")
    a = parser.parse_args()
    wrong = []
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "bf16"
        call(a, "train", "--parallel.mesh=dp=1", "--model.family=gpt2", f"--data.text=[\"{ROOT / 'docs'}\"]", "--data.holdout=0", f"--model.layers={a.layers}", f"--model.width={a.width}", f"--model.heads={a.heads}",
             "--model.context=256", f"--model.vocab={a.vocab}", "--train.precision=bf16", "--train.steps=0", "--train.batch=1", "--replay=0",
             f"--runtime.device={a.device}", f"--output.dir={run}")
        for way, law in WAYS:
            pairs = []
            for _ in range(a.repeats):
                said = call(a, "compress", run, "--out", Path(folder) / "small", "--weights", way, "--calibrate", 0,
                            "--decode", a.tokens, "--overwrite", f"--runtime.device={a.device}")
                pairs.append(tuple(float(re.search(rf"{row} .*decode ([0-9.]+) tokens/s", said).group(1)) for row in ("before", "after")))
            ratio = statistics.median(after / before for before, after in pairs)
            print(f"{way:<8} {statistics.median(p[1] for p in pairs):7.1f} tokens/s, bf16 {statistics.median(p[0] for p in pairs):7.1f}: "
                  f"{ratio:.2f} times as fast (each {', '.join(f'{after / before:.2f}' for before, after in pairs)})", flush=True)
            if law and ratio < law:
                wrong.append(f"{way}: {ratio:.2f}, expected {law}")
    if a.check and wrong:
        sys.exit("\n".join(wrong))


main()

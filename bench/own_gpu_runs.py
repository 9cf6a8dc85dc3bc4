#!/usr/bin/env python3
"""Steps on this machine's GPU, measured and simulated: GPT-2, a Llama at two contexts and ResNet-50, plain, recomputed and offloaded.

    bench/own_gpu_runs.py PROGRAM [--cluster h200] [--steps 8] [--only llama]      PROGRAM is a build with CUDA

The simulator's constants are the cluster's; nothing is fitted here.
"""
import argparse
import array
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile

GPT2 = {"124M": (12, 768, 12, 32), "774M": (36, 1280, 20, 16), "1558M": (48, 1600, 25, 8)}
SAVINGS = {"plain": [], "remat": ["--memory.remat=full"], "selective": ["--memory.remat=selective"],
           "offload activations": ["--memory.offload=activations"], "offload optimizer": ["--memory.offload=optimizer"]}


def tokens(folder, vocab):
    path = os.path.join(folder, f"{vocab}.bin")
    generator = random.Random(1)
    with open(path, "wb") as out:
        array.array("H", (generator.randrange(vocab) for _ in range(300_000))).tofile(out)
    return ["--data.text=[]", f"--data.tokens={path}", "--data.holdout=0.0"]


def runs(folder):
    gpt2, llama = tokens(folder, 50257), tokens(folder, 50304)
    for name, (layers, width, heads, batch) in GPT2.items():
        keys = ["quickstart", "--model.family=gpt2", f"--model.layers={layers}", f"--model.width={width}", f"--model.heads={heads}",
                "--model.vocab=50257", "--model.context=1024", f"--train.batch={batch}", *gpt2]
        for saving, more in SAVINGS.items():
            yield f"gpt2 {name}, {saving}", keys + more
    for context, batch in ((2048, 8), (8192, 2)):
        keys = ["quickstart", "--model.family=llama", "--model.layers=16", "--model.width=2048", "--model.heads=16", "--model.kv_heads=8",
                "--model.ffn=8192", "--model.vocab=50304", f"--model.context={context}", f"--train.batch={batch}", *llama]
        for saving, more in SAVINGS.items():
            yield f"llama 1.2B context {context}, {saving}", keys + more
    yield "resnet50, plain", ["resnet18", "--model.layers=50", "--model.width=64", "--model.image=224", "--model.classes=1000",
                              "--train.clip=0", "--train.batch=256", "--data.images=synthetic"]


def last_object(command):
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        return None, (result.stderr.strip().splitlines() or ["failed"])[-1]
    return json.loads(result.stdout.strip().splitlines()[-1]), None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--cluster", default="h200")
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--only", default="", help="rows whose name has this in it")
    a = parser.parse_args()
    errors = []
    print(f"{'predicted':>12}{'measured':>12}{'error':>9}  run")
    with tempfile.TemporaryDirectory() as folder:
        for name, keys in runs(folder):
            if a.only not in name:
                continue
            keys = [*keys, "--train.precision=bf16", "--train.micro_batch=0", "--parallel.mesh=dp=1"]
            simulated, why = last_object([a.program, "simulate", keys[0], "--cluster", a.cluster, "--json", *keys[1:]])
            measured, refused = last_object([a.program, "bench", "step", keys[0], f"--steps={a.steps}", "--json", *keys[1:]])
            if why or refused:
                print(f"{'':>33}  {name}: {why or refused}", flush=True)
                continue
            predicted, took = simulated["step_ms"], measured["step_ms"]
            errors.append(abs(predicted / took - 1))
            print(f"{predicted:>9.2f} ms{took:>9.2f} ms{100 * (predicted / took - 1):>+8.1f}%  {name}", flush=True)
    if errors:
        within = sum(e <= 0.1 for e in errors)
        print(f"\n{100 * statistics.median(errors):.1f}% in the median, {100 * max(errors):.1f}% at most; {within} of {len(errors)} within 10%")


if __name__ == "__main__":
    sys.exit(main())

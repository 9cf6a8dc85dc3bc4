#!/usr/bin/env python3
"""Training steps on one GPU: Trireme beside PyTorch, eager and compiled, taking turns. Needs PyTorch with CUDA.

    bench/compare_gpu.py PROGRAM [--size 124M] [--batch 32] [--rounds 2] [--no-eager] [--limit 29.8GiB]
                         [--precision bf16] [--context 1024]
    bench/compare_gpu.py PROGRAM --size resnet50 [--batch 256]

Each side is a process of its own per round; medians over rounds of the medians over steps. --limit is Trireme's
memory.limit, with memory.remat = "optimal": what costs least time to compute again is not kept.
"""
import argparse
import array
import json
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile

GPT2 = {"124M": (12, 768, 12), "355M": (24, 1024, 16), "774M": (36, 1280, 20), "1558M": (48, 1600, 25)}
VOCAB = 50257
IMAGE, CLASSES = 224, 1000
ROOT = pathlib.Path(__file__).resolve().parents[1]


def last_object(command):
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}\n{result.stderr[-2000:]}")
    return json.loads(result.stdout.strip().splitlines()[-1])


def gpt2(a, scratch):
    """What either side runs, what is counted, and how much of it a step has."""
    layers, width, heads = GPT2[a.size]
    tokens = pathlib.Path(scratch) / "tokens.bin"
    generator = random.Random(1)
    with open(tokens, "wb") as out:
        array.array("H", (generator.randrange(VOCAB) for _ in range(4 * a.batch * a.context + 1))).tofile(out)
    ours = ["--model.family=gpt2", f"--model.layers={layers}", f"--model.width={width}", f"--model.heads={heads}",
            f"--model.context={a.context}", f"--model.vocab={VOCAB}", "--data.text=[]", f"--data.tokens={tokens}",
            "--data.holdout=0.0"]
    theirs = ["gpt2_step.py", f"--layers={layers}", f"--width={width}", f"--heads={heads}", f"--context={a.context}",
              f"--vocab={VOCAB}"]
    return ours, theirs, f"GPT-2 {a.size}, context {a.context}", "tokens", a.batch * a.context


def resnet50(a, _):
    ours = ["resnet18", "--model.layers=50", "--model.width=64", f"--model.image={IMAGE}", f"--model.classes={CLASSES}",
            "--train.clip=0"]
    theirs = ["resnet_step.py", f"--image={IMAGE}", f"--classes={CLASSES}"]
    return ours, theirs, f"ResNet-50, {IMAGE}×{IMAGE}, channels last", "images", a.batch


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("program")
    p.add_argument("--size", choices=[*GPT2, "resnet50"], default="124M")
    p.add_argument("--batch", type=int, default=0, help="0: 32, or 256 images")
    p.add_argument("--steps", type=int, default=20)
    p.add_argument("--rounds", type=int, default=2)
    p.add_argument("--precision", choices=["bf16", "tf32", "f32"], default="bf16")
    p.add_argument("--context", type=int, default=1024, help="of a text model")
    p.add_argument("--no-eager", action="store_true")
    p.add_argument("--limit", help="bytes that Trireme may use on the GPU, such as 29.8GiB")
    a = p.parse_args()
    images = a.size == "resnet50"
    a.batch = a.batch or (256 if images else 32)

    with tempfile.TemporaryDirectory() as scratch:
        ours, theirs, title, unit, count = (resnet50 if images else gpt2)(a, scratch)
        ours = [a.program, "bench", "step", "--json", f"--steps={a.steps}", "--warmup=5", *ours,
                f"--train.batch={a.batch}", "--train.micro_batch=0", f"--train.precision={a.precision}",
                "--parallel.mesh=dp=1", "--runtime.device=cuda"]
        if a.limit:
            ours += ["--memory.remat=optimal", f"--memory.limit={a.limit}"]
        theirs = [sys.executable, str(ROOT / "bench/peers" / theirs[0]), *theirs[1:], f"--batch={a.batch}",
                  f"--steps={a.steps}", "--warmup=5", "--device=cuda"]
        if a.precision != "f32":
            theirs.append(f"--{a.precision}")
        sides = {"trireme": ours, "PyTorch compiled": theirs + ["--compile"]}
        if not a.no_eager:
            sides["PyTorch eager"] = theirs
        results = {name: [] for name in sides}
        for _ in range(a.rounds):
            for name, command in sides.items():
                results[name].append(last_object(command))

    print(f"{title}, batch {a.batch}, {a.precision}, median of {a.rounds} rounds of {a.steps} steps" +
          (f"; trireme with memory.remat=optimal memory.limit={a.limit}" if a.limit else ""))
    theirs_peak = results["PyTorch compiled"][-1]["device_peak_bytes"]
    base = statistics.median(r["step_ms"] for r in results["PyTorch compiled"])
    for name, runs in results.items():
        ms = statistics.median(r["step_ms"] for r in runs)
        peak = runs[-1].get("peak_bytes") or runs[-1]["device_peak_bytes"]
        print(f"{name:17} {ms:8.2f} ms  {count / ms * 1e3:10,.0f} {unit}/s  {base / ms:5.2f}x  "
              f"peak {peak / 2**30:5.2f} GiB  {peak / theirs_peak:4.2f}x")


if __name__ == "__main__":
    main()

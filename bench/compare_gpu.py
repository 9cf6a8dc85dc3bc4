#!/usr/bin/env python3
"""GPT-2 training steps on one GPU: Trireme beside PyTorch, eager and compiled, taking turns. Needs PyTorch with CUDA.

    bench/compare_gpu.py PROGRAM [--size 124M] [--batch 32] [--rounds 2] [--no-eager] [--limit 29.8GiB]

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

SIZES = {"124M": (12, 768, 12), "355M": (24, 1024, 16), "774M": (36, 1280, 20), "1558M": (48, 1600, 25)}
VOCAB, CONTEXT = 50257, 1024
ROOT = pathlib.Path(__file__).resolve().parents[1]


def last_object(command):
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}\n{result.stderr[-2000:]}")
    return json.loads(result.stdout.strip().splitlines()[-1])


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("program")
    p.add_argument("--size", choices=SIZES, default="124M")
    p.add_argument("--batch", type=int, default=32)
    p.add_argument("--steps", type=int, default=20)
    p.add_argument("--rounds", type=int, default=2)
    p.add_argument("--no-eager", action="store_true")
    p.add_argument("--limit", help="bytes that Trireme may use on the GPU, such as 29.8GiB")
    a = p.parse_args()
    layers, width, heads = SIZES[a.size]

    with tempfile.TemporaryDirectory() as scratch:
        tokens = pathlib.Path(scratch) / "tokens.bin"
        generator = random.Random(1)
        with open(tokens, "wb") as out:
            array.array("H", (generator.randrange(VOCAB) for _ in range(4 * a.batch * CONTEXT + 1))).tofile(out)
        ours = [a.program, "bench", "step", "--json", f"--steps={a.steps}", "--warmup=5", "--model.family=gpt2",
                f"--model.layers={layers}", f"--model.width={width}", f"--model.heads={heads}",
                f"--model.context={CONTEXT}", f"--model.vocab={VOCAB}", "--data.text=[]", f"--data.tokens={tokens}",
                "--data.holdout=0.0", f"--train.batch={a.batch}", "--train.micro_batch=0", "--train.precision=bf16",
                "--parallel.mesh=dp=1", "--runtime.device=cuda"]
        if a.limit:
            ours += ["--memory.remat=optimal", f"--memory.limit={a.limit}"]
        theirs = [sys.executable, str(ROOT / "bench/peers/gpt2_step.py"), f"--layers={layers}", f"--width={width}",
                  f"--heads={heads}", f"--context={CONTEXT}", f"--batch={a.batch}", f"--vocab={VOCAB}",
                  f"--steps={a.steps}", "--warmup=5", "--bf16", "--device=cuda"]
        sides = {"trireme": ours, "PyTorch compiled": theirs + ["--compile"]}
        if not a.no_eager:
            sides["PyTorch eager"] = theirs
        results = {name: [] for name in sides}
        for _ in range(a.rounds):
            for name, command in sides.items():
                results[name].append(last_object(command))

    print(f"GPT-2 {a.size}, batch {a.batch}, context {CONTEXT}, bf16, median of {a.rounds} rounds of {a.steps} steps" +
          (f"; trireme with memory.remat=optimal memory.limit={a.limit}" if a.limit else ""))
    theirs_peak = results["PyTorch compiled"][-1]["device_peak_bytes"]
    base = statistics.median(r["step_ms"] for r in results["PyTorch compiled"])
    for name, runs in results.items():
        ms = statistics.median(r["step_ms"] for r in runs)
        peak = runs[-1].get("peak_bytes") or runs[-1]["device_peak_bytes"]
        print(f"{name:17} {ms:8.2f} ms  {a.batch * CONTEXT / ms * 1e3:10,.0f} tokens/s  {base / ms:5.2f}x  "
              f"peak {peak / 2**30:5.2f} GiB  {peak / theirs_peak:4.2f}x")


if __name__ == "__main__":
    main()

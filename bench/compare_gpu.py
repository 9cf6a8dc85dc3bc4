#!/usr/bin/env python3
"""Training steps on one GPU: Trireme and PyTorch, eager and compiled, taking turns. Needs PyTorch with CUDA.

    bench/compare_gpu.py PROGRAM [--size 124M] [--batch 32] [--rounds 2] [--no-eager] [--autotune] [--limit 29.8GiB]
                         [--memory 0.8]
                         [--precision bf16] [--context 1024]
    bench/compare_gpu.py PROGRAM --size llama-1.2B [--context 2048] [--batch 8]
    bench/compare_gpu.py PROGRAM --size llama-8B --batch 32 --micro-batch 2 --offload --checkpoint --limit 125GiB
    bench/compare_gpu.py PROGRAM --size resnet50 [--batch 256]

Each side is a process of its own per round; medians over rounds of the medians over steps, and ratios to the fastest
of the peer's. The peak is what either side has allocated, the driver's figure all that the GPU has given away, libraries
included. Of ResNet-50 PyTorch compiled runs twice, with the next images copied while a step computes, as Trireme does it,
and without. --limit is Trireme's memory.limit, with memory.remat = "optimal": what costs least time to recompute
is not kept. --memory sets that limit so that the driver's figure is at most so much of PyTorch's, which runs first.
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
LLAMA = {"llama-1.2B": (16, 2048, 16, 8, 8192, 50304), "llama-8B": (32, 4096, 32, 8, 14336, 128256)}
GPT2_VOCAB = 50257
IMAGE, CLASSES = 224, 1000
ROOT = pathlib.Path(__file__).resolve().parents[1]
OUTSIDE = 640 << 20  # bytes of the GPU that Trireme's driver and libraries take, somewhat more than `trireme memory` says


def last_object(command):
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}\n{result.stderr[-2000:]}")
    return json.loads(result.stdout.strip().splitlines()[-1])


def random_tokens(a, scratch, vocab):
    path = pathlib.Path(scratch) / "tokens.bin"
    generator = random.Random(1)
    with open(path, "wb") as out:
        array.array("I", (generator.randrange(vocab) for _ in range(4 * a.batch * a.context + 1))).tofile(out)
    return path


def text_model(a, scratch, family, sizes):
    """What either side runs, what is counted, and how much of it a step has."""
    sizes = sizes | {"context": a.context}
    tokens = random_tokens(a, scratch, sizes["vocab"])
    ours = [f"--model.family={family}", *(f"--model.{key}={value}" for key, value in sizes.items()), "--data.text=[]",
            f"--data.tokens={tokens}", "--data.token_type=uint32", "--data.holdout=0.0"]
    theirs = [f"{family}_step.py", *(f"--{key.replace('_', '-')}={value}" for key, value in sizes.items())]
    return ours, theirs, f"{a.size}, context {a.context}", "tokens", a.batch * a.context


def gpt2(a, scratch):
    sizes = dict(zip(("layers", "width", "heads"), GPT2[a.size])) | {"vocab": GPT2_VOCAB}
    return text_model(a, scratch, "gpt2", sizes)


def llama(a, scratch):
    keys = ("layers", "width", "heads", "kv_heads", "ffn", "vocab")
    return text_model(a, scratch, "llama", dict(zip(keys, LLAMA[a.size])))


def resnet50(a, _):
    ours = ["resnet18", "--model.layers=50", "--model.width=64", f"--model.image={IMAGE}", f"--model.classes={CLASSES}",
            "--train.clip=0"]
    theirs = ["resnet_step.py", f"--image={IMAGE}", f"--classes={CLASSES}"]
    return ours, theirs, f"ResNet-50, {IMAGE}×{IMAGE}, channels last", "images", a.batch


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("program")
    p.add_argument("--size", choices=[*GPT2, *LLAMA, "resnet50"], default="124M")
    p.add_argument("--batch", type=int, default=0, help="0: 32, 256 images, or 16384 tokens of a llama")
    p.add_argument("--steps", type=int, default=20)
    p.add_argument("--warmup", type=int, default=5)
    p.add_argument("--rounds", type=int, default=2)
    p.add_argument("--precision", choices=["bf16", "tf32", "f32", "fp8"], default="bf16",
                   help="fp8: Trireme's; PyTorch runs in bf16")
    p.add_argument("--context", type=int, default=0, help="of a text model; 0: 1024, or 2048 of a llama")
    p.add_argument("--no-eager", action="store_true")
    p.add_argument("--autotune", action="store_true", help="PyTorch compiled with max-autotune too")
    p.add_argument("--limit", help="bytes that Trireme may use on the GPU, such as 29.8GiB")
    p.add_argument("--micro-batch", type=int, default=0, help="rows at a time on both sides; 0: all")
    p.add_argument("--offload", action="store_true", help="Trireme's optimizer states on the host, as --limit asks")
    p.add_argument("--checkpoint", action="store_true", help="PyTorch recomputes each block")
    p.add_argument("--memory", type=float, help="bytes that Trireme may use, as a share of the fastest PyTorch's")
    a = p.parse_args()
    if a.limit and a.memory:
        sys.exit("--limit and --memory say the same: give one of them")
    a.context = a.context or (2048 if a.size in LLAMA else 1024)
    a.batch = a.batch or (256 if a.size == "resnet50" else max(1, 16384 // a.context) if a.size in LLAMA else 32)
    make = resnet50 if a.size == "resnet50" else llama if a.size in LLAMA else gpt2

    with tempfile.TemporaryDirectory() as scratch:
        ours, theirs, title, unit, count = make(a, scratch)
        ours = [a.program, "bench", "step", "--json", f"--steps={a.steps}", f"--warmup={a.warmup}", *ours,
                f"--train.batch={a.batch}", f"--train.micro_batch={a.micro_batch}", f"--train.precision={a.precision}",
                "--parallel.mesh=dp=1", "--runtime.device=cuda"]
        if a.offload:
            ours.append("--memory.offload=optimizer")
        if a.limit:
            ours += ["--memory.remat=optimal", f"--memory.limit={a.limit}"]
        theirs = [sys.executable, str(ROOT / "bench/peers" / theirs[0]), *theirs[1:], f"--batch={a.batch}",
                  f"--steps={a.steps}", f"--warmup={a.warmup}", "--device=cuda"]
        if a.micro_batch:
            theirs.append(f"--micro-batch={a.micro_batch}")
        if a.checkpoint:
            theirs.append("--checkpoint")
        if a.precision != "f32":
            theirs.append("--bf16" if a.precision == "fp8" else f"--{a.precision}")
        sides = {"trireme": ours, "PyTorch compiled": theirs + ["--compile"]}
        if a.size == "resnet50":
            sides["PyTorch ahead"] = theirs + ["--compile", "--ahead"]
        if a.autotune:
            sides["PyTorch autotuned"] = theirs + ["--compile=max-autotune"]
        if not a.no_eager:
            sides["PyTorch eager"] = theirs
        results = {name: [] for name in sides}
        if a.memory:  # PyTorch first
            sides["trireme"] = sides.pop("trireme")
        for _ in range(a.rounds):
            for name, command in sides.items():
                if name == "trireme" and a.memory and not a.limit:
                    fastest = min((r[0] for r in results.values() if r), key=lambda r: r["step_ms"])
                    a.limit = f"{(a.memory * fastest['driver_bytes'] - OUTSIDE) / 2**30:.2f}GiB"
                    command += ["--memory.remat=optimal", f"--memory.limit={a.limit}"]
                results[name].append(last_object(command))

    print(f"{title}, batch {a.batch}, {a.precision}, median of {a.rounds} rounds of {a.steps} steps" +
          (f"; trireme with memory.remat=optimal memory.limit={a.limit}" if a.limit else ""))
    peers = [name for name in results if name != "trireme"]
    strongest = min(peers, key=lambda name: statistics.median(r["step_ms"] for r in results[name]))
    theirs_peak = results[strongest][-1]["device_peak_bytes"]
    theirs_taken = results[strongest][-1]["driver_bytes"]
    base = statistics.median(r["step_ms"] for r in results[strongest])
    for name, runs in results.items():
        ms = statistics.median(r["step_ms"] for r in runs)
        peak = runs[-1].get("peak_bytes") or runs[-1]["device_peak_bytes"]
        taken = runs[-1].get("measured_peak_bytes") or runs[-1]["driver_bytes"]
        predicted = runs[-1].get("predicted_gpu_bytes")
        each = " ".join(f"{r['step_ms']:.2f}" for r in runs)
        print(f"{name:17} {ms:8.2f} ms  {count / ms * 1e3:10,.0f} {unit}/s  {base / ms:5.2f}x  "
              f"peak {peak / 2**30:5.2f} GiB  {peak / theirs_peak:4.2f}x  "
              f"driver {taken / 2**30:5.2f} GiB  {taken / theirs_taken:4.2f}x  "
              f"{f'(at most {predicted / 2**30:.2f} GiB predicted)  ' if predicted else ''}({each})")


if __name__ == "__main__":
    main()

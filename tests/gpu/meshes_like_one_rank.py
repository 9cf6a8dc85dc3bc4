#!/usr/bin/env python3
"""Twenty steps on a GPU by several ranks that share it, against one rank: tensors sharded, stages of a pipeline, slices of
images. What changes the mathematics (asynchronous pipelines, compressed gradients) against the same on the CPU. Needs a
GPU; standard library only.

    tests/gpu/meshes_like_one_rank.py PROGRAM [--launch "mpirun -n {ranks}"] [--at-once N] [--only TEXT] [MODEL…]

With --launch every rank is a process of its own; --only takes the meshes whose line has that text.
"""
import argparse
import concurrent.futures
import json
import math
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile

DOCS = pathlib.Path(__file__).resolve().parents[2] / "docs"
TEXT = ["quickstart", "--model.context=128", "--model.layers=4", "--model.width=192", "--model.heads=12", "--model.ffn=501",
        "--train.batch=8", f"--data.text=[\"{DOCS}\"]"]
COMMON = ["--train.steps=20", "--train.eps=1e-4", "--output.checkpoint_every=0"]
MODELS = {
    "gpt2": TEXT + ["--model.family=gpt2", "--model.dropout=0.1"],
    "llama": TEXT + ["--model.family=llama", "--model.kv_heads=2"],
    "convnet": ["convnet", "--train.batch=8"],
    "odd": ["convnet", "--model.image=21", "--train.batch=24", "--train.eps=1e-4"],
    # (The rate is that of train_like_cpu.py, for its reason.)
    "resnet": ["resnet18", "--model.width=16", "--model.image=64", "--train.lr=0.0003", "--train.batch=16"],
}
# 501 features are padded for each of these; with tp=4 two ranks have the same key heads.
SHARDED = ["mesh=tp=2", "mesh=tp=4", "mesh=tp=2 sequence=true", "mesh=tp=2 sequence=true async_tp=true",
           "mesh=tp=2 memory.activations=sharded", "mesh=dp=2,tp=2 zero=3",
           "mesh=dp=2,tp=2 sequence=true zero=1 memory.remat=full"]
THIRDS = ["mesh=tp=3", "mesh=dp=2,tp=3 zero=2"]
CHANNELS = ["mesh=tp=2", "mesh=tp=3", "mesh=dp=2,tp=2 zero=3", "mesh=h=2,tp=2"]
# Of channels, batches and edges for which cuDNN has other kernels.
ODD_SLICES = ["mesh=w=2", "mesh=h=2", "mesh=tp=2,w=2", "mesh=tp=2,h=2 memory.remat=sqrt", "mesh=h=2,w=3", "mesh=dp=2,tp=2,w=2 zero=3"]
STAGES = ["mesh=pp=2 pipeline=sequential", "mesh=pp=2 pipeline=gpipe train.micro_batch=2", "mesh=pp=2 train.micro_batch=1",
          "mesh=pp=4 pipeline=zero-bubble train.micro_batch=1", "mesh=pp=2 pipeline=interleaved:2 train.micro_batch=2",
          "mesh=pp=2,dp=2 zero=2 train.micro_batch=1", "mesh=pp=2,tp=2 train.micro_batch=2 memory.remat=full",
          "mesh=pp=2,dp=2,tp=2 sequence=true zero=1 train.micro_batch=2"]
SLICES = ["mesh=h=2", "mesh=h=3", "mesh=w=2", "mesh=h=2,w=2", "mesh=dp=2,h=2 zero=1", "mesh=pp=2,h=2 train.micro_batch=4"]
MESHES = {"gpt2": SHARDED + THIRDS + STAGES, "llama": SHARDED + STAGES, "convnet": SLICES + CHANNELS, "odd": ODD_SLICES, "resnet": SLICES + CHANNELS}
OTHER_MATHEMATICS = ["mesh=pp=2 pipeline=pipedream train.micro_batch=2", "mesh=pp=2 pipeline=pipedream-2bw train.micro_batch=2",
                     "mesh=dp=2 compress=bf16", "mesh=dp=2,tp=2 compress=int8"]
TOLERANCE = {"f32": 2e-5, "bf16": 2e-2}
# Rounding to few bits turns the least difference of two devices into a step of its own.
ROUNDED = 1e-3


def options_of(text):
    return [f"--{'' if '.' in word.split('=')[0] else 'parallel.'}{word}" for word in text.split()]


def ranks_of(text):
    return math.prod(map(int, re.findall(r"\d+", re.search(r"mesh=(\S+)", text)[1])))


def losses(program, folder, arguments, launch=()):
    subprocess.run([*launch, program, "train", *arguments, *COMMON, f"--output.dir={folder}"], check=True,
                   stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, timeout=240)
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [line["loss"] for line in lines if "loss" in line]


def reason(error):
    """The first line that says what went wrong: of several processes each says something."""
    lines = (error.stderr or str(error)).strip().splitlines() if hasattr(error, "stderr") else [str(error)]
    return next((line for line in lines if "error" in line), lines[-1] if lines else "")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("models", nargs="*")
    parser.add_argument("--launch", default="")
    parser.add_argument("--at-once", type=int, default=4)
    parser.add_argument("--only", default="")
    options = parser.parse_intermixed_args()
    program = str(pathlib.Path(options.program).resolve())
    cases = []  # what, the reference's arguments, the other's, tolerance
    for name in options.models or MODELS:
        for precision, tolerance in TOLERANCE.items():
            model = MODELS[name] + [f"--train.precision={precision}"]
            for mesh in MESHES[name]:
                # Batch norms take their statistics of a micro-batch.
                images = name in ("convnet", "resnet")
                rows = [o for o in options_of(mesh) if o.startswith("--train.micro_batch")] if images else []
                cases.append((f"{name:7} {precision:4} {mesh}",
                              model + rows + ["--runtime.device=cuda", "--parallel.mesh=dp=1"],
                              model + ["--runtime.device=cuda"] + options_of(mesh), tolerance))
        if name == "llama":
            for mesh in OTHER_MATHEMATICS:
                model = MODELS[name] + options_of(mesh)
                cases.append((f"{name:7} f32  {mesh}, CPU and GPU", model + ["--runtime.device=cpu"],
                              model + ["--runtime.device=cuda"], ROUNDED if "compress" in mesh else TOLERANCE["f32"]))
    cases = [case for case in cases if options.only in case[0]]
    bad = 0
    with tempfile.TemporaryDirectory() as scratch, concurrent.futures.ThreadPoolExecutor(options.at_once) as pool:
        references = {}
        for _, reference, _, _ in cases:
            if str(reference) not in references:
                folder = pathlib.Path(scratch) / f"reference-{len(references)}"
                references[str(reference)] = pool.submit(losses, program, folder, reference)
        runs = []
        for number, (what, _, arguments, _) in enumerate(cases):
            launch = shlex.split(options.launch.format(ranks=ranks_of(what)))
            runs.append(pool.submit(losses, program, pathlib.Path(scratch) / str(number), arguments, launch))
        for (what, reference, _, tolerance), run in zip(cases, runs):
            try:
                one, many = references[str(reference)].result(), run.result()
            except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as e:
                print(f"{what:80} FAILED: {reason(e)}", flush=True)
                bad += 1
                continue
            apart = [abs(a - b) / abs(a) for a, b in zip(one, many)] if len(one) == len(many) == 20 else [1]
            good = all(a <= tolerance for a in apart)  # not a number is not good
            apart = max(apart)
            bad += not good
            print(f"{what:80} apart by {apart:.1e}{'' if good else '  FAILED'}", flush=True)
    print(f"{len(cases)} meshes, {bad} of them wrong")
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()

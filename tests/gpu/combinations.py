#!/usr/bin/env python3
"""Several ranks on one GPU, alone and with everything else that saves memory, against one plain rank: the same losses and
gradient norms (f32 1e-5, bf16 1e-2), and the same bits when repeated. Needs a GPU; standard library only.

    tests/gpu/combinations.py PROGRAM [--random N] [--seed N] [--no-fixed] [--launch "mpirun -n {ranks}"] [--at-once N]

With --launch every rank is a process of its own; otherwise they are threads of one.
"""
import argparse
import concurrent.futures
import json
import math
import pathlib
import random
import re
import shlex
import subprocess
import sys
import tempfile

DOCS = pathlib.Path(__file__).resolve().parents[2] / "docs"
TEXT = ["quickstart", "--model.context=64", f"--data.text=[\"{DOCS}\"]", "--model.width=192"]
# At the quickstart's rate the last of eight steps make a twentieth of a difference that 16 bits began, on a CPU too.
SLOW = ["--train.lr=0.0003", "--train.min_lr=0"]
MODELS = {
    "gpt2": [*TEXT, "--model.family=gpt2", "--model.layers=4", "--model.heads=3", "--model.dropout=0.1"],
    "wide": [*TEXT, "--model.family=gpt2", "--model.layers=2", "--model.heads=8", "--model.width=512"],
    "llama": [*TEXT, "--model.family=llama", "--model.layers=4", "--model.heads=6", "--model.kv_heads=2"],
    # Weights in shards are gathered where they are ranked as a whole.
    "pruned": [*TEXT, "--model.family=gpt2", "--model.layers=4", "--model.heads=4", "--prune.method=magnitude", "--prune.sparsity=0.8", "--prune.begin=1",
               "--prune.end=5", "--prune.every=2"],
    "convnet": ["convnet", "--model.image=21"],
    # Attention's gradient by the kernel whose blocks of threads wait for each other: several ranks must not stop it.
    "bf16": ["quickstart", "--model.context=512", f"--data.text=[\"{DOCS}\"]", "--model.width=512", "--model.family=gpt2",
             "--model.layers=3", "--model.heads=8", "--train.precision=bf16", *SLOW],
}
TOLERANCE = {"bf16": 1e-2, "convnet": 2e-5}
COMMON = ["--train.steps=8", "--train.batch=24", "--train.eps=1e-4", "--output.checkpoint_every=0",
          "--runtime.device=cuda"]
MESHES = ["dp=2", "dp=3", "dp=4", "tp=2", "dp=2,tp=2", "pp=2", "pp=2,dp=2", "pp=2,tp=2"]
SLICES = ["h=2", "w=2", "h=3", "h=2,w=2", "dp=2,h=2", "tp=2,w=2", "pp=2,h=2", "dp=2,tp=2"]
PIPELINE = ["1f1b", "gpipe", "sequential", "zero-bubble"]
ZERO = ["0", "1", "2", "3"]
REMAT = ["none", "selective", "every:1", "sqrt", "optimal"]
OFFLOAD = ["none", "activations", "optimizer", "activations,optimizer"]
TIER = ["host", "host", "disk"]
MICRO = ["0", "2"]
BUCKET = ["25MiB", "256KiB"]
UPDATE = ["device", "host"]
FIXED = [("gpt2", dict(mesh=m, zero=z)) for m in ("dp=2", "dp=4") for z in ZERO] + [("llama", dict(mesh="dp=3", zero="3"))]
FIXED += [("wide", dict(mesh="dp=2", zero=z, offload="optimizer", update="host")) for z in ZERO]
FIXED += [("bf16", dict(mesh=m, zero="0")) for m in ("dp=2", "dp=3", "dp=4")]
FIXED += [("pruned", dict(mesh="dp=2", zero=z)) for z in ("0", "3")] + [("pruned", dict(mesh=m, zero="1")) for m in ("tp=2", "pp=2", "dp=2,tp=2")]


def run(program, folder, arguments, launch=()):
    subprocess.run([*launch, program, "train", *arguments, f"--output.dir={folder}"], check=True, capture_output=True, text=True,
                   timeout=120)
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [(line["loss"], line["grad_norm"]) for line in lines if "grad_norm" in line]


def settings(c):
    keys = dict(mesh="parallel.mesh", pipeline="parallel.pipeline", zero="parallel.zero", bucket="parallel.bucket", remat="memory.remat",
                offload="memory.offload", tier="memory.offload_tier", micro="train.micro_batch",
                update="memory.offload_update", sequence="parallel.sequence")
    given = [f"--{keys[k]}={v}" for k, v in c.items() if k in keys]
    return given + ["--memory.offload_policy=all"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--random", type=int, default=12)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--no-fixed", action="store_true")
    parser.add_argument("--launch", default="")
    parser.add_argument("--at-once", type=int, default=4)
    options = parser.parse_args()
    program = str(pathlib.Path(options.program).resolve())
    rng = random.Random(options.seed)
    cases = [] if options.no_fixed else list(FIXED)
    for _ in range(options.random):
        cases.append((rng.choice([m for m in MODELS if m != "pruned"]), dict(
            mesh=rng.choice(MESHES), pipeline=rng.choice(PIPELINE), zero=rng.choice(ZERO), remat=rng.choice(REMAT), offload=rng.choice(OFFLOAD),
            tier=rng.choice(TIER), micro=rng.choice(MICRO), bucket=rng.choice(BUCKET), update=rng.choice(UPDATE))))
        c = cases[-1][1]
        if "tp" in c["mesh"] and cases[-1][0] == "gpt2":  # three heads
            cases[-1] = ("wide", c)
        model = cases[-1][0]
        if model == "convnet":
            c.update(mesh=rng.choice(SLICES), micro="0")  # batch norms take their statistics of a micro-batch
        elif "tp" in c["mesh"]:
            c["sequence"] = rng.choice(["false", "true"])
        if "pp" not in c["mesh"]:
            del c["pipeline"]
        if "optimizer" not in c["offload"] or c["tier"] == "disk":  # nothing that the host could update
            del c["update"]
    bad = 0
    with tempfile.TemporaryDirectory() as scratch, concurrent.futures.ThreadPoolExecutor(options.at_once) as pool:
        def start(name, arguments, launch=()):
            return pool.submit(run, program, pathlib.Path(scratch) / name, arguments, launch)

        plain = {model: start(model, [*MODELS[model], *COMMON, "--parallel.mesh=dp=1"]) for model in sorted({m for m, _ in cases})}
        runs = []
        for number, (model, c) in enumerate(cases):
            arguments = [*MODELS[model], *COMMON, *settings(c)]
            launch = shlex.split(options.launch.format(ranks=math.prod(map(int, re.findall(r"\d+", c["mesh"])))))
            runs.append([start(f"{number}-{name}", arguments, launch) for name in ("once", "again")])
        for (model, c), (once, again) in zip(cases, runs):
            text = f"{model:6} " + " ".join(f"{k}={v}" for k, v in c.items())
            try:
                one, got, repeated = plain[model].result(), once.result(), again.result()
            except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as e:
                lines = (e.stderr or "").strip().splitlines() if isinstance(e, subprocess.CalledProcessError) else [str(e)]
                reason = next((line for line in lines if "error" in line), lines[-1:])
                print(f"{text}: FAILED: {reason}", flush=True)
                bad += 1
                continue
            apart = [abs(a - b) / abs(a) for x, y in zip(one, got) for a, b in zip(x, y)]
            fine = all(a <= TOLERANCE.get(model, 1e-5) for a in apart) and got == repeated and len(got) == len(one) == 8
            apart = max(apart)
            bad += not fine
            print(f"{text}: apart by {apart:.1e}{'' if got == repeated else ', DOES NOT REPEAT'}{'' if fine else '  FAILED'}",
                  flush=True)
    print(f"{len(cases)} combinations, {bad} of them wrong")
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()

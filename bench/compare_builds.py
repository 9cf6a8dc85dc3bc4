#!/usr/bin/env python3
"""Two builds of the program on one machine, in turn: is the second slower?

    bench/compare_builds.py OLD NEW                   training step, decode and 1 KiB all-reduce on the CPU
    bench/compare_builds.py OLD NEW --device cuda     training steps of GPT-2 124M and 774M on a GPU
    bench/compare_builds.py OLD NEW --within          exit 1 where NEW is slower by more than the case allows

Prints the commits of both where they lie in a checkout, the median of each side over the rounds, and the median of the rounds'
ratios: above 1, NEW is slower. Allowed are 3% of a step and of decode on a CPU, 10% of a small all-reduce, 1% of a step on a GPU.
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


def objects(command, folder):
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, cwd=folder)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}\n{done.stderr[-2000:]}")
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def cpu_cases(folder, programs):
    text = folder / "words.txt"
    draw = random.Random(1)
    text.write_text(" ".join("".join(draw.choice("etaoinshrdlu") for _ in range(5)) for _ in range(40000)))
    model = [f"--data.text={text}", "--model.layers=6", "--model.width=256", "--model.heads=4", "--model.context=128",
             "--train.batch=8", "--runtime.device=cpu"]
    objects([programs[0], "train", *model, "--parallel.mesh=dp=1", "--train.steps=2", f"--output.dir={folder}/run"],
            folder)

    def step(mesh):
        return lambda program: objects([program, "bench", "step", "--json", "--steps=20", "--warmup=3", *model,
                                        f"--parallel.mesh=dp={mesh}"], folder)[-1]["step_ms"]

    def decode(program):
        found = objects([program, "bench", "generate", "--json", "--from", f"{folder}/run", "--prompt=16",
                         "--tokens=64", "--repeats=5"], folder)[-1]
        return found["token_ms"]

    def all_reduce(algorithm):
        return lambda program: objects([program, "bench", "comm", "--json", "--ranks=2", "--sizes=1KiB",
                                        f"--algorithms={algorithm}", "--batches=200"], folder)[-1]["median_us"] / 1e3

    # By default threads take the native one.
    return {"step, one rank": (step(1), 3), "step, two ranks": (step(2), 3), "decode, one token": (decode, 3),
            "all-reduce, 1 KiB, native": (all_reduce("native"), 10), "all-reduce, 1 KiB, ring": (all_reduce("ring"), 10)}


def gpu_cases(folder, _):
    tokens = folder / "tokens.bin"
    draw = random.Random(1)
    with open(tokens, "wb") as out:
        array.array("H", (draw.randrange(50257) for _ in range(4 * 32 * 1024 + 1))).tofile(out)

    def step(layers, width, heads, batch):
        return lambda program: objects(
            [program, "bench", "step", "--json", "--steps=20", "--warmup=5", "--model.family=gpt2",
             f"--model.layers={layers}", f"--model.width={width}", f"--model.heads={heads}", "--model.context=1024",
             "--model.vocab=50257", "--data.text=[]", f"--data.tokens={tokens}", "--data.holdout=0.0",
             f"--train.batch={batch}", "--train.micro_batch=0", "--train.precision=bf16", "--parallel.mesh=dp=1",
             "--runtime.device=cuda"], folder)[-1]["step_ms"]

    return {"GPT-2 124M, batch 32": (step(12, 768, 12, 32), 1), "GPT-2 774M, batch 16": (step(36, 1280, 20, 16), 1)}


def commit_of(program):
    found = subprocess.run(["git", "-c", "safe.directory=*", "-C", str(program.parent), "log", "-1", "--format=%h %s"],
                           capture_output=True, text=True)
    return found.stdout.strip() if found.returncode == 0 else "of no checkout"


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("old", type=pathlib.Path)
    p.add_argument("new", type=pathlib.Path)
    p.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--only", default="", help="cases whose name contains this")
    p.add_argument("--within", action="store_true", help="exit 1 where a case is slower than it may be")
    a = p.parse_args()
    programs = [a.old.resolve(), a.new.resolve()]
    for program in programs:
        if not program.is_file():
            sys.exit(f"{program} is no program")
    for side, program in zip(("old", "new"), programs):
        print(f"{side}  {program}  ({commit_of(program)})")
    beyond = []
    print(f"{'median of ' + str(a.rounds) + ' rounds':32}{'old ms':>12}{'new ms':>12}{'new / old':>11}")
    with tempfile.TemporaryDirectory(prefix="compare-") as place:
        folder = pathlib.Path(place)
        cases = (cpu_cases if a.device == "cpu" else gpu_cases)(folder, programs)
        for name, (time, percent) in cases.items():
            if a.only not in name:
                continue
            sides = ([], [])
            for round_number in range(a.rounds):
                for side in ((0, 1), (1, 0))[round_number % 2]:
                    sides[side].append(time(programs[side]))
            ratio = statistics.median(new / old for old, new in zip(*sides))
            old, new = (statistics.median(side) for side in sides)
            print(f"{name:32}{old:12.4f}{new:12.4f}{ratio:11.3f}", flush=True)
            if ratio > 1 + percent / 100:
                beyond.append(f"{name}: {100 * (ratio - 1):.1f}% slower, and {percent}% are allowed")
    if a.within and beyond:
        sys.exit("\n".join(beyond))


main()

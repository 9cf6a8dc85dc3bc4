#!/usr/bin/env python3
"""A GPT of 96 layers and width 12288 (175 billion parameters) over more and more ranks: how long it takes to compile, check
and plan a step, and how much memory that needs. Nothing is trained and no rank is needed. CPU seconds are those of all
threads: on a machine that does other things too, they say more than the clock.

    bench/scale_on_paper.py [--check] [PROGRAM]        default: ./trireme

--check: exit 1 where 1024 ranks take 30 s or 4 GiB, or 16,384 ranks 60 s.
"""
import os
import re
import subprocess
import sys
import tempfile
import time

MODEL = ["--model.family=gpt2", "--model.layers=96", "--model.width=12288", "--model.heads=96", "--model.context=2048",
         "--model.vocab=51200", "--train.micro_batch=1", "--train.precision=bf16", "--parallel.sequence=true"]
RUNS = [("pp=4,dp=1,tp=8", "1f1b", []), ("pp=16,dp=1,tp=8", "1f1b", []), ("pp=16,dp=8,tp=8", "1f1b", []),
        ("pp=16,dp=8,tp=8", "interleaved:2", []), ("pp=16,dp=8,tp=8", "zero-bubble", []),
        ("pp=16,dp=8,tp=8", "1f1b", ["--parallel.zero=3", "--memory.remat=full"]),
        ("pp=16,dp=128,tp=8", "1f1b", []), ("pp=32,dp=64,tp=8", "interleaved:3", [])]
MICRO_BATCHES = 64
LIMITS = {1024: (30, 4096), 16384: (60, 4096)}  # seconds, MiB; of plans that are not searched for savings


def ranks(mesh):
    sizes = dict(part.split("=") for part in mesh.split(","))
    return {axis: int(size) for axis, size in sizes.items()}


def main():
    arguments = [a for a in sys.argv[1:] if a != "--check"]
    program = os.path.abspath(arguments[0] if arguments else "./trireme")
    missed = []
    print(f"{'mesh':<20}{'pipeline':<16}{'also':<26}{'ranks':>7}{'programs':>10}{'instructions':>14}{'seconds':>9}"
          f"{'CPU seconds':>13}{'resident':>11}{'planned peak of a rank':>26}")
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, "text.txt"), "w") as text:
            text.write("".join(f"line {i} of a text that nobody reads\n" for i in range(2000)))
        for mesh, pipeline, also in RUNS:
            axes = ranks(mesh)
            total = axes["pp"] * axes["dp"] * axes["tp"]
            command = [program, "train", "--dry-run", "--data.text=text.txt", f"--parallel.mesh={mesh}",
                       f"--parallel.pipeline={pipeline}", f"--train.batch={MICRO_BATCHES * axes['dp']}", *MODEL, *also]
            begin = time.monotonic()
            child = subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            out = child.stdout.read()
            _, status, usage = os.wait4(child.pid, 0)
            seconds = time.monotonic() - begin
            if status != 0:
                sys.exit(f"{' '.join(command)}\n{out}")
            programs, instructions = re.search(r"([\d,]+) programs, ([\d,]+) instructions", out).groups()
            peak = re.search(r"predicted peak ([\d,]+) B", out).group(1)
            name = " ".join(option.split(".")[-1] for option in also)
            if total in LIMITS and not also:
                most, resident = LIMITS[total]
                if seconds >= most or usage.ru_maxrss / 1024 >= resident:
                    missed.append(f"{mesh} {pipeline}: {seconds:.1f} s of {most} s, "
                                  f"{usage.ru_maxrss / 1024:.0f} MiB of {resident} MiB")
            print(f"{mesh:<20}{pipeline:<16}{name:<26}{total:>7}{programs:>10}{instructions:>14}{seconds:>9.1f}"
                  f"{usage.ru_utime + usage.ru_stime:>13.1f}{usage.ru_maxrss / 1024:>7.0f} MiB{peak:>24} B", flush=True)
    if "--check" in sys.argv[1:] and missed:
        sys.exit("over the limit:\n" + "\n".join(missed))


if __name__ == "__main__":
    main()

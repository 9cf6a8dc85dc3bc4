#!/usr/bin/env python3
"""How long the planner takes, and how much memory: a GPT of 39 billion parameters on 64 devices, and one of 175 billion on 1024.
The winner's own compilation is not counted. Then the time that simulating one step of 1024 ranks takes. No device is needed.

    bench/plan_on_paper.py [PROGRAM]        default: ./trireme
"""
import json
import os
import subprocess
import sys
import tempfile
import time

GPT = ["--model.family=gpt2", "--model.context=2048", "--model.vocab=51200", "--train.precision=bf16"]
SIZES = {"39B": ["--model.layers=48", "--model.width=8192", "--model.heads=64", "--train.batch=1536"],
         "175B": ["--model.layers=96", "--model.width=12288", "--model.heads=96", "--train.batch=1536"]}
SEARCHES = [("39B", "a100", 64, 10), ("175B", "a100", 1024, 60)]


def config(folder, size):
    """Keys of a file are where the search starts; those of a command line would be kept."""
    path = os.path.join(folder, size + ".toml")
    section = None
    with open(path, "w") as out:
        for setting in sorted(GPT + SIZES[size]):
            name, value = setting[2:].split("=")
            head, key = name.split(".")
            if head != section:
                out.write(f"[{head}]\n")
                section = head
            out.write(f"{key} = {value}\n" if value.isdigit() else f'{key} = "{value}"\n')
    return path


def run(command, folder):
    begin = time.monotonic()
    child = subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    out, err = child.stdout.read(), child.stderr.read()
    _, status, usage = os.wait4(child.pid, 0)
    if status != 0:
        sys.exit(f"{' '.join(command)}\n{out}{err}")
    return json.loads(out), time.monotonic() - begin, usage.ru_maxrss / 1024 / 1024, usage.ru_utime + usage.ru_stime


def main():
    program = os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else "./trireme")
    with tempfile.TemporaryDirectory() as folder:
        print(f"{'model':<8}{'ranks':>6}{'plans':>8}{'search':>10}{'CPU':>9}{'goal':>7}{'compile':>10}{'CPU':>9}{'resident':>11}{'step':>10}  plan")
        for size, cluster, ranks, goal in SEARCHES:
            found, _, gib, _ = run(
                [program, "plan", config(folder, size), "--cluster", cluster, "--ranks", str(ranks), "--json"], folder)
            print(f"{size:<8}{ranks:>6}{found['candidates']:>8}{found['search_s']:>8.1f} s{found['search_cpu_s']:>7.1f} s{goal:>5} s"
                  f"{found['compile_s']:>8.1f} s{found['compile_cpu_s']:>7.1f} s"
                  f"{gib:>7.2f} GiB{found['predicted_step_ms'] / 1e3:>8.2f} s  {found['plan']}", flush=True)
        mesh = "pp=16,dp=8,tp=8"
        one, seconds, _, _ = run(
            [program, "simulate", config(folder, "175B"), "--cluster", "a100", f"--parallel.mesh={mesh}",
             "--train.micro_batch=1", "--parallel.sequence=true", "--train.batch=512", "--json"], folder)
        print(f"\nsimulating one step of {one['ranks']} ranks ({mesh}): {one['simulated_s']:.2f} s (goal 5 s), compiled before in "
              f"{seconds - one['simulated_s']:.1f} s")


if __name__ == "__main__":
    main()

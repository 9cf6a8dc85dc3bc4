#!/usr/bin/env python3
"""Time against memory for every rematerialisation policy, predicted and measured, on GPT-2 (24 layers) and ResNet-50.

    bench/compare_remat.py [--rounds N] [--steps N] [--threads N] [--model gpt2|resnet50]
    bench/compare_remat.py --depths 16,64,256 [--rounds N] [--steps N] [--threads N]

For each policy: its peak, and `optimal` given that peak as memory.limit. Times are against the plain step; measured ones
are medians over rounds, in which the policies take turns. Exits 1 when `optimal` is predicted to be slower than a policy at
that policy's peak, or when a peak measured by the kernel's offsets is not the predicted one.

With --depths instead: perceptrons of these depths, plain and with `sqrt`, and what `sqrt` adds to a step as a share of one
forward phase. Exits 1 when that is more than 1.05.
"""
import argparse
import json
import statistics
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TRIREME = ROOT / "build/release/src/trireme/trireme"
MODELS = {
    "gpt2": ["--model.family=gpt2", "--model.layers=24", "--model.width=192", "--model.heads=4", "--model.context=128",
             "--train.batch=8"],
    "resnet50": ["resnet18", "--model.layers=50", "--model.image=64", "--train.batch=16"],
}
POLICIES = ["none", "selective", "every:1", "every:2", "every:3", "every:4", "every:6", "every:8", "sqrt", "full", "optimal"]
LEAST_STAGING = "--output.staging=4KiB"


def call(command, arguments):
    done = subprocess.run([TRIREME, *command, *arguments], capture_output=True, text=True)
    return json.loads(done.stdout) if done.returncode == 0 else done.stderr.strip().splitlines()[-1]


def plan(arguments):
    report = call(["memory"], [*arguments, "--json", "--brief"])
    return report if isinstance(report, str) else (report["ranks"][0]["predicted_peak_bytes"], report["nominal_step_s"])


def compare_depths(options):
    print("perceptrons, width 512, batch 256; fastest steps, plain and sqrt in turn")
    print(f"{'layers':>7}{'plain ms':>10}{'forward ms':>12}{'sqrt ms':>9}{'added / forward':>17}")
    worst = 0
    for depth in map(int, options.depths.split(",")):
        base = ["mlp", f"--model.layers={depth}", "--model.width=512", "--train.batch=256", LEAST_STAGING,
                f"--runtime.threads={options.threads}"]
        policies = ["none", "sqrt"]
        best = {policy: {} for policy in policies}
        for _ in range(options.rounds):
            for policy in policies:
                step = call(["bench", "step"], [*base, f"--memory.remat={policy}", "--json", f"--steps={options.steps}",
                                                "--warmup=1"])
                for key in ("fastest_ms", "fastest_forward_ms"):
                    best[policy][key] = min(step[key], best[policy].get(key, step[key]))
        plain, root = best["none"], best["sqrt"]
        forward = min(plain["fastest_forward_ms"], root["fastest_forward_ms"])
        added = (root["fastest_ms"] - plain["fastest_ms"]) / forward
        worst = max(worst, added)
        print(f"{depth:>7}{plain['fastest_ms']:>10.1f}{forward:>12.1f}{root['fastest_ms']:>9.1f}{added:>17.3f}",
              flush=True)
    sys.exit(1 if worst > 1.05 else 0)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--model", choices=MODELS)
    parser.add_argument("--depths")
    options = parser.parse_args()
    if options.depths:
        compare_depths(options)
    wrong = []
    for model in [options.model] if options.model else MODELS:
        base = [*MODELS[model], LEAST_STAGING, "--parallel.mesh=dp=1", f"--runtime.threads={options.threads}"]
        cases = {}
        for policy in POLICIES:
            cases[policy] = [*base, f"--memory.remat={policy}"]
        plans = {name: plan(arguments) for name, arguments in cases.items()}
        for name, found in plans.items():
            if isinstance(found, str):
                print(f"{name}: {found}")
        plans = {name: found for name, found in plans.items() if not isinstance(found, str)}
        at = {}
        for name, (peak, seconds) in plans.items():
            arguments = [*base, "--memory.remat=optimal", f"--memory.limit={peak}"]
            at[name] = plan(arguments)
            cases[f"optimal at {name}"] = arguments
            if name != "optimal" and (isinstance(at[name], str) or at[name][1] > seconds * (1 + 1e-9) or at[name][0] > peak):
                wrong.append(f"{model}: optimal within {peak} B ({at[name]}) is worse than {name} ({seconds})")
        times = {name: [] for name in [*plans, *(f"optimal at {n}" for n in plans)]}
        for _ in range(options.rounds):
            for name in times:
                step = call(["bench", "step"], [*cases[name], "--json", f"--steps={options.steps}", "--warmup=1"])
                times[name].append(step["step_ms"])
                expected = plans[name][0] if name in plans else at[name.removeprefix("optimal at ")][0]
                if step["peak_bytes"] != expected:
                    wrong.append(f"{model} {name}: planned {expected} B, ran with {step['peak_bytes']} B")
        plain_peak, plain_seconds = plans["none"]
        plain_ms = statistics.median(times["none"])
        print(f"\n{model}: plain step {plain_ms:.0f} ms, peak {plain_peak:,} B")
        print(f"{'policy':12}{'peak B':>16}{'of plain':>9}{'predicted':>11}{'measured':>10}   optimal at that peak: predicted measured")
        for name, (peak, seconds) in sorted(plans.items(), key=lambda item: -item[1][0]):
            ms = statistics.median(times[name])
            best = statistics.median(times[f"optimal at {name}"])
            print(f"{name:12}{peak:>16,}{peak / plain_peak:>9.3f}{seconds / plain_seconds:>10.3f}×{ms / plain_ms:>9.3f}×"
                  f"{'':24}{at[name][1] / plain_seconds:>9.3f}×{best / plain_ms:>8.3f}×")
    for line in wrong:
        print(line)
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()

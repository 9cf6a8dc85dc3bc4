#!/usr/bin/env python3
"""Times one training step of Trireme against the same step in eager PyTorch, on this machine.

    python3 bench/compare_step.py                          # GPT-2 6x384, context 256, batch 16, two threads, f32
    python3 bench/compare_step.py --precision bf16 --rounds 7
    python3 bench/compare_step.py --layers 4 --width 128 --heads 4 --json

Both run as fresh processes in turn, the order changing every round, so that whatever else the machine does falls on
both alike. A round gives one pair of medians and their ratio; the table shows the medians over rounds.

A busy machine slows both, and not always alike: the two wait for their threads in different ways. The load is printed;
where it is not small, trust the ratio of the fastest rounds, or wait.
"""
import argparse
import json
import os
import pathlib
import platform
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent


def run(command):
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"error: {' '.join(map(str, command))}\nexit status {done.returncode}\n{done.stderr.strip()}")
    try:
        return json.loads(done.stdout)
    except json.JSONDecodeError as e:
        sys.exit(f"error: {' '.join(map(str, command))}\nexpected one JSON object ({e}), got:\n{done.stdout.strip()}")


def processor():
    try:
        for line in open("/proc/cpuinfo", encoding="utf-8"):
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or "unknown processor"


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("layers", 6), ("width", 384), ("heads", 6), ("context", 256), ("vocab", 256),
                          ("batch", 16), ("threads", 2), ("rounds", 5)):
        p.add_argument(f"--{name}", type=int, default=default)
    p.add_argument("--precision", choices=("f32", "bf16"), default="f32")
    p.add_argument("--clip", type=float, default=1.0)
    p.add_argument("--compile", action="store_true", help="let the peer use torch.compile")
    p.add_argument("--trireme", type=pathlib.Path, default=ROOT / "build/release/src/trireme/trireme")
    p.add_argument("--python", default=sys.executable, help="the interpreter that has torch")
    p.add_argument("--json", action="store_true")
    p.add_argument("extra", nargs="*", metavar="-- --section.key=value", help="further settings for trireme alone")
    a = p.parse_args()
    if not a.trireme.is_file():
        sys.exit(f"error: {a.trireme} does not exist; build it, or say where it is with --trireme")

    ours = [a.trireme, "bench", "step", "--parallel.mesh=dp=1", "--model.family=gpt2", f"--model.layers={a.layers}", f"--model.width={a.width}",
            f"--model.heads={a.heads}", f"--model.context={a.context}", f"--model.vocab={a.vocab}",
            f"--train.batch={a.batch}", f"--train.clip={a.clip:g}", f"--train.precision={a.precision}",
            f"--runtime.threads={a.threads}", "--json", *a.extra]
    peer = [a.python, ROOT / "bench/peers/gpt2_step.py", "--layers", a.layers, "--width", a.width, "--heads", a.heads,
            "--context", a.context, "--vocab", a.vocab, "--batch", a.batch, "--clip", a.clip, "--threads", a.threads]
    peer += ["--bf16"] * (a.precision == "bf16") + ["--compile"] * a.compile
    commands = {"trireme": [str(c) for c in ours], "pytorch": [str(c) for c in peer]}

    load = os.getloadavg()[0]
    results = {name: [] for name in commands}
    for r in range(a.rounds):
        for name in sorted(commands, reverse=r % 2 == 0):
            results[name].append(run(commands[name]))
            if sys.stderr.isatty():
                print(f"\rround {r + 1}/{a.rounds} {name:8}", end="", file=sys.stderr, flush=True)
    if sys.stderr.isatty():
        print("\r" + " " * 30 + "\r", end="", file=sys.stderr)

    times = {name: [x["step_ms"] for x in rounds] for name, rounds in results.items()}
    ratios = [theirs / mine for mine, theirs in zip(times["trireme"], times["pytorch"])]
    tokens = a.batch * a.context
    summary = {"processor": processor(), "cores": os.cpu_count(), "threads": a.threads, "precision": a.precision,
               "peer": f"torch {results['pytorch'][0]['torch']} {results['pytorch'][0]['mode']}", "rounds": a.rounds,
               "trireme_step_ms": statistics.median(times["trireme"]),
               "pytorch_step_ms": statistics.median(times["pytorch"]),
               "speedup": statistics.median(ratios), "speedup_lowest": min(ratios), "speedup_highest": max(ratios),
               "speedup_of_fastest": min(times["pytorch"]) / min(times["trireme"]), "load_before": load,
               "trireme_peak_bytes": max(x["measured_peak_bytes"] for x in results["trireme"]),
               "pytorch_peak_bytes": max(x["peak_rss_bytes"] - x["rss_before_model_bytes"]
                                         for x in results["pytorch"])}
    if a.json:
        print(json.dumps(summary))
        return
    print(f"{summary['processor']}, {a.threads} of {summary['cores']} cores, {a.precision}, {summary['peer']}")
    print(f"gpt2 {a.layers}x{a.width}, {a.heads} heads, context {a.context}, batch {a.batch}, vocabulary {a.vocab}; "
          f"{a.rounds} rounds")
    print(f"{'':10}{'step ms':>10}{'fastest':>10}{'slowest':>10}{'tokens/s':>10}{'peak MiB':>10}")
    for name in ("trireme", "pytorch"):
        median = statistics.median(times[name])
        print(f"{name:10}{median:10.1f}{min(times[name]):10.1f}{max(times[name]):10.1f}{tokens / median * 1e3:10.0f}"
              f"{summary[name + '_peak_bytes'] / 2**20:10.0f}")
    print(f"trireme is {summary['speedup']:.2f} times as fast (rounds {min(ratios):.2f} to {max(ratios):.2f}; fastest "
          f"against fastest {summary['speedup_of_fastest']:.2f})")
    print(f"load average before: {load:.2f}" + (" - the machine was busy, see --help" if load > 0.25 else ""))
    print("peak: of both, the growth of the process's resident size once program and libraries are there")


if __name__ == "__main__":
    main()

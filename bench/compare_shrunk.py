#!/usr/bin/env python3
"""What structured pruning gives in time and memory: a byte-vocabulary Llama of 12x768 before and after `trireme compress
--prune neurons:0.3,heads:0.3`, with random weights: a step, a decoded token, and the planned peak.

    python3 bench/compare_shrunk.py [--prune neurons:0.3,heads:0.3] [--layers 12] [--width 768] [--heads 12] [--rounds 5] [--check]

The two are measured in turns. What else a machine does makes a figure worse and never better, so the best of the rounds is printed of
each, and their ratio. A third model, with as many zeros that are scattered, shows that those save no time. --check exits with 1 unless step and decode are at least 1.25 times as fast, the memory plan of the
smaller model is what `trireme memory` predicts of its shape before it is made, and what a step then takes agrees with it: its own
plan is the same, and the process grows by at least the plan without the staging of checkpoints (a benchmark writes none) and by at
most what `trireme memory` lists outside the plan in addition.
"""
import argparse
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TRIREME = ROOT / "build/release/src/trireme/trireme"


def run(*arguments):
    done = subprocess.run([TRIREME, *arguments], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"trireme {' '.join(map(str, arguments))}\n{done.stderr}")
    return done.stdout


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--prune", default="neurons:0.3,heads:0.3")
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--width", type=int, default=768)
    parser.add_argument("--heads", type=int, default=12)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--check", action="store_true")
    a = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        keys = [f"--model.layers={a.layers}", f"--model.width={a.width}", f"--model.heads={a.heads}", "--model.context=128",
                "--parallel.mesh=dp=1", f"--train.batch={a.batch}"]
        run("train", *keys, "--train.steps=0", f"--output.dir={folder}/dense", "--replay=0", "--data.holdout=0")
        for name, prune in (("shrunk", a.prune), ("zeros", "unstructured:0.3")):
            print(run("compress", f"{folder}/dense", "--out", f"{folder}/{name}", "--prune", prune, "--decode", "0",
                      "--data.holdout=0").strip(), flush=True)
        names = ["dense", "shrunk", "zeros"]
        steps = {name: [] for name in names}
        tokens = {name: [] for name in names}
        taken = {}
        for _ in range(a.rounds):
            for name in names:
                step = json.loads(run("bench", "step", f"{folder}/{name}", "--steps=3", "--warmup=1", "--json"))
                steps[name].append(step["fastest_ms"])
                taken[name] = step["measured_peak_bytes"], step["peak_bytes"]
                made = json.loads(run("bench", "generate", "--from", f"{folder}/{name}", f"--tokens={a.tokens}", "--json"))
                tokens[name].append(made["tokens_per_s"])
        memory = lambda *words: json.loads(run("memory", *words, "--json", "--brief"))
        plan = lambda *words: memory(*words)["ranks"][0]["predicted_peak_bytes"]
        peak = {name: plan(f"{folder}/{name}") for name in names}
        said = memory(f"{folder}/shrunk")
        least = peak["shrunk"] - said["ranks"][0]["staging"]
        most = least + sum(part["bytes"] for part in said["outside"] if not part["when_resumed"])
        # The dense model's run, asked for the smaller shape.
        shape = dict(re.findall(r"^(layers|heads|kv_heads|head_dim|ffn) = (\d+)", Path(f"{folder}/shrunk/config.toml").read_text(), re.M))
        asked = plan(f"{folder}/dense", *[f"--model.{key}={value}" for key, value in shape.items()])
        for name in names:
            step, speed = min(steps[name]), max(tokens[name])
            print(f"{name:<8} step {step:8.1f} ms ({min(steps['dense']) / step:.2f}x as fast)   "
                  f"decode {speed:7.1f} tokens/s ({speed / max(tokens['dense']):.2f}x)   "
                  f"planned peak {peak[name] / 2**20:8.1f} MiB ({peak[name] / peak['dense']:.2f})")
        print(f"memory   planned for {', '.join(f'{k} {v}' for k, v in shape.items())} before: {asked} B, after: {peak['shrunk']} B; "
              f"a step's plan {taken['shrunk'][1]} B, by which the process grew: {taken['shrunk'][0]} B, predicted {least} to {most} B")
        gain = {"step": min(steps["dense"]) / min(steps["shrunk"]), "decode": max(tokens["shrunk"]) / max(tokens["dense"])}
        wrong = [f"{what} is {ratio:.2f} times as fast, expected 1.25" for what, ratio in gain.items() if ratio < 1.25]
        if asked != peak["shrunk"]:
            wrong.append("the plan is not what was predicted")
        grew, planned = taken["shrunk"]
        if planned != peak["shrunk"]:
            wrong.append(f"a step's plan has {planned} B, predicted were {peak['shrunk']} B")
        if not least <= grew <= most:
            wrong.append(f"a step takes {grew} B, predicted were {least} to {most} B")
        if a.check and wrong:
            sys.exit("\n".join(wrong))


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""How far ranks that share a batch end from one rank, tensor by tensor, with AdamW's eps at 1e-4 and at its default of 1e-8.

    python3 bench/compare_eps.py                      # GPT-2 2x24, 50 steps, one rank and two
    python3 bench/compare_eps.py --ranks 4 --steps 20

The ranks add up the same gradients in another order. Where a gradient is exactly zero but for rounding (attention's
results do not depend on the biases of keys), AdamW divides rounding by rounding: with a small eps such an entry takes
steps of about the learning rate in a direction of its own, and the loss does not change. Printed is |a - b| / |a| of
each tensor's final values: the furthest, and the furthest of all others.
"""
import argparse
import importlib.machinery
import importlib.util
import math
import pathlib
import struct
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.dont_write_bytecode = True


def tensors_of(checkpoint):
    """Those of weights, as scripts/witness reads them."""
    loader = importlib.machinery.SourceFileLoader("witness", str(ROOT / "scripts/witness"))
    witness = importlib.util.module_from_spec(importlib.util.spec_from_loader("witness", loader))
    loader.exec_module(witness)
    return {name: struct.unpack(f"<{len(data) // 4}f", data)
            for name, data in witness.tensors_of(checkpoint).items() if "/" not in name and len(data) % 4 == 0}


def trained(a, folder, mesh, eps):
    command = [a.trireme, "train", "--model.family=gpt2", "--model.layers=2", "--model.width=24", "--model.heads=4",
               "--model.context=16", "--data.holdout=0", "--train.batch=24", f"--train.steps={a.steps}", "--train.warmup=0",
               "--train.schedule=constant", f"--train.eps={eps}", f"--parallel.mesh={mesh}", "--parallel.zero=0",
               "--runtime.threads=1", "--replay=0", f"--output.dir={folder}", "--overwrite"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"error: {' '.join(map(str, command))}\n{done.stderr.strip()}")
    return tensors_of(sorted((pathlib.Path(folder) / "checkpoints").iterdir())[-1])


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--ranks", type=int, default=2)
    p.add_argument("--steps", type=int, default=50)
    p.add_argument("--trireme", type=pathlib.Path, default=ROOT / "build/release/src/trireme/trireme")
    a = p.parse_args()
    for eps in ("1e-4", "1e-8"):
        with tempfile.TemporaryDirectory() as folder:
            one = trained(a, f"{folder}/one", "dp=1", eps)
            many = trained(a, f"{folder}/many", f"dp={a.ranks}", eps)
        apart = []
        for name, values in one.items():
            norm = math.sqrt(sum(x * x for x in values))
            if norm > 0:
                apart.append((math.dist(values, many[name]) / norm, name))
        apart.sort(reverse=True)
        biases = [entry for entry in apart if entry[1].endswith("attn.qkv.bias")]
        others = [entry for entry in apart if entry not in biases]
        print(f"eps {eps}: " + ", ".join(f"{distance:.1e} {name}" for distance, name in biases + others[:1]) +
              f" (the furthest of the {len(others)} others)")


if __name__ == "__main__":
    sys.exit(main())

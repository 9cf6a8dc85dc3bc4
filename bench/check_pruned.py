#!/usr/bin/env python3
"""Goes on from a trained run with pruning and looks at what every step leaves in its checkpoint.

    pip install numpy
    python3 bench/check_pruned.py [--run RUN | quickstart --train.steps=20 …] [--steps 5] [--sparsity 0.8]

Without --run the configuration is trained first. From the trained weights training goes on for --steps steps, twice: pruned gradually, a little more in every step but the first and the last, and to two of each
four along the sums at once. A checkpoint is written after each step, and in each of them: what a mask leaves out is zero, to the bit, in the weight and in both states of
AdamW; a mask never gives back what it took; its share is that of the cubic curve; of 2:4, every four elements along a row of every weight have exactly two. What is saved
then does not grow: a checkpoint of a later step has no more bytes than the one of the last pruning, a run that `trireme compress` makes of it has the weights' bits and
what is left of them, and made again of itself it has as many bytes. Exits with 1 where that is not so, with 77 without numpy.
"""
import argparse
import json
import shutil
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

try:
    import numpy as np
except ImportError:
    print("skipped: numpy is not installed")
    sys.exit(77)

ROOT = Path(__file__).resolve().parent.parent
PADDING = 4096  # bytes that a file may have more: names, and a weight that has become −0


def call(a, *words):
    done = subprocess.run([a.program, *map(str, words)], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"trireme {' '.join(map(str, words))}\n{done.stdout}{done.stderr}")
    return done.stdout


def unpacked(raw, count):
    """The elements of a tensor that is stored without its zeros (src/trireme/io/packed_zeros.h), or as it is."""
    if len(raw) == 4 * count:
        return np.frombuffer(raw, "<f4")
    size = (count + 7) // 8
    there = np.unpackbits(np.frombuffer(raw[:size], np.uint8), bitorder="little")[:count].astype(bool)
    values = np.zeros(count, np.float32)
    left = int(there.sum())
    if len(raw) == size:
        values[there] = 1
    else:
        assert len(raw) in (size + 4 * left, 2 * size + 4 * left), (len(raw), count)
        values[there] = np.frombuffer(raw[len(raw) - 4 * left:], "<f4")
    return values


class Checkpoint:
    def __init__(self, folder):
        self.file = folder / "state.safetensors"
        with self.file.open("rb") as file:
            size = struct.unpack("<Q", file.read(8))[0]
            self.at = {name: (8 + size + e["data_offsets"][0], 8 + size + e["data_offsets"][1]) for name, e in json.loads(file.read(size)).items() if name != "__metadata__"}
        # Their whole shapes: a packed tensor is a row of bytes in the file.
        manifest = json.loads((folder / "manifest.json").read_text())
        self.shapes = {name: tensor["shape"] for name, tensor in manifest["tensors"].items()}
        self.bytes = self.file.stat().st_size

    def values(self, name):
        begin, end = self.at[name]
        with self.file.open("rb") as file:
            file.seek(begin)
            raw = file.read(end - begin)
        return unpacked(raw, int(np.prod(self.shapes[name], dtype=np.int64)))

    def masks(self):
        return sorted(name for name in self.at if name.endswith("/mask"))


def checkpoint_of(run, step):
    return run / f"checkpoints/step-{step:08d}"


def check(what, holds):
    if not holds:
        sys.exit(f"BROKEN  {what}")


def look_at(run, steps, share_of, pattern):
    """The checkpoint of every step; the bytes of each."""
    before, sizes = {}, []
    for step in range(1, steps + 1):
        saved = Checkpoint(checkpoint_of(run, step))
        sizes.append(saved.bytes)
        masks = saved.masks()
        check(f"step {step}: weights have masks", masks)
        zeros = count = 0
        for name in masks:
            weight, mask = name.removesuffix("/mask"), saved.values(name)
            check(f"step {step}: {name} has zeros and ones", np.isin(mask, (0, 1)).all())
            out = mask == 0
            for state in (weight, f"{weight}/m", f"{weight}/v"):
                check(f"step {step}: {state} is zero where {name} is", not saved.values(state)[out].any())
            if name in before:
                check(f"step {step}: {name} gives nothing back", not mask[before[name]].any())
            if pattern == "2:4" and out.any():
                check(f"step {step}: {name} has two of each four in every row",
                      saved.shapes[weight][-1] % 4 == 0 and (mask.reshape(-1, 4).sum(axis=1) == 2).all())
            share = share_of(step)
            check(f"step {step}: {name} leaves {share:.4f} out, not {out.mean():.4f}", abs(out.mean() - share) * out.size <= 1)
            before[name] = out
            zeros += int(out.sum())
            count += out.size
        print(f"{pattern:<13} step {step}: {len(masks)} masks, {100 * zeros / count:.2f}% of {count} weights and of their moments are zero, {saved.bytes} B", flush=True)
    return sizes


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run")
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--sparsity", type=float, default=0.8)
    parser.add_argument("--program", default=ROOT / "build/release/src/trireme/trireme")
    a, keys = parser.parse_known_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        start = Path(a.run) if a.run else folder / "start"
        if not a.run:
            call(a, "train", *(keys or ["quickstart", "--train.steps=20"]), "--parallel.mesh=dp=1", "--replay=0", f"--output.dir={start}")
        call(a, "export", start, folder / "trained")
        for pattern in ("unstructured", "2:4"):
            run = folder / "pruned"
            gradual = pattern == "unstructured"
            prune = ([f"--prune.sparsity={a.sparsity}", "--prune.schedule=gradual", "--prune.begin=1", "--prune.every=1", f"--prune.end={a.steps - 2}"] if gradual
                     else [f"--prune.pattern={pattern}", "--prune.schedule=oneshot", "--prune.begin=1"])
            train = ["train", start / "config.toml", f"--init.from={folder / 'trained'}", f"--output.dir={run}", "--prune.method=magnitude", *prune,
                     "--output.checkpoint_every=1", "--output.keep=1000", "--replay=0", "--train.warmup=0", "--parallel.mesh=dp=1", f"--train.decay_steps={a.steps}"]
            call(a, *train, f"--train.steps={a.steps}")
            # The first step and the last do not prune.
            share = (lambda n: a.sparsity * (1 - (1 - min(1, (n - 1) / (a.steps - 2))) ** 3)) if gradual else (lambda n: 0.5 if n > 1 else 0)
            sizes = look_at(run, a.steps, share, pattern)
            check("a checkpoint after the last pruning is no larger", sizes[-1] <= sizes[-2] + PADDING)
            # Again from what was loaded: as many bytes.
            call(a, *train, f"--train.steps={a.steps + 1}", "--resume")
            check("a checkpoint of what was loaded is no larger", Checkpoint(checkpoint_of(run, a.steps + 1)).bytes <= sizes[-1] + PADDING)
            if not gradual:
                twice = []
                for source, out in ((run, "once"), (folder / "once", "twice")):
                    call(a, "compress", source, "--out", folder / out, "--prune", "2:4", "--decode", 0, "--batches", 1)
                    twice.append(Checkpoint(checkpoint_of(folder / out, 0)).bytes)
                check(f"what is made of it has as many bytes: {twice}", twice[0] == twice[1])
                print(f"{pattern:<13} stored alone: {twice[0]} B, and made again of itself {twice[1]} B")
                shutil.rmtree(folder / "once")
                shutil.rmtree(folder / "twice")
            shutil.rmtree(run)
    print("holds   masks are exact in every step, and what is saved does not grow")


if __name__ == "__main__":
    main()

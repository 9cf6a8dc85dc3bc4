#!/usr/bin/env python3
"""Images that the loader's thread copies to the GPU give the bits of images that the step copies itself.

    tests/gpu/images_ahead.py PROGRAM

Trains a convolutional and a residual network in f32 and bf16, with images copied ahead (TRIREME_IMAGES_AHEAD) and, under a
limit of memory, not.
"""
import hashlib
import os
import pathlib
import re
import subprocess
import sys
import tempfile

MODELS = {"convnet": ["--model.layers=3", "--model.width=16"], "resnet": ["--model.layers=18", "--model.width=16"]}


def train(program, folder, family, precision, limit):
    keys = [f"--model.family={family}", *MODELS[family], "--data.images=synthetic", "--model.image=64",
            "--model.classes=10", "--train.batch=32", "--train.steps=12", f"--train.precision={precision}",
            "--parallel.mesh=dp=1", "--runtime.device=cuda", f"--memory.limit={limit}", "--train.eval_every=5"]
    done = subprocess.run([program, "train", *keys, f"--output.dir={folder}/run", "--overwrite"], capture_output=True,
                          text=True)
    if done.returncode != 0:
        sys.exit(done.stderr[-2000:])
    digest = hashlib.sha256()
    for file in sorted(pathlib.Path(folder, "run/checkpoints").glob("*/*.safetensors")):
        digest.update(file.read_bytes())
    planned = subprocess.run([program, "memory", *keys], capture_output=True, text=True)
    return digest.hexdigest()[:16], bool(re.search("copied while the step before runs", planned.stdout))


def main():
    os.environ["TRIREME_IMAGES_AHEAD"] = "1"
    program = os.path.abspath(sys.argv[1])
    bad = 0
    with tempfile.TemporaryDirectory(prefix="images-") as folder:
        for family in MODELS:
            for precision in ("f32", "bf16"):
                ahead, stated = train(program, folder, family, precision, "")
                itself, limited = train(program, folder, family, precision, "20GiB")
                wrong = ahead != itself or not stated or limited
                bad += wrong
                print(f"{family:8} {precision:4} {ahead} {itself}{' WRONG' if wrong else ''}", flush=True)
    if bad:
        sys.exit(f"{bad} of {2 * len(MODELS)} wrong")
    print(f"{2 * len(MODELS)} runs, the same bits either way")


main()

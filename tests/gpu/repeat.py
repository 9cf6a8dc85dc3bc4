#!/usr/bin/env python3
"""A run that is repeated gives the same bits, whichever algorithms were found to be the fastest.

    tests/gpu/repeat.py PROGRAM

Trains a GPT-2 whose products are large enough to be measured: three times with an empty cache, once with the cache that
the first left, and once with an empty cache while another process holds nearly all of the GPU's memory. Then the first of
them is started over with an empty cache, and another is stopped half-way and resumed with an empty cache, once without
algorithms.txt: the algorithms recorded with the run or its checkpoint are used, none is measured, and the end is that of the
uninterrupted run. Then a Llama, whose feed-forward layers are gated products, twice with an empty cache.
"""
import contextlib
import ctypes
import hashlib
import os
import pathlib
import subprocess
import sys
import tempfile
import time

SETTINGS = ["--model.family=gpt2", "--model.layers=6", "--model.width=768", "--model.heads=12", "--model.context=1024",
            "--train.batch=8", "--train.steps=8", "--train.precision=bf16", "--parallel.mesh=dp=1",
            "--runtime.device=cuda", "--train.eval_every=0", "--train.schedule=constant"]
LLAMA = ["--model.family=llama", "--model.layers=4", "--model.kv_heads=4"]
LEFT = 5 << 30  # bytes that the neighbour leaves free


def hold_memory():
    """In a process of its own: takes all memory but LEFT, says so, and sleeps."""
    cuda = ctypes.CDLL("libcuda.so.1")
    device, context = ctypes.c_int(), ctypes.c_void_p()
    free, total, block = ctypes.c_size_t(), ctypes.c_size_t(), ctypes.c_uint64()
    for status in (cuda.cuInit(0), cuda.cuDeviceGet(ctypes.byref(device), 0),
                   cuda.cuCtxCreate_v2(ctypes.byref(context), 0, device),
                   cuda.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total)),
                   cuda.cuMemAlloc_v2(ctypes.byref(block), ctypes.c_size_t(free.value - LEFT))):
        if status != 0:
            sys.exit(f"cannot hold memory: CUDA error {status}")
    print(free.value - LEFT, flush=True)
    time.sleep(600)


@contextlib.contextmanager
def neighbour():
    process = subprocess.Popen([sys.executable, __file__, "--hold"], stdout=subprocess.PIPE, text=True)
    try:
        held = process.stdout.readline()
        if not held:
            sys.exit("the neighbour did not get its memory")
        print(f"a neighbour holds {int(held) / 2**30:.1f} GiB")
        yield
    finally:
        process.kill()
        process.wait()


def train(program, folder, cache, text, extra=(), name=None, mode="--overwrite"):
    """Trains into a folder of its own unless it has a name, which it had before."""
    run = folder / (name or f"run-{len(list(folder.glob('run-*')))}")
    done = subprocess.run([program, "train", *SETTINGS, *extra, f"--data.text={text}", f"--output.dir={run}",
                           mode],
                          capture_output=True, text=True, env=dict(os.environ, XDG_CACHE_HOME=str(folder / cache)))
    if done.returncode != 0:
        sys.exit(done.stderr[-2000:])
    measured = "measured the algorithms" in done.stderr
    digest = hashlib.sha256()
    newest = sorted((run / "checkpoints").glob("step-*"))[-1]
    for file in sorted(newest.glob("*.safetensors")):
        digest.update(file.read_bytes())
    return digest.hexdigest()[:16], measured


def main():
    if sys.argv[1:] == ["--hold"]:
        return hold_memory()
    program = os.path.abspath(sys.argv[1])
    with tempfile.TemporaryDirectory(prefix="repeat-") as place:
        folder = pathlib.Path(place)
        text = folder / "text.txt"
        text.write_text("".join(p.read_text() for p in sorted(pathlib.Path("docs").glob("*.md"))))
        seen = []
        for cache, expected in (("a", True), ("b", True), ("c", True), ("a", False)):
            seen.append(train(program, folder, cache, text))
            print(f"cache {cache}: weights {seen[-1][0]}{', algorithms measured' if seen[-1][1] else ''}")
            if seen[-1][1] != expected:
                sys.exit(f"algorithms were {'not ' if expected else ''}measured")
        with neighbour():
            seen.append(train(program, folder, "d", text))
            print(f"cache d: weights {seen[-1][0]}{', algorithms measured' if seen[-1][1] else ''}")
        first = folder / "run-0"
        recorded = (first / "algorithms.txt").read_bytes()
        for name, mode, file in (("run-0", "--overwrite", True), ("half", "--resume", True), ("half", "--resume", False)):
            if name == "half":
                half = train(program, folder, "a", text, ["--train.steps=4"], name="half")
                if half[0] == seen[0][0]:
                    sys.exit("half of the steps gives the weights of all")
            if not file:  # then the checkpoint has them
                (folder / name / "algorithms.txt").unlink()
            seen.append(train(program, folder, f"again-{name}-{file}", text, name=name, mode=mode))
            print(f"{mode} with an empty cache: weights {seen[-1][0]}")
            if seen[-1][1]:
                sys.exit("algorithms were measured, though the run has them")
            if (folder / name / "algorithms.txt").read_bytes() != recorded:
                sys.exit("the recorded algorithms have changed")
        llamas = [train(program, folder, cache, text, LLAMA) for cache in ("e", "f")]
        for digest, _ in llamas:
            print(f"llama: weights {digest}")
        if len({digest for digest, _ in seen}) != 1 or len({digest for digest, _ in llamas}) != 1:
            sys.exit("the weights differ")
    print(f"{len(seen)} and {len(llamas)} runs, the same bits")


main()

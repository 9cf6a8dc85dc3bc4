#!/usr/bin/env python3
"""A GPU library that fails in the middle of a run: the run ends at once, says where, and its last checkpoint goes on to
the same losses as a run that nothing happened to. Needs a GPU and a C compiler; standard library only.

    tests/gpu/library_error.py PROGRAM
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

DOCS = pathlib.Path(__file__).resolve().parents[2] / "docs"
MODEL = ["quickstart", "--model.context=64", f"--data.text=[\"{DOCS}\"]", "--model.width=128", "--model.layers=2",
         "--model.heads=2", "--train.steps=30", "--train.batch=8", "--parallel.mesh=dp=1", "--runtime.device=cuda",
         "--output.checkpoint_every=10", "--runtime.trace=TRACE"]  # with a trace every step calls the library
# cublasLtMatmul that stops working after some calls.
SHIM = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
typedef int (*matmul)(void*, void*, const void*, const void*, void*, const void*, void*, const void*, const void*, void*,
                      void*, void*, const void*, void*, size_t, void*);
int cublasLtMatmul(void* a, void* b, const void* c, const void* d, void* e, const void* f, void* g, const void* h,
                   const void* i, void* j, void* k, void* l, const void* m, void* n, size_t o, void* p) {
  static long calls = 0;
  static matmul next = 0;
  if (!next) next = (matmul)dlsym(RTLD_NEXT, "cublasLtMatmul");
  const long now = __sync_add_and_fetch(&calls, 1);
  if (getenv("FAIL_AFTER") && now > atol(getenv("FAIL_AFTER"))) return 13; /* CUBLAS_STATUS_EXECUTION_FAILED */
  return next(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p);
}
"""


def train(program, folder, extra=(), environment=None):
    arguments = [a.replace("TRACE", str(folder) + ".trace.json") for a in MODEL]
    return subprocess.run([program, "train", *arguments, f"--output.dir={folder}", *extra], capture_output=True,
                          text=True, env=environment, timeout=120)


def losses(folder):
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return {line["step"]: line["loss"] for line in lines if "grad_norm" in line}


def main():
    program = str(pathlib.Path(sys.argv[1]).resolve())
    bad = []
    with tempfile.TemporaryDirectory() as scratch:
        scratch = pathlib.Path(scratch)
        (scratch / "shim.c").write_text(SHIM)
        subprocess.run(["gcc", "-shared", "-fPIC", "-O1", "-o", scratch / "shim.so", scratch / "shim.c", "-ldl"], check=True)
        whole = train(program, scratch / "whole")
        if whole.returncode != 0:
            sys.exit(f"the undisturbed run failed: {whole.stderr.strip().splitlines()[-1:]}")
        failed = None
        for calls in (4000, 2000, 1000, 500):  # the first algorithms are timed, which calls it too
            folder = scratch / f"broken{calls}"
            environment = dict(os.environ, LD_PRELOAD=str(scratch / "shim.so"), FAIL_AFTER=str(calls))
            broken = train(program, folder, environment=environment)
            if broken.returncode != 0 and folder.exists() and list(folder.glob("**/*.safetensors")):
                failed = broken
                break
        if failed is None:
            sys.exit("no run failed between its first checkpoint and its end")
        message = failed.stderr.strip().splitlines()[-1]
        print(f"exit {failed.returncode}: {message}")
        if failed.returncode != 1 or "cublasLtMatmul" not in message or "instruction" not in message:
            bad.append("the message should name the call and the instruction, with exit code 1")
        again = train(program, folder, ["--resume"])
        if again.returncode != 0:
            bad.append(f"does not resume: {again.stderr.strip().splitlines()[-1:]}")
        elif losses(folder) != losses(scratch / "whole"):
            bad.append("goes on to other losses")
        else:
            print("resumed from its last checkpoint: the same losses as without the failure, to the bit")
    for line in bad:
        print(f"FAILED: {line}")
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()

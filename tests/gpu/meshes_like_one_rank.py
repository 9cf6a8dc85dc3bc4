#!/usr/bin/env python3
"""Twenty steps on a GPU by several ranks that share it, their tensors sharded, against one rank. Needs a GPU; standard
library only.

    tests/gpu/meshes_like_one_rank.py PROGRAM
"""
import json
import pathlib
import subprocess
import sys
import tempfile

TEXT = ["quickstart", "--model.context=128", "--model.layers=2", "--model.width=192", "--model.heads=4", "--model.ffn=500",
        "--train.batch=8", "--train.steps=20", "--train.eps=1e-4", "--output.checkpoint_every=0", "--runtime.device=cuda",
        f"--data.text=[\"{pathlib.Path(__file__).resolve().parents[2] / 'docs'}\"]"]
MODELS = {"gpt2": ["--model.family=gpt2", "--model.dropout=0.1"], "llama": ["--model.family=llama", "--model.kv_heads=4"]}
MESHES = [["--parallel.mesh=tp=2"], ["--parallel.mesh=tp=4"], ["--parallel.mesh=tp=2", "--parallel.sequence=true"],
          ["--parallel.mesh=dp=2,tp=2", "--parallel.zero=3"],
          ["--parallel.mesh=dp=2,tp=2", "--parallel.sequence=true", "--parallel.zero=1", "--memory.remat=full"]]
TOLERANCE = {"f32": 1e-4, "bf16": 2e-2}


def losses(program, folder, arguments):
    subprocess.run([program, "train"] + arguments + [f"--output.dir={folder}"], check=True, stdout=subprocess.DEVNULL,
                   stderr=subprocess.PIPE, text=True)
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [line["loss"] for line in lines if "loss" in line]


def main():
    program = str(pathlib.Path(sys.argv[1]).resolve())
    bad = 0
    with tempfile.TemporaryDirectory() as scratch:
        for name, model in MODELS.items():
            for precision, tolerance in TOLERANCE.items():
                common = TEXT + model + [f"--train.precision={precision}"]
                one = losses(program, pathlib.Path(scratch) / f"{name}-{precision}", common + ["--parallel.mesh=dp=1"])
                for number, mesh in enumerate(MESHES):
                    what = f"{name:6} {precision:5} {' '.join(m.split('.', 1)[1] for m in mesh):60}"
                    try:
                        many = losses(program, pathlib.Path(scratch) / f"{name}-{precision}-{number}", common + mesh)
                    except subprocess.CalledProcessError as e:
                        print(f"{what} FAILED: {e.stderr.strip().splitlines()[-1:]}", flush=True)
                        bad += 1
                        continue
                    apart = max(abs(a - b) / abs(a) for a, b in zip(one, many)) if len(one) == len(many) == 20 else 1
                    good = apart <= tolerance
                    bad += not good
                    print(f"{what} apart by {apart:.1e}{'' if good else '  FAILED'}", flush=True)
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()

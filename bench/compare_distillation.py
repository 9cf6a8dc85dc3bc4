#!/usr/bin/env python3
"""A student taught by a teacher against the same student alone, for the same steps: held-out loss, several seeds.

    python3 bench/compare_distillation.py [--teacher-steps 600] [--steps 200] [--seeds 3] [--task text|digits|synthetic]
                                          [--hidden 0] [--alpha 0.5] [--temperature 2]

text     the quickstart's GPT-2 (4x128) on the C++ headers teaches one of 2x64
digits   an MLP of 2x256 teaches one of 1x16 on scikit-learn's digits (pip install scikit-learn); the student sees an eighth
         of the batch
synthetic  the same on generated images

Prints mean and deviation over the seeds, and for each seed which of the two was better.
"""
import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TRIREME = ROOT / "build/release/src/trireme/trireme"


def run(folder, name, keys):
    config = [keys[0]] if not keys[0].startswith("--") else []
    command = [TRIREME, "train", *config, *keys[len(config):], f"--output.dir={folder}/{name}", "--overwrite", "--replay=0",
               "--parallel.mesh=dp=1"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))}\n{done.stderr}")
    lines = [json.loads(line) for line in (Path(folder) / name / "metrics.jsonl").read_text().splitlines()]
    return [line["eval_loss"] for line in lines if "eval_loss" in line][-1]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", choices=["text", "digits", "synthetic"], default="text")
    parser.add_argument("--teacher-steps", type=int, default=600)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--hidden", type=float, default=0)
    parser.add_argument("--alpha", type=float, default=0.5)
    parser.add_argument("--temperature", type=float, default=2)
    a = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if a.task == "text":
            common = ["--train.batch=16"]
            small = ["--model.layers=2", "--model.width=64", "--model.heads=2"]
            large = []
        else:
            common = ["mlp", "--train.batch=32"]
            if a.task == "digits":
                sys.path.insert(0, str(ROOT / "bench"))
                from digits_as_idx import write_digits
                write_digits(f"{folder}/digits")
                common.append(f"--data.images={folder}/digits")
            else:
                common += ["--data.images=synthetic", "--model.image=8", "--model.channels=1"]
            small = ["--model.layers=1", "--model.width=16"]
            large = ["--model.layers=2", "--model.width=256"]
        teacher = run(folder, "teacher", [*common, *large, f"--train.steps={a.teacher_steps}"])
        print(f"teacher   {teacher:.4f} held-out loss after {a.teacher_steps} steps", flush=True)
        taught = [f"--distil.teacher={folder}/teacher", f"--distil.alpha={a.alpha}",
                  f"--distil.temperature={a.temperature}", f"--distil.hidden={a.hidden}"]
        results = {"alone": [], "taught": []}
        for seed in range(1, a.seeds + 1):
            own = [*common, *small, f"--train.steps={a.steps}", f"--train.seed={seed}"]
            results["alone"].append(run(folder, "student", own))
            results["taught"].append(run(folder, "student", own + taught))
            print(f"seed {seed}    alone {results['alone'][-1]:.4f}   taught {results['taught'][-1]:.4f}", flush=True)
        for name, values in results.items():
            deviation = f" ±{statistics.stdev(values):.4f}" if len(values) > 1 else ""
            print(f"{name:<9} {statistics.mean(values):.4f}{deviation}")
        better = sum(t < s for s, t in zip(results["alone"], results["taught"]))
        print(f"the taught student is better for {better} of {a.seeds} seeds, by "
              f"{100 * (1 - statistics.mean(results['taught']) / statistics.mean(results['alone'])):.2f}% of the loss")


if __name__ == "__main__":
    main()

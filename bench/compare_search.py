#!/usr/bin/env python3
"""The best shape that `trireme search` finds against the given one, at equal cost: held-out loss, several seeds.

    python3 bench/compare_search.py [--budget params] [--steps 120] [--seeds 3] [--candidates 12] [--folder DIR] [--task digits|synthetic] [-- KEYS...]

Each seed draws other shapes and trains with other start values and batches. Prints, for each seed, both losses, the
winner's shape, the steps trained in all, and for a budget of time what the winner measures here against the prediction.
With --folder an interrupted comparison goes on. Without --task the keys are a configuration's, by default the quickstart's; digits are scikit-learn's
(bench/digits_as_idx.py writes them), synthetic images need no package; the configuration is then mlp, or convnet. Exits with 1 unless every seed's best is better than the given shape and, with a
budget of time, every prediction is within 15% of what is measured.
"""
import argparse
import re
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TRIREME = ROOT / "build/release/src/trireme/trireme"


def search(a, folder, seed):
    command = [a.program, "search", *a.keys[:1], "--budget", a.budget, "--out", f"{folder}/seed-{seed}", "--seed", str(seed),
               "--candidates", str(a.candidates), "--rungs", str(a.rungs), f"--train.steps={a.steps}",
               f"--train.seed={seed}", "--parallel.mesh=dp=1", "--parallel.zero=0", *a.keys[1:]]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))}\n{done.stderr}")
    return done.stdout


def images(task, folder, keys):
    """A configuration of images, by default the MLP, on this data."""
    keys = [*keys, "--train.lr=2e-3"] if keys[0] != "quickstart" else ["mlp", "--train.lr=2e-3"]
    if task == "synthetic":
        return [*keys, "--data.images=synthetic", "--model.image=8", "--model.channels=1"]
    sys.path.insert(0, str(ROOT / "bench"))
    from digits_as_idx import write_digits
    write_digits(f"{folder}/digits")
    return [*keys, f"--data.images={folder}/digits"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--budget", default="params")
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--candidates", type=int, default=12)
    parser.add_argument("--rungs", type=int, default=3)
    parser.add_argument("--folder")
    parser.add_argument("--task", choices=["digits", "synthetic"])
    parser.add_argument("--program", default=TRIREME)
    parser.add_argument("keys", nargs="*", default=["quickstart"], help="a configuration, then --section.key=value")
    a = parser.parse_args()
    gains, errors = [], []
    with tempfile.TemporaryDirectory() as temporary:
        if a.task:
            a.keys = images(a.task, a.folder or temporary, a.keys)
        for seed in range(1, a.seeds + 1):
            out = search(a, a.folder or temporary, seed)
            line = {key: re.search(rf"^{key}\s+(.*)$", out, re.M) for key in ("best", "given", "total", "measured")}
            losses = {key: float(re.search(r"loss ([0-9.]+)", line[key][1])[1]) for key in ("best", "given")}
            if line["measured"]:
                errors.append(abs(float(re.search(r"here, ([-+0-9.]+)%", line["measured"][0])[1])))
            gains.append(losses["given"] - losses["best"])
            print(f"seed {seed}: given {losses['given']:.4f}  best {losses['best']:.4f}  ({line['best'][1]}; {line['total'][1]})"
                  + (f"; {line['measured'][0]}" if line["measured"] else ""), flush=True)
            if seed == 1:
                print(out[out.index("loss after"):out.index("best ")])
    spread = statistics.stdev(gains) if len(gains) > 1 else 0
    print(f"gain in held-out loss: mean {statistics.mean(gains):.4f} ± {spread:.4f}, least {min(gains):.4f}")
    if errors:
        print(f"measured against predicted: {', '.join(f'{e:.1f}%' for e in errors)} off")
    sys.exit(0 if min(gains) > 0 and max(errors, default=0) <= 15 else 1)


if __name__ == "__main__":
    main()

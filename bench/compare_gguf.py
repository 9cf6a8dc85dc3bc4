#!/usr/bin/env python3
"""What a GGUF file of each type keeps of a trained model: its bytes, and the held-out loss of what our own import makes of it.

    python3 bench/compare_gguf.py [--run RUN | quickstart --train.steps=300 …] [--types f16,q8_0,q4_0,q4_k] [--batches 60] [--check] [--markdown]

Without --run the configuration is trained first. Where the gguf package is installed (pip install gguf) it reads every file, and every tensor must be what our import
has, to the bit (tests/gguf/check_file.py). --check exits with 1 unless q8_0 is within 0.1% of the run's perplexity, and with 77 without the package.
"""
import argparse
import json
import math
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
WITHOUT_PACKAGE = 77


def call(a, *words):
    done = subprocess.run([a.program, *map(str, words)], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"trireme {' '.join(map(str, words))}\n{done.stdout}{done.stderr}")
    return done.stdout


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run")
    parser.add_argument("--types", default="f16,q8_0,q4_0,q4_k")
    parser.add_argument("--batches", type=int, default=60, help="held-out batches for each loss; 0: all")
    parser.add_argument("--program", default=ROOT / "build/release/src/trireme/trireme")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--markdown", action="store_true")
    a, keys = parser.parse_known_args()
    edge, bar = ("| ", " | ") if a.markdown else ("", "  ")
    row = lambda *cells: print(edge + bar.join(cells) + edge[::-1], flush=True)
    packaged = True
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        run = a.run or folder / "run"
        if not a.run:
            call(a, "train", *(keys or ["quickstart", "--train.steps=300"]), "--parallel.mesh=dp=1", "--replay=0", f"--output.dir={run}")
        # What is imported knows the model and its tokenizer, and no data.
        data = tomllib.loads((Path(run) / "config.toml").read_text())["data"]
        data = [f"--data.{key}={json.dumps(value)}" for key, value in data.items() if key in ("text", "tokens", "eval", "holdout") and value]
        loss = lambda of: json.loads(call(a, "eval", "--from", of, "--json", "--train.precision=f32", f"--batches={a.batches}", *data))["loss"]
        exact = loss(run)
        row("file", "MiB", "loss", "perplexity", "above the run's", "read by the gguf package")
        if a.markdown:
            print("|" + 6 * "---|")
        row("the run", "", f"{exact:.4f}", f"{math.exp(exact):.3f}", "", "")
        above = {}
        for kind in a.types.split(","):
            file, back = folder / f"{kind}.gguf", folder / kind
            call(a, "export", run, file, "--type", kind)
            call(a, "import", file, back)
            call(a, "export", back, folder / f"{kind}-folder")
            read = subprocess.run([sys.executable, ROOT / "tests/gguf/check_file.py", file, folder / f"{kind}-folder"], capture_output=True, text=True)
            if read.returncode not in (0, WITHOUT_PACKAGE):
                sys.exit(f"{file.name}: {read.stdout}{read.stderr}")
            packaged = packaged and read.returncode == 0
            found = loss(back)
            above[kind] = math.exp(found - exact) - 1
            row(kind, f"{file.stat().st_size / 2**20:.2f}", f"{found:.4f}", f"{math.exp(found):.3f}", f"{100 * above[kind]:+.3f}%",
                read.stdout.strip() or "not installed")
    if not a.check:
        return
    if abs(above.get("q8_0", 0)) > 0.001:
        sys.exit(f"q8_0: perplexity {100 * above['q8_0']:+.3f}%, expected within 0.1%")
    sys.exit(0 if packaged else WITHOUT_PACKAGE)


if __name__ == "__main__":
    main()

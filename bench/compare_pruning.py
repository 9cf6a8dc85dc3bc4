#!/usr/bin/env python3
"""Loss or accuracy against sparsity, for every way to prune; prints a table and a plot of characters.

    python3 bench/compare_pruning.py [--task digits|text|synthetic] [--steps N] [--seeds 3] [--sparsities 0.5,0.8,0.9,0.95]
                                     [--only "iterative magnitude,oneshot random"] [--layers N --width N --lr R] [--markdown] [--speed] [--check]
                                     [--brief]

digits     scikit-learn's digits (bench/digits_as_idx.py writes them; pip install scikit-learn), an MLP of 2x128; accuracy on
           the 360 held-out images
synthetic  the same MLP on generated images, which need no package
text       the quickstart's Llama on the C++ headers; held-out loss

--layers and --width give another shape; of text, heads have 64 features where those divide the width. --lr is its learning rate, which a large model
needs smaller. --brief leaves out the dense models of 2N and 6N steps.

N is --steps. One-shot trains for N steps, prunes once, rewinds the weights that are left to step N/10 and trains them for N
steps again (2N in all). Iterative does so in five rounds, the same share of what is left each time (6N in all): the last
masks of both have the same training behind them. Gradual trains for 2N steps and prunes on a cubic curve from N/2 to 3N/2,
without rewinding. The dense model trains for N. Every weight of a product is pruned to the same share, embeddings and biases
are not.

--speed times a step of the dense model and of one with 95% zeros, in turns: zeros that are scattered save no time. The best of five is
printed, since what else a machine does makes a step longer and never shorter. --check exits with 1 unless, at 0.8 and in the mean over the
seeds, iterative is better than one-shot and that better than random; with --speed, unless the steps differ by less than a fifth.
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
WAYS = [("iterative", "magnitude"), ("gradual", "magnitude"), ("oneshot", "magnitude"), ("gradual", "movement"),
        ("oneshot", "random")]
ROUNDS = 5


def task_keys(a, folder):
    if a.task == "text":
        keys = [f"--train.batch={a.batch}", "--parallel.mesh=dp=1", f"--data.holdout={a.holdout}"]
        if a.layers:
            keys.append(f"--model.layers={a.layers}")
        if a.width:
            keys += [f"--model.width={a.width}", f"--model.heads={a.width // 64 if a.width % 64 == 0 else 4}"]
        if a.lr:
            keys += [f"--train.lr={a.lr}", f"--train.min_lr={a.lr / 10}"]
        return keys
    keys = ["mlp", f"--model.layers={a.layers or 2}", f"--model.width={a.width or 128}", "--train.batch=64", "--train.lr=2e-3",
            "--parallel.mesh=dp=1"]
    if a.task == "synthetic":
        return keys + ["--data.images=synthetic", "--model.image=8", "--model.channels=1"]
    sys.path.insert(0, str(ROOT / "bench"))
    from digits_as_idx import write_digits
    write_digits(Path(folder) / "digits")
    return keys + [f"--data.images={folder}/digits"]


def prune_keys(schedule, method, sparsity, steps):
    """The keys, and the steps in all."""
    keys = [f"--prune.method={method}", f"--prune.sparsity={sparsity}"]
    if schedule == "gradual":
        return keys + ["--prune.schedule=gradual", f"--prune.begin={steps // 2}", f"--prune.end={3 * steps // 2}",
                       f"--prune.every={max(1, steps // 20)}"], 2 * steps
    rounds = ROUNDS if schedule == "iterative" else 1
    return keys + ["--prune.schedule=iterative", f"--prune.begin={steps}", f"--prune.every={steps}",
                   f"--prune.rounds={rounds}", f"--prune.rewind={steps // 10}", f"--train.decay_steps={steps}"], \
        (rounds + 1) * steps


def train(a, keys, steps, seed, folder):
    config = [keys[0]] if keys and not keys[0].startswith("--") else []
    command = [a.program, "train", *config, *keys[len(config):], f"--train.steps={steps}", f"--train.seed={seed}",
               "--train.warmup=20", f"--output.dir={folder}/run", "--overwrite", "--replay=0", "--output.log_every=1000000"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))}\n{done.stderr}")
    lines = [json.loads(line) for line in (Path(folder) / "run/metrics.jsonl").read_text().splitlines()]
    last = [line for line in lines if "eval_loss" in line][-1]
    return (100 * last["eval_accuracy"] if "eval_accuracy" in last else None), last["eval_loss"]


def spread(values):
    return f"{statistics.mean(values):.3f}" + (f" ±{statistics.stdev(values):.3f}" if len(values) > 1 else "")


def plot(curves, sparsities, better):
    """Rows are values, columns sparsities; each curve has a letter."""
    values = [v for curve in curves.values() for v in curve.values()]
    low, high = min(values), max(values)
    rows = 12
    grid = [[" "] * (len(sparsities) * 8) for _ in range(rows)]
    for letter, (name, curve) in zip("abcdefgh", curves.items()):
        for column, s in enumerate(sparsities):
            if s in curve:
                row = round((high - curve[s]) / (high - low or 1) * (rows - 1))
                at = column * 8 + 2
                while grid[row][at] != " ":
                    at += 1
                grid[row][at] = letter
    for i, row in enumerate(grid):
        print(f"{high - (high - low) * i / (rows - 1):8.3f} │{''.join(row)}")
    print(" " * 9 + "└" + "".join(f"{s:<8}" for s in sparsities) + " sparsity")
    for letter, name in zip("abcdefgh", curves):
        print(f"  {letter}  {name}")
    print(f"  ({better} is better)")


def speed(a, keys, folder):
    times = {"dense": [], "95% zeros": []}
    sparse = ["--prune.method=magnitude", "--prune.sparsity=0.95", "--prune.schedule=oneshot", "--prune.begin=1"]
    for _ in range(5):
        for name, more in (("dense", []), ("95% zeros", sparse)):
            config = [keys[0]] if not keys[0].startswith("--") else []
            command = [a.program, "bench", "step", *config, *keys[len(config):], *more, "--train.steps=40", "--steps=20",
                       "--warmup=5", "--json"]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            times[name].append(json.loads(done.stdout)["fastest_ms"])
    for name, values in times.items():
        print(f"{name:<10} {min(values):8.2f} ms a step (best of 5, in turns)")
    return min(times["95% zeros"]) / min(times["dense"])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", choices=["digits", "text", "synthetic"], default="digits")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--batch", type=int, default=16, help="of text")
    parser.add_argument("--holdout", type=float, default=0.05, help="of text: the share that is held out")
    parser.add_argument("--program", default=TRIREME)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--sparsities", default="0.5,0.8,0.9,0.95")
    parser.add_argument("--only", default="")
    parser.add_argument("--markdown", action="store_true")
    parser.add_argument("--speed", action="store_true")
    parser.add_argument("--layers", type=int, default=0)
    parser.add_argument("--width", type=int, default=0)
    parser.add_argument("--lr", type=float, default=0, help="of text")
    parser.add_argument("--brief", action="store_true")
    parser.add_argument("--check", action="store_true", help="fail unless iterative > one-shot > random at 0.8")
    a = parser.parse_args()
    sparsities = [float(s) for s in a.sparsities.split(",")]
    only = [name.strip() for name in a.only.split(",") if name.strip()]
    with tempfile.TemporaryDirectory() as folder:
        keys = task_keys(a, folder)
        results = {}

        def measure(name, more, steps):
            runs = [train(a, keys + more, steps, seed, folder) for seed in range(1, a.seeds + 1)]
            index = 0 if runs[0][0] is not None else 1
            results[name] = [run[index] for run in runs]
            print(f"{name:<34} {spread(results[name])}", file=sys.stderr, flush=True)
            return index == 0

        accurate = measure("dense", [], a.steps)
        longer = [] if a.brief else [2 * a.steps, (ROUNDS + 1) * a.steps]  # as long as the pruned ones in all
        for steps in longer:
            measure(f"dense {steps} steps", [], steps)
        for schedule, method in WAYS:
            if only and f"{schedule} {method}" not in only:
                continue
            for sparsity in sparsities:
                measure(f"{schedule} {method} {sparsity}", *prune_keys(schedule, method, sparsity, a.steps))
        what = "held-out accuracy, %" if accurate else "held-out loss"
        print(f"{a.task}: {what}, N = {a.steps} steps, mean over {a.seeds} seeds{' and deviation' if a.seeds > 1 else ''}")
        names = [f"{s} {m}" for s, m in WAYS if not only or f"{s} {m}" in only]
        bar = " | " if a.markdown else "  "
        edge = "| " if a.markdown else ""
        print(edge + bar.join(["way".ljust(20), "0".ljust(14), *[str(s).ljust(14) for s in sparsities]]))
        if a.markdown:
            print("|" + "---|" * (len(sparsities) + 2))
        for name in names:
            cells = [spread(results["dense"]), *[spread(results[f"{name} {s}"]) for s in sparsities]]
            print(edge + bar.join([name.ljust(20), *[c.ljust(14) for c in cells]]))
        if longer:
            print(f"dense for {longer[0]} and {longer[1]} steps: " + ", ".join(spread(results[f"dense {steps} steps"]) for steps in longer))
        print()
        curves = {name: {0.0: statistics.mean(results["dense"]),
                         **{s: statistics.mean(results[f"{name} {s}"]) for s in sparsities}} for name in names}
        plot(curves, [0.0, *sparsities], "more" if accurate else "less")
        longer = speed(a, keys, folder) if a.speed else 1
        if a.check:
            sign = 1 if accurate else -1
            at = [sign * curves[name][0.8] for name in ("iterative magnitude", "oneshot magnitude", "oneshot random")]
            if not at[0] > at[1] > at[2]:
                sys.exit(f"at 0.8: iterative {sign * at[0]}, one-shot {sign * at[1]}, random {sign * at[2]}")
            if not 0.8 < longer < 1.25:
                sys.exit(f"a step of zeros takes {longer:.2f} times as long as a dense one")


if __name__ == "__main__":
    main()

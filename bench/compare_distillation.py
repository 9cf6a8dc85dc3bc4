#!/usr/bin/env python3
"""A student taught by a teacher against the same student alone, for the same steps: held-out loss (of images also accuracy), several seeds.

    python3 bench/compare_distillation.py [--task digits|text|synthetic] [--teacher-steps N] [--steps N] [--seeds 3] [--batch N]
                                          [--alpha A] [--temperature T] [--hidden H] [--check] [--markdown] [--folder DIR]
                                          [--teacher RUN] [--student "--model.layers=4 …"]

digits     an MLP of 2x256 that has seen 1437 of scikit-learn's digits (pip install scikit-learn) teaches one of 1x32 that sees 144 of them
text       the quickstart's Llama (4x128) on the C++ headers teaches one of 2x64
synthetic  the same models on generated images, of which the student sees as many as it can; they need no package

Both students start from the same weights and read the same rows in the same order. Prints a table with mean and deviation over the seeds;
--check exits with 1 unless the taught student is better for every seed. With --folder the teacher is kept there and not trained again; --teacher
is a run that is there, such as a 12x768 of bytes, and --student are the keys of another student.
"""
import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# Steps of teacher and student; the student's batch, alpha, temperature and learning rate.
#
# A text's loss is measured at temperature 1, where the teacher's probabilities are what the student should learn: one byte drawn from
# them, which is what the data has, is a noisy target with the same mean. An image's label has no such noise; there the teacher's ratios
# between the wrong classes teach, which a higher temperature shows, where the student has few images. Of generated ones it never sees one twice; they are noisy,
# and what the teacher says of such an image is between the classes as it should be.
DEFAULTS = {
    "text": (1200, 300, 8, 0.9, 1.0, 1e-3),
    "digits": (400, 400, 32, 0.9, 4.0, 5e-3),
    "synthetic": (1500, 400, 32, 0.9, 1.0, 5e-3),
}


def train(a, folder, name, keys):
    config = [keys[0]] if keys and not keys[0].startswith("--") else []
    command = [a.program, "train", *config, *keys[len(config):], f"--output.dir={folder}/{name}", "--overwrite", "--replay=0",
               "--parallel.mesh=dp=1", "--output.log_every=1000000"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))}\n{done.stderr}")
    return result(folder, name)


def result(folder, name):
    lines = [json.loads(line) for line in (Path(folder) / name / "metrics.jsonl").read_text().splitlines()]
    last = [line for line in lines if "eval_loss" in line][-1]
    return last["eval_loss"], last.get("eval_accuracy")


def task_keys(a, folder):
    """Keys of the student and of the teacher."""
    if a.task == "text":
        return ["--model.layers=2", "--model.width=64", "--model.heads=2"], []
    small, large = ["mlp", "--model.layers=1", "--model.width=32"], ["mlp", "--model.layers=2", "--model.width=256"]
    if a.task == "synthetic":
        images = ["--data.images=synthetic", "--model.image=8", "--model.channels=1"]
        return small + images, large + images
    sys.path.insert(0, str(ROOT / "bench"))
    from digits_as_idx import write_digits
    write_digits(f"{folder}/digits")
    write_digits(f"{folder}/few", 144)
    return small + [f"--data.images={folder}/few"], large + [f"--data.images={folder}/digits"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", choices=list(DEFAULTS), default="text")
    parser.add_argument("--teacher-steps", type=int)
    parser.add_argument("--steps", type=int)
    parser.add_argument("--batch", type=int)
    parser.add_argument("--alpha", type=float)
    parser.add_argument("--temperature", type=float)
    parser.add_argument("--lr", type=float)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--first-seed", type=int, default=1)
    parser.add_argument("--hidden", type=float, default=0)
    parser.add_argument("--folder", help="keep the teacher here")
    parser.add_argument("--teacher")
    parser.add_argument("--student")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--markdown", action="store_true")
    parser.add_argument("--program", default=ROOT / "build/release/src/trireme/trireme")
    a = parser.parse_args()
    for key, value in zip(("teacher_steps", "steps", "batch", "alpha", "temperature", "lr"), DEFAULTS[a.task]):
        if getattr(a, key) is None:
            setattr(a, key, value)
    with tempfile.TemporaryDirectory() as temporary:
        folder = a.folder or temporary
        small, large = task_keys(a, folder)
        if a.student is not None:
            small = a.student.split()
        # The teacher is trained on larger batches: it should be good, whatever the student can afford.
        run = a.teacher or f"{folder}/teacher"
        if a.teacher:
            teacher = result(Path(run).parent, Path(run).name)
        elif a.folder and (Path(folder) / "teacher/metrics.jsonl").exists():
            teacher = result(folder, "teacher")
        else:
            teacher = train(a, folder, "teacher", [*large, f"--train.steps={a.teacher_steps}", "--train.batch=32"])
        print(f"teacher: held-out loss {teacher[0]:.4f}" + (f", accuracy {100 * teacher[1]:.1f}%" if teacher[1] is not None else ""), flush=True)
        taught = [f"--distil.teacher={run}", f"--distil.alpha={a.alpha}", f"--distil.temperature={a.temperature}",
                  f"--distil.hidden={a.hidden}"]
        results = {"alone": [], "taught": []}
        for seed in range(a.first_seed, a.first_seed + a.seeds):
            own = [*small, f"--train.steps={a.steps}", f"--train.batch={a.batch}", f"--train.lr={a.lr}", f"--train.seed={seed}"]
            for name, more in (("alone", []), ("taught", taught)):
                results[name].append(train(a, temporary, name, own + more))
            print(f"seed {seed}: alone {results['alone'][-1][0]:.4f}, taught {results['taught'][-1][0]:.4f}", file=sys.stderr, flush=True)
    edge, bar = ("| ", " | ") if a.markdown else ("", "  ")
    spread = lambda values: f"{statistics.mean(values):.4f}" + (f" ±{statistics.stdev(values):.4f}" if len(values) > 1 else "")
    print(edge + bar.join(["held-out loss".ljust(14), *[f"seed {s}" for s in range(a.first_seed, a.first_seed + a.seeds)], "mean"]) + edge[::-1])
    if a.markdown:
        print("|" + "---|" * (a.seeds + 2))
    for name, values in results.items():
        losses = [loss for loss, _ in values]
        print(edge + bar.join([name.ljust(14), *[f"{loss:.4f}" for loss in losses], spread(losses)]) + edge[::-1])
    if teacher[1] is not None:
        for name, values in results.items():
            share = [100 * accuracy for _, accuracy in values]
            print(edge + bar.join([f"{name}, accuracy", *[f"{s:.1f}%" for s in share], f"{statistics.mean(share):.1f}%"]) + edge[::-1])
    gains = [alone[0] - taught[0] for alone, taught in zip(results["alone"], results["taught"])]
    better = sum(gain > 0 for gain in gains)
    print(f"the taught student is better for {better} of {a.seeds} seeds: {spread(gains)} less "
          f"(alpha {a.alpha}, temperature {a.temperature}, {a.steps} steps of {a.batch} rows)")
    if a.check and better < a.seeds:
        sys.exit(1)


if __name__ == "__main__":
    main()

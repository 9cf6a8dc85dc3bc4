#!/usr/bin/env python3
"""Models in few bits and models that are pruned, on a GPU against the CPU: losses of evaluation, greedily generated tokens, trainings with masks and
with rounded weights, and which weights are zero after them; and against themselves, to the bit. Needs a GPU; standard library only.

    tests/gpu/smaller_models.py PROGRAM [--only PART] [--at-once N]
"""
import argparse
import array
import concurrent.futures
import json
import pathlib
import subprocess
import sys
import tempfile

DOCS = pathlib.Path(__file__).resolve().parents[2] / "docs"
TEXT = ["quickstart", f"--data.text=[\"{DOCS}\"]", "--model.context=64", "--model.width=128", "--model.heads=4", "--model.layers=2",
        "--train.batch=8"]
MODELS = {"gpt2": [*TEXT, "--model.family=gpt2"], "llama": [*TEXT, "--model.family=llama", "--model.kv_heads=2", "--model.ffn=384"]}
PROMPT = "Weights are stored in few bits, and what multiplies them is"

# What `compress` is asked for, and how far losses in f32 may be apart: rounded inputs and caches turn a difference in the last digit into one of a code.
SMALLER = {
    "int8": (["--weights", "int8"], 1e-5),
    "int8:64": (["--weights", "int8:64"], 1e-5),
    "int4": (["--weights", "int4"], 1e-5),
    "int4:64": (["--weights", "int4:64"], 1e-5),
    "int8, inputs int8": (["--weights", "int8", "--activations", "int8"], 2e-4),
    "int4:64, inputs int8": (["--weights", "int4:64", "--activations", "int8"], 2e-4),
    "cache int8": (["--kv-cache", "int8"], 1e-5),
    "int8 throughout": (["--weights", "int8", "--activations", "int8", "--kv-cache", "int8"], 2e-4),
}
BF16 = 1e-2

GRADUAL = ["--prune.begin=2", "--prune.end=10", "--prune.every=2"]
ONCE = ["--prune.schedule=oneshot", "--prune.begin=4"]
ROUNDS = ["--prune.schedule=iterative", "--prune.begin=4", "--prune.every=5", "--prune.rounds=3", "--prune.rewind=2"]
TRAINED = [
    ("gpt2", "magnitude", ["--prune.method=magnitude", "--prune.sparsity=0.8", *GRADUAL]),
    ("gpt2", "magnitude, sgd", ["--prune.method=magnitude", "--prune.sparsity=0.8", "--train.optimizer=sgd", "--train.lr=0.05", *GRADUAL]),
    ("gpt2", "magnitude, 2:4", ["--prune.method=magnitude", "--prune.pattern=2:4", *ONCE]),
    ("gpt2", "magnitude, heads", ["--prune.method=magnitude", "--prune.pattern=heads", *ONCE]),
    ("gpt2", "movement", ["--prune.method=movement", "--prune.sparsity=0.6", *GRADUAL]),
    ("gpt2", "magnitude, bf16", ["--prune.method=magnitude", "--prune.sparsity=0.8", "--train.precision=bf16", *GRADUAL]),
    ("llama", "random", ["--prune.method=random", "--prune.sparsity=0.7", *ONCE]),
    ("llama", "magnitude, neurons", ["--prune.method=magnitude", "--prune.pattern=neurons", *GRADUAL]),
    ("llama", "magnitude, rounds", ["--prune.method=magnitude", "--prune.sparsity=0.8", *ROUNDS]),
    ("gpt2", "rounded to int8", ["--train.quantize=int8"]),
    ("gpt2", "rounded to int4:32", ["--train.quantize=int4:32"]),
    ("llama", "rounded to int4", ["--train.quantize=int4"]),
]
IMAGES = [
    ("mlp", "magnitude, rounds", ["--prune.method=magnitude", "--prune.sparsity=0.9", *ROUNDS]),
    ("convnet", "magnitude, channels", ["--prune.method=magnitude", "--prune.pattern=channels", *ONCE]),
]


class Failed(Exception):
    pass


def call(program, *words):
    done = subprocess.run([program, *map(str, words)], capture_output=True, text=True, timeout=300)
    if done.returncode:
        raise Failed(f"trireme {' '.join(map(str, words))}: {done.stderr.strip().splitlines()[-1:]}")
    return done.stdout


def apart(a, b):
    return abs(a - b) / abs(a)


def answer(text):
    return json.loads(text.strip().splitlines()[-1])


def compare_use(program, scratch, model, name):
    """A model in few bits, evaluated in both precisions and continued greedily."""
    words, tolerance = SMALLER[name]
    folder = scratch / f"{model} {name}"
    call(program, "compress", scratch / model, "--out", folder, *words, "--batches", 1, "--decode", 0, "--runtime.device=cpu")
    said, fine = [], True
    for precision, most in (("f32", tolerance), ("bf16", BF16)):
        losses = [answer(call(program, "eval", "--from", folder, "--batches", 4, "--json", f"--runtime.device={device}",
                              f"--train.precision={precision}"))["loss"] for device in ("cpu", "cuda", "cuda")]
        off = apart(*losses[:2])
        fine = fine and off <= most and losses[1] == losses[2]
        said.append(f"{precision} loss {losses[1]:.5f}, apart by {off:.1e}{'' if losses[1] == losses[2] else ', DOES NOT REPEAT'}")
    texts = [answer(call(program, "generate", "--from", folder, "--prompt", PROMPT, "--tokens", 64, "--temperature", 0, "--json",
                         f"--runtime.device={device}"))["tokens"] for device in ("cpu", "cuda", "cuda")]
    same = texts[0] == texts[1] == texts[2] and len(texts[0]) == 64
    return f"{model:8}{name:22}" + "; ".join(said) + f"; {'the same' if same else 'OTHER'} tokens", fine and same


def zeros_of(folder):
    """By tensor of an exported folder, which elements are zero."""
    raw = (folder / "model.safetensors").read_bytes()
    size = int.from_bytes(raw[:8], "little")
    found = {}
    for name, entry in json.loads(raw[8:8 + size]).items():
        if name == "__metadata__":
            continue
        begin, end = entry["data_offsets"]
        values = array.array("f", raw[8 + size + begin:8 + size + end])
        found[name] = bytes(v == 0 for v in values)
    return found


def compare_training(program, scratch, model, name, words):
    """Twenty steps on the CPU and twice on the GPU, the last checkpoint on the other device, and which weights are zero."""
    settings = MODELS.get(model, [model, "--train.batch=8"]) + words
    runs = {}
    for run, device in (("cpu", "cpu"), ("cuda", "cuda"), ("again", "cuda")):
        folder = scratch / f"{model} {name} {run}"
        call(program, "train", *settings, "--train.steps=20", "--parallel.mesh=dp=1", "--train.eps=1e-4", "--output.checkpoint_every=0",
             f"--runtime.device={device}", f"--output.dir={folder}")
        lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
        runs[run] = [(line["loss"], line["grad_norm"]) for line in lines if "grad_norm" in line]
    off = max(apart(a[0], b[0]) for a, b in zip(runs["cpu"], runs["cuda"]))
    repeats = runs["cuda"] == runs["again"]
    fine = off <= (2e-2 if "bf16" in name else 1e-3 if "rounded" in name else 1e-4) and repeats and len(runs["cuda"]) == 20
    text = f"{model:8}{name:22}loss {runs['cuda'][0][0]:.4f} → {runs['cuda'][-1][0]:.4f}, apart by {off:.1e}{'' if repeats else ', DOES NOT REPEAT'}"
    if "prune" in words[0] and model in MODELS:
        masks = []
        for run in ("cpu", "cuda"):
            folder = scratch / f"{model} {name} {run}"
            call(program, "export", folder, folder / "hf")
            masks.append(zeros_of(folder / "hf"))
        elements = sum(map(len, masks[0].values()))
        other = sum(sum(a != b for a, b in zip(masks[0][key], masks[1][key])) for key in masks[0] if masks[0][key] != masks[1][key])
        zeros = sum(map(sum, masks[1].values()))
        fine = fine and zeros > 0 and other <= elements * (1e-2 if "bf16" in name else 1e-4)
        text += f"; {zeros} of {elements} zero, {other} of them elsewhere"
    return text, fine


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--only", choices=("use", "training"))
    parser.add_argument("--at-once", type=int, default=8)
    options = parser.parse_args()
    program = str(pathlib.Path(options.program).resolve())
    bad = count = 0
    with tempfile.TemporaryDirectory() as folder, concurrent.futures.ThreadPoolExecutor(options.at_once) as pool:
        scratch = pathlib.Path(folder)
        jobs = []
        if options.only != "use":
            jobs += [pool.submit(compare_training, program, scratch, *case) for case in TRAINED + IMAGES]
        if options.only != "training":
            for model in MODELS:
                call(program, "train", *MODELS[model], "--train.steps=60", "--parallel.mesh=dp=1", "--runtime.device=cpu",
                     f"--output.dir={scratch / model}")
            jobs += [pool.submit(compare_use, program, scratch, model, name) for model in MODELS for name in SMALLER]
        for job in jobs:
            count += 1
            try:
                text, fine = job.result()
            except (Failed, subprocess.TimeoutExpired) as e:
                text, fine = str(e), False
            bad += not fine
            print(f"{text}{'' if fine else '  FAILED'}", flush=True)
    print(f"{count} comparisons, {bad} of them wrong")
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()

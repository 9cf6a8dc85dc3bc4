#!/usr/bin/env python3
"""Imports and exports every folder next to this file with the program, and loads both sides in transformers.

    python3 tests/huggingface/check_export.py [build/release/src/trireme/trireme]

Prints a table. `f32`: logits of the exported folder against those of the original, which must be the same to the bit.
`bf16`, `f16`: against the original rounded by PyTorch, the same to the bit too. `sharded`: exported in several files.
`trained`: five steps with the program; its own losses there against those transformers has for the exported steps.
`tokenizer`: the exported one gives the same ids. Exits 1 when anything differs. Needs torch, transformers 5 and
safetensors: exit code 77 where they are missing.
"""
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile

try:
    import numpy as np
    import torch
    import torch.nn.functional as F
    import transformers
except ImportError as missing:
    print(missing)
    sys.exit(77)

HERE = pathlib.Path(__file__).parent
ROOT = HERE.parent.parent
CONTEXT, BATCH, STEPS = 16, 4, 5
LOSS_TOLERANCE = 1e-5


def run(program, *arguments):
    done = subprocess.run([program, *map(str, arguments)], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, arguments))}\n{done.stdout}{done.stderr}")
    return done.stdout


def load(folder, dtype):
    classes = {"GPT2LMHeadModel": transformers.GPT2LMHeadModel, "LlamaForCausalLM": transformers.LlamaForCausalLM}
    name = json.loads((folder / "config.json").read_text())["architectures"][0]
    model, info = classes[name].from_pretrained(folder, dtype=dtype, output_loading_info=True)
    if info["missing_keys"] or info["mismatched_keys"]:
        sys.exit(f"{folder}: {info}")
    return model.eval(), sorted(info["unexpected_keys"])


def logits(model, tokens):
    with torch.no_grad():
        return model(tokens[None], use_cache=False).logits[0].float()


def loss_of(model, tokens, step):
    rows = torch.stack([tokens[(step * BATCH + r) * CONTEXT:][:CONTEXT + 1] for r in range(BATCH)])
    with torch.no_grad():
        return F.cross_entropy(model(rows[:, :-1], use_cache=False).logits.flatten(0, 1), rows[:, 1:].flatten()).item()


def check(program, folder, work, tokens):
    row = {}
    probe = tokens[:40]
    original, _ = load(folder, torch.float32)
    expected = logits(original, probe)
    run(program, "import", folder, work / "run")
    for dtype, theirs in (("f32", torch.float32), ("bf16", torch.bfloat16), ("f16", torch.float16)):
        run(program, "export", work / "run", work / dtype, "--dtype", dtype)
        exported, unexpected = load(work / dtype, torch.float32)
        rounded = load(folder, theirs)[0].float()
        difference = (logits(exported, probe) - logits(rounded, probe)).abs().max().item()
        row[dtype] = "identical" if difference == 0 and not unexpected else f"{difference:.1e} {unexpected}"
        if exported.config.dtype != torch.float32 or exported.config.vocab_size != original.config.vocab_size:
            sys.exit(f"{folder}: config.json came back different")
    run(program, "export", work / "run", work / "shards", "--max-shard", "12KB")
    files = len(list((work / "shards").glob("*.safetensors")))
    difference = (logits(load(work / "shards", torch.float32)[0], probe) - expected).abs().max().item()
    row["sharded"] = f"identical, {files} files" if difference == 0 else f"{difference:.1e}"

    settings = [f"--data.tokens={HERE / 'tokens.bin'}", "--data.order=sequential", "--data.holdout=0",
                f"--model.context={CONTEXT}", f"--train.batch={BATCH}", f"--train.steps={STEPS}",
                "--train.warmup=0", "--output.keep=100", "--output.checkpoint_every=1"]
    run(program, "import", folder, work / "trained", *settings)
    run(program, "train", work / "trained", "--resume")
    losses = [json.loads(line)["loss"] for line in (work / "trained" / "metrics.jsonl").read_text().splitlines()]
    worst = 0.0
    for step in range(STEPS):  # the loss of a step is that of the weights before it
        run(program, "export", work / "trained", work / f"step{step}", "--step", step)
        worst = max(worst, abs(loss_of(load(work / f"step{step}", torch.float32)[0], tokens, step) - losses[step]))
    row["trained"] = f"{worst:.1e}" + ("" if worst <= LOSS_TOLERANCE else " WRONG")
    row["tokenizer"] = "none"
    if (folder / "tokenizer.json").exists():
        text = "the trireme's oars, ω"
        ids = [transformers.AutoTokenizer.from_pretrained(f)(text)["input_ids"] for f in (folder, work / "f32")]
        row["tokenizer"] = "identical" if ids[0] == ids[1] else "different"
    return row


def main():
    program = sys.argv[1] if len(sys.argv) > 1 else ROOT / "build/release/src/trireme/trireme"
    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    torch.set_num_threads(1)
    tokens = torch.from_numpy(np.fromfile(HERE / "tokens.bin", dtype="<u2").astype(np.int64))
    names = sorted(p.parent.name for p in HERE.glob("*/config.json"))
    columns = ["f32", "bf16", "f16", "sharded", "trained", "tokenizer"]
    print(f"transformers {transformers.__version__}, torch {torch.__version__.split('+')[0]}\n")
    print("| folder | " + " | ".join(columns) + " |")
    print("|---" * (len(columns) + 1) + "|")
    wrong = False
    for name in names:
        work = pathlib.Path(tempfile.mkdtemp())
        row = check(program, HERE / name, work, tokens)
        shutil.rmtree(work)
        print(f"| {name} | " + " | ".join(row[c] for c in columns) + " |", flush=True)
        wrong |= any(not row[c].startswith("identical") for c in columns[:4]) or "WRONG" in row["trained"]
        wrong |= row["tokenizer"] == "different"
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Twelve steps on a GPU with tensors kept elsewhere, against the same without: the same bits. Where the host's cores
make the update: the same to 1e-5, and the same bits when repeated. Needs a GPU; standard library only.

    tests/gpu/offload_like_plain.py PROGRAM [WORD…]      only cases in whose name one of the words is
"""
import json
import pathlib
import subprocess
import sys
import tempfile

DOCS = pathlib.Path(__file__).resolve().parents[2] / "docs"
MODEL = ["quickstart", "--model.context=256", f"--data.text=[\"{DOCS}\"]", "--model.family=gpt2", "--model.layers=4",
         "--model.width=512", "--model.heads=8", "--model.dropout=0.1", "--train.steps=12", "--train.batch=16",
         "--parallel.mesh=dp=1", "--output.checkpoint_every=0", "--runtime.device=cuda"]
PLAIN = {
    "f32": [],
    "bf16": ["--train.precision=bf16"],
    "bf16, 2 micro-batches": ["--train.precision=bf16", "--train.micro_batch=8"],
    "bf16, sqrt": ["--train.precision=bf16", "--memory.remat=sqrt"],
    "fp16": ["--train.precision=fp16", "--train.loss_scale=1048576"],  # the first steps overflow
    "bf16, sgd": ["--train.precision=bf16", "--train.optimizer=sgd", "--train.lr=0.01"],
}
ONLY_UPDATES = ["fp16", "bf16, sgd"]  # where nothing but the update is another
HOST = "--memory.offload_update=host"
OFFLOAD = {
    "activations": ["--memory.offload=activations", "--memory.offload_policy=all"],
    "optimizer": ["--memory.offload=optimizer"],
    "all": ["--memory.offload=all", "--memory.offload_policy=all"],
    "all, on disk": ["--memory.offload=all", "--memory.offload_policy=all", "--memory.offload_tier=disk"],
    "some of the optimizer's": ["--memory.offload=optimizer", "--memory.limit=LIMIT"],
    "optimizer, by the host": ["--memory.offload=optimizer", HOST],
    "all, by the host": ["--memory.offload=all", "--memory.offload_policy=all", HOST],
    "some, by the host": ["--memory.offload=optimizer", "--memory.limit=LIMIT", HOST],
}


def call(program, command, arguments):
    return subprocess.run([program, *command, *arguments], check=True, capture_output=True, text=True)


def run(program, folder, arguments):
    call(program, ["train"], [*MODEL, *arguments, f"--output.dir={folder}"])
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [(line["loss"], line["grad_norm"]) for line in lines if "grad_norm" in line]


def plan(program, arguments):
    report = json.loads(call(program, ["memory"], [*MODEL, *arguments, "--json", "--brief"]).stdout)["ranks"][0]
    return report["predicted_peak_bytes"], report.get("tiers", {})


def distance(a, b):  # a norm that is not finite is null
    return 0 if a == b else float("inf") if a is None or b is None else abs(a - b) / abs(b)


def main():
    program = str(pathlib.Path(sys.argv[1]).resolve())
    words = sys.argv[2:]
    bad = 0
    with tempfile.TemporaryDirectory() as scratch:
        for number, (name, plain) in enumerate(PLAIN.items()):
            expected = run(program, pathlib.Path(scratch) / f"{number}", plain)
            peak, _ = plan(program, plain)
            print(f"{name:22} {'':24} peak {peak / 2**20:7.1f} MiB, loss {expected[0][0]:.4f} → {expected[-1][0]:.4f}")
            for kind, settings in OFFLOAD.items():
                if words and not any(word in kind for word in words):
                    continue
                if name in ONLY_UPDATES and kind != "optimizer, by the host":
                    continue
                try:
                    if any("LIMIT" in s for s in settings):  # half of what all of them would save
                        least, _ = plan(program, [*plain, "--memory.offload=optimizer", *settings[2:]])
                        settings = [s.replace("LIMIT", str((least + peak) // 2)) for s in settings]
                    there, tiers = plan(program, [*plain, *settings])
                    got = run(program, pathlib.Path(scratch) / f"{number}-{kind}", [*plain, *settings])
                    again = got
                    if HOST in settings and got != expected:
                        again = run(program, pathlib.Path(scratch) / f"{number}-{kind}-again", [*plain, *settings])
                except subprocess.CalledProcessError as e:
                    print(f"{'':22} {kind:24} FAILED: {e.stderr.strip().splitlines()[-1:]}")
                    bad += 1
                    continue
                same = got == expected
                apart = max((distance(a, b) for x, y in zip(got, expected) for a, b in zip(x, y)), default=0)
                fine = len(got) == 12 and there <= peak and got == again and (
                    same or (HOST in settings and apart <= 1e-5))
                bad += not fine
                away = ", ".join(f"{bytes / 2**20:.1f} MiB on the {tier}" for tier, bytes in tiers.items() if bytes)
                print(f"{'':22} {kind:24} peak {there / 2**20:7.1f} MiB, {away}, "
                      f"{'the same bits' if same else f'apart by {apart:.1e}'}"
                      f"{'' if got == again else ', DOES NOT REPEAT'}{'' if fine else '  FAILED'}", flush=True)
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()

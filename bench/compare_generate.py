#!/usr/bin/env python3
"""Tokens per second of greedy decoding against `transformers`' generate, same weights, threads and tokens, in one run:
the two take turns, and medians are compared.

    python3 bench/compare_generate.py [--layers 12 --width 768 --heads 12] [--prompt 32] [--tokens 64] [--repeats 5]

Needs `pip install torch transformers`. The weights are random, of GPT-2 124M's shape by default, in f32. Both
time the tokens after the first, so the prompt is apart; both must make the same tokens.
"""
import argparse
import json
import os
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

import torch
from transformers import GPT2Config, GPT2LMHeadModel

ROOT = Path(__file__).resolve().parent.parent
TRIREME = ROOT / "build/release/src/trireme/trireme"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, value in (("layers", 12), ("width", 768), ("heads", 12), ("prompt", 32), ("tokens", 64), ("repeats", 5)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    a = parser.parse_args()
    torch.set_num_threads(a.threads)
    torch.manual_seed(1)
    config = GPT2Config(n_layer=a.layers, n_embd=a.width, n_head=a.heads, bos_token_id=None, eos_token_id=None)
    model = GPT2LMHeadModel(config).eval()
    prompt = torch.tensor([[(i * 7919 + 13) % config.vocab_size for i in range(a.prompt)]])

    def theirs(tokens):
        begin = time.perf_counter()
        with torch.inference_mode():
            made = model.generate(prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=tokens,
                                  do_sample=False, pad_token_id=0)
        return (time.perf_counter() - begin) * 1e3, made[0, a.prompt:].tolist()

    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)

        def ours():
            command = [TRIREME, "bench", "generate", "--from", folder, "--prompt", str(a.prompt), "--tokens",
                       str(a.tokens), "--repeats", "1", "--json", f"--runtime.threads={a.threads}"]
            return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)

        theirs(4)
        rows = []
        for _ in range(a.repeats):
            first, _ = theirs(1)
            whole, made = theirs(a.tokens)
            mine = ours()
            if mine["tokens"] != made:
                raise SystemExit(f"the tokens differ:\n  {mine['tokens']}\n  {made}")
            rows.append(((whole - first) / (a.tokens - 1), mine["token_ms"], first, mine["first_token_ms"]))
    columns = [statistics.median(c) for c in zip(*rows)]
    best = [min(c) for c in zip(*rows)]
    print(f"GPT-2 {a.layers}×{a.width}, f32, {a.threads} threads, {a.prompt} + {a.tokens} tokens, median of {a.repeats}"
          " interleaved; the tokens are equal")
    print(f"{'':22}{'transformers':>14}{'trireme':>12}{'ratio':>9}{'fastest':>9}")
    print(f"{'decode, tokens/s':22}{1e3 / columns[0]:14.1f}{1e3 / columns[1]:12.1f}{columns[0] / columns[1]:9.2f}"
          f"{best[0] / best[1]:9.2f}")
    print(f"{'prompt, ms':22}{columns[2]:14.1f}{columns[3]:12.1f}{columns[2] / columns[3]:9.2f}{best[2] / best[3]:9.2f}")


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Steps of a Llama with attention across documents and within them (model.document_end), in turn.

    bench/packed_documents.py PROGRAM                                             the Llama of 1.2 billion parameters, on a GPU
    bench/packed_documents.py PROGRAM --device cpu --shape 2,128,4,2,512 --vocab 512 --contexts 256x4 --documents 32 1000

Tokens are drawn at random, in documents of random lengths with the given mean; each ends with token 0.
"""
import argparse
import array
import json
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile


def write_tokens(path, mean, vocab, count):
    draw = random.Random(1)
    tokens = array.array("H")
    while len(tokens) < count:
        length = max(2, int(draw.expovariate(1 / mean)))
        tokens.extend(draw.randrange(1, vocab) for _ in range(length - 1))
        tokens.append(0)
    with open(path, "wb") as out:
        tokens.tofile(out)


def step_ms(a, tokens, context, batch, end):
    layers, width, heads, kv_heads, ffn = a.shape.split(",")
    command = [a.program, "bench", "step", "--json", f"--steps={a.steps}", "--warmup=3", "--model.family=llama", f"--model.layers={layers}",
               f"--model.width={width}", f"--model.heads={heads}", f"--model.kv_heads={kv_heads}", f"--model.ffn={ffn}", f"--model.vocab={a.vocab}",
               f"--model.context={context}", f"--train.batch={batch}", "--data.text=[]", f"--data.tokens={tokens}", "--data.token_type=uint16",
               "--data.holdout=0", f"--train.precision={a.precision}", "--parallel.mesh=dp=1", f"--runtime.device={a.device}",
               f"--model.document_end={end}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}\n{done.stderr[-2000:]}")
    return json.loads(done.stdout.strip().splitlines()[-1])["step_ms"]


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("program")
    p.add_argument("--shape", default="16,2048,16,8,8192", help="layers,width,heads,kv_heads,ffn")
    p.add_argument("--vocab", type=int, default=50304)
    p.add_argument("--contexts", nargs="+", default=["8192x2", "2048x8"], help="CONTEXTxROWS")
    p.add_argument("--documents", nargs="+", type=int, default=[1000, 4000, 1000000], help="mean tokens of a document")
    p.add_argument("--precision", default="bf16")
    p.add_argument("--device", choices=["cpu", "cuda"], default="cuda")
    p.add_argument("--steps", type=int, default=10)
    p.add_argument("--rounds", type=int, default=2)
    a = p.parse_args()
    print(f"{'context x rows':>16}{'tokens a document':>20}{'across ms':>12}{'within ms':>12}{'ratio':>8}")
    with tempfile.TemporaryDirectory(prefix="documents-") as folder:
        for mean in a.documents:
            tokens = pathlib.Path(folder) / f"{mean}.bin"
            write_tokens(tokens, mean, a.vocab, 400000)
            for size in a.contexts:
                context, rows = (int(n) for n in size.split("x"))
                sides = {-1: [], 0: []}
                for turn in range(a.rounds):
                    for end in ((-1, 0), (0, -1))[turn % 2]:
                        sides[end].append(step_ms(a, tokens, context, rows, end))
                across, within = (statistics.median(sides[end]) for end in (-1, 0))
                print(f"{size:>16}{mean:>20,}{across:>12.2f}{within:>12.2f}{within / across:>8.2f}", flush=True)


main()

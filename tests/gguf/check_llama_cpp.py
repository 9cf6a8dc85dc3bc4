#!/usr/bin/env python3
"""llama.cpp (pip install llama-cpp-python, or xllamacpp, which needs no compiler) continues exported files as we do: the same greedy tokens.

    python3 tests/gguf/check_llama_cpp.py [--program build/release/src/trireme/trireme] [--tokens 48] [--run RUN --prompts 'template<' …]

A GPT-2, a Llama with grouped heads and one with Llama 3's rotary scaling are trained on a few words for a moment, so that one token is clearly the likeliest, and exported
as f16; --run is a run of bytes in their place. A reader of files cannot see heads in the wrong order; a program that computes with them can. Exit code 77: neither package is
there.
"""
import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

CONTEXT = 96


def with_llama_cpp(file, prompts, count):
    from llama_cpp import Llama
    model = Llama(model_path=str(file), n_ctx=CONTEXT, n_threads=1, verbose=False, seed=1)
    for ids in prompts:
        made = []
        for token in model.generate(ids, temp=0.0, repeat_penalty=1.0):
            made.append(token)
            if len(made) == count:
                break
        yield made


def with_xllamacpp(file, prompts, count):
    import xllamacpp
    params = xllamacpp.CommonParams()
    params.model.path = str(file)
    params.n_ctx = CONTEXT
    params.n_parallel = 1
    params.warmup = False
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
    server = xllamacpp.Server(params)
    for ids in prompts:
        answer = server.handle_completions({"prompt": ids, "max_tokens": count, "n_predict": count, "temperature": 0, "repeat_penalty": 1.0,
                                            "ignore_eos": True, "cache_prompt": False})
        if "choices" not in answer:
            sys.exit(f"llama.cpp answers {answer}")
        yield list(answer["choices"][0]["text"].encode())  # a token is a byte


def binding():
    for package, how in (("llama_cpp", with_llama_cpp), ("xllamacpp", with_xllamacpp)):
        try:
            __import__(package)
            return how
        except ImportError:
            pass
    print("skipped: neither llama-cpp-python nor xllamacpp is installed")
    sys.exit(77)


ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
WORDS = ["oar ", "hull ", "stern ", "keel ", "bow\n", "the ", "rows ", "of "]
FAMILIES = {
    "gpt2": ["--model.family=gpt2", "--model.heads=4"],
    "llama": ["--model.family=llama", "--model.heads=4", "--model.kv_heads=2", "--model.ffn=160"],
    "llama3": ["--model.family=llama", "--model.heads=4", "--model.rope_scaling=llama3", "--model.rope_factor=8", "--model.rope_original=32"],
}


def call(program, *words):
    done = subprocess.run([program, *map(str, words)], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"trireme {' '.join(map(str, words))}\n{done.stdout}{done.stderr}")
    return done.stdout


def text():
    """Words of which each but every tenth follows from the one before."""
    state, word, words = 1, 0, []
    for _ in range(6000):
        state = (state * 1103515245 + 12345) % 2**32
        word = (state >> 16) % 8 if (state >> 20) % 10 == 0 else (3 * word + 1) % 8
        words.append(WORDS[word])
    return "".join(words)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", default=ROOT / "build/release/src/trireme/trireme")
    parser.add_argument("--tokens", type=int, default=48)
    parser.add_argument("--run")
    parser.add_argument("--prompts", nargs="*", default=["the ", "hull stern ", "rows of oar "])
    a = parser.parse_args()
    continued = binding()
    wrong = 0
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        (folder / "ships.txt").write_text(text())
        for family, keys in FAMILIES.items() if not a.run else [("run", [])]:
            run = a.run or folder / family
            if not a.run:
                call(a.program, "train", *keys, "--model.layers=2", "--model.width=64", f"--model.context={CONTEXT}", "--train.steps=150", "--train.batch=8",
                     "--train.lr=3e-3", f"--data.text={folder}/ships.txt", "--data.tokenizer=bytes", "--parallel.mesh=dp=1", "--replay=0",
                     f"--output.dir={run}")
            file = folder / f"{family}.gguf"
            call(a.program, "export", run, file, "--type", "f16")
            prompts = [list(prompt.encode()) for prompt in a.prompts]
            for ids, theirs in zip(prompts, continued(file, prompts, a.tokens)):
                ours = json.loads(call(a.program, "generate", "--from", run, "--prompt-tokens", ",".join(map(str, ids)), "--tokens", a.tokens,
                                       "--temperature", 0, "--json"))["tokens"]
                same = theirs == ours
                wrong += not same
                print(f"{family:<6} {bytes(ids)!r:<16} {'the same tokens' if same else f'OTHER TOKENS: {bytes(theirs)!r}, ours {bytes(ours)!r}'}", flush=True)
    sys.exit(1 if wrong else 0)


main()

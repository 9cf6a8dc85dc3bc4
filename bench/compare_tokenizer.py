"""Encode speed and training time of `trireme tokenize` against Hugging Face's `tokenizers` library, same threads, in one
run: the two take turns, and medians are compared.

    python3 bench/compare_tokenizer.py [--megabytes 20] [--repeats 5] [--threads N] [TEXT …]

Needs `pip install tokenizers`. Without TEXT it reads this machine's C++ headers and Python's own library. Encoding is
`encode_batch_fast` of documents of 100 lines against `trireme tokenize` of the same documents as JSON lines; the ids are
compared. Ours includes starting the program, reading the tokenizer and the JSON, and writing the token file; theirs is
the call alone. Training ends in the same vocabulary, which is compared too.
"""
import argparse
import array
import glob
import json
import os
import statistics
import subprocess
import sys
import sysconfig
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def read_text(paths, limit):
    if not paths:
        folders = ["/usr/include/c++", sysconfig.get_paths()["stdlib"]]
        paths = sorted(p for f in folders for p in glob.glob(f + "/**/*", recursive=True)
                       if os.path.isfile(p) and not p.endswith((".so", ".pyc", ".a", ".exe", ".whl")))
    parts, size = [], 0
    for path in paths:
        with open(path, "rb") as file:
            text = file.read().decode("utf-8", errors="replace")
        parts.append(text)
        size += len(text)
        if size >= limit:
            break
    return "".join(parts)[:limit]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text", nargs="*")
    parser.add_argument("--program", default=os.path.join(ROOT, "build/release/src/trireme/trireme"))
    parser.add_argument("--megabytes", type=float, default=20)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--vocab", type=int, default=32000)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    arguments = parser.parse_args()
    os.environ["RAYON_NUM_THREADS"] = str(arguments.threads)
    os.environ["TOKENIZERS_PARALLELISM"] = "true"
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    text = read_text(arguments.text, int(arguments.megabytes * 1e6))
    lines = text.split("\n")
    documents = ["\n".join(lines[i:i + 100]) for i in range(0, len(lines), 100)]
    size = sum(len(d.encode()) for d in documents) / 1e6
    folder = tempfile.mkdtemp()
    jsonl, vocabulary, tokens = (os.path.join(folder, n) for n in ("text.jsonl", "tokenizer.json", "tokens.bin"))
    with open(jsonl, "w") as file:
        for document in documents:
            file.write(json.dumps({"text": document}) + "\n")

    def ours(*options):
        start = time.perf_counter()
        subprocess.run([arguments.program, "tokenize", "--threads", str(arguments.threads), "--overwrite", *options, jsonl],
                       check=True, stdout=subprocess.DEVNULL)
        return time.perf_counter() - start

    print(f"{size:.1f} MB in {len(documents):,} documents, {arguments.threads} threads, vocabulary {arguments.vocab:,}")
    train_ours = ours("--train", str(arguments.vocab), "--out", vocabulary)
    library = Tokenizer(models.BPE())
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    start = time.perf_counter()
    library.train_from_iterator(documents, trainers.BpeTrainer(
        vocab_size=arguments.vocab, min_frequency=2, special_tokens=["<|endoftext|>"], show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    train_theirs = time.perf_counter() - start
    with open(vocabulary) as file:
        made = json.load(file)["model"]
    theirs = json.loads(library.to_str())["model"]
    same = made["vocab"] == theirs["vocab"] and made["merges"] == theirs["merges"]
    print(f"training   ours {train_ours:6.2f} s   library {train_theirs:6.2f} s   {train_theirs / train_ours:.1f}×"
          f"   same vocabulary and merges: {same}")

    tokenizer = Tokenizer.from_file(vocabulary)
    times = {"ours": [], "library": []}
    for _ in range(arguments.repeats):
        times["ours"].append(ours("--tokenizer", vocabulary, "--out", tokens))
        start = time.perf_counter()
        encoded = tokenizer.encode_batch_fast(documents, add_special_tokens=False)
        times["library"].append(time.perf_counter() - start)
    expected = array.array("H")
    for e in encoded:
        expected.extend(e.ids)
        expected.append(0)
    with open(tokens, "rb") as file:
        equal = file.read() == expected.tobytes()
    a, b = statistics.median(times["ours"]), statistics.median(times["library"])
    print(f"encoding   ours {size / a:6.1f} MB/s   library {size / b:6.1f} MB/s   {b / a:.1f}×   medians of"
          f" {arguments.repeats}   same {len(expected):,} ids: {equal}")
    sys.exit(0 if same and equal else 1)


if __name__ == "__main__":
    main()

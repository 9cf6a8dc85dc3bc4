"""Compares `trireme tokenize` with Hugging Face's `tokenizers` library: every id, and every text decoded from them, of at
least 100,000 strings for each tokenizer.json (those that make_fixtures.py trained, or the ones named). With --variants,
of a few thousand strings for each of many small files that try one component or option each.

    python3 tests/tokenizers/compare.py [--program build/release/src/trireme/trireme] [--strings 120000] [FILE.json …]
    python3 tests/tokenizers/compare.py --variants

Needs `pip install tokenizers`: exit code 77 where it is missing. Exits 1 when anything differs.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile

try:
    from tokenizers import Tokenizer
except ImportError as missing:
    print(missing)
    sys.exit(77)

import strings as source
import variants

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))


def ours(program, tokenizer, strings, add_specials):
    """Ids and texts by our program, in one process."""
    command = [program, "tokenize", "--tokenizer", tokenizer, "--lines"] + (["--add-specials"] if add_specials else [])
    lines = "".join(json.dumps(s) + "\n" for s in strings)
    output = subprocess.run(command, input=lines.encode(), stdout=subprocess.PIPE, check=True).stdout.decode()
    return [json.loads(line) for line in output.split("\n") if line]


def compare(program, path, strings, name=None):
    library = Tokenizer.from_file(path)
    different, ids = 0, 0
    parts = [(strings, False), (strings[::10], True)]
    for part, add_specials in parts:
        theirs = library.encode_batch(part, add_special_tokens=add_specials)
        mine = ours(program, path, part, add_specials)
        assert len(mine) == len(theirs), (len(mine), len(theirs))
        for text, a, b in zip(part, mine, theirs):
            ids += len(b.ids)
            plain, full = library.decode(b.ids, skip_special_tokens=True), library.decode(b.ids, skip_special_tokens=False)
            if a["ids"] != b.ids or a["text"] != full or a["plain"] != plain:
                different += 1
                if different <= 10:
                    print(f"  differs: {text!r}\n    ours   {a['ids'][:40]} {a['text']!r}\n    theirs {b.ids[:40]} {full!r}")
    print(f"{name or os.path.basename(path):30} {len(strings):,} strings, {len(parts[1][0]):,} of them also with special tokens,"
          f" {ids:,} ids: {different} differ", flush=True)
    return different


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tokenizers", nargs="*", help="tokenizer.json files; the three of make_fixtures.py if none")
    parser.add_argument("--program", default=os.path.join(ROOT, "build/release/src/trireme/trireme"))
    parser.add_argument("--strings", type=int, help="120,000, or 4,000 with --variants")
    parser.add_argument("--variants", action="store_true", help="many small files instead")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    paths = arguments.tokenizers or [os.path.join(HERE, n + ".json") for n in ("gpt2", "llama3", "sentencepiece")]
    strings = source.make(arguments.strings or (4000 if arguments.variants else 120000), arguments.seed)
    print(f"{len(strings):,} strings, {sum(len(s.encode()) for s in strings):,} bytes", flush=True)
    if arguments.variants:
        different = 0
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "tokenizer.json")
            for name, document in variants.make():
                with open(path, "w") as file:
                    json.dump(document, file)
                different += compare(arguments.program, path, strings, name)
        sys.exit(1 if different else 0)
    different = sum(compare(arguments.program, path, strings) for path in paths)
    sys.exit(1 if different else 0)


if __name__ == "__main__":
    main()

"""Small tokenizer.json files, each with one component or option that the three main ones do not have."""
import copy
import json
import os

HERE = os.path.dirname(os.path.abspath(__file__))
QWEN = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
# In the manner of larger vocabularies: categories, classes with escapes, a repeated interval, a possessive.
LARGER = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t)?|\p{N}{1,3}"
          r"|[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+| ?[^\s\p{L}\p{N}]++[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s")


def load(name):
    with open(os.path.join(HERE, name + ".json")) as file:
        return json.load(file)


def byte_level(**options):
    return {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True, **options}


def split(pattern, behavior="Isolated", invert=False, kind="Regex"):
    return {"type": "Split", "pattern": {kind: pattern}, "behavior": behavior, "invert": invert}


def sequence(*parts, key="pretokenizers"):
    return {"type": "Sequence", key: list(parts)}


def metaspace(**options):
    return {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": True, **options}


def added(content, **options):
    return {"content": content, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
            "special": False, **options}


def make():
    """(name, document) of each variant."""
    gpt2, llama3, pieces = load("gpt2"), load("llama3"), load("sentencepiece")
    variants = []

    def add(name, base, **changes):
        document = copy.deepcopy(base)
        for key, value in changes.items():
            if key in ("normalizer", "pre_tokenizer", "post_processor", "decoder"):
                document[key] = value
            elif key == "added_tokens":
                vocab, fresh = document["model"]["vocab"], len(document["model"]["vocab"])
                for token in value:
                    token["id"] = vocab.get(token["content"], fresh)
                    fresh += token["id"] == fresh
                document[key] += value
            else:
                document["model"][key] = value
        variants.append((name, document))

    spelled = byte_level(use_regex=False)
    add("qwen", llama3, pre_tokenizer=sequence(split(QWEN), spelled), ignore_merges=False)
    add("larger pattern", llama3, pre_tokenizer=sequence(split(LARGER), spelled))
    add("prefix space", gpt2, pre_tokenizer=byte_level(add_prefix_space=True))
    add("no cut", gpt2, pre_tokenizer=spelled)
    add("merges as text", gpt2, merges=[" ".join(pair) for pair in gpt2["model"]["merges"]])
    for behavior in ("Isolated", "Removed", "MergedWithPrevious", "MergedWithNext", "Contiguous"):
        add(f"split {behavior}", gpt2, pre_tokenizer=sequence(split(r"\p{P}| ", behavior), spelled))
        add(f"split {behavior} inverted", gpt2, pre_tokenizer=sequence(split(r"[\w']+", behavior, True), spelled))
        add(f"split text {behavior}", gpt2, pre_tokenizer=sequence(split("e", behavior, kind="String"), spelled))
        add(f"punctuation {behavior}", gpt2, pre_tokenizer=sequence({"type": "Punctuation", "behavior": behavior}, spelled))
    add("empty matches", gpt2, pre_tokenizer=sequence(split(r"a*"), spelled))
    add("word boundaries", gpt2, pre_tokenizer=sequence(split(r"\b\w+\b|\h{2}\B"), spelled))
    add("lines", gpt2, pre_tokenizer=sequence(split(r"^.|.$|(?<=e).(?=a)"), spelled))
    add("digits", gpt2, pre_tokenizer=sequence({"type": "Digits", "individual_digits": False}, byte_level()))
    add("single digits", gpt2, pre_tokenizer=sequence({"type": "Digits", "individual_digits": True}, byte_level()))
    add("white space", gpt2, pre_tokenizer=sequence({"type": "Whitespace"}, spelled))
    add("white space split", gpt2, pre_tokenizer=sequence({"type": "WhitespaceSplit"}, spelled))
    add("bytes before cutting", gpt2, pre_tokenizer=sequence(spelled, split(r"\p{L}+")))
    for form in ("NFC", "NFD", "NFKC", "NFKD", "Lowercase", "StripAccents"):
        add(form, gpt2, normalizer={"type": form})
    add("strip", gpt2, normalizer={"type": "Strip", "strip_left": True, "strip_right": True})
    add("strip left", gpt2, normalizer={"type": "Strip", "strip_left": True, "strip_right": False})
    add("accents and case", gpt2, normalizer=sequence({"type": "NFD"}, {"type": "StripAccents"}, {"type": "Lowercase"}, key="normalizers"))
    add("replace", gpt2, normalizer={"type": "Replace", "pattern": {"Regex": r"\s+"}, "content": " "})
    add("added tokens", gpt2, normalizer={"type": "Lowercase"}, added_tokens=[
        added("Trireme", normalized=True), added("the", single_word=True), added("<mask>", lstrip=True),
        added("for", rstrip=True), added("form"), added("é", normalized=True, single_word=True), added("  "),
        added("of the", lstrip=True, rstrip=True), added("GNU", normalized=True)])
    # No fallback: unknown characters, alone and together.
    for fuse in (False, True):
        add(f"unknown, fused {fuse}", pieces, byte_fallback=False, fuse_unk=fuse)
    add("no unknown", pieces, byte_fallback=False, unk_token=None)
    short = copy.deepcopy(pieces)
    short["model"]["vocab"].pop("<0xE2>")
    short["model"]["vocab"]["unused"] = pieces["model"]["vocab"]["<0xE2>"]
    add("a fallback byte missing", short)
    for scheme in ("always", "first", "never"):
        for whole in (False, True):
            add(f"metaspace {scheme} {whole}", pieces, normalizer=None,
                pre_tokenizer=metaspace(prepend_scheme=scheme, split=whole), decoder=metaspace(prepend_scheme=scheme))
    add("metaspace after strip", pieces, normalizer={"type": "Strip", "strip_left": True, "strip_right": False},
        pre_tokenizer=metaspace(prepend_scheme="first"), decoder=metaspace())
    add("ignored merges", pieces, ignore_merges=True, normalizer=None, pre_tokenizer=metaspace())
    add("no decoder", pieces, decoder=None)
    add("strip decoder", pieces, decoder=sequence(
        {"type": "Replace", "pattern": {"Regex": "▁+"}, "content": " "}, {"type": "ByteFallback"},
        {"type": "Strip", "content": " ", "start": 2, "stop": 0}, key="decoders"))
    # Words that end in a mark, and characters inside a word that begin with one.
    vocab, merges = {"<unk>": 0}, []
    for c in "abcdefghijklmnopqrstuvwxyz":
        for token in (c, c + "</w>", "##" + c, "##" + c + "</w>"):
            vocab[token] = len(vocab)
    suffixed = {"t": ["h"], "h": ["e</w>"], "a": ["n"], "n": ["d</w>"], "i": ["n", "s</w>"]}
    for a, bs in suffixed.items():
        for b in bs:
            vocab.setdefault(a + b, len(vocab))
            merges.append([a, b])
    base = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": {"type": "Lowercase"},
            "pre_tokenizer": {"type": "Whitespace"}, "post_processor": None, "decoder": {"type": "BPEDecoder", "suffix": "</w>"},
            "model": {"type": "BPE", "dropout": None, "unk_token": "<unk>", "continuing_subword_prefix": None,
                      "end_of_word_suffix": "</w>", "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
                      "vocab": vocab, "merges": merges}}
    add("suffix", base)
    prefixed = dict(vocab)
    pairs = []
    for a, b in (("t", "##h"), ("th", "##e"), ("a", "##n"), ("##n", "##d"), ("##i", "##n")):
        prefixed.setdefault(a + b[2:], len(prefixed))
        pairs.append([a, b])
    add("prefix", base, continuing_subword_prefix="##", end_of_word_suffix=None, vocab=prefixed, merges=pairs, fuse_unk=True,
        decoder=None)
    return variants

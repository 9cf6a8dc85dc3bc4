"""Trains three small tokenizers of different kinds with Hugging Face's `tokenizers` library and writes what that library
makes of a few thousand strings:

    python3 tests/tokenizers/make_fixtures.py        # needs `pip install tokenizers`

  gpt2.json           byte-level, GPT-2's pattern
  llama3.json         byte-level, Llama-3's pattern, NFC, ignore_merges, special and added tokens, a template
  sentencepiece.json  characters with byte fallback, Prepend and Replace in place of spaces, as Llama-2's file has it
  expected.json       {"strings": […], "gpt2": {"counts": […], "text": {…}, …}, …}: how many ids each string has, and what
                      they decode to where that is not the string itself
  expected.bin        all the ids one after another, uint16

The tests read these files, so they need neither Python nor the library.
"""
import array
import json
import os

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

import strings as source

HERE = os.path.dirname(os.path.abspath(__file__))
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)"
          r"|\s+")


def gpt2(corpus):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(corpus, trainers.BpeTrainer(
        vocab_size=3000, special_tokens=["<|endoftext|>"], show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    return tokenizer


def llama3(corpus):
    tokenizer = Tokenizer(models.BPE(ignore_merges=True))
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(LLAMA3), behavior="isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(corpus, trainers.BpeTrainer(
        vocab_size=3000, special_tokens=["<|begin|>", "<|end_of_text|>", "<|im_start|>"], show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    tokenizer.add_tokens([AddedToken("Trireme", single_word=True), AddedToken("<mask>", lstrip=True, rstrip=True, normalized=False)])
    tokenizer.post_processor = processors.Sequence([
        processors.ByteLevel(trim_offsets=True),
        processors.TemplateProcessing(single="<|begin|> $A", pair="<|begin|> $A <|begin|> $B",
                                      special_tokens=[("<|begin|>", tokenizer.token_to_id("<|begin|>"))])])
    return tokenizer


def sentencepiece(corpus):
    specials = ["<unk>", "<s>", "</s>"] + [f"<0x{b:02X}>" for b in range(256)]
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    # Trained on words, then used without any cut, as SentencePiece does.
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="never")
    tokenizer.train_from_iterator(corpus, trainers.BpeTrainer(
        vocab_size=3000, special_tokens=specials, limit_alphabet=600, show_progress=False))
    document = json.loads(tokenizer.to_str())
    document["pre_tokenizer"] = None
    document["added_tokens"] = [t for t in document["added_tokens"] if not t["content"].startswith("<0x")]
    tokenizer = Tokenizer.from_str(json.dumps(document))
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(),
                                           decoders.Strip(content=" ", left=1, right=0)])
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A", pair="<s> $A <s> $B", special_tokens=[("<s>", 1)])
    return tokenizer


def other(texts, strings):
    """The texts that differ from their strings, by position."""
    return {str(i): t for i, (t, s) in enumerate(zip(texts, strings)) if t != s}


def main():
    corpus = source.make(40000, seed=7)
    strings = source.make(2000, seed=2)
    expected, ids = {"strings": strings}, array.array("H")
    for name, build in (("gpt2", gpt2), ("llama3", llama3), ("sentencepiece", sentencepiece)):
        tokenizer = build(corpus)
        tokenizer.save(os.path.join(HERE, name + ".json"), pretty=False)
        encoded = [e.ids for e in tokenizer.encode_batch(strings, add_special_tokens=False)]
        expected[name] = {
            "counts": [len(e) for e in encoded], "hello": tokenizer.encode("Hello", add_special_tokens=True).ids,
            "text": other([tokenizer.decode(e, skip_special_tokens=False) for e in encoded], strings),
            "plain": other([tokenizer.decode(e, skip_special_tokens=True) for e in encoded], strings)}
        for e in encoded:
            ids.extend(e)
        print(f"{name}: {tokenizer.get_vocab_size()} tokens, {sum(map(len, encoded)):,} ids of {len(strings):,} strings")
    with open(os.path.join(HERE, "expected.json"), "w") as file:
        json.dump(expected, file, ensure_ascii=False, separators=(",", ":"))
    with open(os.path.join(HERE, "expected.bin"), "wb") as file:
        file.write(ids.tobytes())


if __name__ == "__main__":
    main()

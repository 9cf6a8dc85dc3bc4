#!/usr/bin/env python3
"""Writes the seeds of the fuzzers into tests/fuzz/corpus/<target>/seed-*, small files of each kind, good and bad.

Needs nothing beyond Python. What fuzzers find lies next to the seeds (finding-*) and is left alone.
"""
import json
import pathlib
import struct

here = pathlib.Path(__file__).parent
root = here.parent.parent


def seed(target, name, data):
    folder = here / "corpus" / target
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"seed-{name}").write_bytes(data if isinstance(data, bytes) else data.encode())


def safetensors():
    def file(header, data=b""):
        text = header if isinstance(header, str) else json.dumps(header, separators=(",", ":"))
        return struct.pack("<Q", len(text)) + text.encode() + data

    def tensor(dtype, shape, begin, end):
        return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}

    good = {"__metadata__": {"format": "pt"}, "a": tensor("F32", [2, 3], 0, 24), "b.c": tensor("BF16", [4], 24, 32)}
    seed("safetensors", "good", file(good, bytes(range(32))))
    seed("safetensors", "empty", file({}))
    seed("safetensors", "scalars", file({"s": tensor("F64", [], 0, 8), "z": tensor("I64", [0, 5], 8, 8)}, bytes(8)))
    kinds = ["F16", "I32", "U16", "U8", "I8"]
    sizes = [2, 4, 2, 1, 1]
    every, at = {}, 0
    for kind, size in zip(kinds, sizes):
        every[kind.lower()] = tensor(kind, [3], at, at + 3 * size)
        at += 3 * size
    seed("safetensors", "types", file(every, bytes(at)))
    seed("safetensors", "overlap", file({"a": tensor("U8", [4], 0, 4), "b": tensor("U8", [4], 2, 6)}, bytes(6)))
    seed("safetensors", "hole", file({"a": tensor("U8", [4], 2, 6)}, bytes(6)))
    seed("safetensors", "huge", file({"a": tensor("F32", [2**32, 2**32], 0, 8)}, bytes(8)))
    seed("safetensors", "twice", file('{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},'
                                      '"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}', b"x"))
    seed("safetensors", "long", struct.pack("<Q", 2**63) + b"{}")
    seed("safetensors", "escapes", file('{"\\u00e9\\ud83d\\ude00":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}', bytes(4)))


def byte_alphabet():
    kept = [*range(33, 127), *range(161, 173), *range(174, 256)]
    extra = iter(range(256, 512))
    return [chr(b) if b in kept else chr(next(extra)) for b in range(256)]


def tokenizers():
    letters = byte_alphabet()
    merges = [["t", "h"], ["th", "e"], ["Ġ", "the"], ["i", "n"], ["e", "r"], ["o", "n"], ["1", "2"]]

    def vocab_of(tokens):
        return {token: i for i, token in enumerate(tokens)}

    def added(i, content, special=True, **more):
        return {"id": i, "content": content, "single_word": False, "lstrip": False, "rstrip": False,
                "normalized": False, "special": special, **more}

    tokens = letters + [a + b for a, b in merges]
    model = {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
             "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
             "vocab": vocab_of(tokens), "merges": [" ".join(m) for m in merges]}
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    base = {"version": "1.0", "truncation": None, "padding": None,
            "added_tokens": [added(len(tokens), "<|endoftext|>")], "normalizer": None, "pre_tokenizer": byte_level,
            "post_processor": byte_level, "decoder": byte_level, "model": model}

    def write(name, value, text):
        body = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
        seed("tokenizer", name, body.encode() + b"\0" + text.encode())

    write("gpt2", base, "the inner thing's <|endoftext|> 12")
    pattern = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
               r"|\s*[\r\n]+|\s+(?!\S)|\s+")
    split = {"type": "Sequence", "pretokenizers": [
        {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False},
        {**byte_level, "use_regex": False}]}
    template = {"type": "TemplateProcessing",
                "single": [{"SpecialToken": {"id": "<|begin|>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
                "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
                "special_tokens": {"<|begin|>": {"id": "<|begin|>", "ids": [len(tokens)], "tokens": ["<|begin|>"]}}}
    write("llama3", {**base, "added_tokens": [added(len(tokens), "<|begin|>"),
                                              added(len(tokens) + 1, "tool", special=False, single_word=True, lstrip=True)],
                     "normalizer": {"type": "NFC"}, "pre_tokenizer": split,
                     "post_processor": {"type": "Sequence", "processors": [byte_level, template]},
                     "model": {**model, "ignore_merges": True, "merges": merges}}, "don't tool  12345\r\n\n e\u0301")
    pieces = ["<unk>", "<s>", "</s>", *[f"<0x{b:02X}>" for b in range(256)], "▁", "t", "h", "e", "▁t", "he", "▁the"]
    sentence = {**base,
                "added_tokens": [added(0, "<unk>"), added(1, "<s>"), added(2, "</s>")],
                "normalizer": {"type": "Sequence", "normalizers": [
                    {"type": "Prepend", "prepend": "▁"},
                    {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]},
                "pre_tokenizer": None, "post_processor": None,
                "decoder": {"type": "Sequence", "decoders": [
                    {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"},
                    {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
                "model": {**model, "unk_token": "<unk>", "fuse_unk": True, "byte_fallback": True,
                          "vocab": vocab_of(pieces), "merges": [["▁", "t"], ["h", "e"], ["▁t", "he"]]}}
    write("sentencepiece", sentence, "the théâtre </s>")
    small = {**base, "added_tokens": [],
             "model": {**model, "vocab": {"a": 0, "b": 1, "ab": 2, "Ġ": 3}, "merges": ["a b"]}}
    for name, normalizer in {"lower": {"type": "Lowercase"}, "nfkc": {"type": "NFKC"}, "nfd": {"type": "NFD"},
                             "strip": {"type": "Strip", "strip_left": True, "strip_right": True},
                             "accents": {"type": "StripAccents"},
                             "replace": {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "}}.items():
        write("small-" + name, {**small, "normalizer": normalizer}, " abba  AB ")
    for name, pre in {"digits": {"type": "Digits", "individual_digits": True}, "whitespace": {"type": "Whitespace"},
                      "metaspace": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": True},
                      "punctuation": {"type": "Punctuation", "behavior": "MergedWithPrevious"}}.items():
        write("small-" + name, {**small, "pre_tokenizer": pre}, "ab 12, ba!")
    seed("tokenizer", "not-json", b"{\"model\":")


def configs():
    seed("config", "small", '[model]\nfamily = "gpt2"\nlayers = 2\n[train]\nsteps = 10\nbetas = [0.9, 0.95]\n')
    seed("config", "images", '[model]\nfamily = "resnet"\nlayers = 18\n[data]\nimages = "synthetic"\naugment = "none"\n'
                             '[train]\noptimizer = "sgd"\nlr = 0.05\nschedule = "wsd:0.2"\n')
    seed("config", "choices", '[data]\ntokens = ["web-*.bin@0.7", "code.bin@0.3"]\nholdout = 0\norder = "sequential"\n'
                              '[model]\nvocab = 50257\n[parallel]\nmesh = "dp=1"\nbucket = "25MiB"\ntimeout = "90s"\n'
                              'sharding = { "*.up.weight" = "out:tp" }\n[output]\ncheckpoint_every = "10min"\n')
    seed("config", "dotted", 'train.lr = 1e-3\ntrain.max_time = "3h50m"\nmodel.tie_embeddings = true\n'
                             'memory.limit = "8GiB"\nmemory.remat = "none"\noutput.checkpoint_every = 100\n')
    seed("config", "unknown", '[train]\nlearning_rate = 1\n[trian]\nlr = "fast"\n')
    seed("config", "dates", 'a = 1979-05-27T07:32:00Z\nb = """\nx\\u00e9"""\nc = [1, [2, {d = inf}]]\ne = 0xdead\n')
    seed("config", "edges", '[train]\nlr = nan\nsteps = 9223372036854775807\nbatch = -1\nmicro_batch = 2147483647\n')
    seed("config", "all", CONFIG_ALL)
    seed("config", "deep_table", "[" + "a." * 30000 + "a]\n")
    seed("config", "deep_key", "a." * 30000 + "a = 1\n")


CONFIG_ALL = """[model]
family = "llama"
layers = 4
width = 128
heads = 4
kv_heads = 2
head_dim = 32
ffn = 344
context = 128
vocab = 256
dropout = 0.1
tie_embeddings = "auto"
norm_eps = 1e-05
init_std = 0.02
rope_theta = 10000.0
rope_scaling = "llama3"
rope_factor = 8.0
[data]
text = ["/usr/include/c++"]
token_type = "uint16"
tokenizer = "bytes"
eval = []
[memory]
offload = "none"
activations = "full"
[runtime]
device = "cpu"
threads = 2
transport = "auto"
link = ""
[output]
keep = 2
log_every = 1
"""


def hf_configs():
    gpt2 = {"architectures": ["GPT2LMHeadModel"], "model_type": "gpt2", "n_layer": 2, "n_embd": 32, "n_head": 4,
            "n_positions": 64, "n_inner": None, "vocab_size": 100, "activation_function": "gelu_new",
            "layer_norm_epsilon": 1e-5, "initializer_range": 0.02, "resid_pdrop": 0.1, "attn_pdrop": 0.1,
            "embd_pdrop": 0.1, "tie_word_embeddings": True, "torch_dtype": "float32"}
    llama = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "num_hidden_layers": 2, "hidden_size": 32,
             "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "intermediate_size": 64,
             "max_position_embeddings": 64, "vocab_size": 100, "hidden_act": "silu", "rms_norm_eps": 1e-6,
             "rope_theta": 10000.0, "rope_scaling": None, "attention_bias": False, "mlp_bias": False,
             "tie_word_embeddings": False}
    scaling = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
               "original_max_position_embeddings": 8192}
    seed("hf_config", "gpt2", json.dumps(gpt2))
    seed("hf_config", "llama", json.dumps(llama))
    seed("hf_config", "llama3", json.dumps({**llama, "rope_scaling": scaling}))
    seed("hf_config", "newer", json.dumps({**llama, "rope_parameters": {**scaling, "rope_theta": 500000.0}}))
    seed("hf_config", "linear", json.dumps({**llama, "rope_scaling": {"type": "linear", "factor": 2.0}}))
    seed("hf_config", "other", json.dumps({"model_type": "mamba"}))
    seed("hf_config", "huge", json.dumps({**llama, "hidden_size": 2**63, "num_attention_heads": 0}))


def megatron():
    def index(code, lengths, documents, width, extra=b"", version=1):
        offsets, at = [], 0
        for length in lengths:
            offsets.append(at)
            at += length * width
        body = b"MMIDIDX\0\0" + struct.pack("<QBQQ", version, code, len(lengths), len(documents))
        body += struct.pack(f"<{len(lengths)}i", *lengths) + struct.pack(f"<{len(offsets)}q", *offsets)
        return struct.pack("<Q", at) + body + struct.pack(f"<{len(documents)}q", *documents) + extra

    seed("megatron_index", "uint16", index(8, [5, 7, 0, 3], [0, 2, 4], 2))
    seed("megatron_index", "int32", index(4, [5, 7], [0, 1, 2], 4))
    seed("megatron_index", "modes", index(1, [5, 7], [0, 2], 1, extra=b"\0\1"))
    seed("megatron_index", "type", index(6, [5], [0, 1], 8))
    seed("megatron_index", "version", index(8, [5], [0, 1], 2, version=2))
    seed("megatron_index", "empty", index(8, [], [0], 2))
    # So many sequences that the bytes of their lists with modes wrap around to those of the file.
    wraps = b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, 8, 1418980313362273204, 0)
    seed("megatron_index", "wraps", struct.pack("<Q", 4000) + wraps.ljust(70, b"\0"))


def images():
    def idx(extents, elements, code=8):
        return bytes([0, 0, code, len(extents)]) + struct.pack(f">{len(extents)}I", *extents) + elements

    def pair(pixels, labels):
        return struct.pack("<I", len(pixels)) + pixels + labels

    seed("idx_images", "grey", pair(idx([3, 4, 4], bytes(range(48))), idx([3], bytes([0, 9, 4]))))
    seed("idx_images", "colour", pair(idx([2, 3, 3, 3], bytes(range(54))), idx([2], bytes([1, 0]))))
    seed("idx_images", "short", pair(idx([3, 4, 4], bytes(40)), idx([3], bytes(3))))
    seed("idx_images", "floats", pair(idx([1, 1, 1], bytes(4), code=13), idx([1], bytes(1))))
    seed("idx_images", "huge", pair(idx([2**31, 2**31, 2**31], b""), idx([2**31], b"")))
    record = bytes(i * 7 % 256 for i in range(3072))
    seed("cifar_images", "ten", b"\3" + record + b"\7" + record)
    seed("cifar_images", "hundred", b"\3\5" + record)
    seed("cifar_images", "beyond", b"\xff" + record)
    seed("cifar_images", "short", b"\3" + record[:100])


def graphs():
    for path in sorted((root / "tests/golden").glob("*/*.in.txt")):
        if path.stat().st_size <= 2500 and path.parent.name in ("fuse", "clean-up", "precision", "validate", "optimizer", "autodiff"):
            seed("graph", f"{path.parent.name}-{path.name.removesuffix('.in.txt')}", path.read_bytes())


def manifests():
    tensor = ('"w": {"dtype":"f32","shape":[4,2],"role":"weights","slices":[{"file":"r0.safetensors","start":[0,0],'
              '"extent":[2,2],"checksum":"0123456789abcdef"},{"file":"r0.safetensors","start":[2,0],"extent":[2,2],'
              '"checksum":"0123456789abcdef"}]}')
    scalar = ('"s": {"dtype":"f32","shape":[],"role":"scalars","slices":[{"file":"r0.safetensors","start":[],"extent":[],'
              '"checksum":"0123456789abcdef"}]}')

    def manifest(tensors, file="r0.safetensors", step=5):
        return ('{\n"format": 2,\n"step": %d,\n"data": {"samples":40,"order":"shuffled"},\n"random": '
                '{"kind":"counter","seed":1,"step":5},\n"config": "[train]\\nsteps = 5\\n",\n"files": {\n"%s": '
                '{"bytes":400,"header":"0123456789abcdef"}\n},\n"tensors": {\n%s\n}') % (step, file, ",\n".join(tensors))

    seed("manifest", "good", manifest([tensor, scalar]))
    seed("manifest", "none", manifest([]))
    seed("manifest", "outside", manifest([tensor], file="../../etc/passwd"))
    seed("manifest", "gap", manifest([tensor.replace('"start":[2,0]', '"start":[3,0]')]))
    seed("manifest", "step", manifest([scalar], step=6))


def ggufs():
    def text(value):
        return struct.pack("<Q", len(value)) + value.encode()

    def entry(key, kind, data):
        return text(key) + struct.pack("<I", kind) + data

    def file(entries, tensors, data, version=3, align=32):
        out = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(entries)) + b"".join(entries)
        for name, dims, kind, offset in tensors:
            out += text(name) + struct.pack("<I", len(dims)) + b"".join(struct.pack("<Q", d) for d in dims)
            out += struct.pack("<IQ", kind, offset)
        return out + bytes(-len(out) % align) + data

    def number(key, value):
        return entry(key, 4, struct.pack("<I", value))

    def model(family, **changes):
        arch = family + "."
        norm = "attention.layer_norm_epsilon" if family == "gpt2" else "attention.layer_norm_rms_epsilon"
        sizes = {"context_length": 2, "embedding_length": 4, "block_count": 1, "feed_forward_length": 8,
                 "attention.head_count": 2}
        if family == "llama":
            sizes |= {"attention.head_count_kv": 1, "attention.key_length": 2, "rope.dimension_count": 2}
        numbers = {norm: 1e-5}
        for key, value in changes.items():
            (numbers if isinstance(value, float) else sizes)[key.replace("__", ".")] = value
        return ([entry("general.architecture", 8, text(family))] + [number(arch + k, v) for k, v in sizes.items()] +
                [entry(arch + k, 6, struct.pack("<f", v)) for k, v in numbers.items()])

    # Offsets in the order of the names.
    def placed(shapes):
        tensors, offset = [], 0
        for name, dims in shapes:
            tensors.append((name, dims, 0, offset))
            size = 4
            for extent in dims:
                size *= extent
            offset += -(-size // 32) * 32
        return tensors, bytes(offset)

    width, vocab, context = 4, 3, 2
    tokenizer = [entry("tokenizer.ggml.tokens", 9, struct.pack("<IQ", 8, vocab) + text("a") + text("b") + text("c")),
                 entry("tokenizer.ggml.token_type", 9, struct.pack("<IQ", 5, vocab) + struct.pack("<iii", 1, 1, 3)),
                 entry("general.flag", 7, b"\x01")]
    keys = model("gpt2") + tokenizer
    gpt2 = [("token_embd.weight", [width, vocab]), ("position_embd.weight", [width, context])]
    gpt2 += [("blk.0." + name, dims) for name, dims in (
        ("attn_norm.weight", [4]), ("attn_norm.bias", [4]), ("attn_qkv.weight", [4, 12]), ("attn_qkv.bias", [12]),
        ("attn_output.weight", [4, 4]), ("attn_output.bias", [4]), ("ffn_norm.weight", [4]), ("ffn_norm.bias", [4]),
        ("ffn_up.weight", [4, 8]), ("ffn_up.bias", [8]), ("ffn_down.weight", [8, 4]), ("ffn_down.bias", [4]))]
    gpt2 += [("output_norm.weight", [4]), ("output_norm.bias", [4])]
    tensors, data = placed(gpt2)
    seed("gguf", "good", file(keys, tensors, data))
    llama = [("token_embd.weight", [width, vocab])]
    llama += [("blk.0." + name, dims) for name, dims in (
        ("attn_norm.weight", [4]), ("attn_q.weight", [4, 4]), ("attn_k.weight", [4, 2]), ("attn_v.weight", [4, 2]),
        ("attn_output.weight", [4, 4]), ("ffn_norm.weight", [4]), ("ffn_gate.weight", [4, 8]),
        ("ffn_up.weight", [4, 8]), ("ffn_down.weight", [8, 4]))]
    llama += [("output_norm.weight", [4]), ("output.weight", [width, vocab])]
    seed("gguf", "llama", file(model("llama") + tokenizer, *placed(llama)))
    seed("gguf", "left_over", file(model("llama"), *placed(llama + [("blk.0.attn_q.bias", [4])])))
    for name, change in (("no_heads", {"attention__head_count": 0}), ("no_layers", {"block_count": 0}),
                         ("layers", {"block_count": 2**32 - 1}), ("width", {"embedding_length": 2**31 - 1}),
                         ("rotary", {"rope__dimension_count": 4}), ("nan", {"rope__freq_base": float("nan")})):
        seed("gguf", name, file(model("llama", **change), *placed(llama)))
    blocks = [("q8", [32, 2], 8, 0), ("q4", [32], 2, 96), ("half", [3], 1, 128)]
    seed("gguf", "blocks", file(keys, tensors + [(n, d, k, len(data) + o) for n, d, k, o in blocks],
                                data + bytes(160)))
    seed("gguf", "empty", file([], [], b""))
    seed("gguf", "cut", file(keys, tensors, data[:100]))
    seed("gguf", "huge", file(keys, [("a", [2**40, 2**40], 0, 0)], bytes(32)))
    seed("gguf", "overflow", file(keys, [("a", [2**31, 2**31, 2, 2], 0, 0)], bytes(32)))
    seed("gguf", "version", file([], [], b"", version=2))
    seed("gguf", "counts", b"GGUF" + struct.pack("<IQQ", 3, 2**60, 2**60))
    seed("gguf", "long_text", b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + struct.pack("<Q", 2**63) + b"a")


def clusters():
    good = ('name = "two"\ntransport = "threads"\nstep = "1ms"\ngeneration = "old"\n[device]\nname = "CPU"\nkind = "cpu"\nmemory = "8GiB"\n'
            'memory_bandwidth = "20GB/s"\nlaunch = "1us"\nflops = { f32 = 80e9 }\nkernels = { attention = 0.5 }\n'
            'tiles = [ { rows = 128, columns = 64, efficiency = 0.9 } ]\n'
            'measured = [ { kernel = "matmul+tb", dtype = "f32", threads = 1, sizes = [64, 64, 64], seconds = 1.25e-5 } ]\n'
            '[node]\ndevices = 8\ncores = 2\n[inside]\nbandwidth = "5GB/s"\nlatency = "20us"\n'
            'measured = [ { collective = "all_reduce", ranks = 2, bytes = 4096, seconds = 1.5e-5 } ]\n'
            '[network]\nbandwidth = "1GB/s"\n[host]\nbandwidth = "10GB/s"\n[software.old]\nattention = "scores"\n'
            '[devices."slow one"]\nname = "CPU"\nmemory = "1GiB"\nmemory_bandwidth = "1GB/s"\nflops = { f32 = 1e9 }\n'
            '[[ranks]]\nfirst = 1\nlast = 2\ndevice = "slow one"\nspeed = 0.5\n')
    seed("cluster", "good", good)
    seed("cluster", "empty", "")
    seed("cluster", "negative", good.replace("devices = 8", "devices = -8"))
    seed("cluster", "unknown", "wings = 2\n" + good)
    seed("cluster", "deep_table", "[" + "a." * 30000 + "a]\n")


def schedules():
    seed("schedule", "gpipe", "F0 F1 B0 B1 U\nF0 F1 B0 B1 U\n")
    seed("schedule", "1f1b", "# two stages\nF0 F1 B0 F2 B1 B2 U\nF0 B0 F1 B1 F2 B2 U\n")
    seed("schedule", "zero_bubble", "F0 F1 B0 W0 B1 W1 U\nF0 B0 W0 F1 B1 W1 U\n")
    seed("schedule", "chunks", "F0.0 F0.1 B0.1 B0.0 U\nF0.0 F0.1 B0.1 B0.0 U\n")
    seed("schedule", "deadlock", "B0 F0 U\nF0 B0 U\n")
    seed("schedule", "huge", "F2147483648 B99999999999999999999 U\n")
    seed("schedule", "parts", "fill\nF0\n\nsteady delayed\nF1 B0 U\ndrain\nB1 U\n")


def plans():
    good = ('model = "6a09e667f3bcc908"\n[train]\nmicro_batch = 4\nprecision = "f32"\n[parallel]\nmesh = "pp=2,dp=2"\n'
            'pipeline = "zero-bubble:auto"\nzero = 1\nstages = [2, 2]\n[memory]\nremat = "optimal"\nlimit = "1GiB"\n'
            '[runtime]\noverlap_wgrad = false\n[parallel.sharding]\n"*.up.weight" = "out:tp"\n[decisions]\ndevice = "cpu"\n'
            'recompute = ["blocks.0.ln1"]\noffload_activations = []\noffload_states = []\nstaging = 1048576\nheld = 3\n')
    seed("plan", "good", good)
    seed("plan", "device", good.replace('"cpu"', '"abacus"'))
    seed("plan", "held", good.replace("held = 3", "held = 4294967297"))
    seed("plan", "names", good.replace('["blocks.0.ln1"]', "[1, 2]"))
    seed("plan", "key", good.replace("zero = 1", "lr = 1"))
    seed("plan", "empty", "")


for make in (safetensors, tokenizers, configs, hf_configs, megatron, images, graphs, manifests, ggufs, clusters, schedules,
             plans):
    make()

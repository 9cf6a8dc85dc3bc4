#!/usr/bin/env python3
"""Reads a GGUF file with the gguf package and compares every tensor, to the bit, with a Hugging Face folder (f32).

    trireme export RUN model.gguf --type q8_0 && trireme import model.gguf BACK && trireme export BACK folder
    tests/gguf/check_file.py model.gguf folder

The package and this repository then read the same numbers. Exit code 77: the package is not there.
"""
import json
import pathlib
import struct
import sys

try:
    import numpy
    from gguf import GGUFReader, quants
except ImportError:
    sys.exit(77)

NAMES = {
    "gpt2": {
        "token_embd.weight": "transformer.wte.weight", "position_embd.weight": "transformer.wpe.weight",
        "output_norm": "transformer.ln_f", "output.weight": "lm_head.weight", "attn_norm": "ln_1", "ffn_norm": "ln_2",
        "attn_qkv": "attn.c_attn", "attn_output": "attn.c_proj", "ffn_up": "mlp.c_fc", "ffn_down": "mlp.c_proj",
        "blocks": "transformer.h",
    },
    "llama": {
        "token_embd.weight": "model.embed_tokens.weight", "output_norm": "model.norm", "output.weight": "lm_head.weight",
        "attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm", "attn_q": "self_attn.q_proj",
        "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj",
        "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj", "blocks": "model.layers",
    },
}


def safetensors(folder):
    tensors = {}
    for path in pathlib.Path(folder).glob("*.safetensors"):
        raw = path.read_bytes()
        size = struct.unpack("<Q", raw[:8])[0]
        for name, info in json.loads(raw[8 : 8 + size]).items():
            if name == "__metadata__":
                continue
            assert info["dtype"] == "F32", (name, info["dtype"])
            begin, end = info["data_offsets"]
            tensors[name] = numpy.frombuffer(raw[8 + size + begin : 8 + size + end], "<f4").reshape(info["shape"])
    return tensors


def their_name(name, names):
    if name in names:
        return names[name]
    parts = name.split(".")
    if parts[0] == "blk":
        return ".".join([names["blocks"], parts[1], names[parts[2]], parts[3]])
    return names[parts[0]] + "." + parts[1]


def main():
    reader = GGUFReader(sys.argv[1])
    folder = safetensors(sys.argv[2])
    arch = reader.fields["general.architecture"].contents()
    compared = 0
    for tensor in reader.tensors:
        if tensor.name == "rope_freqs.weight":
            continue  # follows from the configuration
        values = quants.dequantize(tensor.data, tensor.tensor_type).astype(numpy.float32)
        values = values.reshape([int(d) for d in reversed(tensor.shape)])
        name = their_name(tensor.name, NAMES[arch])
        other = folder[name]
        if arch == "gpt2" and values.ndim == 2 and "blk." in tensor.name:
            other = other.T
        if arch == "llama" and tensor.name.split(".")[-2] in ("attn_q", "attn_k"):
            key = "llama.attention.head_count" + ("_kv" if ".attn_k." in tensor.name else "")
            heads = int(reader.fields[key].contents())
            rows, width = other.shape
            other = other.reshape(heads, 2, rows // heads // 2, width).swapaxes(1, 2).reshape(rows, width)
        assert values.shape == other.shape, (name, values.shape, other.shape)
        assert (values.view(numpy.uint32) == numpy.ascontiguousarray(other).view(numpy.uint32)).all(), name
        compared += 1
    assert compared == len(folder), (compared, len(folder))
    print(f"{compared} tensors are the same to the bit")


main()

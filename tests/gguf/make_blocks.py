#!/usr/bin/env python3
"""Writes blocks.json: what the gguf package makes of some numbers, and what it reads from some bytes.

    pip install gguf && tests/gguf/make_blocks.py
"""
import json
import pathlib

import numpy
from gguf import GGMLQuantizationType, quants

random = numpy.random.default_rng(7)
values = (random.standard_normal(512) * numpy.exp2(random.integers(-6, 3, 512))).astype(numpy.float32)
values[64:96] = 0  # a block of zeros
blocks = {"values": [float(v) for v in values]}
for name in ("Q8_0", "Q4_0"):
    kind = GGMLQuantizationType[name]
    coded = quants.quantize(values, kind)
    blocks[name.lower()] = coded.tobytes().hex()
    blocks[name.lower() + "_values"] = [float(v) for v in quants.dequantize(coded, kind)]
# The package reads q4_k and does not write it: any bytes, with scales that are finite.
coded = random.integers(0, 256, 2 * 144, dtype=numpy.uint8)
for block in range(2):
    coded[block * 144 : block * 144 + 4] = numpy.frombuffer(
        numpy.array([0.01 + block, 0.25], dtype=numpy.float16).tobytes(), dtype=numpy.uint8
    )
blocks["q4_k"] = coded.tobytes().hex()
blocks["q4_k_values"] = [float(v) for v in quants.dequantize(coded, GGMLQuantizationType.Q4_K)]
pathlib.Path(__file__).with_name("blocks.json").write_text(json.dumps(blocks) + "\n")

#!/usr/bin/env python3
"""Attention and its gradient as PyTorch's libraries do them, at the shapes of `trireme bench attention`. Needs PyTorch
with CUDA.

    bench/peers/attention.py [--full] [--fp16] [--shapes 2x8192x16x8x128,…]

Shapes are batch, rows, heads, key-value heads and features of a head. Gradients are summed in any order.
"""
import argparse

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from timing import milliseconds

SHAPES = ("32x1024x12x12x64,16x1024x20x20x64,8x1024x25x25x64,8x2048x16x8x128,4x4096x16x8x128,2x8192x16x8x128,"
          "1x32768x16x8x128,4x4096x16x8x96,4x4096x8x4x256")
BACKENDS = {"cuDNN": SDPBackend.CUDNN_ATTENTION, "FlashAttention 2": SDPBackend.FLASH_ATTENTION}


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--shapes", default=SHAPES)
    p.add_argument("--full", action="store_true", help="without a causal mask")
    p.add_argument("--fp16", action="store_true")
    a = p.parse_args()
    for shape in a.shapes.split(","):
        batch, rows, heads, kv_heads, dim = map(int, shape.split("x"))
        product = (2 if a.full else 1) * batch * heads * rows * rows * dim  # a causal mask leaves half of it
        line = f"{shape:20}"
        for label, backend in BACKENDS.items():
            q, k, v = (torch.randn(batch, rows, n, dim, device="cuda", dtype=torch.float16 if a.fp16 else torch.bfloat16).transpose(1, 2)
                       .requires_grad_() for n in (heads, kv_heads, kv_heads))
            try:
                with sdpa_kernel(backend):
                    def forward():
                        return F.scaled_dot_product_attention(q, k, v, is_causal=not a.full,
                                                              enable_gqa=heads != kv_heads)
                    o = forward()
                    d = torch.randn_like(o)
                    times = milliseconds(forward), milliseconds(lambda: torch.autograd.grad(o, (q, k, v), d,
                                                                                           retain_graph=True))
            except RuntimeError as e:
                line += f"  {label} cannot ({str(e).splitlines()[0][:60]})"
                continue
            rates = [n * product / ms / 1e9 for n, ms in zip((2, 5), times)]
            line += (f"  {label} {times[0] * 1e3:.0f} µs {rates[0]:.0f} TFLOP/s, gradient {times[1] * 1e3:.0f} µs "
                     f"{rates[1]:.0f} TFLOP/s")
        print(line, flush=True)


if __name__ == "__main__":
    main()

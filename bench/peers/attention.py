#!/usr/bin/env python3
"""The gradient of causal attention as PyTorch's libraries do it, at the shapes of three GPT-2s. Needs PyTorch with CUDA.

    bench/peers/attention_grad.py

Beside it: the attention_grad row of `trireme bench step --by-op` (docs/cuda.md), divided by the number of layers.
"""
import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from timing import milliseconds

SHAPES = [("124M", 32, 1024, 12), ("774M", 16, 1024, 20), ("1558M", 8, 1024, 25), ("774M, rows of 4096", 4, 4096, 20)]
BACKENDS = {"cuDNN": SDPBackend.CUDNN_ATTENTION, "FlashAttention 2": SDPBackend.FLASH_ATTENTION}


def main():
    for name, batch, rows, heads in SHAPES:
        flops = 5 * batch * heads * rows * rows * 64  # five products, half of each masked
        packed = torch.randn(batch, rows, 3, heads, 64, device="cuda", dtype=torch.bfloat16)
        line = f"{name:20}"
        for label, backend in BACKENDS.items():
            with sdpa_kernel(backend):
                q, k, v = (packed[:, :, i].transpose(1, 2).detach().requires_grad_() for i in range(3))
                o = F.scaled_dot_product_attention(q, k, v, is_causal=True)
                d = torch.randn_like(o)
                ms = milliseconds(lambda: torch.autograd.grad(o, (q, k, v), d, retain_graph=True))
            line += f"  {label} {ms:.3f} ms, {flops / ms / 1e9:.0f} TFLOP/s"
        print(line)


if __name__ == "__main__":
    main()

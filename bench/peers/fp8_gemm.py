#!/usr/bin/env python3
"""Would fp8 pay? The three products of a linear layer (forward, input gradient, weight gradient) in bf16 and in fp8 with
one scale per tensor, as PyTorch does them. Needs PyTorch with CUDA on a GPU that has fp8 (Hopper and after).

    bench/peers/fp8_gemm.py

`products` are the three products alone. `with conversion` adds what they need made: for each tensor its largest element,
its fp8 copy, and the transposed copy, since Hopper multiplies rows by rows only.
"""
import torch

from timing import milliseconds

SHAPES = [("124M qkv", 32768, 768, 2304), ("124M up", 32768, 768, 3072), ("774M qkv", 16384, 1280, 3840),
          ("774M up", 16384, 1280, 5120), ("1558M qkv", 8192, 1600, 4800), ("1558M up", 8192, 1600, 6400)]
E4M3, E5M2 = torch.float8_e4m3fn, torch.float8_e5m2


def converted(x, dtype):
    """An fp8 copy, its transposed copy, and the scale that brings it back."""
    scale = x.abs().amax().float() / torch.finfo(dtype).max
    low = (x * (1 / scale).to(x.dtype)).to(dtype)
    return low, low.t().contiguous(), scale


def product(a, b, scale_a, scale_b):
    """a · bᵀ"""
    return torch._scaled_mm(a, b.t(), scale_a=scale_a, scale_b=scale_b, out_dtype=torch.bfloat16, use_fast_accum=True)


def main():
    convert = torch.compile(converted)
    print(f"{'':10} {'bf16':>9} {'fp8 products':>20} {'with conversion':>20}")
    for name, rows, inner, outer in SHAPES:
        x = torch.randn(rows, inner, device="cuda", dtype=torch.bfloat16)
        w = torch.randn(outer, inner, device="cuda", dtype=torch.bfloat16)
        dy = torch.randn(rows, outer, device="cuda", dtype=torch.bfloat16)
        plain = milliseconds(lambda: (x @ w.t(), dy @ w, dy.t() @ x))
        made = convert(x, E4M3), convert(w, E4M3), convert(dy, E5M2)

        def multiply(lows):
            (xl, xt, sx), (wl, wt, sw), (dl, dt, sd) = lows
            return product(xl, wl, sx, sw), product(dl, wt, sd, sw), product(dt, xt, sd, sx)

        alone = milliseconds(lambda: multiply(made))
        whole = milliseconds(lambda: multiply((convert(x, E4M3), convert(w, E4M3), convert(dy, E5M2))))
        print(f"{name:10} {plain:6.3f} ms {alone:8.3f} ms, {plain / alone:4.2f}x {whole:9.3f} ms, {plain / whole:4.2f}x")


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""One Llama training step in PyTorch, on the CPU or a GPU: the peer of `trireme bench step llama`.

Like gpt2_step.py, what a careful user of PyTorch writes. Attention runs by cuDNN where that is there (on a Hopper GPU it
is the fastest that PyTorch has), else by FlashAttention or whatever PyTorch chooses. Prints one JSON object.
"""
import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

import text

BACKENDS = [SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]


def rotate(x, cosine, sine):
    a, b = x.chunk(2, -1)
    return torch.cat((a * cosine - b * sine, b * cosine + a * sine), -1).to(x.dtype)


class Block(nn.Module):
    def __init__(self, width, heads, kv_heads, ffn):
        super().__init__()
        self.heads, self.kv_heads, dim = heads, kv_heads, width // heads
        self.attn_norm = nn.RMSNorm(width, eps=1e-5)
        self.q = nn.Linear(width, heads * dim, bias=False)
        self.k = nn.Linear(width, kv_heads * dim, bias=False)
        self.v = nn.Linear(width, kv_heads * dim, bias=False)
        self.o = nn.Linear(heads * dim, width, bias=False)
        self.mlp_norm = nn.RMSNorm(width, eps=1e-5)
        self.gate = nn.Linear(width, ffn, bias=False)
        self.up = nn.Linear(width, ffn, bias=False)
        self.down = nn.Linear(ffn, width, bias=False)

    def forward(self, x, cosine, sine):
        b, s, _ = x.shape
        n = self.attn_norm(x)
        q = rotate(self.q(n).view(b, s, self.heads, -1), cosine, sine).transpose(1, 2)
        k = rotate(self.k(n).view(b, s, self.kv_heads, -1), cosine, sine).transpose(1, 2)
        v = self.v(n).view(b, s, self.kv_heads, -1).transpose(1, 2)
        o = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=self.heads != self.kv_heads)
        x = x + self.o(o.transpose(1, 2).reshape(b, s, -1))
        n = self.mlp_norm(x)
        return x + self.down(F.silu(self.gate(n)) * self.up(n))


class Llama(nn.Module):
    def __init__(self, layers, width, heads, kv_heads, ffn, context, vocab):
        super().__init__()
        self.embed = nn.Embedding(vocab, width)
        self.blocks = nn.ModuleList(Block(width, heads, kv_heads, ffn) for _ in range(layers))
        self.norm = nn.RMSNorm(width, eps=1e-5)
        self.head = nn.Linear(width, vocab, bias=False)
        half = width // heads // 2
        angles = torch.outer(torch.arange(context), 10000.0 ** (-torch.arange(half) / half))[:, None]
        self.register_buffer("cosine", angles.cos(), persistent=False)
        self.register_buffer("sine", angles.sin(), persistent=False)
        for p in self.parameters():
            if p.ndim >= 2:
                nn.init.normal_(p, std=0.02)

    def forward(self, tokens, targets):
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x, self.cosine, self.sine)
        return self.loss(x, targets)

    def loss(self, x, targets):
        return F.cross_entropy(self.head(self.norm(x)).flatten(0, 1).float(), targets.flatten())


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--kv-heads", type=int, default=2)
    p.add_argument("--ffn", type=int, default=1024)
    text.add_options(p)
    a = p.parse_args()
    with sdpa_kernel(BACKENDS, set_priority=True):
        text.train(a, lambda: Llama(a.layers, a.width, a.heads, a.kv_heads, a.ffn, a.context, a.vocab))


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""One GPT-2 training step in PyTorch, on the CPU or a GPU: the peer of `trireme bench step`.

The step is what a careful user of PyTorch writes: fused attention, fused AdamW, foreach clipping, gradients released
between steps, weight decay on matrices only, no copy of the loss inside the timed part. Prints one JSON object.
"""
import argparse
import json
import resource

import torch
import torch.nn as nn
import torch.nn.functional as F

import timing


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.ln1 = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)
        self.ln2 = nn.LayerNorm(width)
        self.up = nn.Linear(width, 4 * width)
        self.down = nn.Linear(4 * width, width)

    def forward(self, x):
        b, s, w = x.shape
        q, k, v = self.qkv(self.ln1(x)).view(b, s, 3, self.heads, w // self.heads).permute(2, 0, 3, 1, 4).unbind(0)
        o = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(o.transpose(1, 2).reshape(b, s, w))
        return x + self.down(F.gelu(self.up(self.ln2(x)), approximate="tanh"))


class GPT2(nn.Module):
    def __init__(self, layers, width, heads, context, vocab):
        super().__init__()
        self.wte = nn.Embedding(vocab, width)
        self.wpe = nn.Embedding(context, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.ln_f = nn.LayerNorm(width)
        for name, p in self.named_parameters():
            if p.ndim >= 2:
                nn.init.normal_(p, std=0.02)

    def forward(self, tokens, targets):
        x = self.wte(tokens) + self.wpe.weight[: tokens.shape[1]]
        for block in self.blocks:
            x = block(x)
        logits = F.linear(self.ln_f(x), self.wte.weight)
        return F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())


def make_optimizer(model, lr):
    groups = [{"params": [p for p in model.parameters() if p.ndim >= 2], "weight_decay": 0.1},
              {"params": [p for p in model.parameters() if p.ndim < 2], "weight_decay": 0.0}]
    options = dict(lr=lr, betas=(0.9, 0.95), eps=1e-8)
    try:
        return torch.optim.AdamW(groups, fused=True, **options), "fused"
    except RuntimeError:
        return torch.optim.AdamW(groups, foreach=True, **options), "foreach"


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--layers", type=int, default=6)
    p.add_argument("--width", type=int, default=384)
    p.add_argument("--heads", type=int, default=6)
    p.add_argument("--context", type=int, default=256)
    p.add_argument("--batch", type=int, default=16)
    p.add_argument("--vocab", type=int, default=256)
    p.add_argument("--clip", type=float, default=1.0)
    p.add_argument("--threads", type=int, default=2)
    timing.add_options(p, steps=10, warmup=3, device="cpu")
    a = p.parse_args()

    torch.set_num_threads(a.threads)
    torch.manual_seed(1)
    rss_before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    model = GPT2(a.layers, a.width, a.heads, a.context, a.vocab).to(a.device)
    optimizer, kind = make_optimizer(model, 1e-3)
    forward = torch.compile(model) if a.compile else model
    text = torch.randint(a.vocab, (a.batch, a.context + 1)).to(a.device)
    tokens, targets = text[:, :-1].contiguous(), text[:, 1:].contiguous()
    precision = timing.set_precision(a)

    def step():
        optimizer.zero_grad(set_to_none=True)
        with precision:
            loss = forward(tokens, targets)
        loss.backward()
        if a.clip > 0:
            nn.utils.clip_grad_norm_(model.parameters(), a.clip, foreach=True)
        optimizer.step()
        return loss

    result = timing.timed_steps(a, step, "tokens", a.batch * a.context)
    print(json.dumps(result | {
        "peak_rss_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        "rss_before_model_bytes": rss_before,
        "parameters": sum(q.numel() for q in model.parameters()),
        "optimizer": kind,
        "threads": a.threads,
    }))


if __name__ == "__main__":
    main()

"""Training steps of text models, shared by the scripts of this folder."""
import functools
import json
import resource

import torch
import torch.nn as nn
from torch.utils.checkpoint import checkpoint

import timing


def add_options(p):
    """The model's sizes, and what every step can be asked for."""
    p.add_argument("--layers", type=int, default=6)
    p.add_argument("--width", type=int, default=384)
    p.add_argument("--heads", type=int, default=6)
    p.add_argument("--context", type=int, default=256)
    p.add_argument("--batch", type=int, default=16)
    p.add_argument("--vocab", type=int, default=256)
    p.add_argument("--micro-batch", type=int, default=0, help="rows at a time, whose gradients are added up; 0: all")
    p.add_argument("--checkpoint", action="store_true", help="blocks keep their inputs alone and are recomputed")
    p.add_argument("--clip", type=float, default=1.0)
    p.add_argument("--threads", type=int, default=2)
    timing.add_options(p, steps=10, warmup=3, device="cpu")


def make_optimizer(model, lr):
    groups = [{"params": [p for p in model.parameters() if p.ndim >= 2], "weight_decay": 0.1},
              {"params": [p for p in model.parameters() if p.ndim < 2], "weight_decay": 0.0}]
    options = dict(lr=lr, betas=(0.9, 0.95), eps=1e-8)
    try:
        return torch.optim.AdamW(groups, fused=True, **options), "fused"
    except RuntimeError:
        return torch.optim.AdamW(groups, foreach=True, **options), "foreach"


def checkpointed(a, model):
    """The model with each block recomputed in the backward pass. Blocks and the loss are compiled by themselves."""
    for block in model.blocks:
        block.forward = functools.partial(checkpoint, timing.compiled(a, block.forward), use_reentrant=False)
    model.loss = timing.compiled(a, model.loss)
    return model


def train(a, make_model):
    """Times steps of the model, which gives the loss of tokens and targets, and prints one JSON object."""
    torch.set_num_threads(a.threads)
    torch.manual_seed(1)
    rss_before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    with torch.device(a.device):
        model = make_model()
    optimizer, kind = make_optimizer(model, 1e-3)
    forward = checkpointed(a, model) if a.checkpoint else timing.compiled(a, model)
    rows = torch.randint(a.vocab, (a.batch, a.context + 1)).to(a.device)
    tokens, targets = rows[:, :-1].contiguous(), rows[:, 1:].contiguous()
    precision = timing.set_precision(a)

    rows_at_once = a.micro_batch or a.batch
    parts = list(zip(tokens.split(rows_at_once), targets.split(rows_at_once)))

    def step():
        optimizer.zero_grad(set_to_none=True)
        for part in parts:
            with precision:
                loss = forward(*part)
            (loss / len(parts)).backward()
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

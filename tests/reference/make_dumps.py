#!/usr/bin/env python3
"""Writes the reference dumps next to this file: what PyTorch computes for tiny models, in Trireme's names and layouts.

    python3 tests/reference/make_dumps.py [--check] [NAME ...]

The f32 run is what is written. The same start is also trained in f64 and, several times, in f32 after moving every
weight by a few units in the last place; the largest distance between these runs and the f64 one is the rounding noise
that a test's tolerance must cover. It is printed and stored. `--check` writes nothing and fails when a committed file
differs from what is computed now by more than that noise. README.md describes the files.
"""
import argparse
import copy
import json
import pathlib
import sys

import numpy as np
import torch
import torch.nn.functional as F
import transformers
from safetensors import safe_open
from safetensors.numpy import save_file

import resnet

HERE = pathlib.Path(__file__).parent
STEPS = 10
NUDGES = 8
NUDGE = 5e-7  # relative
OPTIMIZER = {"name": "adamw", "lr": 1e-3, "betas": [0.9, 0.95], "eps": 1e-4, "weight_decay": 0.1, "clip": 1.0,
             "schedule": "constant", "steps": STEPS}


class Gpt2:
    seed = 1
    config = {"family": "gpt2", "layers": 2, "width": 32, "heads": 4, "context": 16, "vocab": 67, "batch": 2,
              "ffn": 128, "dropout": 0.0, "tie_embeddings": True, "norm_eps": 1e-5, "activation": "gelu_tanh"}

    def build(self):
        c = self.config
        return transformers.GPT2LMHeadModel(transformers.GPT2Config(
            vocab_size=c["vocab"], n_positions=c["context"], n_embd=c["width"], n_layer=c["layers"],
            n_head=c["heads"], resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, attn_implementation="eager",
            layer_norm_epsilon=c["norm_eps"], activation_function="gelu_new", bos_token_id=0, eos_token_id=0))

    def inputs(self, generator):
        return token_batch(self.config, generator)

    def logits(self, model, inputs):
        return model(inputs["io/tokens"].long(), use_cache=False).logits

    def rename(self, name, tensor):
        c = self.config
        name = name.removeprefix("transformer.")
        if name == "lm_head.weight":  # the embedding again
            return None
        if name.startswith(("wte.", "wpe.", "ln_f.")):
            return name, tensor
        _, layer, rest = name.split(".", 2)
        module, kind = rest.rsplit(".", 1)
        ours = {"ln_1": "ln1", "ln_2": "ln2", "attn.c_attn": "attn.qkv", "attn.c_proj": "attn.proj",
                "mlp.c_fc": "mlp.up", "mlp.c_proj": "mlp.down"}[module]
        if tensor.ndim == 2:  # Conv1D keeps [in, out]
            tensor = tensor.T
        if ours == "attn.qkv":
            tensor = tensor.reshape(3, c["heads"], c["width"] // c["heads"], *tensor.shape[1:])
        return f"blocks.{layer}.{ours}.{kind}", tensor


class Llama:
    seed = 1
    config = {"family": "llama", "layers": 2, "width": 32, "heads": 4, "kv_heads": 2, "ffn": 64, "context": 16,
              "vocab": 67, "batch": 2, "rope_theta": 10000.0, "tie_embeddings": False, "norm_eps": 1e-5}

    def build(self):
        c = self.config
        return transformers.LlamaForCausalLM(transformers.LlamaConfig(
            vocab_size=c["vocab"], hidden_size=c["width"], intermediate_size=c["ffn"],
            num_hidden_layers=c["layers"], num_attention_heads=c["heads"], num_key_value_heads=c["kv_heads"],
            max_position_embeddings=c["context"], rms_norm_eps=c["norm_eps"], tie_word_embeddings=False,
            rope_parameters={"rope_type": "default", "rope_theta": c["rope_theta"]}, attention_bias=False,
            mlp_bias=False, attention_dropout=0.0, attn_implementation="eager", bos_token_id=0, eos_token_id=0))

    def inputs(self, generator):
        return token_batch(self.config, generator)

    def logits(self, model, inputs):
        return model(inputs["io/tokens"].long(), use_cache=False).logits

    def rename(self, name, tensor):
        c = self.config
        head_dim = c["width"] // c["heads"]
        whole = {"model.embed_tokens.weight": "embed.weight", "model.norm.weight": "norm.weight",
                 "lm_head.weight": "head.weight"}
        if name in whole:
            return whole[name], tensor
        _, _, layer, module = name.removesuffix(".weight").split(".", 3)
        ours = {"input_layernorm": "attn_norm", "post_attention_layernorm": "mlp_norm", "self_attn.q_proj": "attn.q",
                "self_attn.k_proj": "attn.k", "self_attn.v_proj": "attn.v", "self_attn.o_proj": "attn.o",
                "mlp.gate_proj": "mlp.gate", "mlp.up_proj": "mlp.up", "mlp.down_proj": "mlp.down"}[module]
        if ours in ("attn.q", "attn.k", "attn.v"):
            tensor = tensor.reshape(-1, head_dim, c["width"])
        elif ours == "attn.o":
            tensor = tensor.reshape(c["width"], c["heads"], head_dim)
        return f"blocks.{layer}.{ours}.weight", tensor


class ResNet:
    """The seed is one for which no ReLU input or pooling window comes within rounding of its kink in the ten steps:
    there the sign of an error of 1e-7 would decide whether a gradient flows, and weights would differ by 1e-3."""

    def __init__(self, block, blocks, widths, seed):
        self.seed = seed
        self.config = {"family": "resnet", "block": block, "blocks": blocks, "widths": widths, "classes": 10,
                       "image": 36, "channels": 3, "batch": 4, "norm_eps": 1e-5, "norm_momentum": 0.1}

    def build(self):
        c = self.config
        return resnet.ResNet(c["blocks"], c["widths"], c["classes"], c["block"] == "bottleneck")

    def inputs(self, generator):
        c = self.config
        return {"io/images": torch.randn(c["batch"], c["image"], c["image"], c["channels"], generator=generator),
                "io/labels": torch.randint(c["classes"], (c["batch"],), generator=generator, dtype=torch.int32)}

    def logits(self, model, inputs):
        return model(inputs["io/images"].permute(0, 3, 1, 2).to(model.head.weight.dtype))

    def rename(self, name, tensor):
        if name.endswith("num_batches_tracked"):
            return None
        return name, tensor.permute(0, 2, 3, 1) if tensor.ndim == 4 else tensor


MODELS = {"gpt2": Gpt2(), "llama": Llama(), "resnet_basic": ResNet("basic", [1, 1, 1, 1], [8, 16, 32, 64], seed=27),
          "resnet_bottleneck": ResNet("bottleneck", [2, 1, 1, 1], [4, 8, 16, 32], seed=66)}


def token_batch(config, generator):
    text = torch.randint(config["vocab"], (config["batch"], config["context"] + 1), generator=generator,
                         dtype=torch.int32)
    return {"io/tokens": text[:, :-1], "io/targets": text[:, 1:]}


def initialise(model, generator):
    """Nothing is left at zero or one, where a wrong layout or a forgotten term would not show."""
    for name, p in sorted(model.named_parameters()):
        noise = torch.randn(p.shape, generator=generator)
        with torch.no_grad():
            if p.ndim >= 2:
                p.copy_(noise * ((2.0 / p[0].numel()) ** 0.5 if p.ndim == 4 else 0.15))
            else:
                p.copy_(0.1 * noise + (1.0 if name.endswith("weight") else 0.0))


def ours(model_kind, named, prefix=""):
    renamed = (model_kind.rename(name, tensor.detach()) for name, tensor in named)
    return {prefix + name: tensor.clone() for name, tensor in filter(None, renamed)}


def state(model):
    """Parameters and running statistics; buffers that are constants of the module (rotary tables, masks) left out."""
    yield from model.named_parameters()
    yield from ((name, b) for name, b in model.named_buffers() if "running_" in name)


def train(kind, model, inputs):
    model.train()
    dump = ours(kind, state(model))
    targets = inputs["io/targets" if "io/targets" in inputs else "io/labels"].long().flatten()
    # The rule of two or more dimensions is applied to PyTorch's own shapes: biases and norms are not decayed.
    decayed = [p for p in model.parameters() if p.ndim >= 2]
    others = [p for p in model.parameters() if p.ndim < 2]
    o = OPTIMIZER
    optimizer = torch.optim.AdamW([{"params": decayed, "weight_decay": o["weight_decay"]},
                                   {"params": others, "weight_decay": 0.0}],
                                  lr=o["lr"], betas=tuple(o["betas"]), eps=o["eps"], foreach=False)
    losses, norms = [], []
    for step in range(STEPS):
        optimizer.zero_grad()
        logits = kind.logits(model, inputs)
        loss = F.cross_entropy(logits.flatten(0, -2), targets)
        loss.backward()
        if step == 0:
            dump["io/logits"] = logits.detach().clone()
            dump["io/loss"] = loss.detach().clone()
            dump |= ours(kind, ((n, p.grad) for n, p in model.named_parameters()), "grad/")
        norms.append(torch.nn.utils.clip_grad_norm_(model.parameters(), o["clip"]))
        optimizer.step()
        losses.append(loss.detach())
    dump["io/losses"] = torch.stack(losses)
    dump["io/grad_norms"] = torch.stack(norms)
    dump |= ours(kind, state(model), "after10/")
    if kind.config["family"] == "resnet":
        model.eval()
        with torch.no_grad():
            dump["io/eval_logits"] = kind.logits(model, inputs)
    return dump


def decayed_names(kind, model):
    return sorted(ours(kind, ((n, p) for n, p in model.named_parameters() if p.ndim >= 2)))


def group_of(name):
    return name.split("/")[0] if name.startswith(("grad/", "after10/")) else name


def distances(runs, exact):
    """Largest absolute distance from `exact`: over all gradients, over all final weights, and per result."""
    worst = {}
    for run in runs:
        for name, tensor in run.items():
            if name.startswith(("io/", "grad/", "after10/")):
                distance = (tensor.double() - exact[name]).abs().max().item()
                worst[group_of(name)] = max(worst.get(group_of(name), 0.0), distance)
    return worst


def nudged(model, seed):
    moved = copy.deepcopy(model)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for p in moved.parameters():
            p.mul_(1 + NUDGE * torch.randn(p.shape, generator=generator))
    return moved


def make(name, kind):
    generator = torch.Generator().manual_seed(kind.seed)
    model = kind.build()
    initialise(model, generator)
    inputs = kind.inputs(generator)
    decayed = decayed_names(kind, model)
    exact = train(kind, copy.deepcopy(model).double(), inputs)
    others = [train(kind, nudged(model, i), inputs) for i in range(NUDGES)]
    noise = distances([train(kind, model, inputs), *others], exact)
    # What is kept is the double-precision run, rounded: a test then sees its own rounding alone.
    dump = {n: t.float() for n, t in exact.items()} | inputs
    # One entry, because safetensors writes several in random order.
    metadata = {"config": json.dumps({
        "model": kind.config, "optimizer": OPTIMIZER | {"decayed": decayed},
        "noise": {k: float(f"{v:.2g}") for k, v in noise.items()},
        "made_with": f"torch {torch.__version__.split('+')[0]}, transformers {transformers.__version__}"})}
    arrays = {n: t.contiguous().numpy() for n, t in sorted(dump.items())}
    losses = arrays["io/losses"]
    print(f"{name}: loss {losses[0]:.4f} -> {losses[-1]:.4f}, gradient norms {arrays['io/grad_norms'].min():.2f} to "
          f"{arrays['io/grad_norms'].max():.2f}")
    print("  noise: " + ", ".join(f"{k.removeprefix('io/')} {v:.1e}" for k, v in noise.items()))
    return arrays, metadata, noise


def compare(path, arrays, noise):
    wrong = []
    with safe_open(path, "np") as stored:
        wrong += [f"{n}: only in one of the two" for n in set(stored.keys()) ^ set(arrays)]
        for name in set(stored.keys()) & set(arrays):
            distance = np.abs(stored.get_tensor(name).astype(np.float64) - arrays[name]).max()
            if distance > 2 * noise.get(group_of(name), 0.0):
                wrong.append(f"{name}: differs by {distance:.1e}")
    return wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="compare with the committed files instead of writing")
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(MODELS))
    options = parser.parse_args()
    unknown = set(options.names) - set(MODELS)
    if unknown:
        parser.error(f"unknown name {', '.join(sorted(unknown))}; known: {', '.join(MODELS)}")
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    wrong = []
    for name in options.names or MODELS:
        arrays, metadata, noise = make(name, MODELS[name])
        path = HERE / f"{name}.safetensors"
        if options.check:
            wrong += [f"{path.name}: {line}" for line in compare(path, arrays, noise)]
        else:
            save_file(arrays, path, metadata)
            print(f"  {path.name}: {len(arrays)} tensors, {path.stat().st_size:,} bytes")
    if wrong:
        sys.exit("\n".join(wrong))


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Writes the reference of distillation next to this file: distil.safetensors and the teacher's folder distil_teacher/.

    python3 tests/reference/make_distil_dump.py

A GPT-2 teacher of 2x32 and a GPT-2 student of 1x16 on the same tokens, in PyTorch:

    loss = (1 - alpha) CE(student, targets) + alpha T^2 KL(softmax(teacher/T) || softmax(student/T))
         + hidden mean((P h_student - h_teacher)^2)

where h are the outputs of the student's one block and of the teacher's last, and P is a projection that is trained too.
The file has the student's weights and the projection in Trireme's names and layouts ("start/..."), the gradient of each
("grad/..."), the tokens, the targets and the loss. Needs torch, transformers and safetensors.
"""
import json
import pathlib

import torch
import torch.nn.functional as F
import transformers
from safetensors.torch import save_file

HERE = pathlib.Path(__file__).parent
VOCAB, CONTEXT, BATCH = 67, 16, 2
T, ALPHA, HIDDEN = 2.0, 0.7, 0.5


def gpt2(layers, width, heads):
    return transformers.GPT2LMHeadModel(transformers.GPT2Config(
        vocab_size=VOCAB, n_positions=CONTEXT, n_embd=width, n_layer=layers, n_head=heads, resid_pdrop=0.0, embd_pdrop=0.0,
        attn_pdrop=0.0, attn_implementation="eager", bos_token_id=0, eos_token_id=0))


def ours(name, tensor, heads, width):
    name = name.removeprefix("transformer.")
    if name.startswith(("wte.", "wpe.", "ln_f.")):
        return name, tensor
    _, layer, rest = name.split(".", 2)
    module, kind = rest.rsplit(".", 1)
    own = {"ln_1": "ln1", "ln_2": "ln2", "attn.c_attn": "attn.qkv", "attn.c_proj": "attn.proj", "mlp.c_fc": "mlp.up",
           "mlp.c_proj": "mlp.down"}[module]
    if tensor.ndim == 2:
        tensor = tensor.T
    if own == "attn.qkv":
        tensor = tensor.reshape(3, heads, width // heads, *tensor.shape[1:])
    return f"blocks.{layer}.{own}.{kind}", tensor


def main():
    torch.manual_seed(3)
    teacher, student = gpt2(2, 32, 4), gpt2(1, 16, 2)
    for model in (teacher, student):  # far enough from where logits are all the same
        with torch.no_grad():
            for p in model.parameters():
                p.add_(0.1 * torch.randn_like(p))
    projection = torch.nn.Parameter(0.3 * torch.randn(32, 16))
    tokens = torch.randint(0, VOCAB, (BATCH, CONTEXT), dtype=torch.int32)
    targets = torch.randint(0, VOCAB, (BATCH, CONTEXT), dtype=torch.int32)
    # The output of the last block, before the last norm: transformers lists it only for all blocks but the last.
    seen = {}
    teacher.transformer.h[-1].register_forward_hook(lambda m, i, o: seen.update(teacher=o[0] if isinstance(o, tuple) else o))
    student.transformer.h[-1].register_forward_hook(lambda m, i, o: seen.update(student=o[0] if isinstance(o, tuple) else o))
    with torch.no_grad():
        theirs = teacher(tokens.long(), use_cache=False).logits
    own = student(tokens.long(), use_cache=False).logits
    kl = F.kl_div(F.log_softmax(own / T, -1).flatten(0, 1), F.softmax(theirs / T, -1).flatten(0, 1), reduction="batchmean")
    ce = F.cross_entropy(own.flatten(0, 1), targets.long().flatten())
    hidden = F.mse_loss(seen["student"] @ projection.T, seen["teacher"].detach())
    loss = (1 - ALPHA) * ce + ALPHA * T * T * kl + HIDDEN * hidden
    loss.backward()

    tensors = {"io/tokens": tokens, "io/targets": targets, "io/loss": loss.detach().reshape(1),
               "start/distil.blocks.0.weight": projection.detach(), "grad/distil.blocks.0.weight": projection.grad}
    for name, p in student.named_parameters():
        own_name, value = ours(name, p.detach(), 2, 16)
        tensors["start/" + own_name] = value
        tensors["grad/" + own_name] = ours(name, p.grad, 2, 16)[1]
    save_file({name: t.contiguous().clone() for name, t in tensors.items()}, HERE / "distil.safetensors",
              {"settings": json.dumps({"temperature": T, "alpha": ALPHA, "hidden": HIDDEN})})
    teacher.save_pretrained(HERE / "distil_teacher")
    (HERE / "distil_teacher/generation_config.json").unlink(missing_ok=True)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Writes the small Hugging Face folders next to this file, and what transformers computes from them.

    python3 tests/huggingface/make_folders.py

Every folder is a random model in one of the spellings that transformers has had, with expected.safetensors: logits of
a row, the losses of twenty AdamW steps on tokens.bin in sequential order, a greedy continuation. Needs torch,
transformers 5, tokenizers and safetensors; takes some seconds. README.md describes the files.
"""
import json
import pathlib
import shutil

import numpy as np
import tokenizers
import torch
import torch.nn.functional as F
import transformers
from safetensors.torch import load_file, save_file

HERE = pathlib.Path(__file__).parent
POSITIONS = 48  # a continuation fits
CONTEXT = 16    # of training: fewer positions than the model has
STEPS, BATCH = 20, 4
PROMPT, CONTINUATION = 6, 32
MARGIN = 2e-3   # between the two likeliest tokens of every greedy step: rounding must not decide
VOCAB = 61      # the smallest; tokens.bin stays below it
OPTIMIZER = {"lr": 1e-3, "betas": (0.9, 0.95), "eps": 1e-8, "weight_decay": 0.1}
CLIP = 1.0


def gpt2(**changes):
    settings = {"vocab_size": VOCAB, "n_positions": POSITIONS, "n_embd": 24, "n_layer": 2, "n_head": 3,
                "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0, "bos_token_id": 0, "eos_token_id": 0}
    return transformers.GPT2LMHeadModel(transformers.GPT2Config(**(settings | changes)))


def llama(rope, **changes):
    settings = {"vocab_size": VOCAB, "hidden_size": 24, "intermediate_size": 40, "num_hidden_layers": 2,
                "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8,
                "max_position_embeddings": POSITIONS, "rms_norm_eps": 1e-5, "tie_word_embeddings": False,
                "rope_parameters": rope, "bos_token_id": 1, "eos_token_id": 2}
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**(settings | changes)))


def spelt(config, drop=(), **put):
    """The same settings in another version's words."""
    config = {k: v for k, v in config.items() if k not in drop}
    return config | put


def older_gpt2(folder):
    """As the first folders of all: n_ctx, no model_type, names without a prefix, masks among the weights."""
    config = json.loads((folder / "config.json").read_text())
    config = spelt(config, drop=("model_type", "dtype", "tie_word_embeddings", "scale_attn_weights", "n_inner",
                                 "reorder_and_upcast_attn", "scale_attn_by_inverse_layer_idx", "add_cross_attention",
                                 "activation_function"), n_ctx=POSITIONS, resid_pdrop=0.1)
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    tensors = {n.removeprefix("transformer."): t for n, t in load_file(folder / "model.safetensors").items()}
    for layer in range(config["n_layer"]):
        tensors[f"h.{layer}.attn.bias"] = torch.tril(torch.ones(1, 1, POSITIONS, POSITIONS, dtype=torch.bool))
        tensors[f"h.{layer}.attn.masked_bias"] = torch.tensor(-1e4)
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})


def older_rope(folder):
    """transformers 4: rope_theta and rope_scaling apart, "type" until 4.42, torch_dtype."""
    config = json.loads((folder / "config.json").read_text())
    rope = dict(config["rope_parameters"])
    theta, kind = rope.pop("rope_theta"), rope.pop("rope_type")
    rope = {"type": kind} | rope if kind == "linear" else {"rope_type": kind} | rope
    config = spelt(config, drop=("rope_parameters", "dtype"), rope_theta=theta, rope_scaling=rope,
                   torch_dtype=config["dtype"])
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")


def with_tokenizer(folder):
    """A byte-level BPE of fewer tokens than the model's vocabulary has rows."""
    bpe = tokenizers.Tokenizer(tokenizers.models.BPE())
    bpe.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = tokenizers.decoders.ByteLevel()
    words = "the oars of a trireme beat the wine-dark sea and the sea beats back at the oars of the trireme"
    bpe.train_from_iterator([words], tokenizers.trainers.BpeTrainer(
        vocab_size=280, special_tokens=["<|endoftext|>"], show_progress=False,
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet()))
    transformers.PreTrainedTokenizerFast(tokenizer_object=bpe, eos_token="<|endoftext|>",
                                         bos_token="<|endoftext|>").save_pretrained(folder)


LLAMA3 = {"rope_type": "llama3", "rope_theta": 500000.0, "factor": 8.0, "low_freq_factor": 1.0,
          "high_freq_factor": 4.0, "original_max_position_embeddings": 16}
PLAIN = {"rope_type": "default", "rope_theta": 10000.0}
LINEAR = {"rope_type": "linear", "rope_theta": 10000.0, "factor": 2.0}

# name: model, type of the stored weights, options of save_pretrained, what to do to the folder afterwards
FOLDERS = {
    "gpt2-tied": (lambda: gpt2(vocab_size=304), torch.float32, {}, with_tokenizer),
    "gpt2-older": (gpt2, torch.float32, {}, older_gpt2),
    "gpt2-untied-f16": (lambda: gpt2(n_inner=40, tie_word_embeddings=False), torch.float16, {}, None),
    "llama-grouped": (lambda: llama(PLAIN), torch.float32, {}, None),
    "llama3-tied": (lambda: llama(LLAMA3, tie_word_embeddings=True), torch.float32, {}, older_rope),
    "llama-bf16-sharded": (lambda: llama(LINEAR), torch.bfloat16, {"max_shard_size": "12KB"}, older_rope),
}


def logits_of(model, tokens):
    return model(tokens, use_cache=False).logits


def train(model, tokens):
    decayed = [p for p in model.parameters() if p.ndim >= 2]
    plain = [p for p in model.parameters() if p.ndim < 2]
    optimizer = torch.optim.AdamW([{"params": decayed}, {"params": plain, "weight_decay": 0.0}], **OPTIMIZER)
    losses = []
    for step in range(STEPS):
        starts = [(step * BATCH + row) * CONTEXT for row in range(BATCH)]
        rows = torch.stack([tokens[s:s + CONTEXT + 1] for s in starts])
        loss = F.cross_entropy(logits_of(model, rows[:, :-1]).flatten(0, 1), rows[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        optimizer.step()
        losses.append(loss.item())
    return losses


def greedy(model, prompt):
    """The continuation, or nothing where rounding could decide it."""
    made = prompt
    for _ in range(CONTINUATION):
        best = logits_of(model, made[None])[0, -1].topk(2)
        margin = (best.values[0] - best.values[1]).item()
        if margin < MARGIN:
            return None
        made = torch.cat([made, best.indices[:1]])
    library = model.generate(prompt[None], max_new_tokens=CONTINUATION, do_sample=False, use_cache=True,
                             eos_token_id=None, pad_token_id=0)[0]
    if not torch.equal(library, made):
        raise SystemExit("transformers' own generate goes another way")
    return made[len(prompt):]


def write_model(name, seed):
    """Writes the folder and gives the model back, as its stored weights have it."""
    build, dtype, options, finish = FOLDERS[name]
    folder = HERE / name
    shutil.rmtree(folder, ignore_errors=True)
    torch.manual_seed(seed)
    model = build().eval()
    with torch.no_grad():  # nothing at zero or one, where a forgotten term would not show
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * (0.05 if parameter.ndim == 1 else 0.2))
    model.to(dtype).save_pretrained(folder, **options)
    if finish:
        finish(folder)
    stored = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32) \
        if name != "gpt2-older" else model.float()  # without model_type transformers goes by the folder's name
    return stored.double().eval()


def make(name, tokens):
    folder = HERE / name
    row = tokens[:POSITIONS]
    prompt = tokens[100:100 + PROMPT]
    with torch.no_grad():
        seed = 1
        while (continuation := greedy(stored := write_model(name, seed), prompt)) is None:
            seed += 1
        expected = {"tokens": row.int(), "logits": logits_of(stored, row[None])[0].float(), "prompt": prompt.int(),
                    "greedy": continuation.int()}
    stored.train()
    for module in stored.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    expected["losses"] = torch.tensor(train(stored, tokens), dtype=torch.float64).float()
    save_file({k: v.contiguous() for k, v in expected.items()}, folder / "expected.safetensors")
    size = sum(f.stat().st_size for f in folder.iterdir())
    print(f"{name:20} {size:8,} bytes  loss {expected['losses'][0]:.4f} -> {expected['losses'][-1]:.4f}")


def main():
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    # Each token follows from the one before and some chance: something to learn.
    random = np.random.default_rng(1)
    values = [7]
    for _ in range(STEPS * BATCH * CONTEXT):
        values.append((values[-1] * 5 + int(random.integers(4))) % VOCAB)
    np.array(values, dtype="<u2").tofile(HERE / "tokens.bin")
    tokens = torch.tensor(values)
    for name in FOLDERS:
        make(name, tokens)


if __name__ == "__main__":
    main()

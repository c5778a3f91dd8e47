"""Makes the golden models beside this file with an independent implementation: transformers on torch.

Each folder holds a tiny random model as `save_pretrained` writes it, and what that implementation computes with it:
`expected.npz` (tokens and float32 logits) and `expected.json` (greedy completions, and the versions used).
Run it in an environment of its own, with torch 2.13.0 and transformers 4.57 (our own needs neither):

    python tests/cases/models/make.py
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import torch
import transformers
from transformers import GemmaConfig, GemmaForCausalLM, GPT2Config, GPT2LMHeadModel

HERE = Path(__file__).parent
VOCAB = 97
NEW_TOKENS = 16
# Lengths on both sides of each other, so that padding matters; none ends like another.
PROMPTS = [[5, 17, 80], [3], [44, 2, 9, 61, 33, 33, 12, 90], [70, 71, 72, 73, 8]]

MODELS = {
    # Everything GPT-2 does, and an MLP width that is not 4 x embed.
    "gpt2": (
        GPT2LMHeadModel,
        GPT2Config(vocab_size=VOCAB, n_positions=48, n_embd=32, n_layer=2, n_head=4, n_inner=80),
        torch.float32,
        "5GB",
    ),
    # Exact GELU, a head of its own, and several files with an index.
    "gpt2-untied": (
        GPT2LMHeadModel,
        GPT2Config(
            vocab_size=VOCAB,
            n_positions=48,
            n_embd=24,
            n_layer=3,
            n_head=2,
            activation_function="gelu",
            tie_word_embeddings=False,
        ),
        torch.float32,
        "40KB",
    ),
    # Multi-query attention with heads wider than embed / heads, as in Gemma 2B.
    "gemma": (
        GemmaForCausalLM,
        GemmaConfig(
            vocab_size=VOCAB,
            hidden_size=32,
            intermediate_size=56,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=1,
            head_dim=16,
            max_position_embeddings=48,
        ),
        torch.float32,
        "5GB",
    ),
    # Grouped queries, biases, another rotary base, a head of its own, bfloat16 files.
    "gemma-grouped": (
        GemmaForCausalLM,
        GemmaConfig(
            vocab_size=VOCAB,
            hidden_size=24,
            intermediate_size=40,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=8,
            max_position_embeddings=48,
            attention_bias=True,
            rope_theta=500.0,
            tie_word_embeddings=False,
        ),
        torch.bfloat16,
        "5GB",
    ),
}


def make(name: str) -> None:
    """Write one golden model and what it computes."""
    kind, config, dtype, shard_size = MODELS[name]
    torch.manual_seed(sum(name.encode()))
    fresh = kind(config)
    with torch.no_grad():
        for path, parameter in fresh.named_parameters():
            # Fresh norms are 1 and fresh biases 0, which would hide a mistake in either; and layers that hardly
            # change the token table's rows would hide a mistake in themselves.
            inside_layer = any(part.isdecimal() for part in path.split("."))
            parameter.add_((0.3 if inside_layer else 0.15) * torch.randn_like(parameter))
    folder = HERE / name
    shutil.rmtree(folder, ignore_errors=True)
    fresh.to(dtype).save_pretrained(folder, max_shard_size=shard_size)
    # Computed with what the files hold, in float32, by the plain attention that is written out in the model's own code.
    model = kind.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()

    tokens = torch.randint(0, VOCAB, (3, 24))
    with torch.no_grad():
        logits = model(tokens).logits
    np.savez(folder / "expected.npz", tokens=tokens.numpy().astype(np.int32), logits=logits.numpy())
    # Of all tokens the one that ends as near as possible to half of the outputs.
    free = [greedy(model, prompt, stop=None) for prompt in PROMPTS]
    stop = min(range(VOCAB), key=lambda token: abs(sum(token in output[1:] for output in free) - len(free) / 2))
    expected = {
        "made_with": {"torch": torch.__version__, "transformers": transformers.__version__},
        "stop_token_id": stop,
        "max_new_tokens": NEW_TOKENS,
        "prompts": PROMPTS,
        "completions": [greedy(model, prompt, stop=stop) for prompt in PROMPTS],
    }
    (folder / "expected.json").write_text(json.dumps(expected) + "\n", encoding="utf-8")


def greedy(model: torch.nn.Module, prompt: list[int], *, stop: int | None) -> list[int]:
    """Continue a prompt one token at a time, the whole text through the model each time."""
    tokens = list(prompt)
    while len(tokens) < len(prompt) + NEW_TOKENS and (len(tokens) == len(prompt) or tokens[-1] != stop):
        with torch.no_grad():
            tokens.append(int(model(torch.tensor([tokens])).logits[0, -1].argmax()))
    return tokens[len(prompt) :]


if __name__ == "__main__":
    for model_name in MODELS:
        make(model_name)

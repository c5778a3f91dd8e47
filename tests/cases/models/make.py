"""Makes the golden models beside this file with an independent implementation: transformers on torch.

Each folder holds a tiny random model as `save_pretrained` writes it, and what that implementation computes with it:
`expected.npz` (tokens and float32 logits) and `expected.json` (loss, gradients, greedy completions, versions).
Run it in an environment of its own, with torch 2.13.0 and transformers (our own needs neither), once with each version
of transformers, since each writes config.json in its own way:

    python tests/cases/models/make.py             # the cases of the version that is installed, 4 or 5
    python tests/cases/models/make.py gemma2      # these alone
"""

from __future__ import annotations

import json
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers

HERE = Path(__file__).parent
VOCAB = 97
NEW_TOKENS = 16
# Lengths on both sides of each other, so that padding matters; none ends like another.
PROMPTS = [[5, 17, 80], [3], [44, 2, 9, 61, 33, 33, 12, 90], [70, 71, 72, 73, 8]]

SMALL = {
    "vocab_size": VOCAB,
    "hidden_size": 24,
    "intermediate_size": 40,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 48,
}
"""Sizes that no two of are equal by chance."""


@dataclass(frozen=True)
class Case:
    """One golden model."""

    family: str
    """Beginning of the names of its classes in transformers."""

    config: dict[str, Any]
    version: int = 5
    """Of transformers, which writes its config.json."""

    dtype: torch.dtype = torch.float32
    shard_size: str = "5GB"
    quantised: dict[str, Any] | None = None
    """What bitsandbytes 0.50 is told, where it quantises the files."""


def rope(version: int, **parameters: Any) -> dict[str, Any]:
    """Return rotary parameters under the key of a version of transformers."""
    return {"rope_scaling" if version == 4 else "rope_parameters": parameters}


YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 12}

CASES = {
    # Everything GPT-2 does, and an MLP width that is not 4 x embed.
    "gpt2": Case(
        "GPT2", {"vocab_size": VOCAB, "n_positions": 48, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_inner": 80}, 4
    ),
    # Exact GELU, a head of its own, and several files with an index.
    "gpt2-untied": Case(
        "GPT2",
        {"vocab_size": VOCAB, "n_positions": 48, "n_embd": 24, "n_layer": 3, "n_head": 2, "activation_function": "gelu"}
        | {"tie_word_embeddings": False},
        4,
        shard_size="40KB",
    ),
    # Multi-query attention with heads wider than embed / heads, as in Gemma 2B.
    "gemma": Case(
        "Gemma",
        SMALL | {"hidden_size": 32, "intermediate_size": 56, "num_key_value_heads": 1, "head_dim": 16},
        4,
    ),
    # Grouped queries, biases, another rotary base, a head of its own, bfloat16 files.
    "gemma-grouped": Case(
        "Gemma",
        SMALL | {"head_dim": 8, "attention_bias": True, "rope_theta": 500.0, "tie_word_embeddings": False},
        4,
        torch.bfloat16,
    ),
    # Biases everywhere, heads wider than embed / heads, a head of its own, three files.
    "llama": Case(
        "Llama",
        SMALL | {"head_dim": 10, "attention_bias": True, "mlp_bias": True, "rms_norm_eps": 1e-5},
        shard_size="24KB",
    ),
    # As SmolLM2 and Llama 3.2 are published: tied, stretched as Llama 3.1 is; float16 files.
    "llama-llama3": Case(
        "Llama",
        SMALL
        | {"tie_word_embeddings": True, "rope_theta": 500.0, "hidden_act": "gelu"}
        | rope(
            4,
            rope_type="llama3",
            factor=8.0,
            low_freq_factor=1.0,
            high_freq_factor=4.0,
            original_max_position_embeddings=16,
        ),
        4,
        torch.float16,
    ),
    "llama-linear": Case("Llama", SMALL | rope(4, type="linear", factor=2.5), 4),
    # Texts longer than `max_position_embeddings`, from where on this kind does something.
    "llama-dynamic": Case("Llama", SMALL | {"max_position_embeddings": 14} | rope(5, rope_type="dynamic", factor=2.0)),
    "llama-yarn": Case("Llama", SMALL | {"head_dim": 16} | rope(5, **YARN)),
    "llama-yarn-mscale": Case(
        "Llama",
        SMALL | {"head_dim": 16} | rope(5, **YARN, mscale=0.8, mscale_all_dim=0.5, beta_fast=16.0, truncate=False),
    ),
    # Texts on both sides of the length from which on the long factors hold.
    "llama-longrope": Case(
        "Llama",
        SMALL
        | rope(
            5,
            rope_type="longrope",
            short_factor=[1.0, 1.1, 1.3],
            long_factor=[1.5, 2.5, 4.0],
            original_max_position_embeddings=16,
        ),
    ),
    # A window that every text outgrows, one word more than the others have, bfloat16 files.
    "mistral": Case(
        "Mistral", SMALL | {"vocab_size": VOCAB + 1, "sliding_window": 6, "head_dim": 8}, 4, torch.bfloat16
    ),
    "mistral-no-window": Case("Mistral", SMALL | {"num_key_value_heads": 1, "sliding_window": None}),
    # Caps and a query scale that bend these small numbers, and the window in every other layer.
    "gemma2": Case(
        "Gemma2",
        SMALL
        | {"num_hidden_layers": 3, "head_dim": 8, "sliding_window": 6, "query_pre_attn_scalar": 20}
        | {"attn_logit_softcapping": 2.0, "final_logit_softcapping": 3.0},
    ),
    "gemma2-no-caps": Case(
        "Gemma2",
        SMALL
        | {"head_dim": 16, "sliding_window": 5, "attention_bias": True}
        | {"attn_logit_softcapping": None, "final_logit_softcapping": None},
        4,
    ),
    # Five layers with a window and one without, a base for each, the longer context stretched in the sixth alone.
    "gemma3": Case(
        "Gemma3",
        SMALL
        | {"num_hidden_layers": 6, "head_dim": 8, "hidden_size": 16, "intermediate_size": 24, "sliding_window": 6}
        | {"query_pre_attn_scalar": 12}
        | {"rope_theta": 800.0, "rope_local_base_freq": 90.0, "rope_scaling": {"rope_type": "linear", "factor": 3.0}},
        4,
    ),
    "gemma3-capped": Case(
        "Gemma3",
        SMALL
        | {"head_dim": 8, "sliding_window": 7, "layer_types": ["full_attention", "sliding_attention"]}
        | {"final_logit_softcapping": 4.0, "num_key_value_heads": 1}
        | rope(
            5,
            full_attention={
                "rope_type": "yarn",
                "factor": 2.0,
                "rope_theta": 700.0,
                "original_max_position_embeddings": 24,
            },
            sliding_attention={"rope_type": "default", "rope_theta": 60.0},
        ),
        shard_size="30KB",
    ),
    # Full attention below, windows above.
    "qwen2": Case(
        "Qwen2",
        SMALL
        | {"num_hidden_layers": 3, "use_sliding_window": True, "sliding_window": 6, "max_window_layers": 1}
        | {"tie_word_embeddings": True},
    ),
    "qwen2-plain": Case("Qwen2", SMALL | {"num_key_value_heads": 4}, 4, torch.bfloat16),
    "qwen3": Case("Qwen3", SMALL | {"head_dim": 16, "tie_word_embeddings": True}),
    "qwen3-window": Case(
        "Qwen3",
        SMALL
        | {
            "head_dim": 8,
            "attention_bias": True,
            "use_sliding_window": True,
            "sliding_window": 6,
            "max_window_layers": 1,
        },
        4,
    ),
    # Every fourth layer does not turn, by default.
    "smollm3": Case("SmolLM3", SMALL | {"num_hidden_layers": 4, "hidden_size": 16, "intermediate_size": 24}),
    # Layers that do not turn are the ones with a window.
    "smollm3-window": Case(
        "SmolLM3",
        SMALL
        | {"no_rope_layers": [0, 1], "use_sliding_window": True, "sliding_window": 6, "attention_bias": True}
        | {"mlp_bias": True, "tie_word_embeddings": False},
        4,
    ),
}

QUANTISED = SMALL | {"hidden_size": 64, "intermediate_size": 72, "tie_word_embeddings": True}
"""Rows of 64 and 72: blocks of 64 cross rows. (Of rows of 48 or 80 bitsandbytes 0.50 makes something else on a CPU.)"""

CASES |= {
    "llama-nf4": Case(
        "Llama",
        QUANTISED | {"head_dim": 16},
        quantised={"load_in_4bit": True, "bnb_4bit_quant_type": "nf4", "bnb_4bit_use_double_quant": True},
    ),
    "qwen2-fp4": Case(
        "Qwen2", QUANTISED, dtype=torch.bfloat16, quantised={"load_in_4bit": True, "bnb_4bit_quant_type": "fp4"}
    ),
    "qwen3-int8": Case("Qwen3", QUANTISED | {"head_dim": 8}, dtype=torch.float16, quantised={"load_in_8bit": True}),
}

CLASSES = {"Gemma3": ("Gemma3TextConfig", "Gemma3ForCausalLM"), "GPT2": ("GPT2Config", "GPT2LMHeadModel")}


def make(name: str) -> None:
    """Write one golden model and what it computes."""
    case = CASES[name]
    config_name, model_name = CLASSES.get(case.family, (f"{case.family}Config", f"{case.family}ForCausalLM"))
    kind = getattr(transformers, model_name)
    config = getattr(transformers, config_name)(bos_token_id=None, eos_token_id=None, pad_token_id=None, **case.config)
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
    fresh.to(case.dtype).save_pretrained(folder, max_shard_size=case.shard_size)
    if case.quantised is not None:
        told = transformers.BitsAndBytesConfig(**case.quantised)
        quantised = kind.from_pretrained(folder, dtype=case.dtype, quantization_config=told, device_map="cpu")
        shutil.rmtree(folder)
        quantised.save_pretrained(folder)
        model = kind(quantised.config).eval()
        model.set_attn_implementation("eager")
        model.load_state_dict(read_by_bitsandbytes(quantised), strict=False)
        model.tie_weights()
    else:
        # Computed with what the files hold, in float32, by the plain attention that the model's own code spells out.
        model = kind.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()

    tokens = torch.randint(0, config.vocab_size, (2, 24))
    logits = model(tokens).logits
    loss = torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())
    loss.backward()
    np.savez_compressed(folder / "expected.npz", tokens=tokens.numpy().astype(np.int32), logits=logits.detach().numpy())
    # Of all tokens the one that ends as near as possible to half of the outputs.
    free = [greedy(model, prompt, stop=None) for prompt in PROMPTS]
    stop = min(range(VOCAB), key=lambda token: abs(sum(token in output[1:] for output in free) - len(free) / 2))
    expected = {
        "made_with": {"torch": torch.__version__, "transformers": transformers.__version__},
        "loss": loss.item(),
        "gradients": {path: summary(parameter.grad) for path, parameter in model.named_parameters()},
        "stop_token_id": stop,
        "max_new_tokens": NEW_TOKENS,
        "prompts": PROMPTS,
        "completions": [greedy(model, prompt, stop=stop) for prompt in PROMPTS],
    }
    (folder / "expected.json").write_text(json.dumps(expected) + "\n", encoding="utf-8")


def read_by_bitsandbytes(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Return the weights that a quantised model computes with, in float32."""
    from bitsandbytes import functional, nn

    found = {path: value.float() for path, value in model.named_parameters() if value.dtype.is_floating_point}
    for path, module in model.named_modules():
        if isinstance(module, nn.Linear4bit):
            found[f"{path}.weight"] = functional.dequantize_4bit(module.weight.data, module.weight.quant_state).float()
        elif isinstance(module, nn.Linear8bitLt):
            found[f"{path}.weight"] = functional.int8_vectorwise_dequant(module.weight.data, module.weight.SCB)
    return found


def summary(gradient: torch.Tensor) -> list[float]:
    """Return a gradient's norm and its product with waves, which tells a transposed or swapped one."""
    flat = gradient.double().flatten()
    return [flat.norm().item(), (flat * torch.cos(torch.arange(len(flat), dtype=torch.float64))).sum().item()]


def greedy(model: torch.nn.Module, prompt: list[int], *, stop: int | None) -> list[int]:
    """Continue a prompt one token at a time, with transformers' own cache."""
    written: list[int] = []
    tokens, cache = torch.tensor([prompt]), transformers.DynamicCache(config=model.config)
    while len(written) < NEW_TOKENS and (not written or written[-1] != stop):
        with torch.no_grad():
            out = model(tokens, past_key_values=cache, use_cache=True)
        written.append(int(out.logits[0, -1].argmax()))
        tokens = torch.tensor([written[-1:]])
    return written


if __name__ == "__main__":
    installed = int(transformers.__version__.split(".")[0])
    for model_name in sys.argv[1:] or [name for name, case in CASES.items() if case.version == installed]:
        make(model_name)

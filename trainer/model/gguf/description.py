"""What a GGUF file states about its model, as the config.json that Hugging Face's files would have.

llama.cpp knows some things by the architecture's name and writes them nowhere; they stand here as its code has them
(`src/models/*.cpp`, `src/llama-model.cpp`): which layers have a window, Gemma's scale of queries, its activations.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from schemas.problems import ProblemError, problem_of
from trainer.model.gguf.header import Gguf

FAMILIES = {
    "gpt2": "gpt2",
    "llama": "llama",
    "gemma": "gemma",
    "gemma2": "gemma2",
    "gemma3": "gemma3_text",
    "qwen2": "qwen2",
    "qwen3": "qwen3",
    "smollm3": "smollm3",
}
"""For each architecture: the family. Mistral's files state `llama`, and llama.cpp computes no window there."""

SIZES = {
    "hidden_size": "embedding_length",
    "intermediate_size": "feed_forward_length",
    "num_hidden_layers": "block_count",
    "num_attention_heads": "attention.head_count",
    "max_position_embeddings": "context_length",
    "rms_norm_eps": "attention.layer_norm_rms_epsilon",
}
GPT2_SIZES = {
    "n_embd": "embedding_length",
    "n_inner": "feed_forward_length",
    "n_layer": "block_count",
    "n_head": "attention.head_count",
    "n_positions": "context_length",
    "layer_norm_epsilon": "attention.layer_norm_epsilon",
}

LARGEST_GEMMA = {"gemma2": 46, "gemma3": 62}
"""Layers of the 27 B model, whose queries are scaled by the model's width and not by that of a head."""


def config_of(gguf: Gguf) -> dict[str, Any]:
    """Return the config.json of a file's model.

    Raises:
        ProblemError: exit code 2; the architecture is another one, keys are missing, or the rotary positions are
            stretched in a way that is not read.
    """
    name = gguf.architecture
    if name not in FAMILIES:
        raise refusal(gguf, f"its general.architecture is {name!r}" if name else "it states no general.architecture")
    sizes = GPT2_SIZES if name == "gpt2" else SIZES
    lacking = [key for key in sizes.values() if gguf.model(key) is None]
    if "token_embd.weight" not in gguf.tensors:
        lacking.append("the tensor token_embd.weight")
    if lacking:
        raise refusal(gguf, f"it lacks {', '.join(key if ' ' in key else f'{name}.{key}' for key in lacking)}")
    config = {key: plain(gguf.model(stated)) for key, stated in sizes.items()}
    config |= {
        "model_type": FAMILIES[name],
        "vocab_size": gguf.tensors["token_embd.weight"].shape[0],
        # A head that is not written is the token table.
        "tie_word_embeddings": "output.weight" not in gguf.tensors,
        "bos_token_id": gguf.metadata.get("tokenizer.ggml.bos_token_id"),
        "eos_token_id": gguf.metadata.get("tokenizer.ggml.eos_token_id"),
    }
    return config if name == "gpt2" else config | attention(gguf, config) | OF_FAMILY.get(name, no_more)(gguf, config)


def attention(gguf: Gguf, config: dict[str, Any]) -> dict[str, Any]:
    """Return heads, biases and rotary positions, which all but GPT-2 state alike."""
    found = {
        "num_key_value_heads": plain(gguf.model("attention.head_count_kv")),
        "head_dim": plain(gguf.model("attention.key_length") or gguf.model("rope.dimension_count")),
        "attention_bias": "blk.0.attn_q.bias" in gguf.tensors,
        "mlp_bias": "blk.0.ffn_up.bias" in gguf.tensors,
        "rope_theta": plain(gguf.model("rope.freq_base") or 10_000.0),
        "rope_scaling": stretch(gguf, config),
    }
    turned = plain(gguf.model("rope.dimension_count"))
    if found["head_dim"] is not None and turned not in (None, found["head_dim"]):
        raise refusal(gguf, f"it turns {turned} of the {found['head_dim']} numbers of a head")
    return {key: value for key, value in found.items() if value is not None}


def stretch(gguf: Gguf, config: dict[str, Any]) -> dict[str, Any] | None:
    """Return how the context was made longer, as `rope_scaling`; None: it was not."""
    kind, factor = gguf.model("rope.scaling.type"), plain(gguf.model("rope.scaling.factor"))
    if "rope_freqs.weight" in gguf.tensors:
        return llama3(gguf, config)
    if kind in (None, "none") or (kind == "linear" and factor in (None, 1.0)):
        return None
    if kind == "linear":
        return {"rope_type": "linear", "factor": factor}
    if kind == "yarn" and factor is not None and gguf.model("rope.scaling.original_context_length") is not None:
        positions = plain(gguf.model("rope.scaling.original_context_length"))
        return {"rope_type": "yarn", "factor": factor, "original_max_position_embeddings": positions}
    raise refusal(gguf, f"its rotary positions are stretched by {kind!r}, and linear, yarn and Llama 3's way are read")


def llama3(gguf: Gguf, config: dict[str, Any]) -> dict[str, Any]:
    """Return Llama 3.1's stretching, of which the file keeps only the divisor of each frequency.

    The divisors of all published models come of slopes from 1 to 4 turns in 8,192 tokens; others are refused.
    """
    divisors = gguf.tensors["rope_freqs.weight"].read()
    found = {
        "rope_type": "llama3",
        "factor": float(divisors.max()),
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
    }
    theta = float(plain(gguf.model("rope.freq_base") or 10_000.0))
    wanted = llama3_divisors(found, theta, 2 * len(divisors))
    if divisors.ndim != 1 or not np.allclose(divisors, wanted, rtol=1e-4):
        raise refusal(gguf, "its rope_freqs.weight holds other divisors than those of Llama 3.1")
    return found


def llama3_divisors(scaling: dict[str, Any], theta: float, head_dim: int) -> np.ndarray[Any, np.dtype[np.float32]]:
    """Return by what each rotary frequency is divided.

    Frequencies that turn more than `high_freq_factor` times in the first context are kept, those below
    `low_freq_factor` divided by `factor`; between them `1 / ((1 − s) / factor + s)` with
    `s = (turns − low) / (high − low)`.

    Args:
        scaling: as in `rope_scaling`.
        theta: the base.
        head_dim: width of a head.
    """
    wavelengths = 2 * np.pi * theta ** (np.arange(0, head_dim, 2, dtype=np.float64) / head_dim)
    turns = scaling["original_max_position_embeddings"] / wavelengths
    low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
    slope = np.clip((turns - low) / (high - low), 0.0, 1.0)
    divisors: np.ndarray[Any, np.dtype[np.float32]] = 1 / ((1 - slope) / scaling["factor"] + slope)
    return divisors.astype(np.float32)


def gemma2(gguf: Gguf, config: dict[str, Any]) -> dict[str, Any]:
    """Return what Gemma 2 states beyond the others: a window in every other layer, and soft caps."""
    return gemma_queries(gguf, config) | {
        "sliding_window": plain(gguf.model("attention.sliding_window")) or 4096,
        "attn_logit_softcapping": plain(gguf.model("attn_logit_softcapping")) or 50.0,
        "final_logit_softcapping": plain(gguf.model("final_logit_softcapping")) or 30.0,
    }


def gemma3(gguf: Gguf, config: dict[str, Any]) -> dict[str, Any]:
    """Return what Gemma 3 states beyond the others: windows in five of six layers, which turn by their own base."""
    return gemma_queries(gguf, config) | {
        "sliding_window": plain(gguf.model("attention.sliding_window")),
        "sliding_window_pattern": plain(gguf.model("attention.sliding_window_pattern")) or 6,
        "final_logit_softcapping": plain(gguf.model("final_logit_softcapping")),
        "rope_theta": plain(gguf.model("rope.freq_base") or 1_000_000.0),
        "rope_local_base_freq": plain(gguf.model("rope.freq_base_swa")) or 10_000.0,
    }


def gemma_queries(gguf: Gguf, config: dict[str, Any]) -> dict[str, Any]:
    """Return the number by whose square root scores are divided."""
    if config["num_hidden_layers"] == LARGEST_GEMMA[gguf.architecture]:
        return {"query_pre_attn_scalar": config["hidden_size"] // config["num_attention_heads"]}
    head_dim = plain(gguf.model("attention.key_length"))
    return {} if head_dim is None else {"query_pre_attn_scalar": head_dim}


def qwen(gguf: Gguf, _config: dict[str, Any]) -> dict[str, Any]:
    """Return that Qwen's layers have no window, which llama.cpp never computes for them."""
    return {"use_sliding_window": False}


def no_more(_gguf: Gguf, _config: dict[str, Any]) -> dict[str, Any]:
    """Return nothing."""
    return {}


OF_FAMILY = {"gemma2": gemma2, "gemma3": gemma3, "qwen2": qwen, "qwen3": qwen}


def plain(value: Any) -> Any:
    """Return a value as JSON has it; a list that states the same for each layer as what it states."""
    if isinstance(value, np.ndarray):
        return value[0].item() if len(value) and (value == value[0]).all() else value[:1024].tolist()
    return value


def refusal(gguf: Gguf, because: str) -> ProblemError:
    """Return the refusal of a file whose model is not one that is computed here."""
    return ProblemError(
        [
            problem_of(
                "TP039",
                file=str(gguf.path),
                what=f"{gguf.path.name} is not a model that is read from GGUF: {because}.",
                expected=", ".join(FAMILIES),
            )
        ],
        exit_code=2,
    )

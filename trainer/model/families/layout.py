"""What the families after GPT-2 share: the names of sizes in config.json, and the names of tensors.

A family's own file states what is different in it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from trainer.model.families.config_reader import MOST_LAYERS, ConfigReader
from trainer.model.spec import BlockSpec, ModelSpec


@dataclass(frozen=True, kw_only=True)
class TensorLink:
    """One tensor of a file and the parameters that it holds.

    `TensorLink(tensor="h.0.attn.c_attn.weight", params=(query, key, value))`: the three stand side by side, joined
    along the last axis. The tensor is the transpose of that where the file keeps `[outputs inputs]`.
    """

    tensor: str
    """Name in the file, with the family's prefix."""

    params: tuple[str, ...]
    """Names as in `params.flatten`."""

    transposed: bool = False
    """The file stores `[outputs inputs]`, as torch's Linear does."""


@dataclass(frozen=True, kw_only=True)
class Family:
    """One architecture of Hugging Face and the way between its files and our decoder."""

    model_type: str
    """`model_type` in config.json."""

    architecture: str
    """Class name that other tools expect in an exported config.json."""

    prefix: str
    """What the names of all tensors but the head begin with; some files leave it out."""

    read_config: Callable[[ConfigReader], ModelSpec]
    """Reads the spec and notes what it cannot do; the caller raises what was noted."""

    links: Callable[[ModelSpec], tuple[TensorLink, ...]]
    """Every parameter of the spec, once."""

    buffers: str
    """Regular expression for tensors without the prefix that hold no parameter and are passed over."""

    prefixes: Mapping[str, str] = field(default_factory=dict)
    """Other beginnings of names in its files, and what they are read as."""

    text_key: str | None = None
    """Key of config.json under which the text model's own config stands. None: it is the whole document."""


PREFIX = "model."
"""What the names of all tensors but the head begin with."""

BUFFERS = r"(layers\.\d+\.self_attn\.)?rotary_emb\.inv_freq"
"""Tensors of older files that hold no parameter."""


def layer_count(config: ConfigReader) -> int:
    """Return the number of layers."""
    return config.size("num_hidden_layers", most=MOST_LAYERS)


def head_dim(config: ConfigReader) -> int:
    """Return the width of a head: stated, or the model's width shared among the heads."""
    embed, heads = config.size("hidden_size"), config.size("num_attention_heads")
    if config.value("head_dim") is None and embed % heads:
        config.note("num_attention_heads", f"a divisor of `hidden_size`, {embed}, where `head_dim` is not stated")
    width = config.size("head_dim", max(embed // heads, 2))
    if width % 2:
        config.note("head_dim", "an even number")
        return width + 1
    return width


def windows(config: ConfigReader, slides: Callable[[int], bool]) -> tuple[int | None, ...]:
    """Return the window of each layer.

    Args:
        config: may state each layer's kind under `layer_types`.
        slides: whether a layer, counted from 0, has a window where the file does not state it.
    """
    count = layer_count(config)
    kinds = config.value("layer_types")
    if kinds is None:
        sliding = [slides(layer) for layer in range(count)]
    elif isinstance(kinds, list) and len(kinds) == count and set(kinds) <= {"full_attention", "sliding_attention"}:
        sliding = [kind == "sliding_attention" for kind in kinds]
    else:
        config.note("layer_types", f"a list of {count} times full_attention or sliding_attention")
        sliding = [False]
    if not any(sliding):
        return (None,) * count
    window = config.size("sliding_window")
    return tuple(window if each else None for each in sliding)


def read_spec(config: ConfigReader, *, family: str, blocks: tuple[BlockSpec, ...], **choices: Any) -> ModelSpec:
    """Return the spec of a decoder with rotary positions, RMS norms and a gated MLP.

    Args:
        config: the document, with the family's defaults.
        family: its `model_type`.
        blocks: its layers.
        choices: further fields of `ModelSpec`.
    """
    heads = config.size("num_attention_heads")
    kv_heads = config.size("num_key_value_heads", heads)
    if heads % kv_heads:
        config.note("num_key_value_heads", f"a divisor of `num_attention_heads`, {heads}")
    fields: dict[str, Any] = {
        "vocab": config.size("vocab_size"),
        "embed": config.size("hidden_size"),
        "heads": heads,
        "kv_heads": kv_heads,
        "head_dim": head_dim(config),
        "mlp": config.size("intermediate_size"),
        "max_positions": config.size("max_position_embeddings"),
        "norm": "rms",
        "norm_epsilon": config.number("rms_norm_eps", 1e-6),
        "gated_mlp": True,
        "attention_bias": False,
        "output_bias": False,
        "mlp_bias": False,
        "tied_head": config.flag("tie_word_embeddings"),
        "initializer_std": config.number("initializer_range", 0.02),
    }
    return ModelSpec(family=family, blocks=blocks, **(fields | choices))


def links(spec: ModelSpec) -> tuple[TensorLink, ...]:
    """Name the tensors of a model; torch's Linear keeps kernels as `[outputs inputs]`."""
    found = [
        TensorLink(tensor="model.embed_tokens.weight", params=("tokens.table",)),
        TensorLink(tensor="model.norm.weight", params=("final_norm.scale",)),
    ]
    for index, block in enumerate(spec.blocks):
        theirs, ours = f"model.layers.{index}", f"layers.{index}"
        for tensor, norm in norms(block).items():
            found.append(TensorLink(tensor=f"{theirs}.{tensor}.weight", params=(f"{ours}.{norm}.scale",)))
        for tensor, linear in LINEARS.items():
            kernel = (f"{ours}.{linear}.kernel",)
            found.append(TensorLink(tensor=f"{theirs}.{tensor}.weight", params=kernel, transposed=True))
            if has_bias(spec, linear):
                found.append(TensorLink(tensor=f"{theirs}.{tensor}.bias", params=(f"{ours}.{linear}.bias",)))
    if not spec.tied_head:
        found.append(TensorLink(tensor="lm_head.weight", params=("head.table",)))
    return tuple(found)


def norms(block: BlockSpec) -> dict[str, str]:
    """Return the norms of a layer by their names in the file."""
    found = {"input_layernorm": "attention_norm"}
    if block.post_norms:
        found["post_attention_layernorm"] = "attention_post_norm"
        found["pre_feedforward_layernorm"] = "mlp_norm"
        found["post_feedforward_layernorm"] = "mlp_post_norm"
    else:
        found["post_attention_layernorm"] = "mlp_norm"
    if block.query_key_norm:
        found["self_attn.q_norm"] = "attention.query_norm"
        found["self_attn.k_norm"] = "attention.key_norm"
    return found


def has_bias(spec: ModelSpec, linear: str) -> bool:
    """Return whether a projection has a bias."""
    if linear.startswith("mlp."):
        return spec.mlp_bias
    return spec.output_bias if linear == "attention.out" else spec.attention_bias


LINEARS = {
    "self_attn.q_proj": "attention.query",
    "self_attn.k_proj": "attention.key",
    "self_attn.v_proj": "attention.value",
    "self_attn.o_proj": "attention.out",
    "mlp.gate_proj": "mlp.gate",
    "mlp.up_proj": "mlp.up",
    "mlp.down_proj": "mlp.down",
}

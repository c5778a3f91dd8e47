"""A model's shape made small: same family, tokenizer, kinds of layers and of attention; fewer layers, less width.

It is for smoke runs of a model that is too large for the machine. Its parameters are drawn, since no file has them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from trainer.model.families import spec_from_config
from trainer.model.files.source import ModelSource
from trainer.model.spec import ModelSpec

FEWEST_LAYERS = 2
EMBED = 128
"""Width of the residual stream; of GPT-2, whose width is that of all heads together, of as many heads as are kept."""
KV_HEADS = 2
UNIT = 64
"""Widths inside the MLP are multiples of it: bits are kept in blocks of 64."""

MADE_SMALL = ("layers", "embed", "heads", "kv_heads", "mlp")
"""Fields of the spec that become smaller."""


def shrunk(source: ModelSource) -> ModelSource:
    """Return a model with its shape made small, once; nothing becomes larger."""
    if source.full_spec is not None:
        return source
    key = source.family.text_key
    config = dict(source.config if key is None else source.config[key])
    sizes = small_sizes(source.spec)
    for name, value in config.items():
        if isinstance(value, list) and len(value) == source.spec.layers:
            config[name] = value[: sizes["layers"]]  # what it states of each layer: layer_types, no_rope_layers
    config |= _as_stated(source.spec, sizes)
    whole = config if key is None else {**source.config, key: config}
    return replace(
        source,
        config=whole,
        spec=spec_from_config(whole, file=str(source.folder)),
        weights="builtin",
        full_spec=source.spec,
    )


def small_sizes(spec: ModelSpec) -> dict[str, int]:
    """Return the sizes of a spec made small; heads keep their ratio, and every kind of layer is kept.

    Gemma-2B with 18 layers, 8 query heads on 1 of keys, width 2,048 and 16,384 inside the MLP has 2 layers, 8 heads on
    1, width 128 and 1,024. Gemma 3, of which each sixth layer has no window, keeps 6 layers.
    """
    kinds = set(spec.blocks)
    first = next(count for count in range(1, spec.layers + 1) if set(spec.blocks[:count]) == kinds)
    kv_heads = min(spec.kv_heads, KV_HEADS)
    heads = spec.heads // spec.kv_heads * kv_heads
    embed = heads * spec.head_dim if spec.learned_positions else min(spec.embed, EMBED)
    mlp = min(spec.mlp, max(UNIT, spec.mlp * embed // spec.embed // UNIT * UNIT))
    layers = min(spec.layers, max(first, FEWEST_LAYERS))
    return {"layers": layers, "embed": embed, "heads": heads, "kv_heads": kv_heads, "mlp": mlp}


def made_small(source: ModelSource) -> list[dict[str, Any]]:
    """Return which sizes were made smaller, as the manifest has it; nothing if the model has its own shape."""
    own, made = source.full_spec or source.spec, source.spec
    pairs = {size: (getattr(own, size), getattr(made, size)) for size in MADE_SMALL}
    return [{"size": size, "own": was, "made": now} for size, (was, now) in pairs.items() if was != now]


def _as_stated(spec: ModelSpec, sizes: Mapping[str, int]) -> dict[str, Any]:
    """Return sizes under the keys of the family's config.json."""
    if spec.learned_positions:
        names = {"layers": "n_layer", "embed": "n_embd", "heads": "n_head", "mlp": "n_inner"}
        return {stated: sizes[name] for name, stated in names.items()}
    names = {
        "layers": "num_hidden_layers",
        "embed": "hidden_size",
        "heads": "num_attention_heads",
        "kv_heads": "num_key_value_heads",
        "mlp": "intermediate_size",
    }
    return {**{stated: sizes[name] for name, stated in names.items()}, "head_dim": spec.head_dim}

"""Qwen2 and Qwen2.5 (arXiv 2407.10671, 2412.15115): Llama with biases on query, key and value."""

from __future__ import annotations

from trainer.model.families import layout
from trainer.model.families.config_reader import ConfigReader
from trainer.model.families.layout import Family
from trainer.model.families.rope_reader import read_rope
from trainer.model.spec import BlockSpec, ModelSpec


def read_config(config: ConfigReader) -> ModelSpec:
    """Read transformers' `Qwen2Config`."""
    config.defaults = {"max_position_embeddings": 32768, "sliding_window": 4096, "max_window_layers": 28}
    return layout.read_spec(
        config,
        family=FAMILY.model_type,
        blocks=blocks(config, query_key_norm=False),
        activation=config.activation("hidden_act", "silu"),
        attention_bias=True,
    )


def blocks(config: ConfigReader, *, query_key_norm: bool) -> tuple[BlockSpec, ...]:
    """Return the layers: with `use_sliding_window`, those from `max_window_layers` on have a window."""
    rope = read_rope(config, head_dim=layout.head_dim(config))
    if config.flag("use_sliding_window"):
        full = config.value("max_window_layers")
        if not isinstance(full, int) or isinstance(full, bool) or full < 0:
            config.note("max_window_layers", "a whole number from 0 on")
            full = 0
        windows = layout.windows(config, lambda layer: layer >= full)
    else:
        config.only("layer_types", allowed=(["full_attention"] * layout.layer_count(config),))
        windows = (None,) * layout.layer_count(config)
    return tuple(BlockSpec(rope=rope, window=window, query_key_norm=query_key_norm) for window in windows)


FAMILY = Family(
    model_type="qwen2",
    architecture="Qwen2ForCausalLM",
    prefix=layout.PREFIX,
    read_config=read_config,
    links=layout.links,
    buffers=layout.BUFFERS,
)

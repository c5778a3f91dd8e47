"""Qwen3 (arXiv 2505.09388): Qwen2 without its biases, each head of queries and keys normalised."""

from __future__ import annotations

from trainer.model.families import layout, qwen2
from trainer.model.families.config_reader import ConfigReader
from trainer.model.families.layout import Family
from trainer.model.spec import ModelSpec


def read_config(config: ConfigReader) -> ModelSpec:
    """Read transformers' `Qwen3Config`."""
    config.defaults = {
        "max_position_embeddings": 32768,
        "head_dim": 128,
        "sliding_window": 4096,
        "max_window_layers": 28,
    }
    bias = config.flag("attention_bias")
    return layout.read_spec(
        config,
        family=FAMILY.model_type,
        blocks=qwen2.blocks(config, query_key_norm=True),
        activation=config.activation("hidden_act", "silu"),
        attention_bias=bias,
        output_bias=bias,
    )


FAMILY = Family(
    model_type="qwen3",
    architecture="Qwen3ForCausalLM",
    prefix=layout.PREFIX,
    read_config=read_config,
    links=layout.links,
    buffers=layout.BUFFERS,
)

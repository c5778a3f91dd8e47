"""Llama 2 and 3 (arXiv 2307.09288, 2407.21783) and SmolLM2, which is the same: RMS norm, SwiGLU, grouped queries."""

from __future__ import annotations

from trainer.model.families import layout
from trainer.model.families.config_reader import ConfigReader
from trainer.model.families.layout import Family
from trainer.model.families.rope_reader import read_rope
from trainer.model.spec import BlockSpec, ModelSpec


def read_config(config: ConfigReader) -> ModelSpec:
    """Read transformers' `LlamaConfig`."""
    config.defaults = {"max_position_embeddings": 2048}
    bias = config.flag("attention_bias")
    block = BlockSpec(rope=read_rope(config, head_dim=layout.head_dim(config)))
    return layout.read_spec(
        config,
        family=FAMILY.model_type,
        blocks=(block,) * layout.layer_count(config),
        activation=config.activation("hidden_act", "silu"),
        attention_bias=bias,
        output_bias=bias,
        mlp_bias=config.flag("mlp_bias"),
    )


FAMILY = Family(
    model_type="llama",
    architecture="LlamaForCausalLM",
    prefix=layout.PREFIX,
    read_config=read_config,
    links=layout.links,
    buffers=layout.BUFFERS,
)

"""Gemma 2 (arXiv 2408.00118): Gemma with norms behind attention and MLP, soft caps, a window in every other layer."""

from __future__ import annotations

from typing import Any

from trainer.model.families import layout
from trainer.model.families.config_reader import ConfigReader
from trainer.model.families.layout import Family
from trainer.model.families.rope_reader import read_rope
from trainer.model.spec import BlockSpec, ModelSpec

DEFAULTS = {
    "head_dim": 256,
    "max_position_embeddings": 8192,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "query_pre_attn_scalar": 256,
    "sliding_window": 4096,
    "tie_word_embeddings": True,
}


def read_config(config: ConfigReader) -> ModelSpec:
    """Read transformers' `Gemma2Config`."""
    config.defaults = {**DEFAULTS, "attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0}
    rope = read_rope(config, head_dim=layout.head_dim(config))
    windows = layout.windows(config, lambda layer: layer % 2 == 0)
    return layout.read_spec(
        config,
        family=FAMILY.model_type,
        blocks=tuple(BlockSpec(rope=rope, window=window, post_norms=True) for window in windows),
        attention_softcap=config.optional_number("attn_logit_softcapping"),
        **choices(config),
    )


def choices(config: ConfigReader) -> dict[str, Any]:
    """Return the fields of `ModelSpec` that are Gemma's from the second on."""
    config.only("use_bidirectional_attention", allowed=(False,))
    bias = config.flag("attention_bias")
    return {
        "norm": "rms_one_plus",
        # `hidden_act` may stand there too; transformers does not read it.
        "activation": config.activation("hidden_activation", "gelu_pytorch_tanh"),
        "attention_bias": bias,
        "output_bias": bias,
        "scale_embeddings": True,
        "query_scale": config.number("query_pre_attn_scalar") ** -0.5,
        "final_softcap": config.optional_number("final_logit_softcapping"),
    }


FAMILY = Family(
    model_type="gemma2",
    architecture="Gemma2ForCausalLM",
    prefix=layout.PREFIX,
    read_config=read_config,
    links=layout.links,
    buffers=layout.BUFFERS,
)

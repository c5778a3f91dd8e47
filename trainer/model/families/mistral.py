"""Mistral (arXiv 2310.06825): Llama without biases, every layer with the same window, or none of them."""

from __future__ import annotations

from trainer.model.families import layout
from trainer.model.families.config_reader import ConfigReader
from trainer.model.families.layout import Family
from trainer.model.families.rope_reader import read_rope
from trainer.model.spec import BlockSpec, ModelSpec


def read_config(config: ConfigReader) -> ModelSpec:
    """Read transformers' `MistralConfig`; null for `sliding_window` means no window, absent is 4096."""
    config.defaults = {"max_position_embeddings": 131072, "num_key_value_heads": 8, "sliding_window": 4096}
    window = config.optional_size("sliding_window")
    count = layout.layer_count(config)
    # transformers' own model for this family does not look at each layer's kind.
    kind = "full_attention" if window is None else "sliding_attention"
    config.only("layer_types", allowed=([kind] * count,))
    block = BlockSpec(rope=read_rope(config, head_dim=layout.head_dim(config)), window=window)
    return layout.read_spec(
        config, family=FAMILY.model_type, blocks=(block,) * count, activation=config.activation("hidden_act", "silu")
    )


FAMILY = Family(
    model_type="mistral",
    architecture="MistralForCausalLM",
    prefix=layout.PREFIX,
    read_config=read_config,
    links=layout.links,
    buffers=layout.BUFFERS,
)

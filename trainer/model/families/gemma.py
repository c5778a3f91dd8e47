"""Gemma (arXiv 2403.08295): rotary positions, RMS norm with gain 1 + w, GeGLU, multi-query attention, a tied head.

Gemma's GELU is the tanh form. Early config.json files state `hidden_act: gelu` and mean that one; transformers 5 reads
them so. The older key `hidden_activation` counts in transformers 4 and is not known in 5: where it states something
else than `hidden_act`, no one can know what the model was trained with, and it is refused.
"""

from __future__ import annotations

from trainer.model.families import layout
from trainer.model.families.config_reader import ACTIVATIONS, ConfigReader
from trainer.model.families.layout import Family
from trainer.model.families.rope_reader import read_rope
from trainer.model.spec import Activation, BlockSpec, ModelSpec


def read_config(config: ConfigReader) -> ModelSpec:
    """Read transformers' `GemmaConfig`."""
    config.defaults = {"head_dim": 256, "max_position_embeddings": 8192, "tie_word_embeddings": True}
    config.only("use_bidirectional_attention", allowed=(False,))
    bias = config.flag("attention_bias")
    block = BlockSpec(rope=read_rope(config, head_dim=layout.head_dim(config)))
    return layout.read_spec(
        config,
        family=FAMILY.model_type,
        blocks=(block,) * layout.layer_count(config),
        norm="rms_one_plus",
        activation=activation(config),
        attention_bias=bias,
        output_bias=bias,
        scale_embeddings=True,
    )


def activation(config: ConfigReader) -> Activation:
    """Return the activation, with the early files' `hidden_act: gelu` read as the tanh form."""
    found = config.activation("hidden_act", "gelu_pytorch_tanh")
    found = "gelu_tanh" if found == "gelu" else found
    if config.config.get("hidden_activation") is not None:
        older = config.activation("hidden_activation", "gelu_pytorch_tanh")
        word = config.config.get("hidden_act")
        if older != found and word in (None, *ACTIVATIONS):
            config.note("hidden_activation", f"what `hidden_act` says, {word or 'by default gelu_pytorch_tanh'}")
    return found


FAMILY = Family(
    model_type="gemma",
    architecture="GemmaForCausalLM",
    prefix=layout.PREFIX,
    read_config=read_config,
    links=layout.links,
    buffers=layout.BUFFERS,
)

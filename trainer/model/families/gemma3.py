"""Gemma 3 (arXiv 2503.19786), text: Gemma 2 with normalised queries and keys instead of soft caps.

Five layers with a window come before one without, and each of the two kinds has a rotary base of its own.
A checkpoint with images (`model_type: gemma3`) keeps the text model under `text_config`; its tensors for images are
passed over, and what is exported is the text model.
"""

from __future__ import annotations

from dataclasses import replace

from trainer.model.families import gemma2, layout
from trainer.model.families.config_reader import ConfigReader
from trainer.model.families.layout import Family
from trainer.model.families.rope_reader import rope_in
from trainer.model.spec import BlockSpec, ModelSpec, Rope

DEFAULTS = {
    **gemma2.DEFAULTS,
    "vocab_size": 262208,
    "hidden_size": 2304,
    "intermediate_size": 9216,
    "num_hidden_layers": 26,
    "max_position_embeddings": 131072,
    "sliding_window_pattern": 6,
}
"""All of transformers' own: published files with images state only what is different."""


def read_config(config: ConfigReader) -> ModelSpec:
    """Read transformers' `Gemma3TextConfig`."""
    config.defaults = DEFAULTS
    # transformers has the key and does not compute it.
    config.only("attn_logit_softcapping", allowed=())
    key = "_sliding_window_pattern" if "_sliding_window_pattern" in config.config else "sliding_window_pattern"
    period = config.size(key)
    windows = layout.windows(config, lambda layer: (layer + 1) % period != 0)
    full, sliding = ropes(config)
    return layout.read_spec(
        config,
        family=FAMILY.model_type,
        blocks=tuple(
            BlockSpec(rope=sliding if window else full, window=window, query_key_norm=True, post_norms=True)
            for window in windows
        ),
        **gemma2.choices(config),
    )


def ropes(config: ConfigReader) -> tuple[Rope, Rope]:
    """Return the rotary positions of layers without a window, and of those with one.

    transformers 4 states two bases and stretches layers without a window only; 5 states an object for each kind.
    """
    width = layout.head_dim(config)
    stated = config.inside("rope_parameters")
    full, sliding = stated.inside("full_attention"), stated.inside("sliding_attention")
    if config.value("rope_scaling"):
        full = config.inside("rope_scaling")
    for key in stated.config:
        if key not in ("full_attention", "sliding_attention"):
            stated.only(key, allowed=())
    return (
        rope_in(full, config, head_dim=width, theta=config.number("rope_theta", 1_000_000.0)),
        rope_in(sliding, config, head_dim=width, theta=config.number("rope_local_base_freq", 10_000.0)),
    )


def read_text_part(config: ConfigReader) -> ModelSpec:
    """Read the text model of transformers' `Gemma3Config`."""
    text = config.inside("text_config")
    text.only("model_type", allowed=(FAMILY.model_type,))
    return replace(read_config(text), family=WITH_IMAGES.model_type)


FAMILY = Family(
    model_type="gemma3_text",
    architecture="Gemma3ForCausalLM",
    prefix=layout.PREFIX,
    read_config=read_config,
    links=layout.links,
    buffers=layout.BUFFERS,
)

WITH_IMAGES = replace(
    FAMILY,
    model_type="gemma3",
    read_config=read_text_part,
    prefixes={
        "language_model.model.": "model.",
        "model.language_model.": "model.",
        "language_model.lm_head.": "lm_head.",
    },
    buffers=rf"{layout.BUFFERS}|(model\.)?(vision_tower|multi_modal_projector)\..*",
    text_key="text_config",
)

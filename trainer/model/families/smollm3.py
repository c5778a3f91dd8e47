"""SmolLM3 (huggingface.co/blog/smollm3): Llama in which every fourth layer does not turn queries and keys."""

from __future__ import annotations

from dataclasses import replace

from trainer.model.families import layout
from trainer.model.families.config_reader import ConfigReader
from trainer.model.families.layout import Family
from trainer.model.families.rope_reader import read_rope
from trainer.model.spec import BlockSpec, ModelSpec


def read_config(config: ConfigReader) -> ModelSpec:
    """Read transformers' `SmolLM3Config`."""
    config.defaults = {
        "max_position_embeddings": 32768,
        "num_key_value_heads": 4,
        "no_rope_layer_interval": 4,
        "rope_theta": 2_000_000.0,
        "tie_word_embeddings": True,
    }
    bias = config.flag("attention_bias")
    return layout.read_spec(
        config,
        family=FAMILY.model_type,
        blocks=blocks(config),
        activation=config.activation("hidden_act", "silu"),
        attention_bias=bias,
        output_bias=bias,
        mlp_bias=config.flag("mlp_bias"),
    )


def blocks(config: ConfigReader) -> tuple[BlockSpec, ...]:
    """Return the layers; where windows are used and kinds are not stated, the layers that do not turn have one."""
    plain = BlockSpec(rope=read_rope(config, head_dim=layout.head_dim(config)))
    turns = turning_layers(config)
    slides = config.flag("use_sliding_window") and config.value("sliding_window") is not None
    windows = layout.windows(config, lambda layer: slides and not turns[layer])
    return tuple(
        replace(plain, window=window, rope=plain.rope if turn else None)
        for window, turn in zip(windows, turns, strict=True)
    )


def turning_layers(config: ConfigReader) -> list[bool]:
    """Return for each layer whether it turns queries and keys: 1 in `no_rope_layers`, whatever its name states."""
    count = layout.layer_count(config)
    stated = config.value("no_rope_layers")
    if stated is None:
        interval = config.size("no_rope_layer_interval")
        return [(layer + 1) % interval != 0 for layer in range(count)]
    if isinstance(stated, list) and len(stated) >= count and all(each in (0, 1) for each in stated):
        return [bool(each) for each in stated[:count]]
    config.note("no_rope_layers", f"a list of {count} times 0 or 1")
    return [True] * count


FAMILY = Family(
    model_type="smollm3",
    architecture="SmolLM3ForCausalLM",
    prefix=layout.PREFIX,
    read_config=read_config,
    links=layout.links,
    buffers=layout.BUFFERS,
)

"""Configurations that differ from another one in a few values."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from trainer.config.tree import (
    BatchConfig,
    Config,
    DataConfig,
    LimitsConfig,
    ModelConfig,
    OptimizerConfig,
    PrecisionConfig,
)

GEMMA = Config(
    model=ModelConfig(name="google/gemma-2b"),
    data=DataConfig(max_length=512),
    batch=BatchConfig(microbatch_size=4),
    optimizer=OptimizerConfig(name="adafactor", max_grad_norm=None),
    precision=PrecisionConfig(compute="bfloat16"),
    limits=LimitsConfig(steps=200),
)
GEMMA_PARAMETERS = 2_506_172_416


def changed(config: Config, **groups: Any) -> Config:
    """Return a configuration with other values, such as `changed(config, data={"packing": True}, seed=1)`."""
    return replace(
        config,
        **{
            name: replace(getattr(config, name), **value) if isinstance(value, dict) else value
            for name, value in groups.items()
        },
    )

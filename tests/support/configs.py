"""Configurations that differ from another one in a few values."""

from dataclasses import replace
from typing import Any

from trainer.config.tree import Config, ModelConfig

GEMMA = Config(model=ModelConfig(name="google/gemma-2b")).changed(
    data={"max_length": 512},
    batch={"microbatch_size": 4},
    optimizer={"name": "adafactor", "max_grad_norm": None},
    precision={"compute": "bfloat16"},
    limits={"steps": 200},
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

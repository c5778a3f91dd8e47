"""How a model is adapted: one file a method, all of them in `METHODS`.

A further method is a file here, an entry below and a value of `method.kind` in `train_config.schema.json`.
"""

from __future__ import annotations

from collections.abc import Callable

from trainer.config.tree import Config
from trainer.methods.full import full_of
from trainer.methods.lora import lora_of
from trainer.methods.method import Method

METHODS: dict[str, Callable[[Config], Method]] = {"full": full_of, "lora": lora_of}
"""By `method.kind`: what makes the method of a configuration."""


def method_of(config: Config) -> Method:
    """Return the method that a configuration names."""
    return METHODS[config.method.kind](config)

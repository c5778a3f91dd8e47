"""Full training: every parameter learns."""

from __future__ import annotations

from trainer.config.tree import Config
from trainer.methods.method import Method


class Full(Method):
    """Nothing is frozen."""

    kind = "full"

    def is_trained(self, name: str) -> bool:
        """Return True."""
        return True


def full_of(config: Config) -> Full:
    """Return the method; it has no settings."""
    return Full()

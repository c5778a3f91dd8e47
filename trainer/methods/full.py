"""Full training: every parameter learns."""

from __future__ import annotations

from trainer.config.tree import Config
from trainer.methods.method import Method
from trainer.methods.unused import refuse_unused


class Full(Method):
    """Nothing is frozen."""

    kind = "full"

    def is_trained(self, name: str) -> bool:
        """Return True."""
        return True


def full_of(config: Config) -> Full:
    """Return the method.

    Raises:
        ProblemError: exit code 2; settings of another method are given, which would have no effect.
    """
    refuse_unused(config)
    return Full()

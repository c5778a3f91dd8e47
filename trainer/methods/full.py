"""Full training: every parameter learns."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict

from schemas.formats import format_value
from schemas.problems import ProblemError, problem_of
from trainer.config.tree import Config, MethodConfig
from trainer.methods.method import Method


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


def refuse_unused(config: Config, used: Iterable[str] = ()) -> None:
    """Refuse the settings of the group `method` that differ from their defaults and are not used.

    Args:
        config: the run.
        used: keys of the group that the method uses.

    Raises:
        ProblemError: exit code 2; there are such settings.
    """
    unused = {key: value for key, value in asdict(config.method).items() if key not in {"kind", *used}}
    problems = [
        problem_of(
            "TP069",
            file=config.model.name,
            pointer=f"/method/{key}",
            what=f"method.{key} is {format_value(value)}, which method.kind {config.method.kind} does not use.",
        )
        for key, value in unused.items()
        if value != getattr(MethodConfig(), key)
    ]
    if problems:
        raise ProblemError(problems, exit_code=2)

"""Full training: every parameter learns."""

from __future__ import annotations

from dataclasses import asdict

from schemas.problems.problem import ProblemError
from schemas.problems.rule import Rule, problem_of
from schemas.problems.words import shown
from trainer.config.tree import Config
from trainer.config.tree import Method as Settings
from trainer.methods.method import Method

UNUSED = Rule(
    "TP069",
    "Setting of another method",
    "A setting without effect would be declared and not be true.",
    "Set method.kind to lora, or leave the setting out.",
)


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
    unused = {key: value for key, value in asdict(config.method).items() if value != getattr(Settings(), key)}
    if unused:
        problems = [
            problem_of(
                UNUSED,
                file=config.model.name,
                pointer=f"/method/{key}",
                what=f"method.{key} is {shown(value)}, which method.kind full does not use.",
            )
            for key, value in unused.items()
        ]
        raise ProblemError(problems, exit_code=2)
    return Full()

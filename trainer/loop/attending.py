"""How a run that is trained computes attention: `memory.attention`, what `auto` makes of it, and what is refused.

Bounds and reasons: docs/decisions/attention.md. Answers are made with a cache of keys and values, always by the plain
way.
"""

from __future__ import annotations

from schemas.problems import Problem, problem_of
from trainer.config.tree import Config
from trainer.model.attention import AttentionKind

SPLASH_FROM = 1024
"""Tokens of a sequence from which on `auto` takes splash on a TPU."""
BLOCKWISE_FROM = 2048
"""Tokens of a sequence from which on `auto` takes blockwise on an accelerator that splash does not serve."""


def attention_of(config: Config, *, platform: str | None) -> AttentionKind:
    """Return how whole sequences are read.

    Args:
        config: the run.
        platform: cpu, gpu or tpu. None: nothing is trained.
    """
    if platform is None:
        return "plain"
    if config.memory.attention != "auto":
        return config.memory.attention
    length = config.data.max_length
    if length >= SPLASH_FROM and not hindrances(config, platform=platform):
        return "splash"
    return "blockwise" if platform != "cpu" and length >= BLOCKWISE_FROM else "plain"


def hindrances(config: Config, *, platform: str) -> list[str]:
    """Return what keeps a run from splash attention, as parts of a sentence."""
    found = [f"the device is a {platform.upper()}"] if platform != "tpu" else []
    found += ["precision.compute is float16"] if config.precision.compute == "float16" else []
    return found + (["memory.layers is scanned"] if config.memory.layers == "scanned" else [])


def cannot_attend(config: Config, *, platform: str) -> list[Problem]:
    """Return the problem of splash attention where it cannot be."""
    if config.memory.attention != "splash" or not (found := hindrances(config, platform=platform)):
        return []
    what = f"memory.attention is splash and {' and '.join(found)}."
    return [problem_of("TP707", file=config.name, pointer="/memory/attention", what=what)]

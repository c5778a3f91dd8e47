"""Whether the equal layers of a model lie stacked while it is trained: `memory.layers`, and what `auto` makes of it.

A stack is compiled once and its gradients exist together. On a CPU they do in any case, since its compiler updates
nothing before all gradients are there, and rematerialisation, which it undoes before jax 0.11.1 where layers follow
each other, holds inside a loop: a stacked step takes less time to compile, less memory and no more time to run. On an
accelerator each layer's update would otherwise run as soon as its gradient exists: Gemma 2B takes 13.3 GiB of a TPU
unrolled and 22.6 stacked. Answers are made with layers apart everywhere: a loop would copy each layer's weights for
every token. Where every step draws completions they lie apart all the time.
"""

from __future__ import annotations

from schemas.problems import Problem, problem_of
from trainer.config.tree import Config
from trainer.model.model import Model
from trainer.objectives import build_objective

FEWEST_SAVED = 6
"""Layers that a program must hold less for `auto` to stack them; compiling fewer takes a second or two."""


def is_scanned(config: Config, model: Model, *, platform: str, devices: int) -> bool:
    """Return whether equal layers lie stacked.

    Args:
        config: the run.
        model: of the run.
        platform: cpu, gpu or tpu.
        devices: how many share the work.
    """
    if build_objective(config).updates_per_rollout:
        return False
    if config.memory.layers != "auto":
        return config.memory.layers == "scanned"
    saved = model.source.spec.layers - len(model.runs)
    return platform == "cpu" and saved >= FEWEST_SAVED and not hindrances(config, devices=devices)


def hindrances(config: Config, *, devices: int) -> list[str]:
    """Return what keeps layers from being stacked, as parts of a sentence."""
    found = [f"{devices} devices share the work"] if devices > 1 else []
    return found + (["optimizer.name is adafactor"] if config.optimizer.name == "adafactor" else [])


def cannot_stack(config: Config, *, devices: int) -> list[Problem]:
    """Return the problem of layers that are to be stacked and cannot be."""
    if config.memory.layers != "scanned" or not (found := hindrances(config, devices=devices)):
        return []
    what = f"memory.layers is scanned and {' and '.join(found)}."
    return [problem_of("TP706", file=config.name, pointer="/memory/layers", what=what)]

"""Build optimizer and learning rate schedule from the configuration, with optax.

Gradient clipping is part of `step.py`, which needs the norm for the metrics.
"""

from __future__ import annotations

from collections import Counter
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from trainer.config.tree import OptimizerConfig
from trainer.loop.moments import scale_by_narrow_adam
from trainer.model.stacks import is_stack


def build_schedule(optimizer: OptimizerConfig, *, steps: int) -> optax.Schedule:
    """Return the learning rate of each step, counted from 0.

    Warm-up is linear: step s of w uses peak · (s + 1) / w. After it, with p from 0 at step w to 1 at the last step and
    the final fraction f: linear `peak · (1 − (1 − f) p)`, cosine `peak · (f + (1 − f) (1 + cos πp) / 2)`.
    For peak 1, w = 2, 5 steps, linear, f = 0: 0.5, 1, 1, 0.5, 0.
    """
    peak = optimizer.learning_rate
    warmup = optimizer.warmup_steps
    decay_steps = max(steps - warmup - 1, 1)
    after = {
        "constant": lambda: optax.constant_schedule(peak),
        "linear": lambda: optax.linear_schedule(
            peak, peak * optimizer.final_learning_rate_fraction, transition_steps=decay_steps
        ),
        "cosine": lambda: optax.cosine_decay_schedule(
            peak, decay_steps=decay_steps, alpha=optimizer.final_learning_rate_fraction
        ),
    }[optimizer.schedule]()
    if warmup == 0:
        return after
    rise = optax.linear_schedule(peak / warmup, peak, transition_steps=max(warmup - 1, 1))
    return optax.join_schedules([rise, after], boundaries=[warmup])


def learning_rate_at(schedule: optax.Schedule, step: int) -> float:
    """Return the learning rate of a step, counted from 0, as the shortest decimal of its float32 value.

    It is computed on the CPU if there is a CPU backend, so that it does not wait for the step that an accelerator runs.
    """
    with _cpu_if_available(), jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        return float(str(np.float32(schedule(jnp.int32(step)))))


def _cpu_if_available() -> AbstractContextManager[Any]:
    try:
        cpu: AbstractContextManager[Any] = jax.default_device(jax.local_devices(backend="cpu")[0])
    except RuntimeError:
        return nullcontext()
    return cpu


def build_optimizer(optimizer: OptimizerConfig, *, steps: int) -> optax.GradientTransformation:
    """Return AdamW (Loshchilov & Hutter, arXiv 1711.05101) or Adafactor (Shazeer & Stern, arXiv 1804.04235).

    Weight decay applies to matrices only and subtracts learning rate · weight decay · p in each step. Adafactor runs
    without momentum and scales each update by its parameter's root mean square, as in its paper, so its learning rate
    is relative: 1e-3 moves a parameter by about a thousandth of its size.
    """
    schedule = build_schedule(optimizer, steps=steps)
    if optimizer.name == "adamw" and optimizer.state != "float32":
        # The parts of `optax.adamw`.
        adamw = optax.chain(
            scale_by_narrow_adam(optimizer.beta1, optimizer.beta2, optimizer.epsilon, kind=optimizer.state),
            optax.add_decayed_weights(optimizer.weight_decay, mask=weight_decay_mask),
            optax.scale_by_learning_rate(schedule),
        )
        return allow_type_promotion(adamw)
    if optimizer.name == "adamw":
        adamw = optax.adamw(
            schedule,
            b1=optimizer.beta1,
            b2=optimizer.beta2,
            eps=optimizer.epsilon,
            weight_decay=optimizer.weight_decay,
            mask=weight_decay_mask,
        )
        return allow_type_promotion(adamw)
    return allow_type_promotion(build_adafactor(schedule, weight_decay=optimizer.weight_decay))


def build_adafactor(schedule: optax.Schedule, *, weight_decay: float) -> optax.GradientTransformation:
    """Return Adafactor with AdamW's weight decay.

    optax's own `weight_decay_rate` does not depend on the learning rate: 0.1 shrinks weights to nothing within 100
    steps.
    """
    if not weight_decay:
        return optax.adafactor(schedule, momentum=None)
    return optax.chain(
        optax.adafactor(None, momentum=None),
        # Adafactor's updates already point downhill, so decay is subtracted and the learning rate keeps the sign.
        optax.add_decayed_weights(-weight_decay, mask=weight_decay_mask),
        optax.scale_by_learning_rate(schedule, flip_sign=False),
    )


def allow_type_promotion(optimizer: optax.GradientTransformation) -> optax.GradientTransformation:
    """Allow type promotion inside an optimizer; tests run under strict promotion, which optax does not support."""

    def init(params: Any) -> Any:
        with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
            return optimizer.init(params)

    def update(gradient: Any, opt_state: Any, params: Any = None) -> Any:
        with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
            return optimizer.update(gradient, opt_state, params)

    return optax.GradientTransformation(init, update)


def weight_decay_mask(params: Any) -> Any:
    """Return a tree with True for parameters of two or more axes, not counting the axis of stacked layers."""
    return jax.tree_util.tree_map_with_path(lambda path, leaf: jnp.ndim(leaf) - _is_of_stack(path) >= 2, params)


def _is_of_stack(path: tuple[Any, ...]) -> bool:
    return any(isinstance(part, jax.tree_util.DictKey) and is_stack(str(part.key)) for part in path)


def detect_optimizer(opt_state: Any) -> str:
    """Return the name of the optimizer that runs, according to the structure of its state."""
    kinds = {type(node).__name__ for node in nodes_of(opt_state)}
    if "ScaleByAdamState" in kinds:
        return "adamw"
    if "FactoredState" in kinds:
        return "adafactor"
    message = f"optimizer state of unknown structure: {sorted(kinds)}"
    raise AssertionError(message)


def detect_state_dtype(opt_state: Any) -> str:
    """Return the most common dtype of an optimizer state: float32, bfloat16 or int8 (stored as uint8)."""
    sizes = Counter[str]()
    for leaf in jax.tree.leaves(opt_state):
        sizes[str(leaf.dtype)] += leaf.size
    [(found, _)] = sizes.most_common(1)
    return {"uint8": "int8"}.get(found, found)


def nodes_of(tree: Any) -> list[Any]:
    """Return the named tuples of an optax state, outermost first."""
    if not isinstance(tree, tuple):
        return []
    here = [tree] if hasattr(tree, "_fields") else []
    return here + [node for child in tree for node in nodes_of(child)]

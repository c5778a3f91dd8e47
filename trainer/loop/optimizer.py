"""Build optimizer and learning rate schedule from the configuration; gradients are clipped in `step.py`."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext, suppress
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
    peak, warmup, final = optimizer.learning_rate, optimizer.warmup_steps, optimizer.final_learning_rate_fraction
    decay_steps = max(steps - warmup - 1, 1)
    after = {
        "constant": lambda: optax.constant_schedule(peak),
        "linear": lambda: optax.linear_schedule(peak, peak * final, transition_steps=decay_steps),
        "cosine": lambda: optax.cosine_decay_schedule(peak, decay_steps=decay_steps, alpha=final),
    }[optimizer.schedule]()
    if warmup == 0:
        return after
    rise = optax.linear_schedule(peak / warmup, peak, transition_steps=max(warmup - 1, 1))
    return optax.join_schedules([rise, after], boundaries=[warmup])


def evaluate_schedule(schedule: optax.Schedule, step: int) -> float:
    """Return the learning rate of a step, counted from 0, as the shortest decimal of its float32 value.

    It is computed on the CPU if there is a CPU backend, so that it does not wait for the step that an accelerator runs.
    """
    device: AbstractContextManager[Any] = nullcontext()
    with suppress(RuntimeError):
        device = jax.default_device(jax.local_devices(backend="cpu")[0])
    with device, jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        return float(str(np.float32(schedule(jnp.int32(step)))))


def build_optimizer(optimizer: OptimizerConfig, *, steps: int) -> optax.GradientTransformation:
    """Return AdamW (Loshchilov & Hutter, arXiv 1711.05101) or Adafactor (Shazeer & Stern, arXiv 1804.04235).

    Weight decay applies to matrices only and subtracts learning rate · weight decay · p in each step. Adafactor runs
    without momentum and scales each update by its parameter's root mean square, as in its paper, so its learning rate
    is relative: 1e-3 moves a parameter by about a thousandth of its size.
    """
    schedule = build_schedule(optimizer, steps=steps)
    if optimizer.name == "adafactor":
        return allow_type_promotion(build_adafactor(schedule, weight_decay=optimizer.weight_decay))
    betas = optimizer.beta1, optimizer.beta2, optimizer.epsilon
    if optimizer.state == "float32":
        scale = optax.scale_by_adam(*betas)
    else:
        scale = scale_by_narrow_adam(*betas, kind=optimizer.state)
    # The parts of `optax.adamw`.
    decay = optax.add_decayed_weights(optimizer.weight_decay, mask=weight_decay_mask)
    return allow_type_promotion(optax.chain(scale, decay, optax.scale_by_learning_rate(schedule)))


def build_adafactor(schedule: optax.Schedule, *, weight_decay: float) -> optax.GradientTransformation:
    """Return Adafactor with AdamW's weight decay; optax's own decay does not depend on the learning rate."""
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

    def is_decayed(path: tuple[Any, ...], leaf: Any) -> bool:
        is_stacked = any(isinstance(part, jax.tree_util.DictKey) and is_stack(str(part.key)) for part in path)
        return jnp.ndim(leaf) - is_stacked >= 2

    return jax.tree_util.tree_map_with_path(is_decayed, params)


def detect_optimizer(opt_state: Any) -> str:
    """Return the name of the optimizer that runs, according to the structure of its state."""
    names = {optax.ScaleByAdamState: "adamw", optax.FactoredState: "adafactor"}
    nodes = jax.tree.leaves(opt_state, is_leaf=lambda node: type(node) in names)
    [name] = {names[type(node)] for node in nodes if type(node) in names}
    return name

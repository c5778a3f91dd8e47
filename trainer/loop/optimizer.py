"""The optimizer and its learning rate, built from the configuration with optax.

What does not stand here: gradient clipping by global norm, which `step.py` does, since it needs the norm for the
metrics anyway.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from trainer.config.tree import OptimizerConfig
from trainer.loop.narrow_adam import scale_by_narrow_adam
from trainer.model.stacks import is_stack


def build_schedule(optimizer: OptimizerConfig, *, steps: int) -> optax.Schedule:
    """Return the learning rate of each step, counted from 0.

    Warm-up is linear: step s of w uses peak · (s + 1) / w, so the first step already learns and step w − 1 uses the
    peak. After it, with p going from 0 at step w to 1 at the last step:
    linear `peak · (1 − (1 − f) p)`, cosine `peak · (f + (1 − f) (1 + cos πp) / 2)`, f the final fraction.
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
    """Return the learning rate that the update of step `step`, counted from 0, uses.

    Schedules compute in float32, where 0.001 is 0.0010000000474974513 when written as a float64; the shortest decimal
    that names the same float32 is what a user set.
    """
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        return float(str(np.float32(schedule(jnp.int32(step)))))


def build_optimizer(optimizer: OptimizerConfig, *, steps: int) -> optax.GradientTransformation:
    """Return AdamW (Loshchilov & Hutter, arXiv 1711.05101) or Adafactor (Shazeer & Stern, arXiv 1804.04235).

    Weight decay applies to matrices alone: decaying norms and biases only weakens them. Of either optimizer it removes
    learning rate · weight decay · p in each step: at a rate of 0.01 and a decay of 0.1 a thousandth of every weight.
    Adafactor runs without momentum and scales each update by its parameter's root mean square, as its paper does, so
    its learning rate is relative: 1e-3 moves a parameter by about a thousandth of its size.
    """
    schedule = build_schedule(optimizer, steps=steps)
    if optimizer.name == "adamw" and optimizer.state != "float32":
        # As `optax.adamw` is put together.
        adamw = optax.chain(
            scale_by_narrow_adam(optimizer.beta1, optimizer.beta2, optimizer.epsilon, kind=optimizer.state),
            optax.add_decayed_weights(optimizer.weight_decay, mask=matrices),
            optax.scale_by_learning_rate(schedule),
        )
        return with_implicit_promotion(adamw)
    if optimizer.name == "adamw":
        adamw = optax.adamw(
            schedule,
            b1=optimizer.beta1,
            b2=optimizer.beta2,
            eps=optimizer.epsilon,
            weight_decay=optimizer.weight_decay,
            mask=matrices,
        )
        return with_implicit_promotion(adamw)
    return with_implicit_promotion(build_adafactor(schedule, weight_decay=optimizer.weight_decay))


def build_adafactor(schedule: optax.Schedule, *, weight_decay: float) -> optax.GradientTransformation:
    """Return Adafactor, with the weight decay of AdamW if there is any.

    optax's own `weight_decay_rate` is a share of the weights in each step, whatever the learning rate: 0.1 takes them
    to nothing within a hundred steps.
    """
    if not weight_decay:
        return optax.adafactor(schedule, momentum=None)
    return optax.chain(
        optax.adafactor(None, momentum=None),
        # What comes in points down the gradient already, so the decay is taken off it, and the rate keeps the sign.
        optax.add_decayed_weights(-weight_decay, mask=matrices),
        optax.scale_by_learning_rate(schedule, flip_sign=False),
    )


def with_implicit_promotion(optimizer: optax.GradientTransformation) -> optax.GradientTransformation:
    """Return the optimizer with JAX's ordinary type promotion inside it.

    Our own code runs under strict promotion in the tests; optax raises a float to an integer step, which that forbids.
    """

    def init(params: Any) -> Any:
        with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
            return optimizer.init(params)

    def update(gradient: Any, opt_state: Any, params: Any = None) -> Any:
        with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
            return optimizer.update(gradient, opt_state, params)

    return optax.GradientTransformation(init, update)


def matrices(params: Any) -> Any:
    """Return a tree that is true where a parameter has two axes or more, the axis of a stack's layers not counted."""
    return jax.tree_util.tree_map_with_path(lambda path, leaf: jnp.ndim(leaf) - _is_of_stack(path) >= 2, params)


def _is_of_stack(path: tuple[Any, ...]) -> bool:
    """Return whether a place in a tree is the name of a stack."""
    return any(isinstance(part, jax.tree_util.DictKey) and is_stack(str(part.key)) for part in path)


def recognised_optimizer(opt_state: Any) -> str:
    """Return the optimizer's name as the structure of its state shows it: what runs, whatever was configured."""
    kinds = {type(node).__name__ for node in nodes_of(opt_state)}
    if "ScaleByAdamState" in kinds:
        return "adamw"
    if "FactoredState" in kinds:
        return "adafactor"
    message = f"optimizer state of unknown structure: {sorted(kinds)}"
    raise AssertionError(message)


def recognised_state(opt_state: Any) -> str:
    """Return the type of an optimizer's numbers, that of most: float32, bfloat16 or int8, whose codes are `uint8`."""
    sizes = Counter[str]()
    for leaf in jax.tree.leaves(opt_state):
        sizes[str(leaf.dtype)] += leaf.size
    [(found, _)] = sizes.most_common(1)
    return {"uint8": "int8"}.get(found, found)


def nodes_of(tree: Any) -> list[Any]:
    """Return the named tuples in a tree of optax states, outermost first."""
    if not isinstance(tree, tuple):
        return []
    here = [tree] if hasattr(tree, "_fields") else []
    return here + [node for child in tree for node in nodes_of(child)]

"""One optimizer step: the law of accumulation, clipping, element types, and stochastic rounding."""

from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from trainer.config.tree import OptimizerConfig
from trainer.loop.optimizer import (
    build_optimizer,
    build_schedule,
    detect_optimizer,
    evaluate_schedule,
    stochastic_round,
)
from trainer.loop.step import Batch, build_step, first_state
from trainer.objectives.cross_entropy import next_token_targets
from trainer.objectives.objective import LossSums


def loss_fn(params, frozen, batch, key):
    """A table of logits: the simplest model that has a cross-entropy."""
    targets, mask = next_token_targets(batch["tokens"], batch["loss_mask"])
    scores = jax.nn.log_softmax(params["table"].astype(jnp.float32)[batch["tokens"]])
    of_target = jnp.take_along_axis(scores, targets[..., None], axis=-1)[..., 0]
    right = jnp.sum(jnp.where(mask, jnp.argmax(scores, axis=-1) == targets, False)).astype(jnp.float32)
    loss = -jnp.sum(jnp.where(mask, of_target, jnp.float32(0)))
    return LossSums(loss=loss, weight=jnp.sum(mask).astype(jnp.float32), named={"right": right})


def table(dtype=jnp.float32):
    return {"table": jnp.asarray(np.random.default_rng(1).normal(size=(7, 7)), dtype)}


def batch_of(accumulation: int) -> Batch:
    """Eight sequences with different numbers of supervised tokens, in `accumulation` microbatches."""
    random = np.random.default_rng(2)
    tokens = random.integers(0, 7, (8, 5))
    mask = np.arange(5)[None, :] >= np.array([1, 1, 4, 4, 2, 3, 4, 1])[:, None]
    shape = (accumulation, 8 // accumulation, 5)
    return {"tokens": jnp.asarray(tokens.reshape(shape), jnp.int32), "loss_mask": jnp.asarray(mask.reshape(shape))}


def one_step(accumulation: int = 1, *, max_grad_norm=None, params=None, optimizer=None):
    optimizer = optimizer or optax.sgd(1.0)
    params = params or table()
    step = jax.jit(build_step(loss_fn, optimizer, max_grad_norm=max_grad_norm, seed=0))
    return step(first_state(params, optimizer), {}, batch_of(accumulation))


@pytest.mark.parametrize("accumulation", [2, 4, 8])
def test_one_batch_of_eight_is_eight_microbatches_of_one(accumulation):
    whole, whole_metrics = one_step(1)
    parts, parts_metrics = one_step(accumulation)
    np.testing.assert_allclose(parts.trained["table"], whole.trained["table"], atol=1e-6)
    jax.tree.map(partial(np.testing.assert_allclose, rtol=1e-6), parts_metrics, whole_metrics)


def test_the_loss_is_the_mean_over_supervised_tokens():
    _, metrics = one_step(1)
    tokens, mask = (np.asarray(batch_of(1)[name][0]) for name in ("tokens", "loss_mask"))
    costs = -np.asarray(jax.nn.log_softmax(table()["table"]))[tokens[:, :-1], tokens[:, 1:]]
    assert float(metrics.loss) == pytest.approx(costs[mask[:, 1:]].mean(), rel=1e-6)


def test_clipping_scales_the_step_to_the_norm_and_changes_nothing_below_it():
    free, metrics = one_step()
    norm = float(jnp.linalg.norm(free.trained["table"] - table()["table"]))
    assert float(metrics.grad_norm) == pytest.approx(norm, rel=1e-5)
    clipped, _ = one_step(max_grad_norm=0.01)
    assert float(jnp.linalg.norm(clipped.trained["table"] - table()["table"])) == pytest.approx(0.01, rel=1e-3)
    unclipped, _ = one_step(max_grad_norm=1e3)
    np.testing.assert_array_equal(unclipped.trained["table"], free.trained["table"])


def test_a_batch_without_a_supervised_token_changes_nothing():
    optimizer, batch = optax.sgd(1.0), batch_of(1)
    step = build_step(loss_fn, optimizer, max_grad_norm=1.0, seed=0)
    unsupervised = batch | {"loss_mask": jnp.zeros_like(batch["loss_mask"])}
    state, metrics = step(first_state(table(), optimizer), {}, unsupervised)
    np.testing.assert_array_equal(state.trained["table"], table()["table"])
    assert float(metrics.loss) == 0.0


def test_bfloat16_params_keep_a_float32_optimizer_state():
    optimizer = build_optimizer(OptimizerConfig(), steps=10)
    state, _ = one_step(params=table(jnp.bfloat16), optimizer=optimizer)
    assert state.trained["table"].dtype == jnp.bfloat16
    moments = [leaf for leaf in jax.tree.leaves(state.opt_state) if leaf.ndim]
    assert {str(leaf.dtype) for leaf in moments} == {"float32"}


def test_adamw_is_the_papers_on_a_hand_worked_step():
    """Step 1 of AdamW moves each entry by -lr (g / (|g| + eps) + decay · p): both moments are unbiased to g and g²."""
    settings = OptimizerConfig(learning_rate=0.1, schedule="constant", weight_decay=0.5, epsilon=1e-8)
    optimizer = build_optimizer(settings, steps=10)
    params = {"matrix": jnp.asarray([[2.0, -4.0]]), "bias": jnp.asarray([2.0])}
    gradient = {"matrix": jnp.asarray([[3.0, -0.5]]), "bias": jnp.asarray([3.0])}
    updates, _ = optimizer.update(gradient, optimizer.init(params), params)
    np.testing.assert_allclose(updates["matrix"], [[-0.1 * (1 + 0.5 * 2), -0.1 * (-1 + 0.5 * -4)]], rtol=1e-5)
    np.testing.assert_allclose(updates["bias"], [-0.1], rtol=1e-5)


def adafactor_by_hand(weights, gradients, rates, *, decay):
    """Return weights after each step by the paper's algorithms 4 and 5 in float64, with AdamW's decoupled decay.

    t counts from 1, beta2(t) = 1 - t^-0.8, d = 1. Of matrices of 128 rows and columns or more, which are factored, only
    the second moment's means over rows and over columns are kept; it is their product over the mean of all.
    """
    moment, found = np.zeros_like(weights), []
    factored = weights.ndim == 2 and min(weights.shape) >= 128
    for t, (gradient, rate) in enumerate(zip(gradients, rates, strict=True), start=1):
        beta2 = 1 - t**-0.8
        moment = beta2 * moment + (1 - beta2) * (gradient**2 + 1e-30)
        if factored:
            moment = np.outer(moment.mean(axis=1), moment.mean(axis=0)) / moment.mean()
        update = gradient / np.sqrt(moment)
        update = update / max(1.0, np.sqrt(np.mean(update**2)))
        scale = max(1e-3, np.sqrt(np.mean(weights**2)))
        weights = weights - rate * scale * update - rate * decay * weights
        found.append(weights)
    return found


@pytest.mark.slow
def test_adafactors_weight_decay_is_a_share_per_unit_of_learning_rate():
    settings = OptimizerConfig(name="adafactor", learning_rate=0.1, schedule="linear", weight_decay=0.5)
    optimizer = build_optimizer(replace(settings, final_learning_rate_fraction=0.0), steps=5)
    random = np.random.default_rng(3)
    shapes = {"matrix": (3, 4), "factored": (128, 130), "bias": (4,)}
    first = {name: random.normal(size=shape) for name, shape in shapes.items()}
    gradients = [{name: random.normal(size=value.shape) for name, value in first.items()} for _ in range(5)]
    rates = [0.1, 0.075, 0.05, 0.025, 0.0]
    decay = {"matrix": 0.5, "factored": 0.5, "bias": 0.0}
    expected = {
        name: adafactor_by_hand(first[name], [each[name] for each in gradients], rates, decay=decay[name])
        for name in first
    }
    params = {name: jnp.asarray(value, jnp.float32) for name, value in first.items()}
    opt_state = optimizer.init(params)
    assert detect_optimizer(opt_state) == "adafactor"
    for step in range(5):
        gradient = {name: jnp.asarray(value, jnp.float32) for name, value in gradients[step].items()}
        updates, opt_state = optimizer.update(gradient, opt_state, params)
        params = {name: params[name] + updates[name] for name in params}
        for name in params:
            # Of thousands of weights some end near 0, where float32 keeps fewer digits of the difference.
            near_zero = 1e-7 if name == "factored" else 0.0
            np.testing.assert_allclose(params[name], expected[name][step], rtol=2e-5, atol=near_zero, err_msg=name)


@pytest.mark.parametrize(
    ("schedule", "warmup", "expected"),
    [
        ("constant", 2, [0.5, 1, 1, 1, 1]),
        ("linear", 2, [0.5, 1, 1, 0.6, 0.2]),
        ("cosine", 2, [0.5, 1, 1, 0.6, 0.2]),
        ("linear", 0, [1, 0.8, 0.6, 0.4, 0.2]),
    ],
)
def test_schedules_rise_to_the_peak_and_end_at_the_final_fraction(schedule, warmup, expected):
    settings = OptimizerConfig(learning_rate=1.0, schedule=schedule, warmup_steps=warmup)
    built = build_schedule(replace(settings, final_learning_rate_fraction=0.2), steps=5)
    assert [evaluate_schedule(built, step) for step in range(5)] == pytest.approx(expected)


def test_stochastic_rounding_keeps_the_mean_where_nearest_rounding_loses_the_update():
    value = np.float32(1 + 1 / 1024)  # bfloat16 has 1 and 1 + 1/128 around it
    rounded = stochastic_round(jnp.full(200_000, value), jax.random.key(0)).astype(jnp.float32)
    assert set(np.unique(rounded)) == {1.0, 1.0078125}
    # The mean of n draws is off by about spacing · sqrt(p (1 - p) / n) = 5.8e-6; five of those.
    assert float(rounded.mean()) == pytest.approx(value, abs=3e-5)
    assert float(jnp.asarray(value).astype(jnp.bfloat16)) == 1.0


@pytest.mark.parametrize("value", [0.0, -0.0, 1.5, -3.0, np.inf, -np.inf, np.nan])
def test_values_of_bfloat16_are_unchanged_by_rounding(value):
    rounded = stochastic_round(jnp.full(1000, value, jnp.float32), jax.random.key(1))
    np.testing.assert_array_equal(rounded.astype(jnp.float32), np.full(1000, value, np.float32))

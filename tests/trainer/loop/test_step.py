"""One optimizer step: accumulation, clipping, schedules, element types, and AdamW in fewer bits as torchao has it."""

import base64
import json
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.sharding import PartitionSpec

from trainer.config.tree import Config, ModelConfig, OptimizerConfig
from trainer.loop import optimizer as optimizers
from trainer.loop.step import Batch, build_step, first_state
from trainer.loop.task import shapes_mesh, state_shardings
from trainer.model.stacks import unstack_tree
from trainer.objectives import find_contradictions
from trainer.objectives.cross_entropy import next_token_targets
from trainer.objectives.objective import LossSums
from trainer.resume import state_changes


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


def make_batch(accumulation: int) -> Batch:
    """Eight sequences with different numbers of supervised tokens, in `accumulation` microbatches."""
    random = np.random.default_rng(2)
    tokens = random.integers(0, 7, (8, 5))
    mask = np.arange(5)[None, :] >= np.array([1, 1, 4, 4, 2, 3, 4, 1])[:, None]
    shape = (accumulation, 8 // accumulation, 5)
    return {"tokens": jnp.asarray(tokens.reshape(shape), jnp.int32), "loss_mask": jnp.asarray(mask.reshape(shape))}


def one_step(accumulation: int = 1, *, max_grad_norm=None, dtype=jnp.float32, optimizer=None, **batch):
    optimizer = optimizer or optax.sgd(1.0)
    step = jax.jit(build_step(loss_fn, optimizer, max_grad_norm=max_grad_norm, seed=0))
    return step(first_state(table(dtype), optimizer), {}, make_batch(accumulation) | batch)


@pytest.mark.parametrize("accumulation", [2, 4, 8])
def test_one_batch_of_eight_is_eight_microbatches_of_one(accumulation):
    whole, whole_metrics = one_step(1)
    parts, parts_metrics = one_step(accumulation)
    np.testing.assert_allclose(parts.trained["table"], whole.trained["table"], atol=1e-6)
    jax.tree.map(partial(np.testing.assert_allclose, rtol=1e-6), parts_metrics, whole_metrics)


def test_the_loss_is_the_mean_over_supervised_tokens():
    _, metrics = one_step(1)
    tokens, mask = (np.asarray(make_batch(1)[name][0]) for name in ("tokens", "loss_mask"))
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
    state, metrics = one_step(max_grad_norm=1.0, loss_mask=jnp.zeros((1, 8, 5), jnp.bool_))
    np.testing.assert_array_equal(state.trained["table"], table()["table"])
    assert float(metrics.loss) == 0.0


def test_bfloat16_params_keep_a_float32_optimizer_state():
    optimizer = optimizers.build_optimizer(OptimizerConfig(), steps=10)
    state, _ = one_step(dtype=jnp.bfloat16, optimizer=optimizer)
    assert state.trained["table"].dtype == jnp.bfloat16
    moments = [leaf for leaf in jax.tree.leaves(state.opt_state) if leaf.ndim]
    assert {str(leaf.dtype) for leaf in moments} == {"float32"}


def test_adamw_is_the_papers_on_a_hand_worked_step():
    """Step 1 of AdamW moves each entry by -lr (g / (|g| + eps) + decay · p): both moments are unbiased to g and g²."""
    settings = OptimizerConfig(learning_rate=0.1, schedule="constant", weight_decay=0.5, epsilon=1e-8)
    optimizer = optimizers.build_optimizer(settings, steps=10)
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
    optimizer = optimizers.build_optimizer(replace(settings, final_learning_rate_fraction=0.0), steps=5)
    random = np.random.default_rng(3)
    shapes = {"matrix": (3, 4), "factored": (128, 130), "bias": (4,)}
    first = {name: random.normal(size=shape) for name, shape in shapes.items()}
    gradients = [{name: random.normal(size=value.shape) for name, value in first.items()} for _ in range(5)]
    rates = [0.1, 0.075, 0.05, 0.025, 0.0]
    expected = {
        name: adafactor_by_hand(value, [each[name] for each in gradients], rates, decay=0.0 if name == "bias" else 0.5)
        for name, value in first.items()
    }
    params = {name: jnp.asarray(value, jnp.float32) for name, value in first.items()}
    opt_state = optimizer.init(params)
    assert optimizers.detect_optimizer(opt_state) == "adafactor"
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
    built = optimizers.build_schedule(replace(settings, final_learning_rate_fraction=0.2), steps=5)
    assert [optimizers.evaluate_schedule(built, step) for step in range(5)] == pytest.approx(expected)


def test_stochastic_rounding_keeps_the_mean_where_nearest_rounding_loses_the_update():
    value = np.float32(1 + 1 / 1024)  # bfloat16 has 1 and 1 + 1/128 around it
    rounded = optimizers.stochastic_round(jnp.full(200_000, value), jax.random.key(0)).astype(jnp.float32)
    assert set(np.unique(rounded)) == {1.0, 1.0078125}
    # The mean of n draws is off by about spacing · sqrt(p (1 - p) / n) = 5.8e-6; five of those.
    assert float(rounded.mean()) == pytest.approx(value, abs=3e-5)
    assert float(jnp.asarray(value).astype(jnp.bfloat16)) == 1.0


@pytest.mark.parametrize("value", [0.0, -0.0, 1.5, -3.0, np.inf, -np.inf, np.nan])
def test_values_of_bfloat16_are_unchanged_by_rounding(value):
    rounded = optimizers.stochastic_round(jnp.full(1000, value, jnp.float32), jax.random.key(1))
    np.testing.assert_array_equal(rounded.astype(jnp.float32), np.full(1000, value, np.float32))


CASE = json.loads((Path(__file__).parents[2] / "cases" / "optimizer_state" / "torchao.json").read_text())
SHAPES = {"layers.0.mlp.up.kernel": (512, 16), "tokens.table": (16, 320), "final_norm.kernel": (8, 8)}
THEIRS = dict(zip(SHAPES, ("kernel", "table", "small"), strict=True))
SETTINGS = OptimizerConfig(learning_rate=0.01, schedule="constant", weight_decay=0.1, beta2=0.95, state="int8")


def decode_array(text: str, dtype: str, shape: tuple[int, ...] = (-1,)) -> np.ndarray:
    return np.frombuffer(base64.b64decode(text), dtype).reshape(shape)


def numbers(shape: tuple[int, ...], step: int) -> np.ndarray:
    """As `tests/cases/optimizer_state/make.py` has them."""
    i, j = np.indices(shape)
    whole = (i * 7919 + j * 104729 + step * 1299709) % 2003 - 1001
    found = whole * 2.0 ** -(10 + (i * 31 + j * 17 + step * 3) % 13)
    return np.where(i % 16 == 15, 0, found).astype(np.float32)


def donating_step(optimizer: Any) -> Any:
    """Return a step that donates parameters and state."""

    @partial(jax.jit, donate_argnums=(0, 1))
    def step(params: Any, opt_state: Any, gradient: Any) -> Any:
        updates, opt_state = optimizer.update(gradient, opt_state, params)
        return optax.apply_updates(params, updates), opt_state

    return step


@pytest.mark.parametrize("kind", ["signed", "unsigned"])
def test_the_values_of_all_codes_are_those_of_bitsandbytes(kind):
    found = optimizers.code_values(jnp.arange(256, dtype=jnp.uint8), signed=kind == "signed")
    np.testing.assert_allclose(found, decode_array(CASE["values"][kind], "f4"), rtol=3e-7)


@pytest.mark.parametrize("kind", ["signed", "unsigned"])
def test_a_code_is_that_of_the_nearest_value(kind):
    values = decode_array(CASE["values"][kind], "f4").astype(np.float64)
    draw = np.random.default_rng(0)
    parts = draw.uniform(-1, 1, 20_000) * 10.0 ** draw.uniform(-8, 0, 20_000)
    parts = np.concatenate([parts, values, [1, -1, 0]]).astype(np.float32)
    parts = parts if kind == "signed" else np.abs(parts)
    codes = np.asarray(optimizers.nearest_codes(jnp.asarray(parts), signed=kind == "signed"))
    away = np.abs(values[codes] - parts)
    least = np.min(np.abs(values[None] - parts[:, None].astype(np.float64)), axis=1)
    assert np.max((away - least) / np.maximum(np.abs(parts), 1e-7)) < 1e-5


@pytest.mark.slow
@pytest.mark.parametrize("piece", [optimizers.CPU_PIECE, 3000], ids=["whole", "in pieces"])
def test_four_steps_are_those_of_torchao(piece, monkeypatch):
    """A piece of 3,000 cuts the kernel along its outputs and leaves a rest of the table."""
    monkeypatch.setattr(optimizers, "CPU_PIECE", piece)
    optimizer = optimizers.build_optimizer(SETTINGS, steps=100)
    params, *gradients = (
        {name: jnp.asarray(numbers(shape, step)) for name, shape in SHAPES.items()} for step in (99, 0, 1, 2, 3)
    )
    step, opt_state = donating_step(optimizer), optimizer.init(params)
    for gradient in gradients:
        params, opt_state = step(params, opt_state, gradient)
    adam = opt_state[0]
    for name, theirs in THEIRS.items():
        case = CASE["after"][theirs]
        # Numbers halfway between two values may go either way.
        theirs_are = decode_array(case["params"], "f4", SHAPES[name])
        assert np.mean(~np.isclose(params[name], theirs_are, rtol=2e-5, atol=1e-6)) < 1e-3
        for moment, their_moment in ((adam.mu, case["mu"]), (adam.nu, case["nu"])):
            if "numbers" in their_moment:
                exact = decode_array(their_moment["numbers"], "f4", SHAPES[name])
                np.testing.assert_allclose(moment.codes[name], exact, rtol=1e-5)
                continue
            scales = decode_array(their_moment["scales"], "f4", moment.scales[name].shape)
            np.testing.assert_allclose(moment.scales[name], scales, rtol=1e-6)
            codes = decode_array(their_moment["codes"], "u1", SHAPES[name]).astype(int)
            differ = np.abs(np.asarray(moment.codes[name]).astype(int) - codes)
            assert differ.max() <= 1
            assert differ.mean() < 1e-3


@pytest.mark.parametrize("state", ["bfloat16", "int8"])
def test_stacked_layers_have_the_moments_of_single_layers(state):
    apart = {f"layers.{number}.mlp.up.kernel": (256, 16) for number in (0, 1)}
    gradient = {name: jnp.asarray(numbers(shape, number)) for number, (name, shape) in enumerate(apart.items())}
    stack = {"layers.0:2.mlp.up.kernel": jnp.stack(list(gradient.values()))}
    optimizer = optimizers.build_optimizer(OptimizerConfig(state=state), steps=10)
    first_step = jax.jit(lambda tree: optimizer.update(tree, optimizer.init(tree), tree)[1][0].mu)
    first, second = (jax.tree.leaves(unstack_tree(first_step(tree))) for tree in (gradient, stack))
    for one, other in zip(first, second, strict=True):
        np.testing.assert_allclose(one.astype(np.float32), np.asarray(other).astype(np.float32), rtol=2**-7)


def test_a_bfloat16_second_moment_decays_where_nearest_rounding_would_stall():
    optimizer = optimizers.allow_type_promotion(optimizers.scale_by_narrow_adam(0.9, 0.999, 1e-8, kind="bfloat16"))
    gradient = {"a": jnp.full((4096,), 1.0)}
    _, state = optimizer.update(gradient, optimizer.init(gradient))
    quiet = jax.tree.map(jnp.zeros_like, gradient)
    state, _ = jax.lax.scan(lambda state, _: (optimizer.update(quiet, state)[1], None), state, None, length=200)
    left = np.asarray(state.nu["a"]).astype(np.float64).mean()
    assert left == pytest.approx(0.001 * 0.999**200, rel=0.01)
    begun = jnp.bfloat16(0.001)
    assert (begun.astype(jnp.float32) * 0.999).astype(jnp.bfloat16) == begun


def test_which_arrays_are_kept_in_eight_bits():
    assert optimizers.scales_shape("layers.0.mlp.up.kernel", (2048, 16384)) == (8, 16384)
    assert optimizers.scales_shape("layers.0:18.mlp.up.kernel", (18, 2048, 16384)) == (18, 8, 16384)
    assert optimizers.scales_shape("layers.0.mlp.up.kernel", (896, 64)) == (7, 64), "128 divide 896, 256 do not"
    assert optimizers.scales_shape("layers.0.mlp.up.lora_b", (16, 2048)) == (1, 2048)
    assert optimizers.scales_shape("tokens.table", (256000, 2048)) == (256000,)
    assert [optimizers.scales_shape("a.kernel", shape) for shape in ((64, 63), (8, 4096), (8192,))] == [(), (), ()]


def test_scales_are_sharded_as_the_codes_are():
    shapes = {"a": (4096, 256), "b": (1024, 512)}
    params = {name: jax.ShapeDtypeStruct(shape, jnp.float32) for name, shape in shapes.items()}
    state = jax.eval_shape(optimizers.build_optimizer(OptimizerConfig(state="int8"), steps=10).init, params)
    found = state_shardings(state, shapes_mesh(8), shard_params=True)[0].mu
    assert isinstance(found, optimizers.CodedMoment)
    assert found.codes["a"].spec == found.scales["a"].spec == PartitionSpec("devices", None)
    # 4 blocks of 256 along an axis that 8 devices divide.
    assert (found.codes["b"].spec, found.scales["b"].spec) == (PartitionSpec("devices", None), PartitionSpec())


@pytest.mark.compiles_anew
@pytest.mark.parametrize("state", ["bfloat16", "int8"])
def test_wide_moments_never_exist_together(state, monkeypatch):
    """Beside its arguments a step takes the changes, 4 bytes for each parameter, and a piece of one array."""
    monkeypatch.setattr(optimizers, "CPU_PIECE", 1 << 14)
    optimizer = optimizers.build_optimizer(OptimizerConfig(state=state), steps=10)
    params = {f"layers.{number}.kernel": jax.ShapeDtypeStruct((512, 512), jnp.float32) for number in range(4)}
    compiled = donating_step(optimizer).lower(params, jax.eval_shape(optimizer.init, params), params).compile()
    assert compiled.memory_analysis().temp_size_in_bytes < 5 * 512 * 512 * 4


def test_a_checkpoint_of_another_type_is_another_state_and_adafactor_has_none_to_narrow():
    wide = Config(model=ModelConfig(name="demo"))
    narrow = replace(wide, optimizer=OptimizerConfig(state="int8"))
    factored = replace(wide, optimizer=OptimizerConfig(name="adafactor", state="int8"))
    assert list(state_changes(wide, narrow)) == [("optimizer.state", "float32", "int8")]
    assert [problem.code for problem in find_contradictions(factored)] == ["TP708"]

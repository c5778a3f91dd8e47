"""AdamW in fewer bits: the values, codes and steps of torchao and bitsandbytes, and what holds of any type."""

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
from trainer.loop import optimizer as module
from trainer.loop.optimizer import (
    CodedMoment,
    allow_type_promotion,
    build_optimizer,
    code_values,
    nearest_codes,
    scales_shape,
)
from trainer.loop.task import shapes_mesh, state_shardings
from trainer.model.stacks import unstack_tree
from trainer.objectives import find_contradictions
from trainer.resume import state_changes

CASE = json.loads((Path(__file__).parents[2] / "cases" / "optimizer_state" / "torchao.json").read_text())
SHAPES = {"layers.0.mlp.up.kernel": (512, 16), "tokens.table": (16, 320), "final_norm.kernel": (8, 8)}
THEIRS = dict(zip(SHAPES, ("kernel", "table", "small"), strict=True))
SETTINGS = OptimizerConfig(learning_rate=0.01, schedule="constant", weight_decay=0.1, beta2=0.95, state="int8")


def array_of(text: str, dtype: str, shape: tuple[int, ...] = (-1,)) -> np.ndarray:
    return np.frombuffer(base64.b64decode(text), dtype).reshape(shape)


def numbers(shape: tuple[int, ...], step: int) -> np.ndarray:
    """As `tests/cases/optimizer_state/make.py` has them."""
    i, j = np.indices(shape)
    whole = (i * 7919 + j * 104729 + step * 1299709) % 2003 - 1001
    found = whole * 2.0 ** -(10 + (i * 31 + j * 17 + step * 3) % 13)
    return np.where(i % 16 == 15, 0, found).astype(np.float32)


def step_of(optimizer: Any) -> Any:
    """Return a step that donates parameters and state."""

    @partial(jax.jit, donate_argnums=(0, 1))
    def step(params: Any, opt_state: Any, gradient: Any) -> Any:
        updates, opt_state = optimizer.update(gradient, opt_state, params)
        return optax.apply_updates(params, updates), opt_state

    return step


@pytest.mark.parametrize("kind", ["signed", "unsigned"])
def test_the_values_of_all_codes_are_those_of_bitsandbytes(kind):
    found = code_values(jnp.arange(256, dtype=jnp.uint8), signed=kind == "signed")
    np.testing.assert_allclose(found, array_of(CASE["values"][kind], "f4"), rtol=3e-7)


@pytest.mark.parametrize("kind", ["signed", "unsigned"])
def test_a_code_is_that_of_the_nearest_value(kind):
    values = array_of(CASE["values"][kind], "f4").astype(np.float64)
    draw = np.random.default_rng(0)
    parts = draw.uniform(-1, 1, 20_000) * 10.0 ** draw.uniform(-8, 0, 20_000)
    parts = np.concatenate([parts, values, [1, -1, 0]]).astype(np.float32)
    parts = parts if kind == "signed" else np.abs(parts)
    codes = np.asarray(nearest_codes(jnp.asarray(parts), signed=kind == "signed"))
    away = np.abs(values[codes] - parts)
    least = np.min(np.abs(values[None] - parts[:, None].astype(np.float64)), axis=1)
    assert np.max((away - least) / np.maximum(np.abs(parts), 1e-7)) < 1e-5


@pytest.mark.slow
@pytest.mark.parametrize("piece", [module.CPU_PIECE, 3000], ids=["whole", "in pieces"])
def test_four_steps_are_those_of_torchao(piece, monkeypatch):
    """A piece of 3,000 cuts the kernel along its outputs and leaves a rest of the table."""
    monkeypatch.setattr(module, "CPU_PIECE", piece)
    optimizer = build_optimizer(SETTINGS, steps=100)
    params, *gradients = (
        {name: jnp.asarray(numbers(shape, step)) for name, shape in SHAPES.items()} for step in (99, 0, 1, 2, 3)
    )
    step, opt_state = step_of(optimizer), optimizer.init(params)
    for gradient in gradients:
        params, opt_state = step(params, opt_state, gradient)
    adam = opt_state[0]
    for name, theirs in THEIRS.items():
        case = CASE["after"][theirs]
        # Numbers halfway between two values may go either way.
        theirs_are = array_of(case["params"], "f4", SHAPES[name])
        assert np.mean(~np.isclose(params[name], theirs_are, rtol=2e-5, atol=1e-6)) < 1e-3
        for moment, their_moment in ((adam.mu, case["mu"]), (adam.nu, case["nu"])):
            if "numbers" in their_moment:
                exact = array_of(their_moment["numbers"], "f4", SHAPES[name])
                np.testing.assert_allclose(moment.codes[name], exact, rtol=1e-5)
                continue
            scales = array_of(their_moment["scales"], "f4", moment.scales[name].shape)
            np.testing.assert_allclose(moment.scales[name], scales, rtol=1e-6)
            codes = array_of(their_moment["codes"], "u1", SHAPES[name]).astype(int)
            differ = np.abs(np.asarray(moment.codes[name]).astype(int) - codes)
            assert differ.max() <= 1
            assert differ.mean() < 1e-3


@pytest.mark.parametrize("state", ["bfloat16", "int8"])
def test_stacked_layers_have_the_moments_of_single_layers(state):
    apart = {f"layers.{number}.mlp.up.kernel": (256, 16) for number in (0, 1)}
    gradient = {name: jnp.asarray(numbers(shape, number)) for number, (name, shape) in enumerate(apart.items())}
    stack = {"layers.0:2.mlp.up.kernel": jnp.stack(list(gradient.values()))}
    optimizer = build_optimizer(OptimizerConfig(state=state), steps=10)
    first_step = jax.jit(lambda tree: optimizer.update(tree, optimizer.init(tree), tree)[1][0].mu)
    first, second = (jax.tree.leaves(unstack_tree(first_step(tree))) for tree in (gradient, stack))
    for one, other in zip(first, second, strict=True):
        np.testing.assert_allclose(one.astype(np.float32), np.asarray(other).astype(np.float32), rtol=2**-7)


def test_a_bfloat16_second_moment_decays_where_nearest_rounding_would_stall():
    optimizer = allow_type_promotion(module.scale_by_narrow_adam(0.9, 0.999, 1e-8, kind="bfloat16"))
    gradient = {"a": jnp.full((4096,), 1.0)}
    _, state = optimizer.update(gradient, optimizer.init(gradient))
    quiet = jax.tree.map(jnp.zeros_like, gradient)
    state, _ = jax.lax.scan(lambda state, _: (optimizer.update(quiet, state)[1], None), state, None, length=200)
    left = np.asarray(state.nu["a"]).astype(np.float64).mean()
    assert left == pytest.approx(0.001 * 0.999**200, rel=0.01)
    begun = jnp.bfloat16(0.001)
    assert (begun.astype(jnp.float32) * 0.999).astype(jnp.bfloat16) == begun


def test_which_arrays_are_kept_in_eight_bits():
    assert scales_shape("layers.0.mlp.up.kernel", (2048, 16384)) == (8, 16384)
    assert scales_shape("layers.0:18.mlp.up.kernel", (18, 2048, 16384)) == (18, 8, 16384)
    assert scales_shape("layers.0.mlp.up.kernel", (896, 64)) == (7, 64), "128 divide 896, 256 do not"
    assert scales_shape("layers.0.mlp.up.lora_b", (16, 2048)) == (1, 2048)
    assert scales_shape("tokens.table", (256000, 2048)) == (256000,)
    assert [scales_shape("a.kernel", shape) for shape in ((64, 63), (8, 4096), (8192,))] == [(), (), ()]


def test_scales_are_sharded_as_the_codes_are():
    shapes = {"a": (4096, 256), "b": (1024, 512)}
    params = {name: jax.ShapeDtypeStruct(shape, jnp.float32) for name, shape in shapes.items()}
    state = jax.eval_shape(build_optimizer(OptimizerConfig(state="int8"), steps=10).init, params)
    found = state_shardings(state, shapes_mesh(8), shard_params=True)[0].mu
    assert isinstance(found, CodedMoment)
    assert found.codes["a"].spec == found.scales["a"].spec == PartitionSpec("devices", None)
    # 4 blocks of 256 along an axis that 8 devices divide.
    assert (found.codes["b"].spec, found.scales["b"].spec) == (PartitionSpec("devices", None), PartitionSpec())


@pytest.mark.compiles_anew
@pytest.mark.parametrize("state", ["bfloat16", "int8"])
def test_wide_moments_never_exist_together(state, monkeypatch):
    """Beside its arguments a step takes the changes, 4 bytes for each parameter, and a piece of one array."""
    monkeypatch.setattr(module, "CPU_PIECE", 1 << 14)
    optimizer = build_optimizer(OptimizerConfig(state=state), steps=10)
    params = {f"layers.{number}.kernel": jax.ShapeDtypeStruct((512, 512), jnp.float32) for number in range(4)}
    compiled = step_of(optimizer).lower(params, jax.eval_shape(optimizer.init, params), params).compile()
    assert compiled.memory_analysis().temp_size_in_bytes < 5 * 512 * 512 * 4


def test_a_checkpoint_of_another_type_is_another_state():
    wide = Config(model=ModelConfig(name="demo"))
    narrow = replace(wide, optimizer=OptimizerConfig(state="int8"))
    assert list(state_changes(wide, narrow)) == [("optimizer.state", "float32", "int8")]


def test_adafactor_has_no_moments_to_narrow():
    config = Config(model=ModelConfig(name="demo"), optimizer=OptimizerConfig(name="adafactor", state="int8"))
    assert [problem.code for problem in find_contradictions(config)] == ["TP708"]

"""Steps that are not finite change nothing, take no memory, are counted, and end the run beyond the limit."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import topologies
from jax.sharding import SingleDeviceSharding
from tasks import inputs_of, task_of
from whole_runs import errors_of, manifest_of, rows

from evidence import layout
from evidence.targets import load_target
from trainer.config.tree import Config, OptimizerConfig
from trainer.loop import programs, step
from trainer.loop.checkpoints import restore
from trainer.loop.nonfinite import find_nonfinite, initial_loss_scale, initial_skipped_steps
from trainer.loop.optimizer import build_optimizer
from trainer.loop.state import state_shapes
from trainer.loop.step import build_step, first_state
from trainer.objectives.objective import LossSums
from trainer.planning.compile.machines import describe_gpu
from trainer.replay.recorded import ReplayRequest
from trainer.replay.replay import replay

INF = float("inf")
KINK = -1.0
"""Stands for a batch whose loss is 0 and whose gradient is infinite: the root of 0."""


def sloped(params: Any, frozen: Any, batch: Any, key: Any) -> LossSums:
    """A loss whose gradient is the batch's slope."""
    weight, slope = params["weight"][0], batch["slope"][0]
    loss = jax.lax.cond(slope == KINK, lambda: jnp.sqrt(weight - jax.lax.stop_gradient(weight)), lambda: weight * slope)
    return LossSums(loss=loss, weight=jnp.float32(1), named={})


def steps_of(slopes: list[float], *, most: int | None, max_grad_norm: float | None = None, scaled: bool = False) -> Any:
    """Return state and figures after each step of a linear schedule from 0.1 to 0."""
    optimizer = build_optimizer(OptimizerConfig(learning_rate=0.1, schedule="linear"), steps=len(slopes))
    built = build_step(sloped, optimizer, max_grad_norm=max_grad_norm, seed=0, max_nonfinite_steps=most)
    skipped = None if most is None else initial_skipped_steps()
    state = first_state({"weight": jnp.ones((1,))}, optimizer, initial_loss_scale() if scaled else None, skipped)
    found, jitted = [], jax.jit(built)
    for slope in slopes:
        state, metrics = jitted(state, {}, {"slope": jnp.full((1, 1), slope)})
        found.append((state, metrics))
    return found


def failure(metrics: Any, *, step: int, rows: Any = lambda step: []) -> Any:
    return find_nonfinite(float(metrics.loss), float(metrics.grad_norm), metrics.named, step=step, rows=rows)


def adam(state: Any) -> dict[str, Any]:
    return jax.tree.map(np.asarray, state.opt_state[0]._asdict())


@pytest.mark.parametrize("max_grad_norm", [None, 1.0])
@pytest.mark.parametrize("wild", [INF, float("nan"), KINK])
def test_a_skipped_step_changes_nothing_but_the_learning_rate(wild, max_grad_norm):
    """Slopes 0.5, wild, 0.5 under the rates 0.1, 0.05, 0: Adam's first step moves by its rate, 0.1; the last by 0."""
    found = steps_of([0.5, wild, 0.5], most=1, max_grad_norm=max_grad_norm)
    weights = [float(state.trained["weight"][0]) for state, _ in found]
    np.testing.assert_allclose(weights, [0.9, 0.9, 0.9], rtol=1e-6)
    without = steps_of([0.5, 0.5], most=1, max_grad_norm=max_grad_norm)
    for name, value in adam(without[-1][0]).items():
        np.testing.assert_array_equal(jax.tree.leaves(adam(found[-1][0])[name]), jax.tree.leaves(value))
    assert [int(state.step) for state, _ in found] == [1, 2, 3]
    assert [int(metrics.named["skipped_steps"]) for _, metrics in found] == [0, 1, 1]
    assert [int(state.skipped.in_a_row) for state, _ in found] == [0, 1, 0]
    assert [failure(metrics, step=1) for _, metrics in found] == [None] * 3


def test_counting_skipped_steps_does_not_change_the_bits():
    plain, counted = steps_of([0.3, -0.2, 0.7], most=None), steps_of([0.3, -0.2, 0.7], most=0)
    for (one, _), (other, _) in zip(plain, counted, strict=True):
        assert float(one.trained["weight"][0]) == float(other.trained["weight"][0])


def test_one_skipped_step_too_many_is_named_even_if_read_later():
    """Beyond the limit every step is skipped, so the state is that of before the first of them, whenever one looks."""
    found = steps_of([0.5, INF, 0.5, KINK, INF, 0.5, 0.5], most=1)
    said = [failure(metrics, step=at, rows=lambda step: [step, 7]) for at, (_, metrics) in enumerate(found, 1)]
    assert said[:4] == [None] * 4
    assert {each.error for each in said[4:]} == {"non_finite_steps"}
    [because] = {each.because for each in said[4:]}
    assert because == (
        "loss or gradient of 2 steps in a row, the last of them step 5, is not finite, and "
        "optimizer.max_nonfinite_steps is 1; step 5 learned from the rows 4, 7, counted from 0"
    )
    assert float(found[-1][0].trained["weight"][0]) == float(found[2][0].trained["weight"][0])


def test_the_first_of_many_rows_are_named():
    [(_, metrics)] = steps_of([float("nan")], most=0)
    because = failure(metrics, step=1, rows=lambda step: range(1040)).because
    assert because.endswith(f"the rows {', '.join(map(str, range(32)))} and 1,008 more, counted from 0")


def test_in_float16_a_nonfinite_gradient_lowers_the_scale_and_a_nonfinite_loss_counts():
    found = steps_of([KINK, 0.5, INF], most=1, scaled=True)
    assert [int(state.skipped.in_a_row) for state, _ in found] == [0, 0, 1]
    assert [float(state.loss_scale.scale) for state, _ in found] == [32768, 32768, 16384]
    assert float(found[0][0].trained["weight"][0]) == 1
    assert float(found[2][0].trained["weight"][0]) == float(found[1][0].trained["weight"][0]) != 1


def test_without_a_limit_the_first_nonfinite_gradient_ends_the_run():
    [(state, metrics)] = steps_of([KINK], most=None)
    assert failure(metrics, step=1).error == "non_finite_gradient"
    assert not np.isfinite(state.trained["weight"][0])


def memory(update: Any, skip: int | None, device: Any, monkeypatch: pytest.MonkeyPatch) -> int:
    """Return the bytes of a compiled step of AdamW over four matrices of 1 MiB."""

    def loss_fn(params: Any, frozen: Any, batch: Any, key: Any) -> LossSums:
        hidden = batch["x"]
        for name in sorted(params):
            hidden = jnp.tanh(hidden @ params[name])
        return LossSums(loss=jnp.sum(hidden**2), weight=jnp.float32(1), named={})

    def placed(tree: Any) -> Any:
        place = SingleDeviceSharding(device)
        return jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=place), tree)

    monkeypatch.setattr(step, "conditional_update", update)
    optimizer = build_optimizer(OptimizerConfig(), steps=9)
    built = build_step(loss_fn, optimizer, max_grad_norm=1.0, seed=0, max_nonfinite_steps=skip)
    params = {f"w{number}": jax.ShapeDtypeStruct((512, 512), jnp.float32) for number in range(4)}
    skipped = None if skip is None else initial_skipped_steps()
    state = jax.eval_shape(lambda params: first_state(params, optimizer, None, skipped), params)
    batch = {"x": jax.ShapeDtypeStruct((1, 2, 512), jnp.float32)}
    compiled = jax.jit(built, donate_argnums=0).lower(placed(state), {}, placed(batch)).compile()
    found = compiled.memory_analysis()
    used = found.argument_size_in_bytes + found.temp_size_in_bytes + found.output_size_in_bytes
    return used - found.alias_size_in_bytes


def by_cond(taken: Any, update: Any, params: Any, opt_state: Any) -> Any:
    return jax.lax.cond(taken, update, lambda *held: held, params, opt_state)


def by_where(taken: Any, update: Any, params: Any, opt_state: Any) -> Any:
    new = update(params, opt_state)
    return jax.tree.map(lambda new, old: jnp.where(taken, new, old), new, (params, opt_state))


MIB = 2**20


def test_skippable_steps_take_no_more_memory(monkeypatch):
    """State and gradients are 4 × 4 MiB; what `jnp.where` holds besides shows that the measure can fail."""
    [device] = jax.devices("cpu")[:1]
    real = step.conditional_update
    plain = memory(real, None, device, monkeypatch)
    assert plain == pytest.approx(16 * MIB, rel=0.02)
    assert memory(real, 0, device, monkeypatch) - plain < 0.1 * MIB
    assert memory(by_where, 0, device, monkeypatch) - plain > 4 * MIB


@pytest.mark.compiler("gpu")
def test_skippable_steps_take_no_more_gpu_memory(monkeypatch):
    card = describe_gpu(load_target("t4"))
    [device] = topologies.get_topology_desc("g", "cuda", target_config=card, topology="1x1x1").devices
    real = step.conditional_update
    plain = memory(real, None, device, monkeypatch)
    assert memory(real, 0, device, monkeypatch) - plain < 0.1 * MIB
    assert memory(by_cond, 0, device, monkeypatch) - plain > 4 * MIB


def spoil(monkeypatch: pytest.MonkeyPatch, config: Config, *steps: int) -> None:
    """Let the loss of these steps' batches, counted from 0, be infinite, whoever learns from them."""
    real, source = programs.build_loss_fn, inputs_of(config)[1].source
    sums = [int(source.batch(each)["tokens"].sum()) for each in steps]
    assert len({int(source.batch(each)["tokens"].sum()) for each in range(4)}) == 4

    def build_loss_fn(task: Any) -> Any:
        def spoiled(trained: Any, frozen: Any, batch: Any, key: Any) -> LossSums:
            found = real(task)(trained, frozen, batch, key)
            is_bad = jnp.isin(jnp.sum(batch["tokens"]), jnp.array(sums, jnp.int32))
            return found._replace(loss=found.loss * jnp.where(is_bad, jnp.float32(INF), jnp.float32(1)))

        return spoiled

    monkeypatch.setattr(programs, "build_loss_fn", build_loss_fn)


@pytest.mark.slow
def test_a_run_counts_skipped_steps_resumes_and_fails_beyond_the_limit(config, train, monkeypatch):
    spoil(monkeypatch, config, 1, 2)

    def allowing(most: int, steps: int) -> Config:
        optimizer = replace(config.optimizer, schedule="constant", max_nonfinite_steps=most)
        return replace(config, optimizer=optimizer, limits=replace(config.limits, steps=steps))

    whole = train(allowing(2, 4), "whole")
    assert [row["loss"] is None for row in rows(whole)] == [False, True, True, False]
    assert [row["skipped_steps"] for row in rows(whole)] == [0, 1, 2, 2]
    first = train(allowing(1, 2), "first")
    # Consecutive skipped steps are counted across the continuation.
    second = train(allowing(1, 4), "second", resume=first, ends_with=4)
    learned = ", ".join(map(str, inputs_of(config)[1].source.rows(2)))
    end = manifest_of(second)["exit"]
    assert (end["code"], end["error"]) == (4, "non_finite_steps")
    assert end["message"].endswith(f"step 3 learned from the rows {learned}, counted from 0")
    third = train(allowing(2, 4), "third", resume=first)
    ends = {rows(folder, layout.CHAIN)[-1]["state_sha256"] for folder in (whole, third)}
    assert len(ends) == 1
    # A run that never skips can continue it too.
    assert restore(first, state_shapes(task_of(config))).skipped is None
    assert [errors_of(folder) for folder in (whole, first, second, third)] == [[]] * 4


@pytest.mark.slow
def test_a_replay_skips_the_same_steps_and_differs_if_it_learns_from_them(config, train, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "own"))

    def segments(folder: Path) -> tuple[int, list[dict[str, Any]]]:
        receipt, code = replay(ReplayRequest(folder=folder, whole=True), lambda line: None, lambda event: None)
        return code, receipt["covered"]["segments"]

    skipping = replace(
        config,
        optimizer=replace(config.optimizer, max_nonfinite_steps=1),
        recording=replace(config.recording, chain_every_steps=1),
        limits=replace(config.limits, steps=4),
    )
    with monkeypatch.context() as patch:
        spoil(patch, config, 1)
        folder = train(skipping)
        assert [row["skipped_steps"] for row in rows(folder)] == [0, 1, 1, 1]
        code, found = segments(folder)
    assert (code, [each["verdict"] for each in found]) == (0, ["identical"] * 4)
    # The same rows have a finite loss here, so the second step is not skipped.
    code, found = segments(folder)
    assert (code, [each["verdict"] for each in found[:2]]) == (1, ["identical", "different"])
    assert "its loss" in found[1]["difference"]

"""Non-finite numbers: loss scaling as in torch, and skipped steps, which change nothing and end a run at a limit."""

import json
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from golden import load_folder
from jax.experimental import topologies
from jax.sharding import SingleDeviceSharding
from refusals import catch_problem
from replays import replay_run
from tasks import inputs_of, task_of, with_settings
from whole_runs import manifest_of, rows

from evidence import layout
from evidence.targets import load_target
from trainer.config.tree import Config, OptimizerConfig
from trainer.loop import programs
from trainer.loop import step as step_module
from trainer.loop.checkpoints import restore
from trainer.loop.optimizer import build_optimizer
from trainer.loop.state import state_shapes
from trainer.model.decoder import bind
from trainer.model.model import build_model
from trainer.model.source import resolve
from trainer.objectives.objective import LossSums
from trainer.objectives.supervised import SupervisedLoss
from trainer.planning.compile.machines import describe_gpu

CASES = Path(__file__).parents[2] / "cases"
FAMILIES = ["gpt2", "llama", "mistral", "gemma", "gemma2", "gemma3", "qwen2", "qwen3", "smollm3"]


def test_the_scale_is_that_of_torchs_grad_scaler():
    case = json.loads((CASES / "loss_scale" / "grad_scaler.json").read_text())
    finite = np.ones(case["steps"], bool)
    finite[np.array(case["not_finite"]) - 1] = False

    def follow(state: step_module.LossScale, is_finite: jax.Array) -> tuple[step_module.LossScale, jax.Array]:
        after = step_module.next_loss_scale(state, finite=is_finite)
        return after, after.scale

    last, scales = jax.lax.scan(follow, step_module.initial_loss_scale(), jnp.asarray(finite))
    before = np.concatenate([[65536.0], np.asarray(scales)[:-1]])
    changed = np.flatnonzero(np.asarray(scales) != before)
    expected = [(change["step"], change["scale"]) for change in case["changes"]]
    assert [(step + 1, float(scales[step])) for step in changed] == expected
    assert (float(last.scale), int(last.good_steps)) == (case["last"]["scale"], case["last"]["good_steps"])


MIB = 2**20
INF = float("inf")
KINK = -1.0
"""Stands for a batch whose loss is 0 and whose gradient is infinite: the root of 0."""


def sloped(params: Any, frozen: Any, batch: Any, key: Any) -> LossSums:
    """A loss whose gradient, in float16, is the batch's slope."""
    weight, slope = params["weight"][0].astype(jnp.float16).astype(jnp.float32), batch["slope"][0]
    loss = jax.lax.cond(slope == KINK, lambda: jnp.sqrt(weight - jax.lax.stop_gradient(weight)), lambda: weight * slope)
    return LossSums(loss=loss, weight=jnp.float32(1), named={})


def take_steps(slopes: list[float], *, most: int | None = None, scaled: bool = False, **settings: Any) -> list[Any]:
    """Return state and metrics after each step of a linear schedule from 0.1 to 0."""
    optimizer = build_optimizer(OptimizerConfig(learning_rate=0.1, schedule="linear"), steps=len(slopes))
    settings = {"max_grad_norm": None, "seed": 0, "max_nonfinite_steps": most} | settings
    step = jax.jit(step_module.build_step(sloped, optimizer, **settings))
    skipped = None if most is None else step_module.initial_skipped_steps()
    scale = step_module.initial_loss_scale() if scaled else None
    state = step_module.first_state({"weight": jnp.ones((1,))}, optimizer, scale, skipped)
    found = []
    for slope in slopes:
        state, metrics = step(state, {}, {"slope": jnp.full((1, 1), slope)})
        found.append((state, metrics))
    return found


def read_weights(found: list[Any]) -> list[float]:
    return [float(state.trained["weight"][0]) for state, _ in found]


def find_failures(found: list[Any], rows: Any = lambda step: []) -> list[Any]:
    return [step_module.find_nonfinite(metrics, step=at, rows=rows) for at, (_, metrics) in enumerate(found, 1)]


@pytest.mark.parametrize("max_grad_norm", [None, 1.0])
def test_a_step_whose_gradient_is_not_finite_changes_nothing_but_scale_and_place(max_grad_norm):
    """2 · 65,536 and 2 · 32,768 are beyond 65,504; 2 · 16,384 is not."""
    found = take_steps([2.0, 2.0, 2.0, 2.0], scaled=True, max_grad_norm=max_grad_norm)
    states, metrics = zip(*found, strict=True)
    assert [float(each.named["loss_scale"]) for each in metrics] == [65536, 32768, 16384, 16384]
    assert [float(each.loss_scale.scale) for each in states] == [32768, 16384, 16384, 16384]
    assert [int(each.loss_scale.good_steps) for each in states] == [0, 0, 1, 2]
    np.testing.assert_array_equal([float(each.grad_norm) for each in metrics], [INF, INF, 2, 2])
    assert [float(each.loss) for each in metrics[:3]] == [2.0, 2.0, 2.0]
    # Every step counts, two of them updated; Adam moves by the learning rate of the step: 0.1 · 1/3, then 0.
    assert [int(each.step) for each in states] == [1, 2, 3, 4]
    assert [int(each.opt_state[0].count) for each in states] == [0, 0, 1, 2]
    np.testing.assert_allclose(read_weights(found), [1, 1, 1 - 0.1 / 3, 1 - 0.1 / 3], rtol=1e-6)
    assert all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(states[-1].opt_state))


def test_gradients_below_the_range_of_float16_are_kept():
    """A third of 1e-8 is 0 in float16; times 65,536 it is 2.2e-4, with an error of at most 2 ** -11."""
    slope = 1e-8 / 3
    [(_, metrics)] = take_steps([slope], scaled=True)
    assert np.float16(slope) == 0
    assert float(metrics.grad_norm) == pytest.approx(slope, rel=2**-11)


def supervised(name: str, compute: str, tokens: np.ndarray) -> tuple[step_module.LossFn, Any, dict[str, jax.Array]]:
    """Return loss, parameters and the batch of one microbatch of a golden model."""
    _, graphdef, params = load_folder(CASES / "models" / name, compute_dtype=compute)
    objective = SupervisedLoss(max_length=tokens.shape[1], chunk_positions=None)

    def loss_fn(trained: Any, frozen: Any, batch: Any, key: Any) -> LossSums:
        return objective.loss_fn(bind(graphdef, trained), batch, None)

    return loss_fn, params, {"tokens": jnp.asarray(tokens)[None], "loss_mask": jnp.ones((1, *tokens.shape), jnp.bool_)}


@pytest.mark.slow(but=("gpt2",))
@pytest.mark.parametrize("name", FAMILIES)
def test_the_loss_goes_the_way_of_float32_where_no_step_is_skipped(name):
    tokens = np.random.default_rng(1).integers(0, 60, (2, 16)).astype(np.int32)
    found = {}
    for compute in ("float16", "float32"):
        loss_fn, params, batch = supervised(name, compute, tokens)
        optimizer = build_optimizer(OptimizerConfig(learning_rate=3e-3, schedule="constant"), steps=9)
        step = jax.jit(step_module.build_step(loss_fn, optimizer, max_grad_norm=1.0, seed=0))
        scale = step_module.initial_loss_scale() if compute == "float16" else None
        state = step_module.first_state(params, optimizer, scale)
        found[compute] = []
        for _ in range(8):
            state, metrics = step(state, {}, batch)
            found[compute] += [float(metrics.loss)] if np.isfinite(metrics.grad_norm) else []
    half, exact = found["float16"], found["float32"]
    assert 4 <= len(half) <= len(exact) == 8
    assert exact[-1] < exact[0] - 0.1
    assert half[0] == pytest.approx(exact[0], rel=1e-3)
    np.testing.assert_allclose(half, exact[: len(half)], rtol=3e-3)


@pytest.mark.slow
def test_a_float16_run_records_its_scale_and_resumes_in_either_type(config, train):
    half = with_settings(config, precision={"compute": "float16"}, optimizer={"schedule": "constant"})
    first = train(half, "first")
    assert [row["loss_scale"] for row in rows(first)] == [65536.0, 65536.0]
    manifest, types = manifest_of(first), {"params": "float32", "compute": "float16"}
    assert manifest["model"]["dtypes"] == manifest["effective"]["precision"] == types
    assert manifest["training"]["donation"]["effective"]
    # In float32 there is no scale; in float16 again it begins anew.
    plain = train(with_settings(half, limits={"steps": 3}, precision={"compute": "float32"}), "plain", resume=first)
    assert "loss_scale" not in rows(plain)[0]
    scaled = train(with_settings(half, limits={"steps": 4}), "scaled", resume=plain)
    assert [row["loss_scale"] for row in rows(scaled)] == [65536.0]


def test_a_loss_scale_below_one_ends_the_run(monkeypatch):
    monkeypatch.setattr(step_module, "INITIAL_SCALE", 0.5)
    [found] = find_failures(take_steps([0.5], scaled=True))
    assert (found.step, found.error) == (1, "loss_scale_collapsed")
    assert found.because.startswith("the loss scale at step 1 is 0.5: gradients are beyond float16 without scaling")


def test_trained_parameters_are_not_stored_in_float16(config):
    half = with_settings(config, precision={"params": "float16"})
    assert catch_problem(build_model, half, resolve("tiny-gpt2")).code == "TP704"


@pytest.mark.parametrize("max_grad_norm", [None, 1.0])
@pytest.mark.parametrize("wild", [INF, float("nan"), KINK])
def test_a_skipped_step_changes_nothing_but_the_learning_rate(wild, max_grad_norm):
    """Slopes 0.5, wild, 0.5 under the rates 0.1, 0.05, 0: Adam's first step moves by its rate, 0.1; the last by 0."""
    found = take_steps([0.5, wild, 0.5], most=1, max_grad_norm=max_grad_norm)
    np.testing.assert_allclose(read_weights(found), [0.9, 0.9, 0.9], rtol=1e-6)
    without = take_steps([0.5, 0.5], most=1, max_grad_norm=max_grad_norm)
    jax.tree.map(np.testing.assert_array_equal, found[-1][0].opt_state[0], without[-1][0].opt_state[0])
    assert [int(state.step) for state, _ in found] == [1, 2, 3]
    assert [int(metrics.named["skipped_steps"]) for _, metrics in found] == [0, 1, 1]
    assert [int(state.skipped.in_a_row) for state, _ in found] == [0, 1, 0]
    assert find_failures(found) == [None] * 3


def test_counting_skipped_steps_does_not_change_the_bits():
    slopes = [0.3, -0.2, 0.7]
    assert read_weights(take_steps(slopes)) == read_weights(take_steps(slopes, most=0))


def test_one_skipped_step_too_many_is_named_even_if_read_later():
    """Beyond the limit every step is skipped, so the state is that of before the first of them, whenever one looks."""
    found = take_steps([0.5, INF, 0.5, KINK, INF, 0.5, 0.5], most=1)
    failures = find_failures(found, rows=lambda step: range(step, 1040))
    assert failures[:4] == [None] * 4
    [because] = {each.because for each in failures[4:]}
    assert because.startswith("loss or gradient of 2 steps in a row, the last of them step 5, is not finite, and ")
    first = ", ".join(map(str, range(4, 36)))
    assert because.endswith(f"is 1; step 5 learned from the rows {first} and 1,004 more, counted from 0")
    assert read_weights(found)[-1] == read_weights(found)[2]


def test_in_float16_a_nonfinite_gradient_lowers_the_scale_and_a_nonfinite_loss_counts():
    found = take_steps([KINK, 0.5, INF], most=1, scaled=True)
    assert [int(state.skipped.in_a_row) for state, _ in found] == [0, 0, 1]
    assert [float(state.loss_scale.scale) for state, _ in found] == [32768, 32768, 16384]
    first, second, third = read_weights(found)
    assert first == 1
    assert third == second != 1


def memory(update: Any, skip: int | None, device: Any, monkeypatch: pytest.MonkeyPatch) -> int:
    """Return the bytes of a compiled step of AdamW over four matrices of 1 MiB."""

    def loss_fn(params: Any, frozen: Any, batch: Any, key: Any) -> LossSums:
        hidden = batch["x"]
        for name in sorted(params):
            hidden = jnp.tanh(hidden @ params[name])
        return LossSums(loss=jnp.sum(hidden**2), weight=jnp.float32(1), named={})

    def placed(tree: Any) -> Any:
        return jax.tree.map(lambda leaf: leaf.update(sharding=SingleDeviceSharding(device)), tree)

    monkeypatch.setattr(step_module, "conditional_update", update)
    optimizer = build_optimizer(OptimizerConfig(), steps=9)
    built = step_module.build_step(loss_fn, optimizer, max_grad_norm=1.0, seed=0, max_nonfinite_steps=skip)
    params = {f"w{number}": jax.ShapeDtypeStruct((512, 512), jnp.float32) for number in range(4)}
    skipped = None if skip is None else step_module.initial_skipped_steps()
    state = jax.eval_shape(lambda params: step_module.first_state(params, optimizer, None, skipped), params)
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


@pytest.mark.parametrize(
    ("platform", "wasteful"),
    [("cpu", by_where), pytest.param("gpu", by_cond, marks=pytest.mark.compiler("gpu"))],
)
def test_skippable_steps_take_no_more_memory(platform, wasteful, monkeypatch):
    """State and gradients are 4 × 4 MiB. The wasteful update shows that the measure can fail."""
    if platform == "gpu":  # one that exists for the compiler alone
        card = describe_gpu(load_target("t4"))
        [device] = topologies.get_topology_desc("g", "cuda", target_config=card, topology="1x1x1").devices
    else:
        device = jax.devices("cpu")[0]
    real = step_module.conditional_update
    plain = memory(real, None, device, monkeypatch)
    assert device.platform != "cpu" or plain == pytest.approx(16 * MIB, rel=0.02)
    assert memory(real, 0, device, monkeypatch) - plain < 0.1 * MIB
    assert memory(wasteful, 0, device, monkeypatch) - plain > 4 * MIB


def spoil(monkeypatch: pytest.MonkeyPatch, config: Config, *steps: int) -> None:
    """Make the loss of these steps' batches infinite; steps count from 0."""
    real, source = programs.build_loss_fn, inputs_of(config)[1].source
    sums = [int(source.batch(each)["tokens"].sum()) for each in range(4)]
    assert len(set(sums)) == 4
    spoiled_sums = jnp.array([sums[each] for each in steps], jnp.int32)

    def build_loss_fn(task: Any) -> Any:
        def spoiled(trained: Any, frozen: Any, batch: Any, key: Any) -> LossSums:
            found = real(task)(trained, frozen, batch, key)
            is_spoiled = jnp.isin(jnp.sum(batch["tokens"]), spoiled_sums)
            return found._replace(loss=found.loss * jnp.where(is_spoiled, jnp.float32(INF), jnp.float32(1)))

        return spoiled

    monkeypatch.setattr(programs, "build_loss_fn", build_loss_fn)


@pytest.mark.slow
def test_a_run_counts_skipped_steps_resumes_and_fails_beyond_the_limit(config, train, monkeypatch):
    spoil(monkeypatch, config, 1, 2)

    def allowing(most: int, steps: int) -> Config:
        optimizer = {"schedule": "constant", "max_nonfinite_steps": most}
        return with_settings(config, optimizer=optimizer, limits={"steps": steps})

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


@pytest.mark.slow
def test_a_replay_skips_the_same_steps_and_differs_if_it_learns_from_them(config, train, monkeypatch):
    recording, limits = {"chain_every_steps": 1}, {"steps": 4}
    skipping = with_settings(config, optimizer={"max_nonfinite_steps": 1}, recording=recording, limits=limits)
    with monkeypatch.context() as patch:
        spoil(patch, config, 1)
        folder = train(skipping)
        assert [row["skipped_steps"] for row in rows(folder)] == [0, 1, 1, 1]
        assert replay_run(folder, whole=True)[0]["result"] == "identical"
    # The same rows have a finite loss here, so the second step is not skipped.
    first, second, *_ = replay_run(folder, whole=True)[0]["covered"]["segments"]
    assert (first["verdict"], second["verdict"]) == ("identical", "different")
    assert "its loss" in second["difference"]

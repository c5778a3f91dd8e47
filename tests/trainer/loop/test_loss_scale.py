"""float16: the scale follows torch's rule, skipped steps change nothing, and the loss goes the way of float32."""

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
from whole_runs import errors_of, manifest_of, rows

from schemas.problems import ProblemError
from trainer.config.tree import Config, OptimizerConfig, PrecisionConfig
from trainer.loop import nonfinite
from trainer.loop.nonfinite import LossScale, initial_loss_scale, next_loss_scale
from trainer.loop.optimizer import build_optimizer
from trainer.loop.step import LossFn, build_step, first_state, gradient_of_sum
from trainer.model.decoder import abstract, bind, flatten
from trainer.model.export import join_tensor
from trainer.model.load import load_params
from trainer.model.model import build_model
from trainer.model.source import resolve
from trainer.objectives.objective import LossSums
from trainer.objectives.supervised import SupervisedLoss

CASES = Path(__file__).parents[2] / "cases"
FAMILIES = ("gpt2", "llama", "mistral", "gemma", "gemma2", "gemma3", "qwen2", "qwen3", "smollm3")


def test_the_scale_is_that_of_torchs_grad_scaler():
    """`made_by` of the case says which torch it was; it took its steps with gradients of 1 and of infinity."""
    case = json.loads((CASES / "loss_scale" / "grad_scaler.json").read_text())
    finite = np.ones(case["steps"], bool)
    finite[np.array(case["not_finite"]) - 1] = False

    def follow(state: LossScale, is_finite: jax.Array) -> tuple[LossScale, jax.Array]:
        after = next_loss_scale(state, finite=is_finite)
        return after, after.scale

    last, scales = jax.lax.scan(follow, initial_loss_scale(), jnp.asarray(finite))
    before = np.concatenate([[65536.0], np.asarray(scales)[:-1]])
    changed = np.flatnonzero(np.asarray(scales) != before)
    assert [(step + 1, float(scales[step])) for step in changed] == [
        (change["step"], change["scale"]) for change in case["changes"]
    ]
    assert (float(last.scale), int(last.good_steps)) == (case["last"]["scale"], case["last"]["good_steps"])


def steep(params: Any, frozen: Any, batch: Any, key: Any) -> LossSums:
    """A loss whose gradient, in float16, is the number in the batch."""
    loss = jnp.sum(params["weight"].astype(jnp.float16).astype(jnp.float32) * batch["slope"][0])
    return LossSums(loss=loss, weight=jnp.float32(1), named={})


def steps_of(slopes: list[float], *, max_grad_norm: float | None = None) -> list[tuple[Any, Any]]:
    """Return state and figures after each step of a linear schedule that falls from 0.1 to 0."""
    optimizer = build_optimizer(OptimizerConfig(learning_rate=0.1, schedule="linear"), steps=len(slopes))
    step = jax.jit(build_step(steep, optimizer, max_grad_norm=max_grad_norm, seed=0))
    state = first_state({"weight": jnp.ones((1,))}, optimizer, initial_loss_scale())
    found = []
    for slope in slopes:
        state, metrics = step(state, {}, {"slope": jnp.full((1, 1), slope)})
        found.append((state, metrics))
    return found


def count_of_updates(opt_state: Any) -> int:
    [adam] = [node for node in jax.tree.leaves(opt_state, is_leaf=is_adam) if is_adam(node)]
    return int(adam.count)


def is_adam(node: Any) -> bool:
    return isinstance(node, optax.ScaleByAdamState)


@pytest.mark.parametrize("max_grad_norm", [None, 1.0])
def test_a_step_whose_gradient_is_not_finite_changes_nothing_but_scale_and_place(max_grad_norm):
    """2 · 65,536 and 2 · 32,768 are beyond 65,504; 2 · 16,384 is not."""
    found = steps_of([2.0, 2.0, 2.0, 2.0], max_grad_norm=max_grad_norm)
    assert [float(metrics.named["loss_scale"]) for _, metrics in found] == [65536, 32768, 16384, 16384]
    assert [float(state.loss_scale.scale) for state, _ in found] == [32768, 16384, 16384, 16384]
    assert [int(state.loss_scale.good_steps) for state, _ in found] == [0, 0, 1, 2]
    assert [bool(np.isfinite(metrics.grad_norm)) for _, metrics in found] == [False, False, True, True]
    assert [float(metrics.grad_norm) for _, metrics in found[2:]] == [2.0, 2.0]
    assert [float(metrics.loss) for _, metrics in found[:3]] == [2.0, 2.0, 2.0]
    # Every step counts, two of them updated; Adam moves by the learning rate of the step: 0.1 · 1/3, then 0.
    assert [int(state.step) for state, _ in found] == [1, 2, 3, 4]
    assert [count_of_updates(state.opt_state) for state, _ in found] == [0, 0, 1, 2]
    weights = [float(state.trained["weight"][0]) for state, _ in found]
    np.testing.assert_allclose(weights, [1, 1, 1 - 0.1 / 3, 1 - 0.1 / 3], rtol=1e-6)
    assert all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(found[-1][0].opt_state))


def test_gradients_below_the_range_of_float16_are_kept():
    """A third of 1e-8 is 0 in float16; times 65,536 it is 2.2e-4, with an error of at most 2 ** -11."""
    slope = 1e-8 / 3
    [(_, metrics)] = steps_of([slope])
    assert np.float16(slope) == 0
    assert float(metrics.grad_norm) == pytest.approx(slope, rel=2**-11)


def test_a_loss_that_is_not_finite_is_no_matter_of_scale_and_spoils_the_state():
    [(state, metrics)] = steps_of([float("inf")])
    assert not np.isfinite(metrics.loss)
    assert not np.isfinite(state.trained["weight"][0])


def supervised(name: str, compute: str, tokens: np.ndarray) -> tuple[LossFn, Any, dict[str, jax.Array]]:
    """Return loss, parameters and the batch of one microbatch of a small checkpoint that transformers made."""
    source = resolve(str(CASES / "models" / name))
    graphdef, shapes = flatten(abstract(source.spec, params_dtype="float32", compute_dtype=compute, remat="none"))
    objective = SupervisedLoss(max_length=tokens.shape[1], chunk_positions=None)

    def loss_fn(trained: Any, frozen: Any, batch: Any, key: Any) -> LossSums:
        return objective.loss_fn(bind(graphdef, trained), batch, None)

    batch = {"tokens": jnp.asarray(tokens)[None], "loss_mask": jnp.ones((1, *tokens.shape), jnp.bool_)}
    return loss_fn, load_params(source, shapes), batch


@pytest.mark.slow
@pytest.mark.parametrize("name", FAMILIES)
def test_loss_and_gradient_of_every_family_are_close_to_those_of_transformers_in_float32(name):
    """float16 has a relative error of 2 ** -11 for each number; activations of these stay far below 65,504."""
    folder = CASES / "models" / name
    expected = json.loads((folder / "expected.json").read_text())
    loss_fn, params, batch = supervised(name, "float16", np.load(folder / "expected.npz")["tokens"])
    graded = jax.jit(partial(gradient_of_sum, loss_fn, frozen={}, key=jax.random.key(0), scale=jnp.float32(256)))
    sums, gradient = graded(trained=params, batch=batch)
    assert float(sums.loss / sums.weight) == pytest.approx(expected["loss"], rel=1e-3)
    assert {str(leaf.dtype) for leaf in jax.tree.leaves(gradient)} == {"float32"}
    exact = np.sqrt(sum(norm**2 for norm, _ in expected["gradients"].values()))
    assert float(optax.tree.norm(gradient) / sums.weight) == pytest.approx(exact, rel=5e-3)
    source = resolve(str(folder))
    for link in source.family.links(source.spec):
        norm, _ = expected["gradients"][link.tensor]
        own = join_tensor(link, gradient, "float32") / float(sums.weight)
        assert np.linalg.norm(own) == pytest.approx(norm, rel=0.03), link.tensor


@pytest.mark.slow(but=("gpt2",))
@pytest.mark.parametrize("name", ["gpt2", "gemma3"])
def test_the_loss_goes_the_way_of_float32_where_no_step_is_skipped(name):
    tokens = np.random.default_rng(1).integers(0, 60, (2, 16)).astype(np.int32)
    found = {}
    for compute in ("float16", "float32"):
        loss_fn, params, batch = supervised(name, compute, tokens)
        optimizer = build_optimizer(OptimizerConfig(learning_rate=3e-3, schedule="constant"), steps=9)
        step = jax.jit(build_step(loss_fn, optimizer, max_grad_norm=1.0, seed=0))
        state = first_state(params, optimizer, initial_loss_scale() if compute == "float16" else None)
        found[compute] = []
        for _ in range(8):
            state, metrics = step(state, {}, batch)
            if np.isfinite(metrics.grad_norm):
                found[compute].append(float(metrics.loss))
    half, exact = found["float16"], found["float32"]
    assert 4 <= len(half) <= len(exact) == 8
    assert exact[-1] < exact[0] - 0.1
    np.testing.assert_allclose(half, exact[: len(half)], rtol=2e-3)


@pytest.fixture
def half(config) -> Config:
    """A run in float16 with a row for each of its steps."""
    constant = replace(config.optimizer, schedule="constant")
    return replace(config, precision=PrecisionConfig(compute="float16"), optimizer=constant)


@pytest.mark.slow
def test_a_float16_run_records_its_scale_and_resumes_in_either_type(half, train):
    first = train(half, "first")
    assert [row["loss_scale"] for row in rows(first)] == [65536.0, 65536.0]
    manifest = manifest_of(first)
    assert manifest["model"]["dtypes"] == {"params": "float32", "compute": "float16"}
    assert manifest["effective"]["precision"] == {"params": "float32", "compute": "float16"}
    assert manifest["training"]["donation"]["effective"]
    # In float32 there is no scale; in float16 again it begins anew.
    longer = replace(half, limits=replace(half.limits, steps=3), precision=PrecisionConfig())
    plain = train(longer, "plain", resume=first)
    assert "loss_scale" not in rows(plain)[0]
    scaled = train(replace(half, limits=replace(half.limits, steps=4)), "scaled", resume=plain)
    assert [row["loss_scale"] for row in rows(scaled)] == [65536.0]
    assert [errors_of(folder) for folder in (first, plain, scaled)] == [[], [], []]


@pytest.mark.slow
def test_a_loss_scale_below_one_ends_the_run(half, train, monkeypatch):
    monkeypatch.setattr(nonfinite, "INITIAL_SCALE", 0.5)
    folder = train(half, ends_with=4)
    assert rows(folder)[-1]["loss_scale"] == 0.5
    end = manifest_of(folder)["exit"]
    assert (end["code"], end["error"]) == (4, "loss_scale_collapsed")
    assert end["message"].startswith("the loss scale at step 1 is 0.5: gradients are beyond float16 without scaling")
    assert errors_of(folder) == []


def test_trained_parameters_are_not_stored_in_float16(config):
    with pytest.raises(ProblemError, match=r"precision\.params is float16 and method\.kind is full") as caught:
        build_model(replace(config, precision=PrecisionConfig(params="float16")), resolve("tiny-gpt2"))
    assert [problem.code for problem in caught.value.problems] == ["TP704"]

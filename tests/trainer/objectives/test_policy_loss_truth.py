"""The losses of GRPO against TRL's own, as tests/cases/policy_loss/make.py stored what it gave."""

import json
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from trainer.loop.step import build_step, first_state
from trainer.objectives.objective import LossSums
from trainer.objectives.policy_loss import PolicyLoss

TRUTH = json.loads(Path("tests/cases/policy_loss/trl.json").read_text("utf-8"))
CASES: dict[str, dict[str, Any]] = TRUTH["cases"]
MASK = np.arange(len(TRUTH["log_probs"][0])) < np.array(TRUTH["lengths"])[:, None]
WITHIN = 1e-6


def answer(case: dict[str, Any]) -> tuple[float, np.ndarray, dict[str, float]]:
    """Loss, gradient and figures of one step of ours, in as many microbatches as TRL's."""
    loss = PolicyLoss(
        loss_type=case["loss_type"],
        epsilon_low=case["epsilon_low"],
        epsilon_high=case["epsilon_high"],
        beta=case["beta"],
        max_completion_tokens=TRUTH["max_completion_tokens"],
    )
    log_probs = jnp.asarray(TRUTH["log_probs"], jnp.float32)
    old = log_probs if case.get("on_policy") else jnp.asarray(TRUTH["old_log_probs"], jnp.float32)
    whole = {
        "row": jnp.arange(len(MASK)),
        "old_log_probs": old,
        "mask": jnp.asarray(MASK),
        "advantages": jnp.asarray(TRUTH["advantages"], jnp.float32),
        "reference_log_probs": jnp.asarray(TRUTH["reference_log_probs"], jnp.float32),
    }

    def loss_fn(trained: Any, frozen: Any, batch: Any, key: Any) -> LossSums:
        given = {name: value for name, value in batch.items() if name != "row"}
        return loss.sums(log_probs=trained[batch["row"]], **given)

    parts = {name: value.reshape(case.get("microbatches", 1), -1, *value.shape[1:]) for name, value in whole.items()}
    optimizer = optax.trace(0.0)  # its state is the gradient itself
    step = build_step(loss_fn, optimizer, max_grad_norm=None, seed=0)
    state, metrics = jax.jit(step)(first_state(log_probs, optimizer), {}, parts)
    return float(metrics.loss), np.asarray(state.opt_state.trace), jax.tree.map(float, metrics.named)


@pytest.mark.parametrize("name", CASES)
def test_loss_and_gradient_are_those_of_trl(name: str):
    case = CASES[name]
    loss, gradient, figures = answer(case)
    assert loss == pytest.approx(case["loss"], abs=WITHIN, rel=WITHIN)
    np.testing.assert_allclose(gradient, case["gradient"], atol=WITHIN)
    for share in ("clip_low_share", "clip_high_share"):
        if share in case:
            assert figures[share] == pytest.approx(case[share], abs=WITHIN)


OTHERWISE = [
    *[("dapo, divergence", "loss_type", other) for other in ("grpo", "dr_grpo", "gspo", "cispo")],
    ("gspo", "loss_type", "grpo"),
    ("cispo, low cap, two microbatches", "loss_type", "dapo"),
    ("dapo", "epsilon_low", 0.3),
    ("dapo", "epsilon_high", 0.28),
    ("grpo, divergence", "beta", 0.0),
    ("cispo, divergence", "beta", 0.03),
    ("cispo, low cap, two microbatches", "epsilon_high", 1.0),
]


@pytest.mark.parametrize(("name", "setting", "value"), OTHERWISE)
def test_the_case_of_another_setting_is_told_apart(name: str, setting: str, value: Any):
    _, gradient, _ = answer(CASES[name] | {setting: value})
    assert np.abs(gradient - np.array(CASES[name]["gradient"])).max() > 10 * WITHIN


def test_the_cases_are_of_every_kind():
    """Every variant with and without a divergence and over two microbatches; ratios that are cut on both sides."""
    kinds = {(case["loss_type"], case["beta"] > 0) for case in CASES.values()}
    assert {(loss_type, costs) for loss_type in ("dapo", "grpo", "gspo", "cispo") for costs in (False, True)} <= kinds
    assert {case["loss_type"] for case in CASES.values() if case.get("microbatches")} == {one for one, _ in kinds}
    assert {case["epsilon_high"] for case in CASES.values()} >= {0.2, 0.28, 5.0}
    shares = [case for case in CASES.values() if "clip_low_share" in case]
    assert any(case["clip_low_share"] > 0 and case["clip_high_share"] > 0 for case in shares)
    assert sorted(TRUTH["lengths"]) == [0, 1, 2, 3, 4, 5]
    assert TRUTH["made_with"]["trl"] == "1.16.0"

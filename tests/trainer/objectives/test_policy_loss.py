"""The losses of GRPO against TRL, by hand, and against the exact gradient over all completions.

`tests/cases/policy_loss/make.py` stored what TRL gave.
"""

import itertools
import json
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from trainer.config.tree import ObjectiveConfig
from trainer.loop.step import build_step, first_state
from trainer.objectives.grpo import GroupPolicy, k3_divergences
from trainer.objectives.objective import LossSums

TYPES = ("dapo", "grpo", "dr_grpo", "gspo", "cispo")
LONGEST = 6
ROWS = 8


def build_loss(loss_type: Any, **settings: float) -> GroupPolicy:
    high = 5.0 if loss_type == "cispo" else 0.2
    given = {"epsilon_low": 0.2, "epsilon_high": high, "kl_beta": 0.0, "max_completion_tokens": LONGEST} | settings
    objective = ObjectiveConfig(kind="grpo", loss_type=loss_type, **given)  # type: ignore[arg-type]
    return GroupPolicy(max_length=LONGEST, chunk_positions=None, settings=objective)


def build_batch(seed: int = 0, *, spread: float = 0.3) -> dict[str, jax.Array]:
    """Eight completions of up to six tokens, with log-probabilities near those of sampling."""
    random = np.random.default_rng(seed)
    log_probs = -random.exponential(1.0, (ROWS, LONGEST))
    lengths = np.array([6, 1, 3, 0, 5, 2, 6, 4])
    return {
        "log_probs": jnp.asarray(log_probs, jnp.float32),
        "old_log_probs": jnp.asarray(log_probs + spread * random.normal(size=log_probs.shape), jnp.float32),
        "mask": jnp.asarray(np.arange(LONGEST) < lengths[:, None]),
        "advantages": jnp.asarray(random.normal(size=ROWS), jnp.float32),
        "reference_log_probs": jnp.asarray(log_probs + 0.2 * random.normal(size=log_probs.shape), jnp.float32),
    }


def compute_gradient(loss: GroupPolicy, batch: dict[str, jax.Array]) -> jax.Array:
    def mean(log_probs: jax.Array) -> jax.Array:
        sums = loss.sums(**batch | {"log_probs": log_probs})
        return sums.loss / sums.weight

    return jax.grad(mean)(batch["log_probs"])


def take_step(loss: GroupPolicy, batch: dict[str, jax.Array], microbatches: int = 1) -> tuple[np.ndarray, Any]:
    """Return the gradient and the metrics of a step of log-probabilities as they are."""

    def loss_fn(trained: Any, frozen: Any, micro: Any, key: Any) -> LossSums:
        given = {name: value for name, value in micro.items() if name != "row"}
        return loss.sums(**given, log_probs=trained[micro["row"]])

    log_probs = batch["log_probs"]
    parts = {name: value for name, value in batch.items() if name != "log_probs"} | {"row": jnp.arange(len(log_probs))}
    divided = {name: value.reshape(microbatches, -1, *value.shape[1:]) for name, value in parts.items()}
    optimizer = optax.trace(0.0)  # its state is the gradient itself
    step = jax.jit(build_step(loss_fn, optimizer, max_grad_norm=None, seed=0))
    state, metrics = step(first_state(log_probs, optimizer), {}, divided)
    return np.asarray(state.opt_state.trace), metrics


TRUTH = json.loads(Path("tests/cases/policy_loss/trl.json").read_text("utf-8"))
CASES: dict[str, dict[str, Any]] = TRUTH["cases"]
WITHIN = 1e-6


def answer(case: dict[str, Any]) -> tuple[np.ndarray, Any]:
    """Return gradient and metrics of a step of ours, in as many microbatches as TRL's."""
    settings = {name: case[name] for name in ("loss_type", "epsilon_low", "epsilon_high")}
    loss = build_loss(**settings, kl_beta=case["beta"], max_completion_tokens=TRUTH["max_completion_tokens"])
    names = ("log_probs", "old_log_probs", "advantages", "reference_log_probs")
    batch = {name: jnp.asarray(TRUTH[name], jnp.float32) for name in names}
    batch |= {"old_log_probs": batch["log_probs"]} if case.get("on_policy") else {}
    batch["mask"] = jnp.asarray(np.arange(batch["log_probs"].shape[1]) < np.array(TRUTH["lengths"])[:, None])
    return take_step(loss, batch, case.get("microbatches", 1))


@pytest.mark.parametrize("name", CASES)
def test_loss_and_gradient_are_those_of_trl(name: str):
    case = CASES[name]
    gradient, metrics = answer(case)
    assert float(metrics.loss) == pytest.approx(case["loss"], abs=WITHIN, rel=WITHIN)
    np.testing.assert_allclose(gradient, case["gradient"], atol=WITHIN)
    for share in {"clip_low_share", "clip_high_share"} & set(case):
        assert float(metrics.named[share]) == pytest.approx(case[share], abs=WITHIN)


def worked_sums(loss_type: str, advantage: float, **settings: float) -> LossSums:
    rows = [jnp.log(jnp.asarray([values], jnp.float32)) for values in ([0.5, 0.25], [0.4, 0.3], [0.45, 0.2])]
    mask, advantages = jnp.ones((1, 2), jnp.bool_), jnp.asarray([advantage], jnp.float32)
    return build_loss(loss_type, **settings).sums(rows[0], rows[1], mask, advantages, rows[2])


@pytest.mark.parametrize(
    ("loss_type", "advantage", "loss", "weight"),
    [
        ("dapo", 1, -1.2 - 0.83333333, 2),
        ("dapo", -1, 1.25 + 0.83333333, 2),
        ("grpo", 1, (-1.2 - 0.83333333) / 2, 1),
        ("grpo", -1, (1.25 + 0.83333333) / 2, 1),
        ("dr_grpo", 1, -1.2 - 0.83333333, LONGEST),
        ("gspo", 1, -1.020621, 1),
        ("cispo", 1, -1.25 * np.log(0.5) - 0.83333333 * np.log(0.25), 2),
    ],
)
def test_the_case_worked_by_hand(loss_type: str, advantage: float, loss: float, weight: float):
    sums = worked_sums(loss_type, advantage)
    assert float(sums.loss) == pytest.approx(loss, rel=1e-6)
    assert float(sums.weight) == weight


def test_the_divergence_costs_k3_times_the_ratio():
    without, costly = worked_sums("dapo", 1), worked_sums("dapo", 1, kl_beta=0.5)
    assert float(costly.loss - without.loss) == pytest.approx(0.5 * (0.00670 + 0.01929), abs=1e-5)
    k3 = k3_divergences(jnp.log(jnp.asarray([[0.5, 0.25]])), jnp.log(jnp.asarray([[0.45, 0.2]])))
    np.testing.assert_allclose(k3, [[0.00536, 0.02314]], atol=1e-5)
    total, tokens = costly.means["kl"]
    assert (float(total), float(tokens)) == (pytest.approx(0.00536 + 0.02314, abs=1e-5), 2)


def test_without_a_reference_a_divergence_cannot_cost():
    batch = build_batch() | {"reference_log_probs": None}
    assert "kl" not in build_loss("dapo").sums(**batch).means
    with pytest.raises(ValueError, match="kl_beta is above 0"):
        build_loss("dapo", kl_beta=0.1).sums(**batch)


@pytest.mark.slow
@pytest.mark.parametrize("loss_type", TYPES)
def test_padding_has_no_effect_and_no_gradient(loss_type: str):
    loss, batch = build_loss(loss_type, kl_beta=0.1), build_batch()
    numbers = [name for name, value in batch.items() if value.ndim == 2 and name != "mask"]
    for poison in (jnp.nan, jnp.inf, -jnp.inf):
        spoiled = batch | {name: jnp.where(batch["mask"], batch[name], poison) for name in numbers}
        jax.tree.map(np.testing.assert_array_equal, loss.sums(**spoiled), loss.sums(**batch))
        np.testing.assert_array_equal(compute_gradient(loss, spoiled), compute_gradient(loss, batch))
    wider = {name: jnp.pad(value, [(0, 0), (0, 3)][: value.ndim]) for name, value in batch.items()}
    one, other = loss.sums(**wider), loss.sums(**batch)
    assert float(one.loss / one.weight) == pytest.approx(float(other.loss / other.weight), rel=1e-6)
    assert not np.any(np.asarray(compute_gradient(loss, batch))[~np.asarray(batch["mask"])])


@pytest.mark.slow(but=("gspo",))
@pytest.mark.parametrize("loss_type", TYPES)
def test_microbatches_have_no_effect_on_the_figures_of_a_step(loss_type: str):
    loss, batch = build_loss(loss_type, kl_beta=0.1), build_batch()
    mask = np.asarray(batch["mask"])
    gap = np.abs(np.asarray(batch["log_probs"] - batch["old_log_probs"]))[mask].max()
    k3 = np.asarray(k3_divergences(batch["log_probs"], batch["reference_log_probs"]))[mask].mean()
    (_, whole), (_, parts) = take_step(loss, batch), take_step(loss, batch, 8)
    assert float(whole.named["sampler_gap"]) == pytest.approx(gap, rel=1e-6)
    assert float(whole.named["kl"]) == pytest.approx(k3, rel=1e-5)
    assert set(parts.named) == {"kl", "clip_low_share", "clip_high_share", "sampler_gap"}
    for name, value in whole.named.items():
        assert float(parts.named[name]) == pytest.approx(float(value), rel=1e-5), name


def test_completions_without_a_token_are_a_step_of_nothing():
    batch = build_batch() | {"mask": jnp.zeros((ROWS, LONGEST), jnp.bool_)}
    for loss_type in TYPES:
        gradient, metrics = take_step(build_loss(loss_type, kl_beta=0.1), batch, 2)
        assert not np.any(gradient)
        assert {float(metrics.loss), *map(float, metrics.named.values())} == {0.0}


# Three tokens, the last of which ends; completions of at most three tokens, all of them.
VOCABULARY, END, MOST = 3, 2, 3
PREFIXES = [tokens for length in range(MOST) for tokens in itertools.product(range(END), repeat=length)]
COMPLETIONS = [
    (*tokens, last) for tokens in PREFIXES for last in range(VOCABULARY) if last == END or len(tokens) == MOST - 1
]
SEEN = np.array([[PREFIXES.index(one[:at]) if at < len(one) else 0 for at in range(MOST)] for one in COMPLETIONS])
TOKENS = np.array([[*one, *[0] * (MOST - len(one))] for one in COMPLETIONS])
WRITTEN = np.array([[at < len(one) for at in range(MOST)] for one in COMPLETIONS])
REWARDS = np.random.default_rng(5).normal(size=len(COMPLETIONS))


def token_log_probs(logits: jax.Array) -> jax.Array:
    return jax.nn.log_softmax(logits)[SEEN, TOKENS]


def probabilities(logits: jax.Array) -> jax.Array:
    return jnp.exp(jnp.sum(jnp.where(WRITTEN, token_log_probs(logits), 0), axis=1))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("loss_type", "baseline"),
    [*[(one, 0.0) for one in TYPES], *[(one, 0.7) for one in ("dapo", "dr_grpo", "cispo")]],
)
def test_the_expected_gradient_is_the_policy_gradient(loss_type: str, baseline: float):
    """For grpo and gspo, of the reward per token; a baseline per token would reward length."""
    logits = jax.random.normal(jax.random.key(0), (len(PREFIXES), VOCABULARY))  # of the next token after each prefix
    per_token = loss_type in ("grpo", "gspo")
    worth = REWARDS / WRITTEN.sum(axis=1) if per_token else REWARDS
    exact = jax.grad(lambda logits: jnp.sum(probabilities(logits) * worth))(logits)

    def single_loss(trained: jax.Array, row: jax.Array) -> jax.Array:
        log_probs, old = (token_log_probs(each)[row][None] for each in (trained, logits))
        advantages = jnp.asarray(REWARDS - baseline, jnp.float32)
        written = jnp.asarray(WRITTEN)[row][None]
        return build_loss(loss_type).sums(log_probs, old, written, advantages[row][None], None).loss

    gradients = jax.vmap(jax.grad(single_loss), (None, 0))(logits, jnp.arange(len(COMPLETIONS)))
    np.testing.assert_allclose(jnp.tensordot(probabilities(logits), gradients, axes=1), -exact, atol=2e-6)

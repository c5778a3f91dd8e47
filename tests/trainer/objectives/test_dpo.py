"""DPO: equal to TRL's on its own batch, to its reference at the start, under adapters, however a batch is divided."""

import json
from functools import cache
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from golden import load_folder
from model_folders import row_file
from refusals import catch_problems
from tasks import inputs_of, with_settings

from trainer.config.tree import Config
from trainer.loop.programs import build_loss_fn, train_program
from trainer.loop.state import initial_state
from trainer.loop.task import REFERENCE
from trainer.model.decoder import bind
from trainer.model.model import combine
from trainer.objectives.dpo import DirectPreference, preference_losses, reward_sums
from trainer.objectives.objective import LossSums

CASES = Path(__file__).parents[2] / "cases"
TRL = json.loads((CASES / "preference" / "trl.json").read_text())
EXACT = 1e-5
NAMES = {"chosen": "reward_chosen", "rejected": "reward_rejected", "margins": "reward_margin"}


@cache
def golden(name: str) -> tuple[Any, dict[str, Any]]:
    return load_folder(CASES / "models" / name)[1:]


def build_batch(case: dict[str, Any]) -> dict[str, jax.Array]:
    """Return TRL's batch, which has the chosen answers in its first half, as pairs behind each other."""
    ids, mask = (np.array(case["batch"][name]) for name in ("input_ids", "completion_mask"))
    order = [index for pair in range(len(ids) // 2) for index in (pair, pair + len(ids) // 2)]
    return {"tokens": jnp.asarray(ids[order], jnp.int32), "loss_mask": jnp.asarray(mask[order] == 1)}


@pytest.mark.slow(but=("gpt2-plain-None",))
@pytest.mark.parametrize("chunk", [None, 4])
@pytest.mark.parametrize("case", ["plain", "strong"])
@pytest.mark.parametrize("name", TRL["dpo"])
def test_loss_rewards_and_gradient_are_trls(name: str, case: str, chunk: int | None):
    expected = TRL["dpo"][name][case]
    objective = DirectPreference(max_length=9, chunk_positions=chunk, beta=expected["options"]["beta"])
    batch, (graphdef, params) = build_batch(expected), golden(name)

    def mean(policy: Any) -> tuple[jax.Array, LossSums]:
        sums = objective.loss_fn(bind(graphdef, policy), batch, None, bind(graphdef, params))
        return sums.loss / sums.weight, sums

    policy = {key: value * jnp.float32(TRL["factor"]) for key, value in params.items()}
    (loss, sums), gradient = jax.jit(jax.value_and_grad(mean, has_aux=True))(policy)
    assert float(loss) == pytest.approx(expected["loss"], rel=EXACT)
    assert sums.weight == 3
    for trls, ours in NAMES.items():
        assert float(sums.named[ours] / 3) == pytest.approx(expected["rewards"][f"rewards/{trls}"], rel=1e-4)
    assert float(sums.named["reward_accuracy"] / 3) == pytest.approx(expected["rewards"]["rewards/accuracies"])
    assert float(optax.tree.norm(gradient)) == pytest.approx(expected["gradients"]["all"], rel=EXACT)
    tokens = float(jnp.linalg.norm(gradient["tokens.table"]))
    assert tokens == pytest.approx(expected["gradients"]["tokens"], rel=EXACT)


def test_by_hand():
    """The rewards 0.5 and −0.5 have the margin 1: −log σ(1) is 0.3133 and −log σ(−1) is 1.3133."""
    rewards = jnp.array([[0.5, -0.5], [-0.5, 0.5]])
    assert preference_losses(rewards, 0.0).tolist() == pytest.approx([0.31326, 1.31326], abs=1e-5)
    assert preference_losses(rewards, 0.1).tolist() == pytest.approx([0.41326, 1.21326], abs=1e-5)
    named = {name: float(value) for name, value in reward_sums(rewards).items()}
    assert named == {"reward_chosen": 0.0, "reward_rejected": 0.0, "reward_margin": 0.0, "reward_accuracy": 1.0}


@pytest.fixture
def pairs(config: Config, tmp_path: Path) -> Config:
    """A run on seven pairs of numbers, two pairs a microbatch."""
    rows = [{"prompt": f"{n} + 1?", "chosen": f"It is {n + 1}.", "rejected": f"No, {n}!"} for n in range(7)]
    data = {"dataset": row_file(tmp_path / "pairs.jsonl", *rows), "max_length": 48}
    return with_settings(config, data=data, objective={"kind": "dpo"})


@pytest.mark.slow
@pytest.mark.parametrize(
    "method",
    [{}, {"kind": "lora", "rank": 2}, {"kind": "lora", "rank": 2, "base": "nf4", "targets": "mlp.*"}],
    ids=["full", "lora", "qlora"],
)
def test_before_training_the_model_is_its_own_reference(method: dict[str, Any], pairs: Config):
    task, data = inputs_of(with_settings(pairs, method=method))
    [state], frozen = initial_state(task)
    _, metrics = train_program(task).compile().call(state, frozen, data.source.batch(0))
    assert float(metrics.loss) == pytest.approx(np.log(2), rel=1e-6)
    assert {float(value) for value in metrics.named.values()} == {0.0}
    assert float(metrics.grad_norm) > 0
    assert any(name.startswith(REFERENCE) for name in frozen) == (not method)


@pytest.mark.slow
def test_the_reference_of_adapters_is_the_model_without_them(pairs: Config):
    """An adapter that has learned, against full training from the same base to the merged model: one loss."""
    lora, data = inputs_of(with_settings(pairs, method={"kind": "lora", "rank": 2}))
    [state], frozen = initial_state(lora)
    keys = jax.random.split(jax.random.key(3), len(state.trained))
    trained = {
        name: value + 0.05 * jax.random.normal(key, value.shape)
        for (name, value), key in zip(state.trained.items(), keys, strict=True)
    }
    batch = {name: jnp.asarray(array[0]) for name, array in data.source.batch(0).items()}
    adapted = build_loss_fn(lora)(trained, frozen, batch, jax.random.key(0))
    full, _ = inputs_of(pairs)
    kept = {f"{REFERENCE}{name}": value for name, value in frozen.items()}
    merged = lora.model.merged(combine(trained, frozen))
    expected = build_loss_fn(full)(merged, kept, batch, jax.random.key(0))
    assert float(adapted.loss) == pytest.approx(float(expected.loss), rel=EXACT)
    assert float(adapted.loss) != pytest.approx(2 * np.log(2), rel=1e-3)
    for name, value in expected.named.items():
        assert float(adapted.named[name]) == pytest.approx(float(value), rel=1e-4, abs=1e-6)


@pytest.mark.slow
def test_microbatches_and_devices_change_nothing(pairs: Config):
    found = []
    for size, accumulation, devices in ((4, 1, 1), (2, 2, 1), (2, 1, 2)):
        batch = {"microbatch_size": size, "accumulation_steps": accumulation}
        task, data = inputs_of(with_settings(pairs, batch=batch, mesh={"devices": devices}))
        [state], frozen = initial_state(task)
        step = train_program(task).compile().call
        for number in range(3):
            state, metrics = step(state, frozen, data.source.batch(number))
        found.append([float(metrics.loss), float(metrics.grad_norm), *map(float, metrics.named.values())])
        assert task.tokens_per_step == 4 * 48
    assert found[1] == pytest.approx(found[0], rel=1e-4)
    assert found[2] == pytest.approx(found[0], rel=1e-4)


@pytest.mark.parametrize(
    ("group", "changes", "what"),
    [
        ("batch", {"microbatch_size": 3}, "batch.microbatch_size is 3, and a pair is two sequences."),
        ("objective", {"kind": "supervised", "beta": 0.5}, "objective.beta is 0.5, which"),
        ("data", {"supervise": "all"}, 'data.supervise is "all", which objective.kind dpo does not use.'),
        ("data", {"packing": True}, "data.packing is true, but objective.kind dpo needs one example a sequence."),
    ],
)
def test_settings_without_effect_are_refused(group: str, changes: dict[str, Any], what: str, pairs: Config):
    config = with_settings(pairs, **{group: changes})
    assert any(problem.what.startswith(what) for problem in catch_problems(lambda: inputs_of(config)))

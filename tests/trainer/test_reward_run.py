"""A run that learns from rewards from end to end: it learns, is recorded, continued and repeated bit for bit."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from configs import changed
from model_folders import row_file
from refusals import catch_problems
from replays import replay_run
from tasks import inputs_of
from whole_runs import error_codes, manifest_of, refusal, rows

from evidence import layout
from trainer.config.tree import Config
from trainer.loop.programs import compiled_steps, train_program
from trainer.loop.rollouts import Rollouts, build_rollouts, distinct_numbers
from trainer.loop.state import initial_state
from trainer.objectives import find_contradictions
from trainer.replay.recorded import read_recorded
from trainer.replay.repetition import RecordedStates, Repetition

OF_THE_MACHINE = {"time", "clock_seconds", "step_seconds", "tokens_per_second", "rollout_seconds", "update_seconds"}
MODULE = """
def share_of_e(attempt):
    return attempt.text.count("e") / max(1, len(attempt.text))


def unlike(attempt):
    return float(attempt.text == attempt.row["completion"])


def broken(attempt):
    raise KeyError("answer")
"""


@pytest.fixture(autouse=True)
def _own_rewards(tmp_path, monkeypatch) -> None:
    (tmp_path / "own_rewards_of_tests.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))


@pytest.fixture
def rewarded(config, tmp_path) -> Config:
    """Four steps of four groups of four, whose reward rises with each `e`."""
    prompts = ({"prompt": f"What is {n}?", "completion": f"It is {n}."} for n in range(10))
    sizes = {"group_size": 4, "max_completion_tokens": 8, "mask_truncated": False}
    return changed(
        config,
        data={"dataset": row_file(tmp_path / "prompts.jsonl", *prompts), "max_length": 48},
        objective={"kind": "grpo", "rewards": "own_rewards_of_tests:share_of_e", **sizes},
        batch={"microbatch_size": 16},
        optimizer={"schedule": "constant"},
        recording={"chain_every_steps": 2},
        limits={"steps": 4},
    )


def exact(folder: Path) -> list[dict]:
    """Return the rows without what a machine decides."""
    return [{key: value for key, value in row.items() if key not in OF_THE_MACHINE} for row in rows(folder)]


def rewarding(config: Config, rewards: str, *, steps: int = 4, **settings: Any) -> Config:
    objective = {"rewards": f"own_rewards_of_tests:{rewards}", **settings}
    return changed(config, objective=objective, limits={"steps": steps})


def first_draw(config: Config) -> tuple[Rollouts, Any, Any, Any]:
    task, data = inputs_of(config)
    [state], frozen = initial_state(task)
    rollouts = build_rollouts(task, data)
    return rollouts, state, frozen, rollouts.draw(0, data.source.batch(0), state, frozen)


@pytest.mark.slow
@pytest.mark.parametrize(("method", "kl_beta"), [({}, 0.0), ({"kind": "lora", "rank": 2}, 0.1)], ids=["full", "lora"])
def test_it_resumes_and_replays_bit_for_bit(method, kl_beta, rewarded, train):
    settings = {"updates_per_rollout": 2, "kl_beta": kl_beta}
    config = changed(rewarded, method=method, objective=settings)
    whole, first = train(config, "whole"), train(changed(config, limits={"steps": 2}), "first")
    rest = train(config, "rest", resume=first)
    assert exact(first) + exact(rest) == exact(whole)
    assert rows(first, layout.ROLLOUTS) + rows(rest, layout.ROLLOUTS) == rows(whole, layout.ROLLOUTS)
    drawn_and_updated = [(True, True), (False, False)] * 2
    assert [("sampler_gap" in row, row["rollout_seconds"] > 0) for row in rows(whole)] == drawn_and_updated
    assert max(row.get("sampler_gap", 0) for row in rows(whole)) < 1e-4
    receipt, code, _ = replay_run(whole)
    assert ({each["verdict"] for each in receipt["covered"]["segments"]}, code) == ({"identical"}, 0)


@pytest.mark.slow
def test_other_draws_on_another_processor_are_not_judged(rewarded, finished):
    recorded, (task, data) = read_recorded(finished(rewarded)), inputs_of(rewarded)
    stated = recorded.rows | {3: recorded.rows[3] | {"loss": 0.5, "reward_mean": 0.25, "entropy": 1.0}}
    states = {step: each for step, each in recorded.states.items() if step < 4}
    forged = replace(recorded, rows=stated, states=states | {4: "ab" * 32}, params={})
    steps = compiled_steps(task, data.source.lengths_in_use)
    start = RecordedStates(run=forged, task=task)
    repetition = Repetition(states=start, data=data, steps=steps, is_exact=False)
    came = [each for segment in recorded.segments for each in repetition.repeat(segment)]
    assert [each.verdict for each in came] == ["identical", "not tried"]
    assert "other tokens are sampled" in came[1].difference


def test_it_learns_what_is_rewarded(rewarded, train):
    folder = train(changed(rewarded, limits={"steps": 30}))
    found = rows(folder)
    assert np.mean([row["reward_mean"] for row in found[:3]]) < 0.15
    assert np.mean([row["reward_mean"] for row in found[-3:]]) > 0.5
    assert found[-1]["entropy"] < found[0]["entropy"]
    # A roll-out that is missing is found, and a row without the gap between sampler and trainer.
    fewer = [row for row in rows(folder, layout.ROLLOUTS) if row["step"] != 4]
    del found[2]["sampler_gap"]
    for file, forged in ((layout.ROLLOUTS, fewer), (layout.METRICS, found)):
        whole = (folder / file).read_text()
        row_file(folder / file, *forged)
        assert "TP525" in error_codes(folder)
        (folder / file).write_text(whole)
    (folder / layout.ROLLOUTS).unlink()
    assert "TP525" in error_codes(folder)


@pytest.mark.slow
def test_microbatch_and_devices_change_no_draw(rewarded):
    def batch(config: Config) -> dict[str, np.ndarray]:
        return {name: array.reshape(-1, *array.shape[2:]) for name, array in first_draw(config)[-1].batch.items()}

    whole = batch(rewarded)
    for other in (
        {"batch": {"microbatch_size": 2, "accumulation_steps": 8}},
        {"batch": {"microbatch_size": 8}, "mesh": {"devices": 2}},
    ):
        found = batch(changed(rewarded, **other))
        for name, array in whole.items():
            np.testing.assert_allclose(found[name], array, atol=2e-5, err_msg=name)


def test_mask_and_advantages_of_a_group(rewarded):
    rollouts, _, _, drawn = first_draw(rewarding(rewarded, "share_of_e", mask_truncated=True))
    mask = drawn.batch["loss_mask"][0].sum(axis=1)
    for row, learned in zip(drawn.rows, mask, strict=True):
        assert (row["finish_reason"] == "stop") == (row["token_ids"][-1] == rollouts.programs.stop_token_id)
        assert learned == (len(row["token_ids"]) if row["is_used"] else 0)
        assert not (row["is_used"] and row["finish_reason"] == "length")
    for group in range(4):
        advantages = [row["advantage"] for row in drawn.rows if row["group"] == group]
        assert sum(advantages) == pytest.approx(0.0, abs=1e-9)
    assert drawn.figures["truncated_share"] > 0.5


@pytest.mark.slow
def test_each_sampling_setting_changes_the_draw(rewarded):
    def drawn(**settings: Any) -> tuple[list[float], list[list[int]]]:
        found = first_draw(rewarding(rewarded, "share_of_e", **settings))[-1].rows
        return [row["advantage"] for row in found], [row["token_ids"] for row in found]

    advantages, tokens = drawn()
    for settings in ({"scale_rewards": "none"}, {"temperature": 0.5}, {"top_k": 2}, {"top_p": 0.1}):
        other_advantages, other_tokens = drawn(**settings)
        assert other_advantages != advantages, settings
        assert (other_tokens == tokens) == ("scale_rewards" in settings), settings


@pytest.mark.slow
def test_each_loss_setting_changes_the_loss(rewarded):
    """Each setting changes the loss of the second update on the same completions; clipping where a ratio left 1."""
    fast = changed(rewarded, optimizer={"learning_rate": 0.05})

    def losses(**settings: Any) -> tuple[float, float]:
        rollouts, state, frozen, drawn = first_draw(rewarding(fast, "share_of_e", updates_per_rollout=2, **settings))
        update = train_program(rollouts.task).compile().call
        state, first = update(state, frozen, drawn.batch)
        _, second = update(state, frozen, drawn.batch)
        return float(first.loss), float(second.loss)

    others = [losses(loss_type=each) for each in ("grpo", "dr_grpo", "gspo", "cispo")]
    others += [losses(epsilon_low=0.01), losses(epsilon_high=0.01), losses(kl_beta=1.0)]
    assert len({losses(), *others}) == 8


@pytest.mark.slow
def test_groups_with_equal_rewards_teach_nothing_and_stop_the_run(rewarded, train):
    folder = train(rewarding(rewarded, "unlike", steps=30, stop_when_flat=True), ends_with=5)
    manifest = manifest_of(folder)
    assert manifest["training"]["steps_done"] == 20
    assert "equal rewards" in manifest["result"]["stopped_because"]
    assert {(row["flat_groups"], row["grad_norm"]) for row in rows(folder)} == {(1.0, 0.0)}
    assert not any(row["is_used"] for row in rows(folder, layout.ROLLOUTS))


def test_rewards_that_raise_end_a_run_with_the_prompt(rewarded, order_of):
    _, text = refusal(order_of(rewarding(rewarded, "broken")))
    first, second = [line for line in text.splitlines() if line.startswith("error ")][:2]
    assert first.startswith("error TP926: ")
    assert "What is" in second


def test_a_row_that_is_twice_in_a_step_draws_twice():
    assert distinct_numbers([4, 1, 4, 4], 10) == [4, 1, 14, 24]


@pytest.mark.parametrize(
    ("settings", "code"),
    [
        ({"objective": {"rewards": None}}, "TP915"),
        ({"objective": {"rewards": "exact +"}}, "TP909"),
        ({"objective": {"group_size": 3}}, "TP913"),
        ({"objective": {"updates_per_rollout": 3}}, "TP914"),
        ({"objective": {"beta": 0.3}}, "TP078"),
        ({"objective": {"kind": "supervised"}}, "TP078"),
        ({"memory": {"layers": "scanned"}}, "TP078"),
        ({"data": {"kind": "text"}}, "TP078"),
        ({"data": {"packing": True}}, "TP079"),
    ],
)
def test_contradicting_settings_are_refused(settings, code, rewarded):
    assert code in {problem.code for problem in find_contradictions(changed(rewarded, **settings))}


def test_a_prompt_without_room_is_named_with_its_line(rewarded):
    config = changed(rewarded, objective={"max_completion_tokens": 47})
    first = catch_problems(lambda: inputs_of(config))[0]
    assert (first.code, first.line) == ("TP911", 1)
    assert "leaves room for 1." in first.what

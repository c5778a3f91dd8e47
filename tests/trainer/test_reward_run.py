"""A run that learns from rewards from end to end: it learns, is recorded, continued and repeated bit for bit."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tasks import inputs_of, plan_of

from evidence import layout
from evidence.grade import check_run
from evidence.run import read_run
from schemas.problems import ProblemError
from trainer.config.tree import (
    BatchConfig,
    Config,
    DataConfig,
    EvaluationConfig,
    LimitsConfig,
    MeshConfig,
    MethodConfig,
    ObjectiveConfig,
    RecordingConfig,
)
from trainer.loop.programs import compiled_steps, train_program
from trainer.loop.rollouts import MAX_FAILED, Rollouts, build_rollouts, draw_numbers
from trainer.loop.state import initial_state
from trainer.objectives.settings import find_contradictions
from trainer.recorder.progress import Watch
from trainer.replay.recorded import ReplayRequest, read_recorded
from trainer.replay.repetition import RecordedStates, Repetition
from trainer.replay.replay import replay
from trainer.run import RunRequest, run
from trainproof.orders.headroom import headroom_findings

QUIET = Watch(quiet=True)
OF_THE_MACHINE = {"time", "clock_seconds", "step_seconds", "tokens_per_second", "rollout_seconds", "update_seconds"}
MODULE = """
def share_of_e(attempt):
    return attempt.text.count("e") / max(1, len(attempt.text))


def unlike(attempt):
    return float(attempt.text == attempt.row["completion"])


def starts_low(attempt):
    return float(attempt.text[:1] < "M")


def anything(attempt):
    return 1


def broken(attempt):
    raise KeyError("answer")
"""


@pytest.fixture(autouse=True)
def _own_rewards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own_rewards_of_tests.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))


@pytest.fixture
def rewarded(config: Config, tmp_path: Path) -> Config:
    """Four steps of four groups of four, whose reward rises with each `e`."""
    path = tmp_path / "prompts.jsonl"
    path.write_text(
        "".join(json.dumps({"prompt": f"What is {n}?", "completion": f"It is {n}."}) + "\n" for n in range(10))
    )
    return replace(
        config,
        data=DataConfig(dataset=str(path), max_length=48),
        objective=ObjectiveConfig(
            kind="grpo",
            rewards="own_rewards_of_tests:share_of_e",
            group_size=4,
            max_completion_tokens=8,
            mask_truncated=False,
        ),
        batch=BatchConfig(microbatch_size=16),
        optimizer=replace(config.optimizer, schedule="constant"),
        recording=RecordingConfig(log_every_steps=1, chain_every_steps=2),
        evaluation=EvaluationConfig(),
        limits=LimitsConfig(steps=4),
    )


def rows(folder: Path, file: str = layout.METRICS) -> list[dict]:
    return [json.loads(line) for line in (folder / file).read_text().splitlines()]


def exact(folder: Path) -> list[dict]:
    """Return the rows without what a machine decides."""
    return [{key: value for key, value in row.items() if key not in OF_THE_MACHINE} for row in rows(folder)]


def manifest_of(folder: Path) -> dict:
    return json.loads((folder / layout.MANIFEST).read_text())


def errors(folder: Path) -> set[str]:
    return {problem.code for problem in check_run(read_run(folder)).findings if problem.severity == "error"}


def drawer(config: Config) -> tuple[Rollouts, object, object, object]:
    """Return what draws, the source, the first state and what is frozen."""
    task, data = inputs_of(config)
    [state], frozen = initial_state(task)
    rollouts = build_rollouts(task, data)
    assert rollouts is not None
    return rollouts, data.source, state, frozen


@pytest.mark.slow
@pytest.mark.parametrize("method", [MethodConfig(), MethodConfig(kind="lora", rank=2)], ids=["full", "lora"])
def test_it_is_continued_and_repeated_bit_for_bit(
    method: MethodConfig, rewarded: Config, order_of: Callable[..., RunRequest]
):
    settings = replace(rewarded.objective, updates_per_rollout=2, kl_beta=0.1 if method.kind == "lora" else 0.0)
    config = replace(rewarded, method=method, objective=settings)
    whole, first = order_of(config, "whole"), order_of(replace(config, limits=LimitsConfig(steps=2)), "first")
    rest = order_of(config, "rest", resume=first.folder)
    assert [run(order, QUIET) for order in (whole, first, rest)] == [0, 0, 0]
    assert [errors(order.folder) for order in (whole, first, rest)] == [set(), set(), set()]
    assert exact(first.folder) + exact(rest.folder) == exact(whole.folder)
    drawn = [rows(order.folder, layout.ROLLOUTS) for order in (whole, first, rest)]
    assert drawn[1] + drawn[2] == drawn[0]
    assert [("sampler_gap" in row, row["rollout_seconds"] > 0) for row in rows(whole.folder)] == [
        (True, True),
        (False, False),
    ] * 2
    assert max(row.get("sampler_gap", 0) for row in rows(whole.folder)) < 1e-4
    receipt, code = replay(ReplayRequest(folder=whole.folder), lambda _: None, lambda _: None)
    assert ({each["verdict"] for each in receipt["covered"]["segments"]}, code) == ({"identical"}, 0)


@pytest.mark.slow
def test_on_another_processor_other_draws_are_not_judged(rewarded: Config, order_of: Callable[..., RunRequest]):
    order = order_of(rewarded)
    assert run(order, QUIET) == 0
    recorded, (task, data) = read_recorded(order.folder), inputs_of(rewarded)
    steps = compiled_steps(task, data.source.lengths_in_use)
    drawn_otherwise = {"loss": 0.5, "reward_mean": 0.25, "entropy": 1.0}
    for changed, is_exact, verdicts in (
        (drawn_otherwise, False, ["identical", "not tried"]),
        (drawn_otherwise, True, ["identical", "different"]),
    ):
        stated = recorded.rows | {3: recorded.rows[3] | changed}
        states = {step: each for step, each in recorded.states.items() if step < 4}
        forged = replace(recorded, rows=stated, states=states | {4: "ab" * 32}, params={})
        start = RecordedStates(run=forged, task=task)
        repetition = Repetition(states=start, data=data, steps=steps, is_exact=is_exact)
        came = [each for segment in recorded.segments for each in repetition.repeat(segment)]
        assert [each.verdict for each in came] == verdicts
        assert ("other tokens are sampled" in came[1].difference) == ("not tried" in verdicts)


@pytest.mark.slow
def test_what_there_is_to_gain_is_measured_once_and_changes_nothing(
    rewarded: Config, order_of: Callable[..., RunRequest], tmp_path: Path
):
    settings = replace(rewarded.objective, rewards="own_rewards_of_tests:starts_low", headroom_items=6)
    config = replace(rewarded, objective=settings, limits=LimitsConfig(steps=2))
    without = replace(config, objective=replace(settings, headroom_items=0))
    whole, plain, rest = (
        order_of(config, "whole"),
        order_of(without, "plain"),
        order_of(replace(config, limits=LimitsConfig(steps=3)), "rest", resume=tmp_path / "whole"),
    )
    # Four groups are a roll-out, so the six prompts are two, of which the second is filled up.
    assert headroom_findings(config, plan_of(config), tmp_path)[0].what.endswith("as long as 2 roll-outs.")
    assert [run(order, QUIET) for order in (whole, plain, rest)] == [0, 0, 0]
    assert (exact(whole.folder), rows(whole.folder, layout.ROLLOUTS)) == (
        exact(plain.folder),
        rows(plain.folder, layout.ROLLOUTS),
    )
    found, *others = ((manifest_of(order.folder)["result"].get("headroom")) for order in (whole, plain, rest))
    assert others == [None, None]
    assert [errors(order.folder) for order in (whole, plain, rest)] == [set(), set(), set()]
    assert (found["samples"], len(found["right"])) == (4, 6)
    assert found["pass_1"] == pytest.approx(sum(found["right"]) / 24)
    assert found["pass_k"] == pytest.approx(sum(count > 0 for count in found["right"]) / 6)
    assert 0 < found["pass_1"] < found["pass_k"]
    [known] = headroom_findings(config, plan_of(config), tmp_path)
    assert f"pass@1 is {found['pass_1']:.3f}" in known.what
    assert known.what.endswith("measured by the run whole.")
    for change in ({"pass_k": 0.99}, {"right": [5] * 6}, None):
        document = manifest_of(whole.folder)
        document["result"].pop("headroom")
        document["result"] |= {} if change is None else {"headroom": found | change}
        (whole.folder / layout.MANIFEST).write_text(json.dumps(document))
        assert ("TP306" if change else "TP525") in errors(whole.folder)


@pytest.mark.slow
def test_a_start_with_nothing_to_reinforce_or_to_gain_says_so(rewarded: Config, order_of: Callable[..., RunRequest]):
    for rewards, code in (("unlike", "TP927"), ("anything", "TP928"), ("share_of_e", None)):
        settings = replace(rewarded.objective, rewards=f"own_rewards_of_tests:{rewards}", headroom_items=4)
        order = order_of(replace(rewarded, objective=settings, limits=LimitsConfig(steps=1)), rewards)
        assert run(order, QUIET) == 0
        said = [row["fields"]["code"] for row in rows(order.folder, layout.LOG) if row["event"] == "no_headroom"]
        assert said == ([code] if code else [])


def test_it_learns_what_is_rewarded(rewarded: Config, order_of: Callable[..., RunRequest]):
    order = order_of(replace(rewarded, limits=LimitsConfig(steps=30)))
    assert run(order, QUIET) == 0
    means = [row["reward_mean"] for row in rows(order.folder)]
    assert np.mean(means[:3]) < 0.15
    assert np.mean(means[-3:]) > 0.5
    entropies = [row["entropy"] for row in rows(order.folder)]
    assert entropies[-1] < entropies[0]
    assert "TP525" not in errors(order.folder)
    missed = {layout.ROLLOUTS: lambda kept: [row for row in kept if row["step"] != 4], layout.METRICS: without_gap}
    for file, change in missed.items():
        whole = (order.folder / file).read_text()
        (order.folder / file).write_text("".join(json.dumps(row) + "\n" for row in change(rows(order.folder, file))))
        assert "TP525" in errors(order.folder)
        (order.folder / file).write_text(whole)
    (order.folder / layout.ROLLOUTS).unlink()
    assert "TP525" in errors(order.folder)


def without_gap(kept: list[dict]) -> list[dict]:
    """Return rows of which the third does not state how far sampler and trainer lie apart."""
    kept[2].pop("sampler_gap")
    return kept


@pytest.mark.slow
def test_the_microbatch_and_the_devices_change_nothing(rewarded: Config):
    def batch(config: Config) -> dict[str, np.ndarray]:
        rollouts, source, state, frozen = drawer(config)
        drawn = rollouts.draw(0, source.batch(0), state, frozen).batch
        return {name: array.reshape(-1, *array.shape[2:]) for name, array in drawn.items()}

    whole = batch(rewarded)
    for other in (
        replace(rewarded, batch=BatchConfig(microbatch_size=2, accumulation_steps=8)),
        replace(rewarded, batch=BatchConfig(microbatch_size=8), mesh=MeshConfig(device="cpu", devices=2)),
    ):
        found = batch(other)
        for name, array in whole.items():
            np.testing.assert_allclose(found[name], array, atol=2e-5, err_msg=name)


def test_what_is_masked_and_what_counts_in_a_group(rewarded: Config):
    settings = replace(rewarded.objective, mask_truncated=True)
    rollouts, source, state, frozen = drawer(replace(rewarded, objective=settings))
    drawn = rollouts.draw(0, source.batch(0), state, frozen)
    mask = drawn.batch["loss_mask"][0].sum(axis=1)
    for row, learned in zip(drawn.rows, mask, strict=True):
        assert (row["finish_reason"] == "stop") == (row["token_ids"][-1] == rollouts.programs.stop_token_id)
        assert learned == (len(row["token_ids"]) if row["is_used"] else 0)
        assert not (row["is_used"] and row["finish_reason"] == "length")
    for group in range(4):
        members = [row for row in drawn.rows if row["group"] == group]
        assert sum(row["advantage"] for row in members) == pytest.approx(0.0, abs=1e-9)
    assert drawn.figures["truncated_share"] > 0.5


@pytest.mark.slow
@pytest.mark.parametrize(
    "settings", [{"scale_rewards": "none"}, {"temperature": 0.5}, {"top_k": 2}, {"top_p": 0.1}], ids=str
)
def test_what_a_draw_is_made_of(settings: dict, rewarded: Config):
    def drawn(config: Config) -> tuple[list[float], list[list[int]]]:
        rollouts, source, state, frozen = drawer(config)
        found = rollouts.draw(0, source.batch(0), state, frozen).rows
        return [row["advantage"] for row in found], [row["token_ids"] for row in found]

    plain, other = drawn(rewarded), drawn(replace(rewarded, objective=replace(rewarded.objective, **settings)))
    assert plain[0] != other[0]
    assert (plain[1] == other[1]) == ("scale_rewards" in settings)


@pytest.mark.slow
def test_what_a_loss_is_made_of(rewarded: Config):
    """Each setting changes the loss of the second update on the same completions; clipping where a ratio left 1."""

    def losses(**settings: object) -> tuple[float, float]:
        objective = replace(rewarded.objective, updates_per_rollout=2, **settings)
        optimizer = replace(rewarded.optimizer, learning_rate=0.05)
        config = replace(rewarded, objective=objective, optimizer=optimizer)
        rollouts, source, state, frozen = drawer(config)
        batch = rollouts.draw(0, source.batch(0), state, frozen).batch
        update = train_program(rollouts.task).compile().call
        state, first = update(state, frozen, batch)
        _, second = update(state, frozen, batch)
        return float(first.loss), float(second.loss)

    plain = losses()
    others = [losses(loss_type=each) for each in ("grpo", "dr_grpo", "gspo", "cispo")]
    others += [losses(epsilon_low=0.01), losses(epsilon_high=0.01), losses(kl_beta=1.0)]
    assert len({plain, *others}) == 8


@pytest.mark.slow
def test_groups_without_spread_are_left_out_and_stop_a_run_that_is_to_stop(
    rewarded: Config, order_of: Callable[..., RunRequest]
):
    settings = replace(rewarded.objective, rewards="own_rewards_of_tests:unlike", stop_when_flat=True)
    order = order_of(replace(rewarded, objective=settings, limits=LimitsConfig(steps=30)))
    assert run(order, QUIET) == 5
    manifest = json.loads((order.folder / layout.MANIFEST).read_text())
    assert manifest["training"]["steps_done"] == 20
    assert "equal rewards" in manifest["result"]["stopped_because"]
    assert {row["flat_groups"] for row in rows(order.folder)} == {1.0}
    assert {row["grad_norm"] for row in rows(order.folder)} == {0.0}
    assert not any(row["is_used"] for row in rows(order.folder, layout.ROLLOUTS))


def test_rewards_that_raise_end_a_run_with_the_prompt(rewarded: Config, order_of: Callable[..., RunRequest]):
    settings = replace(rewarded.objective, rewards="own_rewards_of_tests:broken")
    order = order_of(replace(rewarded, objective=settings))
    with pytest.raises(ProblemError) as caught:
        run(order, QUIET)
    assert caught.value.problems[0].code == "TP926"
    assert "What is" in caught.value.problems[1].what
    assert 0 < MAX_FAILED < 1


def test_a_row_that_stands_twice_in_a_step_draws_twice():
    assert draw_numbers([4, 1, 4, 4], 10) == [4, 1, 14, 24]


@pytest.mark.parametrize(
    ("changed", "code"),
    [
        ({"objective": {"rewards": None}}, "TP915"),
        ({"objective": {"rewards": "exact +"}}, "TP909"),
        ({"objective": {"group_size": 3}}, "TP913"),
        ({"objective": {"updates_per_rollout": 3}}, "TP914"),
        ({"objective": {"beta": 0.3}}, "TP078"),
        ({"memory": {"layers": "scanned"}}, "TP078"),
        ({"data": {"kind": "text"}}, "TP078"),
        ({"data": {"packing": True}}, "TP079"),
    ],
)
def test_settings_that_cannot_be_meant(changed: dict, code: str, rewarded: Config):
    [(group, settings)] = changed.items()
    config = replace(rewarded, **{group: replace(getattr(rewarded, group), **settings)})
    assert code in {problem.code for problem in find_contradictions(config)}


def test_a_prompt_without_room_is_named_with_its_line(rewarded: Config):
    settings = replace(rewarded.objective, max_completion_tokens=47)
    with pytest.raises(ProblemError) as caught:
        inputs_of(replace(rewarded, objective=settings))
    first = caught.value.problems[0]
    assert (first.code, first.line) == ("TP911", 1)
    assert "leaves room for 1." in first.what


def test_a_plain_configuration_is_not_told_of_rewards(config: Config):
    stray = replace(config, objective=replace(config.objective, rewards="exact"))
    assert [problem.code for problem in find_contradictions(stray)] == ["TP078"]

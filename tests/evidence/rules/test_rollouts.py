"""Check the roll-outs of honest, forged and collapsed synthetic GRPO runs."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from rewarded import ROWS, solve_every_other, write_rewarded_run
from synthetic import seal, write_rows

from evidence import layout
from evidence.grade import check_run
from evidence.rewards import logged_rollout_steps
from evidence.rules.scores import SAMPLER_GAPS
from evidence.run import read_run
from schemas.problems import Problem

NOT_EVALUATED = "TP509"


def findings(folder: Path) -> list[Problem]:
    return [problem for problem in check_run(read_run(folder)).findings if problem.code != NOT_EVALUATED]


def messages(folder: Path) -> list[tuple[str, str]]:
    return [(problem.code, problem.what) for problem in findings(folder)]


@pytest.fixture(scope="module")
def honest_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_rewarded_run(tmp_path_factory.mktemp("runs"))


@pytest.fixture
def forge(honest_run: Path, tmp_path: Path) -> Callable[..., Path]:
    """Return a function that changes the rows of a copy of the honest run and makes all hashes fit."""

    def change(act: Callable[[list[dict]], object], name: str = layout.ROLLOUTS) -> Path:
        folder = tmp_path / "run"
        shutil.copytree(honest_run, folder)
        rows = [json.loads(line) for line in (folder / name).read_text("utf-8").splitlines()]
        act(rows)
        write_rows(folder / name, rows)
        seal(folder)
        return folder

    return change


def test_honest_run_has_no_findings(honest_run: Path):
    assert findings(honest_run) == []


@pytest.mark.parametrize(
    ("rewards", "length", "total"),
    [
        ("countdown + 0.5*length(most=10, margin=0)", 10, lambda parts: parts["countdown"] + 0.5 * parts["length"]),
        ("-1*countdown + 2*length(most=4)", 4, lambda parts: 2 * parts["length"] - parts["countdown"]),
    ],
)
def test_weighted_rewards(tmp_path: Path, rewards, length, total):
    def worth(text, value):
        return {"countdown": value, "length": float(len(text) <= length)}

    folder = write_rewarded_run(tmp_path, worth=worth, total=total, rewards=rewards)
    assert [code for code, _ in messages(folder) if code != "TP450"] == []


@pytest.mark.parametrize("mask_truncated", [True, False])
def test_truncated_completions_are_used_unless_masked(tmp_path: Path, mask_truncated: bool):
    def write(step, group, sample, row):
        text, value, _ = solve_every_other(step, group, sample, row)
        return text, value, sample != 3

    objective = {"mask_truncated": mask_truncated}
    assert findings(write_rewarded_run(tmp_path, write=write, objective=objective)) == []


def set_first_wrong(**values: object) -> Callable[[list[dict]], None]:
    return lambda rows: next(row for row in rows if row["reward"] == 0).update(values)


def set_first(**values: object) -> Callable[[list[dict]], None]:
    return lambda rows: rows[0].update(values)


def ask_another_prompt(rows: list[dict]) -> None:
    for row in rows[:4]:
        row["prompt"] = ROWS[-1]["prompt"]


def remove_flat_group(rows: list[dict]) -> None:
    flat = next(row for row in rows if row["advantage"] == 0)
    rows[:] = [row for row in rows if (row["step"], row["group"]) != (flat["step"], flat["group"])]


def use_flat_group(rows: list[dict]) -> None:
    next(row for row in rows if not row["is_used"])["is_used"] = True


@pytest.mark.parametrize(
    ("act", "code", "what"),
    [
        (set_first_wrong(rewards={"countdown": 1.0}), "TP391", 'the completion "1+0+0" gives 0.0.'),
        (set_first_wrong(reward=1.0), "TP391", "reward is 1.0; the sum of its parts gives 0.0."),
        (set_first(completion="1+1"), "TP391", 'the completion "1+1" gives 0.0.'),
        (set_first(rewards={"exact": 1.0}), "TP391", "rewards has exact; config.yaml has countdown."),
        (set_first(advantage=0.5), "TP392", "advantage is 0.5; its group gives 0.86587"),
        (use_flat_group, "TP392", "is_used is true; its group gives false."),
        (set_first(rewards={"countdown": None}, reward=None), "TP392", "without a reward is learned from."),
        (ask_another_prompt, "TP393", "row 0 of the dataset gives"),
        (lambda rows: rows.pop(1), "TP393", "Step 1 has 31 completions, which are not complete groups of 4."),
        (remove_flat_group, "TP393", "Step 1 has 28 completions"),
        (lambda rows: rows.insert(0, dict(rows[0])), "TP393", "Step 1 has 33 completions"),
        (set_first(token_ids=[1] * 17), "TP393", "17 tokens ended by stop, but max_completion_tokens is 16."),
        (set_first(token_ids=[1] * 3, finish_reason="length"), "TP393", "3 tokens ended by length"),
    ],
)
def test_forged_rollouts(forge, act, code, what):
    folder = forge(act)
    assert any(found == code and what in text for found, text in messages(folder)), messages(folder)
    assert check_run(read_run(folder)).grade.name == "contradictory"


@pytest.mark.parametrize(
    ("steps", "updates", "written"),
    [(8, 2, [1, 3, 5, 7]), (100, 1, [*range(1, 100, 5), 100]), (39, 1, list(range(1, 40))), (1, 1, [1])],
)
def test_steps_whose_completions_are_written(steps: int, updates: int, written: list[int]):
    assert list(logged_rollout_steps(steps, updates)) == written


def test_forged_mean_in_the_metrics(forge):
    [problem] = findings(forge(lambda rows: rows[4].update(reward_mean=0.9), layout.METRICS))
    assert (problem.code, problem.line, problem.pointer) == ("TP393", 5, "/reward_mean")
    assert problem.what == "reward_mean is 0.9; step 5 of rollouts.jsonl gives 0.4375."


@pytest.mark.parametrize("factor", [0.9, 1.1])
@pytest.mark.parametrize("compute", SAMPLER_GAPS)
def test_sampler_with_other_weights(tmp_path: Path, compute: str, factor: float):
    gap = factor * SAMPLER_GAPS[compute]
    folder = write_rewarded_run(
        tmp_path,
        figures=lambda step: {"sampler_gap": gap if step in (3, 5) else 1e-7},
        manifest={"model": {"dtypes": {"compute": compute}}},
        config={"precision": {"compute": compute}},
    )
    found = [(problem.line, problem.what) for problem in findings(folder) if problem.code == "TP394"]
    what = f"sampler_gap is {gap:.3g} nats; the limit for {compute} is {SAMPLER_GAPS[compute]:g}."
    assert found == ([(3, f"{what} 1 more row is wrong.")] if factor > 1 else [])


def test_sampler_gaps_are_six_times_what_was_measured_with_the_same_weights():
    measured = json.loads(Path("benchmarks/results/sampler_gap.json").read_text())["types"]
    assert measured.keys() == SAMPLER_GAPS.keys()
    for compute, limit in SAMPLER_GAPS.items():
        assert (measured[compute]["limit"], limit >= 6 * measured[compute]["same_largest"]) == (limit, True)
    assert measured["float32"]["quantised"]["found"] == measured["float32"]["cases"]


def test_user_code_is_noted_and_not_executed(tmp_path: Path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "own_effect.py").write_text(f"open({str(tmp_path / 'executed')!r}, 'w').close()\n")
    folder = write_rewarded_run(
        tmp_path,
        rewards="countdown + own_effect:score",
        worth=lambda text, value: {"countdown": value, "own_effect:score": float(len(text) % 2)},
        total=lambda parts: parts["countdown"] + parts["own_effect:score"],
    )
    what = "Not computed again: own_effect:score (user code). Sums and advantages were."
    assert [(each.code, each.severity, each.what) for each in findings(folder)] == [("TP395", "note", what)]
    assert not (tmp_path / "executed").exists()


def test_without_the_dataset_sums_and_advantages_are_computed(tmp_path: Path):
    dataset = {"name": "gone.jsonl", "rows": 4800, "sha256": "ab" * 32, "duplicates": 0, "split": "all"}
    config = {"data": {"dataset": "gone.jsonl"}}
    [note] = findings(write_rewarded_run(tmp_path, config=config, manifest={"dataset": dataset}))
    assert (note.code, note.severity) == ("TP395", "note")
    assert "countdown (dataset row not available)" in note.what


def test_last_step_of_a_stopped_run_may_be_incomplete(tmp_path: Path):
    folder = write_rewarded_run(tmp_path, steps=6, status="running")
    path = folder / layout.ROLLOUTS
    lines = path.read_text("utf-8").splitlines(keepends=True)
    path.write_text("".join(lines[:-3]), "utf-8")
    assert [code for code, _ in messages(folder) if code.startswith("TP39")] == []
    path.write_text("".join(lines[:-40] + lines[-35:]), "utf-8")
    assert "TP393" in dict(messages(folder))


def test_collapse_to_one_text(tmp_path: Path):
    def write(step, group, sample, row):
        return "!!", 0.0, True

    found = dict(messages(write_rewarded_run(tmp_path, write=write)))
    assert found["TP448"] == '96 of the last 96 completions, for 24 prompts, are "!!".'
    assert found["TP450"] == "countdown is 0.0 for all 288 completions."
    few_prompts = write_rewarded_run(tmp_path, "few", groups=2, write=write)
    assert "TP448" not in dict(messages(few_prompts))


def test_constant_reward(tmp_path: Path):
    folder = write_rewarded_run(
        tmp_path,
        rewards="countdown + 0.5*length(most=60)",
        worth=lambda text, value: {"countdown": value, "length": 1.0},
        total=lambda parts: parts["countdown"] + 0.5 * parts["length"],
    )
    assert messages(folder) == [("TP450", "length is 1.0 for all 288 completions.")]
    assert check_run(read_run(folder)).grade.name == "measured"

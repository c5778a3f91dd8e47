"""Roll-outs of synthetic runs that learned from rewards: true ones say nothing, each forged or fooled one is named."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from rewarded import ROWS, in_turn, write_rewarded_run
from synthetic import seal, write_rows

from evidence.judge.judgement import check_run, report_of
from evidence.records.ours import read_run
from evidence.rewards.written import written_steps
from evidence.rules.contradiction.rollouts import SAMPLER_GAPS
from evidence.rules.rewarding import difference
from evidence.run import layout
from evidence.run.hashes import sha256_file
from schemas.problems import Problem

NOT_EVALUATED = "TP509"


def findings(folder: Path) -> list[Problem]:
    return [problem for problem in check_run(read_run(folder)) if problem.code != NOT_EVALUATED]


def said(folder: Path) -> list[tuple[str, str]]:
    return [(problem.code, problem.what) for problem in findings(folder)]


@pytest.fixture(scope="module")
def true_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_rewarded_run(tmp_path_factory.mktemp("runs"))


@pytest.fixture
def forged(true_run: Path, tmp_path: Path) -> Callable[..., Path]:
    """Return what changes a true run's roll-outs, makes all hashes fit and returns the folder."""

    def change(act: Callable[[list[dict]], object], name: str = layout.ROLLOUTS) -> Path:
        folder = tmp_path / "run"
        shutil.copytree(true_run, folder)
        rows = [json.loads(line) for line in (folder / name).read_text("utf-8").splitlines()]
        act(rows)
        write_rows(folder / name, rows)
        seal(folder)
        return folder

    return change


def test_a_true_run_has_no_findings(true_run: Path):
    assert findings(true_run) == []


@pytest.mark.parametrize(
    ("settings", "worth", "total"),
    [
        (
            {"rewards": "countdown + 0.5*length(most=10, margin=0)"},
            lambda text, value: {"countdown": value, "length": float(len(text) <= 10)},
            lambda parts: parts["countdown"] + 0.5 * parts["length"],
        ),
        (
            {"rewards": "-1*countdown + 2*length(most=4)"},
            lambda text, value: {"countdown": value, "length": float(len(text) <= 4)},
            lambda parts: 2 * parts["length"] - parts["countdown"],
        ),
    ],
)
def test_weights_are_followed(tmp_path: Path, settings, worth, total):
    folder = write_rewarded_run(tmp_path, worth=worth, total=total, **settings)
    assert [code for code, _ in said(folder) if code != "TP450"] == []


def test_of_a_cut_completion_only_the_mask_decides_whether_it_is_used(tmp_path: Path):
    def write(step, group, sample, row):
        text, value, _ = in_turn(step, group, sample, row)
        return text, value, sample != 3

    for masks in (True, False):
        folder = write_rewarded_run(tmp_path, f"run{masks}", write=write, objective={"mask_truncated": masks})
        assert findings(folder) == []


def wrong_of(rows: list[dict]) -> dict:
    return next(row for row in rows if row["reward"] == 0)


def raise_reward(rows: list[dict]) -> None:
    wrong_of(rows)["rewards"]["countdown"] = 1.0


def raise_total(rows: list[dict]) -> None:
    wrong_of(rows)["reward"] = 1.0


def write_another_text(rows: list[dict]) -> None:
    rows[0]["completion"] = "1+1"


def scale_otherwise(rows: list[dict]) -> None:
    rows[0]["advantage"] /= 2


def learn_from_a_flat_group(rows: list[dict]) -> None:
    next(row for row in rows if not row["is_used"])["is_used"] = True


def ask_something_else(rows: list[dict]) -> None:
    for row in rows[:4]:
        row["prompt"] = ROWS[-1]["prompt"]


def leave_one_out(rows: list[dict]) -> None:
    del rows[1]


def leave_a_flat_group_out(rows: list[dict]) -> None:
    flat = next(row for row in rows if row["advantage"] == 0)
    rows[:] = [row for row in rows if (row["step"], row["group"]) != (flat["step"], flat["group"])]


def write_twice(rows: list[dict]) -> None:
    rows.insert(0, dict(rows[0]))


def state_too_many_tokens(rows: list[dict]) -> None:
    rows[0]["token_ids"] = list(range(17))


def end_too_early(rows: list[dict]) -> None:
    rows[2]["token_ids"] = [1, 2, 3]
    rows[2]["finish_reason"] = "length"


def name_another_reward(rows: list[dict]) -> None:
    rows[0]["rewards"] = {"exact": 1.0}


def learn_without_a_reward(rows: list[dict]) -> None:
    rows[0] |= {"rewards": {"countdown": None}, "reward": None}


@pytest.mark.parametrize(
    ("act", "code", "what"),
    [
        (raise_reward, "TP391", 'countdown is 1 for "1+0+0", which gives 0.'),
        (raise_total, "TP391", "reward is 1.0; its parts give 0.0."),
        (write_another_text, "TP391", 'countdown is 1 for "1+1", which gives 0.'),
        (name_another_reward, "TP391", "Rewards are stated for exact."),
        (scale_otherwise, "TP392", "advantage is 0.432938; the rewards of its group give 0.865875."),
        (learn_from_a_flat_group, "TP392", "is_used is true; group and finish_reason give false."),
        (learn_without_a_reward, "TP392", "A completion without a reward is learned from."),
        (ask_something_else, "TP393", "row 0 of the dataset has another."),
        (leave_one_out, "TP393", "Step 1 has 31 completions, not each of its groups of 4."),
        (leave_a_flat_group_out, "TP393", "Step 1 has 28 completions, not each of its groups of 4."),
        (write_twice, "TP393", "Step 1 has 33 completions, not each of its groups of 4."),
        (state_too_many_tokens, "TP393", "The completion has 17 tokens, ended by stop; the limit is 16."),
        (end_too_early, "TP393", "The completion has 3 tokens, ended by length; the limit is 16."),
    ],
)
def test_forged_roll_outs_are_found_out(forged, act, code, what):
    folder = forged(act)
    assert any(each == code and what in text for each, text in said(folder)), said(folder)
    assert report_of(read_run(folder)).grade.name == "contradictory"


@pytest.mark.parametrize(
    ("steps", "updates", "written"),
    [
        (8, 2, [1, 3, 5, 7]),
        (100, 1, [*range(1, 100, 5), 100]),
        (39, 1, list(range(1, 40))),
        (1, 1, [1]),
        (42, 1, [*range(1, 42, 2), 42]),
    ],
)
def test_the_steps_whose_completions_are_written(steps: int, updates: int, written: list[int]):
    assert list(written_steps(steps, updates)) == written


def test_a_better_mean_in_the_metrics_is_found_out(forged):
    def act(rows: list[dict]) -> None:
        rows[4]["reward_mean"] = 0.9

    [problem] = findings(forged(act, layout.METRICS))
    assert (problem.code, problem.line, problem.pointer) == ("TP393", 5, "/reward_mean")
    assert problem.what == "reward_mean of step 5 is 0.9; rollouts.jsonl gives 0.4375."


@pytest.mark.parametrize(
    ("compute", "gap", "is_found"),
    [
        ("float32", 0.9e-3, False),
        ("float32", 1.1e-3, True),
        ("bfloat16", 0.19, False),
        ("bfloat16", 0.21, True),
        ("float16", 0.029, False),
        ("float16", 0.031, True),
    ],
)
def test_a_sampler_that_had_other_weights(tmp_path: Path, compute, gap, is_found):
    folder = write_rewarded_run(
        tmp_path,
        figures=lambda step: {"sampler_gap": gap if step in (3, 5) else 1e-7},
        manifest={"model": {"dtypes": {"compute": compute}}},
        config={"precision": {"compute": compute}},
    )
    found = [problem for problem in findings(folder) if problem.code == "TP394"]
    assert len(found) == is_found
    if found:
        assert found[0].line == 3
        assert (
            found[0].what == f"sampler_gap is {gap:.3g} nats at step 3, and so at 1 more rows; computed in {compute}."
        )
        assert found[0].expected == f"at most {SAMPLER_GAPS[compute]:g}"
        assert report_of(read_run(folder)).grade.name == "contradictory"


def test_limits_are_six_times_what_was_measured_with_the_same_weights():
    measured = json.loads(Path("benchmarks/results/sampler_gap.json").read_text())["types"]
    assert measured.keys() == SAMPLER_GAPS.keys()
    for compute, limit in SAMPLER_GAPS.items():
        assert (measured[compute]["limit"], limit >= 6 * measured[compute]["same_largest"]) == (limit, True)
    assert measured["float32"]["quantised"]["found"] == measured["float32"]["cases"]


def test_what_is_not_computed_again_is_said_and_nothing_of_it_executed(tmp_path: Path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "own_effect.py").write_text(f"open({str(tmp_path / 'executed')!r}, 'w').close()\n")
    folder = write_rewarded_run(
        tmp_path,
        rewards="countdown + own_effect:score",
        worth=lambda text, value: {"countdown": value, "own_effect:score": float(len(text) % 2)},
        total=lambda parts: parts["countdown"] + parts["own_effect:score"],
    )
    assert said(folder) == [
        ("TP395", "Not computed again: own_effect:score (code of others). Sums and advantages were.")
    ]
    assert findings(folder)[0].severity == "note"
    assert not (tmp_path / "executed").exists()


def test_without_the_datasets_file_sums_and_advantages_still_are(tmp_path: Path):
    folder = write_rewarded_run(
        tmp_path,
        config={"data": {"dataset": "gone.jsonl"}},
        manifest={
            "dataset": {"name": "gone.jsonl", "rows": 2620, "sha256": "ab" * 32, "duplicates": 0, "split": "all"}
        },
    )
    [note] = findings(folder)
    assert (note.code, note.severity) == ("TP395", "note")
    assert "countdown (the row of a completion is not here)" in note.what


def test_the_last_step_of_a_stopped_run_may_be_cut(true_run: Path, tmp_path: Path):
    folder = write_rewarded_run(tmp_path, steps=6, status="running")
    path = folder / layout.ROLLOUTS
    lines = path.read_text("utf-8").splitlines(keepends=True)
    path.write_text("".join(lines[:-3]), "utf-8")
    assert [code for code, _ in said(folder) if code.startswith("TP39")] == []
    path.write_text("".join(lines[:-40] + lines[-35:]), "utf-8")
    assert [code for code, _ in said(folder) if code == "TP393"] != []


def test_a_reward_that_rises_while_right_answers_become_fewer(tmp_path: Path):
    # Dataset rows with gold answers: what exact gives is computed, whether or not it is a part.
    rows = [{"prompt": f"{n} + 1 = ", "completion": str(n + 1)} for n in range(200)]
    path = tmp_path / "sums.jsonl"
    write_rows(path, rows)
    folder = gold_run(tmp_path, path, rows, lambda step, n, s: str(n + 1) if step < 4 and s else "9" * (step + s % 2))
    found = [problem for problem in findings(folder) if problem.code == "TP447"]
    assert len(found) == 1
    assert "the share of right answers falls from 0.750 to 0.000" in found[0].what
    honest = gold_run(tmp_path, path, rows, lambda step, n, s: str(n + 1) if s < step / 3 else "0" * (1 + s % 2))
    assert [code for code, _ in said(honest) if code == "TP447"] == []


def gold_run(tmp_path: Path, path: Path, rows: list[dict], write: Callable[[int, int, int], str]) -> Path:
    """Write a run on sums whose reward is the length of the answer."""
    name = f"gold{len(list(tmp_path.iterdir()))}"
    return write_rewarded_run(
        tmp_path,
        name,
        rewards="length(least=20, most=60)",
        worth=lambda text, value: {"length": min(1.0, len(text) / 20)},
        total=lambda parts: parts["length"],
        config={"data": {"dataset": str(path)}},
        manifest={
            "dataset": {"name": path.name, "rows": 200, "sha256": sha256_file(path), "duplicates": 0, "split": "all"}
        },
        rows=rows,
        write=lambda step, group, sample, row: (write(step, int(row["prompt"].split()[0]), sample), 0.0, True),
    )


def test_the_same_text_for_every_prompt(tmp_path: Path):
    folder = write_rewarded_run(tmp_path, write=lambda step, group, sample, row: ("!!", 0.0, True))
    found = dict(said(folder))
    assert found["TP448"] == '96 of the last 96 completions, to 24 prompts, are "!!".'
    assert found["TP450"] == "countdown is 0.0 in all 288 completions."
    # A few prompts whose answers are alike are no collapse.
    few = write_rewarded_run(tmp_path, "few", groups=2, write=lambda step, group, sample, row: ("!!", 0.0, True))
    assert "TP448" not in dict(said(few))


def test_completions_that_run_away(tmp_path: Path):
    grows = {"figures": lambda step: {"completion_tokens_mean": 4.0 + step}}

    def cut_late(step, group, sample, row):
        text, value, _ = in_turn(step, group, sample, row)
        return text, value, step < 6 or sample == 0

    folder = write_rewarded_run(tmp_path, write=cut_late, **grows)
    found = dict(said(folder))
    assert found["TP449"] == (
        "Completions have 5.5 tokens in the first quarter of the rows and 12.5 in the last; 0% and 75% of them are cut."
    )
    assert "TP449" not in dict(said(write_rewarded_run(tmp_path, "grows", **grows)))


def test_a_part_that_is_always_the_same(tmp_path: Path):
    folder = write_rewarded_run(
        tmp_path,
        rewards="countdown + 0.5*length(most=60)",
        worth=lambda text, value: {"countdown": value, "length": 1.0},
        total=lambda parts: parts["countdown"] + 0.5 * parts["length"],
    )
    assert said(folder) == [("TP450", "length is 1.0 in all 288 completions.")]
    assert report_of(read_run(folder)).grade.name == "measured"


def test_differences_are_counted_in_standard_errors():
    assert difference([0, 1, 0, 1], [1, 2, 1, 2]) == pytest.approx(1 / (2 * (1 / 3) / 4) ** 0.5)
    assert difference([1, 1], [1, 1]) == 0

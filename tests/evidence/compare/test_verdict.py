"""What stands first of a comparison: better or not, what a person changed, and where nothing but the commit differs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from synthetic import write_run

from evidence.compare.comparison import compare_runs
from evidence.compare.verdict import PairVerdict, verdicts
from evidence.layout import MANIFEST
from evidence.run import read_run


def verdict(*folders: Path) -> PairVerdict:
    return verdicts(compare_runs([read_run(folder) for folder in folders]))[-1]


@pytest.mark.parametrize(
    ("first", "second", "word"),
    # All 40 right against none: McNemar's p is 2^-39. Twice the same answers: p is 1.
    [(0.0, 1.0, "better"), (1.0, 0.0, "worse"), (0.5, 0.5, "cannot tell")],
)
def test_a_difference_is_called_one_where_chance_is_no_likely_reason(
    tmp_path: Path, first: float, second: float, word: str
):
    one = write_run(tmp_path, "a", items=40, correct=first)
    assert verdict(one, write_run(tmp_path, "b", items=40, correct=second)).word == word


def test_one_pair_that_would_be_a_find_alone_is_none_among_many(tmp_path: Path):
    # 6 items fixed and none broken: p = 2 / 2^6 = 0.031 alone, 0.062 where Holm doubles it for two pairs.
    one = write_run(tmp_path, "a", items=6, correct=0.0)
    other = write_run(tmp_path, "b", items=6, correct=1.0)
    same = write_run(tmp_path, "c", items=6, correct=0.0)
    assert verdict(one, other).word == "better"
    assert verdict(one, same, other).word == "cannot tell"


def test_what_a_person_changed_is_apart_from_what_follows_from_it(tmp_path: Path):
    one = write_run(tmp_path, "a", config={"optimizer": {"learning_rate": 0.002}})
    found = verdict(one, write_run(tmp_path, "b", config={"optimizer": {"learning_rate": 0.004}}))
    assert [(setting.name, setting.values) for setting in found.changed] == [
        ("optimizer.learning_rate", (0.002, 0.004)),
    ]
    assert [setting.name for setting in found.derived] == ["training.schedule.final_learning_rate"]
    assert found.sameness == ""


def test_of_three_runs_each_is_held_against_the_first_alone(tmp_path: Path):
    rates = (0.001, 0.001, 0.004)
    runs = [
        write_run(tmp_path, name, config={"optimizer": {"learning_rate": rate}})
        for name, rate in zip("abc", rates, strict=True)
    ]
    found = verdicts(compare_runs([read_run(run) for run in runs]))
    assert [len(one.changed) for one in found] == [0, 1]


@pytest.mark.parametrize(
    ("manifest", "correct", "said"),
    [
        ({"code": {"commit": "b" * 40}}, 1.0, "Same settings, another commit, another result"),
        ({"code": {"commit": "b" * 40}}, 0.0, "Same settings, another commit, the same result"),
        ({}, 0.0, "Same settings, same code and device, the same result"),
        ({"devices": {"kind": "TPU v5e"}}, 1.0, "Same settings, another device, another result"),
    ],
)
def test_where_nobody_changed_a_setting_it_is_said_what_else_differs(
    tmp_path: Path, manifest: dict[str, object], correct: float, said: str
):
    one = write_run(tmp_path, "a", correct=0.0)
    assert verdict(one, write_run(tmp_path, "b", correct=correct, manifest=manifest)).sameness == said


def test_a_key_that_an_earlier_version_did_not_know_was_changed_by_nobody(tmp_path: Path):
    one, other = write_run(tmp_path, "a"), write_run(tmp_path, "b", config={"data": {"new_key": 3}})
    assert verdict(one, other).changed == ()


def test_loss_time_and_memory_are_given_as_far_as_both_state_them(tmp_path: Path):
    one, other = write_run(tmp_path, "a", seed=1), write_run(tmp_path, "b", seed=2)
    assert [first.name for first, _ in verdict(one, other).costs] == [
        "last loss", "training time", "peak memory of one device",
    ]  # fmt: skip
    manifest = json.loads((other / MANIFEST).read_text("utf-8"))
    manifest["result"]["last_loss"] += 1.0  # Forged, so that it is withheld.
    (other / MANIFEST).write_text(json.dumps(manifest), "utf-8")
    assert "last loss" not in [first.name for first, _ in verdict(one, other).costs]


def test_scores_under_a_manifest_that_is_cut_off_are_not_compared(tmp_path: Path):
    one, other = write_run(tmp_path, "a"), write_run(tmp_path, "b", seed=2)
    text = (other / MANIFEST).read_text("utf-8")
    (other / MANIFEST).write_text(text[: len(text) // 2], "utf-8")
    found = verdict(one, other)
    assert found.word == "not compared"
    assert found.pair.refused == (
        "b: no valid run_manifest.json says what answered; `trainproof check` names what is wrong with it.",
    )

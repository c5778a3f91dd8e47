"""Copies are found by what nobody measures twice; a training that was repeated is said, and accuses nobody."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from evidence.rules.across import Fingerprint, copies

RUN = Fingerprint(folder=Path("runs/a"), run_id="a", metrics="times", measured="seconds", state="end")
MOVED = replace(RUN, folder=Path("runs/b"), run_id="b", metrics="other times")


def found(*runs: Fingerprint) -> dict[str, list[tuple[str, str, str]]]:
    return {
        folder.name: [(one.code, one.severity, one.what) for one in problems]
        for folder, problems in copies(runs).items()
    }


def test_a_copy_under_another_name_and_other_times_is_found_by_the_seconds_of_its_steps() -> None:
    what = "Every row has the seconds and the loss of the same row in {}."
    assert found(RUN, MOVED) == {
        "a": [("TP421", "error", what.format("b"))],
        "b": [("TP421", "error", what.format("a"))],
    }


def test_the_same_end_is_a_training_repeated_or_copied() -> None:
    again = replace(MOVED, measured="other seconds")
    what = "The run ended in the same state as {}, bit for bit."
    assert found(RUN, again) == {
        "a": [("TP422", "warning", what.format("b"))],
        "b": [("TP422", "warning", what.format("a"))],
    }


def test_runs_that_share_nothing_have_no_finding_and_nothing_is_shared_by_what_is_not_stated() -> None:
    empty = Fingerprint(folder=Path("runs/c"), run_id=None, metrics=None)
    assert found(RUN, replace(MOVED, measured=None, state=None), empty, replace(empty, folder=Path("runs/d"))) == {}


def test_of_twelve_hundred_copies_a_few_are_named_and_the_others_counted() -> None:
    many = [replace(RUN, folder=Path(f"runs/{number:04}"), run_id=f"{number}") for number in range(1201)]
    what = "Every row has the time and the loss of the same row in 0000, 0001, 0002 and 1,197 more."
    assert found(*many)["1200"] == [("TP421", "error", what)]

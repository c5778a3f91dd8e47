"""Copies are found by what nobody measures twice; a training that was repeated is said, and accuses nobody."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from evidence.rules.across import Fingerprint, find_copies

RUN = Fingerprint(folder=Path("runs/a"), run_id="a", metrics="times", measured="seconds", state="end")
MOVED = replace(RUN, folder=Path("runs/b"), run_id="b", metrics="other times")


def found(*runs: Fingerprint) -> dict[str, list[tuple[str, str, str]]]:
    return {
        folder.name: [(one.code, one.severity, one.what) for one in problems]
        for folder, problems in find_copies(runs).items()
    }


def test_a_copy_under_another_name_and_other_times_is_found_by_the_seconds_of_its_steps() -> None:
    what = "Every row of {} has the seconds and the loss of the same row in {}."
    assert found(RUN, MOVED) == {
        "a": [("TP421", "error", what.format("a", "b"))],
        "b": [("TP421", "error", what.format("b", "a"))],
    }


def test_the_same_end_is_a_training_repeated_or_copied() -> None:
    again = replace(MOVED, measured="other seconds")
    what = "{} ended in the same state as {}, bit for bit."
    assert found(RUN, again) == {
        "a": [("TP422", "warning", what.format("a", "b"))],
        "b": [("TP422", "warning", what.format("b", "a"))],
    }


def test_runs_that_share_nothing_have_no_finding_and_nothing_is_shared_by_what_is_not_stated() -> None:
    empty = Fingerprint(folder=Path("runs/c"), run_id=None, metrics=None)
    assert found(RUN, replace(MOVED, measured=None, state=None), empty, replace(empty, folder=Path("runs/d"))) == {}


def test_of_twelve_hundred_copies_a_few_are_named_and_the_others_counted() -> None:
    many = [replace(RUN, folder=Path(f"runs/{number:04}"), run_id=f"{number}") for number in range(1201)]
    what = "Every row of 1200 has the time and the loss of the same row in 0000, 0001, 0002 and 1,197 more."
    assert found(*many)["1200"] == [("TP421", "error", what)]


def test_unchanged_copies_are_noted_and_contradict_only_what_states_something_else() -> None:
    original = replace(RUN, content="manifest")
    copy = replace(original, folder=Path("runs/a-backup"))
    also = replace(original, folder=Path("elsewhere/a"))
    changed = replace(original, folder=Path("runs/b"), content="other manifest")
    assert found(original, copy) == {
        "a": [("TP423", "note", "a-backup is an unchanged copy of a.")],
        "a-backup": [("TP423", "note", "a-backup is an unchanged copy of a.")],
    }
    assert find_copies([original, copy, also])[original.folder][0].what == (
        "a-backup and elsewhere/a are unchanged copies of a."
    )
    assert [(code, what) for code, _, what in found(original, copy, changed)["a"]] == [
        ("TP423", "a-backup is an unchanged copy of a."),
        ("TP421", "Every row of a has the time and the loss of the same row in b."),
        ("TP309", "a has the same run id as b: a."),
    ]
    many = [replace(original, folder=Path(f"runs/{number:04}")) for number in range(1200)]
    assert find_copies([original, *many])[original.folder][0].what == (
        "0000, 0001, 0002 and 1,197 more are unchanged copies of a."
    )

"""Copies of runs are found by their rows, seconds, end state and id."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from evidence.rules.across import Fingerprint, find_copies

RUN = Fingerprint(folder=Path("runs/a"), run_id="a", metrics="times", measured="seconds", state="end")
MOVED = replace(RUN, folder=Path("runs/b"), run_id="b", metrics="other times")


def found(*runs: Fingerprint) -> dict[str, list[tuple[str, str, str]]]:
    return {
        folder.name: [(each.code, each.severity, each.what) for each in problems]
        for folder, problems in find_copies(runs).items()
    }


def test_renamed_copy_with_other_times_is_found_by_its_seconds() -> None:
    what = "Every row of {} has the seconds and the loss of the same row in {}."
    assert found(RUN, MOVED) == {
        "a": [("TP421", "error", what.format("a", "b"))],
        "b": [("TP421", "error", what.format("b", "a"))],
    }


def test_same_end_state_is_a_warning() -> None:
    again = replace(MOVED, measured="other seconds")
    what = "{} ended in the same state as {}, bit for bit."
    assert found(RUN, again) == {
        "a": [("TP422", "warning", what.format("a", "b"))],
        "b": [("TP422", "warning", what.format("b", "a"))],
    }


def test_missing_values_are_not_shared() -> None:
    empty = Fingerprint(folder=Path("runs/c"), run_id=None, metrics=None)
    assert found(RUN, replace(MOVED, measured=None, state=None), empty, replace(empty, folder=Path("runs/d"))) == {}


def test_many_copies_are_counted() -> None:
    many = [replace(RUN, folder=Path(f"runs/{number:04}"), run_id=f"{number}") for number in range(1201)]
    what = "Every row of 1200 has the time and the loss of the same row in 0000, 0001, 0002 and 1,197 more."
    assert found(*many)["1200"] == [("TP421", "error", what)]


def test_unchanged_copies_are_only_noted() -> None:
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

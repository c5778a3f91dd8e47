"""Readers of single formats: courses of losses, TensorBoard, stores of other trackers, and files that are too large."""

import os
import struct
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest
from event_files import block, event, record, varint

from evidence.grade import check_run
from evidence.imports.console import read_log
from evidence.imports.folder import MAX_BYTES, read_tool_folder
from evidence.imports.folder import read_events as read_event_file
from evidence.imports.grade import tool_figures, tool_findings
from evidence.imports.importing import import_run
from evidence.imports.keys import decode_text
from evidence.imports.run import Citation, MetricRow, longest_course
from evidence.run import read_run
from schemas.reading import LARGEST_DOCUMENT, MAX_VALUES
from trainproof.cli.inspect import run_text

CASES = Path(__file__).parents[2] / "cases"
NOW = datetime(2026, 11, 26, tzinfo=UTC)
EVENTS = "events.out.tfevents.1"

# Courses of losses


def test_a_course_that_ends_in_nan_has_no_last_loss() -> None:
    folder = CASES / "foreign" / "not_finite_to_the_end" / "folder"
    found = tool_figures(read_tool_folder(folder))
    assert (found.steps_done, tuple(found.losses), found.last_loss) == (50, (2.9, 2.8), None)
    assert "not finite; the last finite one is 2.8000\n" in run_text(read_run(folder))


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ((10, 20, 30), (40, 50), [10, 20, 30, 40, 50]),
        ((10, 20, 30, 40), (30, 40, 50), [10, 20, 30, 40, 50]),
        ((40, 50), (10, 20, 30), [10, 20, 30, 40, 50]),
        ((1, 2, 3, 4), (10, 20, 30), [1, 2, 3, 4]),
        ((10, 20, 30, 40), (10, 20, 30), [10, 20, 30, 40]),
        ((10, 20, 30, 40), (20, 30, 50), [10, 20, 30, 40]),
    ],
)
def test_only_series_that_continue_are_joined(first, second, expected):
    rows = [
        MetricRow(values={"step": step, "loss": 3 - step / 100}, source=Citation(file=file))
        for file, steps in (("a.log", first), ("b.log", second))
        for step in steps
    ]
    evaluated = MetricRow(values={"step": 99, "loss": None, "eval_loss": 2.5}, source=Citation(file="a.log"))
    assert [row.values["step"] for row in longest_course([*rows, evaluated])] == expected


# TensorBoard


def read_events(folder: Path, data: bytes) -> tuple[list[dict[str, float | None]], list[str]]:
    (folder / EVENTS).write_bytes(data)
    reading = read_event_file(folder / EVENTS, EVENTS)
    return [row.values for row in reading.metrics], [problem.what for problem in reading.problems]


@pytest.mark.parametrize(
    "tensor",
    [
        None,
        (1, block(4, struct.pack("<f", 7.0))),
        (2, block(4, struct.pack("<d", 7.0))),
        (9, varint(10 * 8) + varint(7)),
    ],
)
def test_scalars_are_read_by_step(tmp_path: Path, tensor: tuple[int, bytes] | None) -> None:
    simple = 7.0 if tensor is None else None
    data = record(event(3, "train/loss", simple=simple, tensor=tensor)) + record(event(1, "lr", simple=0.5))
    assert read_events(tmp_path, data) == ([{"step": 1, "learning_rate": 0.5}, {"step": 3, "loss": 7.0}], [])


@pytest.mark.parametrize(
    "damage", [lambda data: data[:-3], lambda data: data[:-9] + b"?" + data[-8:], lambda data: data + b"\x00"]
)
def test_damage_ends_the_reading_of_an_event_file(tmp_path: Path, damage: Callable[[bytes], bytes]) -> None:
    data = record(event(1, "loss", simple=2.5)) + record(event(2, "loss", simple=2.0))
    rows, problems = read_events(tmp_path, damage(data))
    assert rows[0] == {"step": 1, "loss": 2.5}
    assert "the events before that were read" in problems[0]


def test_any_record_gives_problems_at_most(tmp_path: Path) -> None:
    for body in (
        b"",
        b"\xff" * 11,
        b"\x2a\x03abc",
        event(3, "loss", tensor=(1, block(4, struct.pack("<ff", 7.0, 8.0)))),
    ):
        rows, _ = read_events(tmp_path, record(body))
        assert rows == []


def test_without_tensorboard_the_message_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs" / EVENTS).write_bytes(record(event(1, "loss", simple=2.5)))
    run = import_run(tmp_path / "theirs", name="x", root=tmp_path / "runs", now=NOW).path
    monkeypatch.setitem(sys.modules, "tensorboard.data_compat", None)
    view = read_tool_folder(run / "original")
    (problem,) = (problem for problem in tool_findings(view) if problem.code == "TP521")
    assert "pip install 'trainproof[tensorboard]'" in problem.next
    assert "TP375" not in {problem.code for problem in check_run(read_run(run)).findings}


# Limits


def test_large_files_are_named_and_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, size in (("trainer_state.json", LARGEST_DOCUMENT), (EVENTS, MAX_BYTES), ("train.parquet", MAX_BYTES)):
        with (tmp_path / name).open("wb") as file:
            os.truncate(file.fileno(), size + 1)
    (tmp_path / "results.json").write_bytes(b'{"global_step": 1, "log_history": [' + b"{}," * MAX_VALUES)
    files = read_tool_folder(tmp_path).files
    assert [problem.what for reading in files.values() for problem in reading.problems] == [
        "The file has 268,435,457 bytes, more than the 268,435,456 that are read.",
        "The file has about 8,000,003 values and lines, more than the 4,000,000 that are read.",
        "The file has 67,108,865 bytes, more than the 67,108,864 that are read.",
    ]
    monkeypatch.setattr("evidence.imports.folder.MAX_SCALARS", 3)
    _, problems = read_events(tmp_path, b"".join(record(event(step, "loss", simple=2.5)) for step in range(5)))
    assert problems == ["The file has more than the 3 scalars that are read; the events before that were read."]


LONG = {
    "open braces": "{'" * 100_000,
    "open brackets": "[1/" * 100_000,
    "losses": "Loss " * 50_000,
    "bars": "".join(f"\r {number}%|##  | {number}/9 [00:01<00:01" for number in range(20_000)),
    "white space": " " * 500_000 + "x",
    "digits": "step " + "9" * 300_000 + "/" + "9" * 5_000 + " loss " + "9" * 300_000,
}


@pytest.mark.parametrize("name", LONG)
def test_a_long_line_is_read_in_linear_time(name: str) -> None:
    started = time.process_time()
    read_log(decode_text(LONG[name].encode()), "x.log", "x.log")
    assert time.process_time() - started < 20  # they take less than 1 s; squares would take hours

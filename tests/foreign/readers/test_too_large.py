"""Files of other tools that are too large to be read are named, with their size and the limit."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from event_files import event, masked_crc, record

from evidence.records.foreign_run import LARGEST_BYTES, read_foreign
from foreign.readers import tensorboard
from foreign.readers.tensorboard import MOST_BYTES, read_events
from schemas.reading import LARGEST_DOCUMENT, MOST_VALUES


def said(folder: Path) -> list[str]:
    return [problem.what for problem in read_foreign(folder).all_problems()]


def sparse(path: Path, size: int) -> None:
    with path.open("wb") as file:
        os.truncate(file.fileno(), size)


def test_a_file_that_is_too_large_is_not_read(tmp_path: Path) -> None:
    sparse(tmp_path / "trainer_state.json", LARGEST_DOCUMENT + 1)
    sparse(tmp_path / "events.out.tfevents.1", LARGEST_BYTES + 1)
    sparse(tmp_path / "train.parquet", LARGEST_BYTES + 1)
    assert said(tmp_path) == [
        "The file has 268,435,457 bytes, more than the 268,435,456 that are read; it was not read.",
        "The file has 67,108,865 bytes, more than the 67,108,864 that are read; it was not read.",
    ]


def test_a_file_of_too_many_values_or_lines_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "results.json").write_bytes(b'{"global_step": 1, "log_history": [' + b"{}," * MOST_VALUES)
    (tmp_path / "train.log").write_bytes(b"a\n" * (MOST_VALUES + 1))
    assert said(tmp_path) == [
        "The file has about 8,000,003 values and lines, more than the 4,000,000 that are read; it was not read.",
        "The file has about 4,000,001 values and lines, more than the 4,000,000 that are read; it was not read.",
    ]


def test_a_record_that_is_too_large_ends_the_reading_of_an_event_file() -> None:
    before = record(event(1, "loss", simple=2.5))
    length = (MOST_BYTES + 1).to_bytes(8, "little")
    read = read_events(before + length + masked_crc(length) + bytes(MOST_BYTES + 5), "e", "e")
    assert [row.values for row in read.metrics] == [{"step": 1, "loss": 2.5}]
    (problem,) = read.problems
    assert problem.what == (
        f"The record at byte {len(before)} has 67,108,865 bytes, more than the 67,108,864 that are read; the events "
        "before it were read."
    )


def test_the_scalars_of_one_event_are_bounded_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tensorboard, "MOST_SCALARS", 3)
    data = b"".join(record(event(step, "loss", simple=2.5)) for step in range(5))
    read = read_events(data, "e", "e")
    assert [row.values["step"] for row in read.metrics] == [0, 1, 2]
    assert [problem.what for problem in read.problems] == [
        "The file has more than the 3 scalars that are read; the events before it were read."
    ]

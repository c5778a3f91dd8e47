"""Columns kept on disk: what a page reads from them is what the rows say, and they are never needed."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from synthetic import write_run

from dashboard.shared.reading.series import Tail
from evidence.index import columns_cache as kept_columns
from evidence.index.columns_cache import default_folder, keep, read_cached, signature_of
from evidence.index.runs import RunIndex
from evidence.run.layout import METRICS
from schemas.catalog import number_names
from schemas.reading import Columns, read_rows


@pytest.fixture(autouse=True)
def _short_is_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_columns, "LONG_ROWS", 15)


def test_index_keeps_and_a_page_reads_the_same(tmp_path: Path) -> None:
    long = write_run(tmp_path / "runs", "long", steps=20)
    short = write_run(tmp_path / "runs", "short", steps=10)
    folder = tmp_path / "kept"
    RunIndex(tmp_path / "runs", columns_in=folder).refresh()
    assert len(list(folder.iterdir())) == 1
    table = read_cached(folder, long / METRICS)
    assert table is not None
    columns = Columns(read_rows(long / METRICS, "metric_row").values)
    for name, kept_column in zip((*number_names(), "seconds"), table, strict=True):
        np.testing.assert_array_equal(kept_column, columns[name])
    assert read_cached(folder, short / METRICS) is None
    fast, slow = Tail(long / METRICS, columns_in=folder).series(), Tail(long / METRICS).series()
    assert fast.columns.keys() == slow.columns.keys()
    for name, column in fast.columns.items():
        np.testing.assert_array_equal(column, slow.columns[name])


def test_a_kept_file_that_grows_is_read_on(tmp_path: Path) -> None:
    run = write_run(tmp_path / "runs", "long", steps=20)
    folder = tmp_path / "kept"
    RunIndex(tmp_path / "runs", columns_in=folder).refresh()
    tail = Tail(run / METRICS, columns_in=folder)
    assert tail.series().rows == 20
    lines = (run / METRICS).read_text("utf-8").splitlines(keepends=True)
    with (run / METRICS).open("a", encoding="utf-8") as file:
        file.write(lines[-1].replace('"step": 20', '"step": 21'))
    assert tail.series().last("step") == 21
    assert read_cached(folder, run / METRICS) is None, "what is kept is of another state of the file"
    RunIndex(tmp_path / "runs", columns_in=folder).refresh()
    assert len(list(folder.iterdir())) == 1, "the earlier state is not kept"


def test_damaged_or_foreign_arrays_are_not_read(tmp_path: Path) -> None:
    run = write_run(tmp_path / "runs", "long", steps=20)
    folder = tmp_path / "kept"
    RunIndex(tmp_path / "runs", columns_in=folder).refresh()
    (place,) = folder.iterdir()
    for content in (b"", b"not an array", place.read_bytes()[:100]):
        place.write_bytes(content)
        assert read_cached(folder, run / METRICS) is None
    np.save(place, np.zeros((2, 3)))
    assert read_cached(folder, run / METRICS) is None
    np.save(place, np.array([{"an": "object"}]), allow_pickle=True)
    assert read_cached(folder, run / METRICS) is None
    assert Tail(run / METRICS, columns_in=folder).series().rows == 20


def test_without_a_disk_for_it_nothing_is_kept_and_nothing_fails(tmp_path: Path) -> None:
    run = write_run(tmp_path / "runs", "long", steps=20)
    (tmp_path / "kept").write_text("a file where the folder should be")
    signature = signature_of(run / METRICS)
    assert signature is not None
    keep(tmp_path / "kept", run / METRICS, signature, Columns(read_rows(run / METRICS, "metric_row").values))
    assert read_cached(tmp_path / "kept", run / METRICS) is None
    assert signature_of(tmp_path / "absent") is None


def test_oldest_arrays_go_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_columns, "MOST_BYTES", 6000)
    folder = tmp_path / "kept"
    for number in range(3):
        run = write_run(tmp_path / "runs", f"run-{number}", steps=15, seed=number)
        os.utime(run / METRICS, (number, number))
        RunIndex(tmp_path / "runs", columns_in=folder).refresh()
    assert sum(path.stat().st_size for path in folder.iterdir()) <= 6000
    assert read_cached(folder, run / METRICS) is not None


def test_folder_is_in_the_users_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert default_folder() == tmp_path / "trainproof" / "columns"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert default_folder() == tmp_path / "home" / ".cache" / "trainproof" / "columns"

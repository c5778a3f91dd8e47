"""Entries kept between processes: the next one lists the same without reading, and never what is no longer so."""

from __future__ import annotations

import os
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from mutations import apply
from synthetic import STARTED, write_run

from evidence.index import entries as kept_entries
from evidence.index import runs as index_module
from evidence.index.entries import IndexEntry
from evidence.index.parallel import read_entry
from evidence.index.runs import RunIndex


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(index_module, "WORTH_KEEPING_SECONDS", 0.0)
    for number in range(3):
        write_run(tmp_path / "runs", f"run-{number}", seed=number, started=STARTED + timedelta(hours=number))
    apply(tmp_path / "runs" / "run-1", {"file": "metrics.jsonl", "line": 1, "pointer": "/loss", "value": 1.0})
    (tmp_path / "runs" / "damaged").mkdir()
    (tmp_path / "runs" / "damaged" / "run_manifest.json").write_text("{")
    return tmp_path / "runs"


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the names of the folders that were really read."""
    names: list[str] = []

    def watched(folder: Path, *, columns_in: Path | None = None) -> IndexEntry:
        names.append(folder.name)
        return read_entry(folder, columns_in=columns_in)

    monkeypatch.setattr("evidence.index.parallel.read_entry", watched)
    return names


def test_next_process_lists_the_same_without_reading(root: Path, read: list[str], tmp_path: Path) -> None:
    first = RunIndex(root, entries_in=tmp_path / "kept")
    summaries = first.refresh()
    assert sorted(read) == ["damaged", "run-0", "run-1", "run-2"]
    read.clear()
    second = RunIndex(root, entries_in=tmp_path / "kept")
    assert second.refresh() == summaries
    assert read == []
    assert [second.report(one.path) for one in summaries] == [first.report(one.path) for one in summaries]
    assert {one.path.name: one.grade for one in summaries}["run-1"] == "contradictory"


def test_what_was_read_before_the_reading_was_stopped_is_kept(root: Path, read: list[str], tmp_path: Path) -> None:
    def stop(done: int, total: int) -> None:
        assert total == 4
        if done == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        RunIndex(root, entries_in=tmp_path / "kept").refresh(progress=stop)
    before, read[:] = set(read), []
    assert len(RunIndex(root, entries_in=tmp_path / "kept").refresh()) == 4
    assert read == sorted({"damaged", "run-0", "run-1", "run-2"} - before)
    assert len(read) == 1


def test_what_changed_meanwhile_is_read(root: Path, read: list[str], tmp_path: Path) -> None:
    RunIndex(root, entries_in=tmp_path / "kept").refresh()
    read.clear()
    apply(root / "run-2", {"file": "metrics.jsonl", "line": 2, "pointer": "/loss", "value": 1.0})
    write_run(root, "run-3", seed=3, started=STARTED + timedelta(hours=3))
    found = RunIndex(root, entries_in=tmp_path / "kept").refresh()
    assert sorted(read) == ["run-2", "run-3"]
    assert {one.path.name: one.grade for one in found}["run-2"] == "contradictory"


def test_a_time_of_change_that_is_set_back_hides_no_change(root: Path, read: list[str], tmp_path: Path) -> None:
    RunIndex(root, entries_in=tmp_path / "kept").refresh()
    read.clear()
    metrics = root / "run-0" / "metrics.jsonl"
    before = metrics.stat()
    text = metrics.read_bytes()
    metrics.write_bytes(text.replace(b'"step": 1,', b'"step": 7,', 1))
    os.utime(metrics, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert metrics.stat().st_size == before.st_size
    assert {one.path.name: one.grade for one in RunIndex(root, entries_in=tmp_path / "kept").refresh()}[
        "run-0"
    ] == "contradictory"
    assert read == ["run-0"]


def test_other_code_reads_again(root: Path, read: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    RunIndex(root, entries_in=tmp_path / "kept").refresh()
    read.clear()
    monkeypatch.setattr(kept_entries, "_maker", lambda: "a release that judges otherwise")
    RunIndex(root, entries_in=tmp_path / "kept").refresh()
    assert len(read) == 4


@pytest.mark.parametrize("damage", [b"", b"\x00", b"not msgpack", None])
def test_a_damaged_file_is_as_none(root: Path, read: list[str], tmp_path: Path, damage: bytes | None) -> None:
    folder = tmp_path / "kept"
    summaries = RunIndex(root, entries_in=folder).refresh()
    (file,) = folder.iterdir()
    file.write_bytes(file.read_bytes()[:-100] if damage is None else damage)
    read.clear()
    assert RunIndex(root, entries_in=folder).refresh() == summaries
    assert len(read) == 4


def test_an_entry_that_is_not_one_is_read_again(root: Path, tmp_path: Path) -> None:
    entry = read_entry(root / "run-0")
    kept_entries.keep(tmp_path / "kept", root, [("run-0", "s", entry)])
    assert kept_entries.read_cached(tmp_path / "kept", root, {"run-0": "s"}) == {"run-0": entry}
    assert kept_entries.read_cached(tmp_path / "kept", root, {"run-0": "t"}) == {}
    assert kept_entries.read_cached(tmp_path / "kept", root.parent, {"run-0": "s"}) == {}
    half = replace(entry, summary=replace(entry.summary, model="\ud800"))
    kept_entries.keep(tmp_path / "kept", root, [("half", "s", half), ("run-0", "s", entry)])
    assert list(kept_entries.read_cached(tmp_path / "kept", root, dict.fromkeys(("half", "run-0"), "s"))) == ["run-0"]


def test_names_that_are_not_utf_8_survive(root: Path, tmp_path: Path) -> None:
    folder = root / os.fsdecode(b"run-\xff")
    (root / "run-0").rename(folder)
    found = RunIndex(root, entries_in=tmp_path / "kept").refresh()
    assert RunIndex(root, entries_in=tmp_path / "kept").refresh() == found
    assert folder in {one.path for one in found}


def test_without_a_disk_for_it_nothing_is_kept_and_nothing_fails(root: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    found = RunIndex(root, entries_in=tmp_path / "file").refresh()
    assert RunIndex(root, entries_in=tmp_path / "file").refresh() == found


def test_roots_not_seen_for_longest_go_first(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_entries, "MOST_ROOTS", 2)
    for number in range(3):
        kept_entries.keep(tmp_path / "kept", tmp_path / str(number), [])
        (file,) = (path for path in (tmp_path / "kept").iterdir() if path.stat().st_mtime_ns > number + 10)
        os.utime(file, ns=(number, number))
    assert len(list((tmp_path / "kept").iterdir())) == 2


def test_what_was_read_quickly_does_not_write_all_again(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index_module, "WORTH_KEEPING_SECONDS", 1e6)
    RunIndex(root, entries_in=tmp_path / "kept").refresh()
    assert not (tmp_path / "kept").exists()


def test_folder_is_in_the_users_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert kept_entries.default_folder() == tmp_path / "trainproof" / "entries"

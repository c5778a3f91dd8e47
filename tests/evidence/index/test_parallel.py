"""Reading many runs with further processes gives what reading them one by one gives, in the same order."""

from __future__ import annotations

import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest
from synthetic import STARTED, write_run

from evidence.index import workers as many
from evidence.index.workers import read_entries, read_entry


@pytest.fixture
def folders(tmp_path: Path) -> list[Path]:
    found = [
        write_run(tmp_path, f"run-{number}", seed=number, steps=3, started=STARTED + timedelta(hours=number))
        for number in range(7)
    ]
    (found[3] / "run_manifest.json").write_text("{")
    return found


@pytest.fixture
def helpers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(many, "WORTH_A_PROCESS", 2)
    monkeypatch.setattr(many, "BATCH", 2)
    monkeypatch.setattr(many, "FIRST", 1)
    monkeypatch.setattr("evidence.index.workers.processors", lambda: 3)


def test_same_entries_in_the_same_order(folders: list[Path], helpers: None) -> None:
    told: list[tuple[int, int]] = []
    assert read_entries(folders, progress=lambda done, total: told.append((done, total))) == [
        read_entry(folder) for folder in folders
    ]
    assert sorted(told) == told
    assert len(told) == 4
    assert told[-1] == (7, 7)


def test_process_that_dies_is_made_up_for(
    folders: list[Path], helpers: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for command in ("/bin/false", str(tmp_path / "absent")):
        monkeypatch.setattr("sys.executable", command)
        assert [entry.summary.run_id for entry in read_entries(folders)] == [folder.name for folder in folders]


def test_process_that_dies_later_is_made_up_for(
    folders: list[Path], helpers: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    dying = tmp_path / "dying"
    dying.write_text(f'#!/bin/sh\nhead -n 1 | "{sys.executable}" "$@"\n')  # It answers once.
    dying.chmod(0o755)
    monkeypatch.setattr("sys.executable", str(dying))
    monkeypatch.setattr(many, "BATCH", 1)
    assert [entry.summary.run_id for entry in read_entries(folders)] == [folder.name for folder in folders]


def test_who_is_interrupted_waits_for_no_process(folders: list[Path], tmp_path: Path) -> None:
    slow = tmp_path / "slow"
    slow.write_text("#!/bin/sh\ncat > /dev/null\n")  # It answers nothing until its own reader has gone.
    slow.chmod(0o755)
    code = (
        "import sys; from pathlib import Path; from evidence.index import parallel as many\n"
        "many.WORTH_A_PROCESS, many.BATCH, many.FIRST, many.processors = 2, 2, 1, lambda: 3\n"
        "sys.executable = sys.argv[1]\n"
        "batches = many.read_batches([Path(name) for name in sys.argv[2:]])\n"
        "print([folder.name for folder in next(batches)])\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code, str(slow), *map(str, folders)], capture_output=True, text=True, timeout=30
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "['run-0']\n", "")


def test_few_runs_start_no_process(folders: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.executable", "/never")
    monkeypatch.setattr("evidence.index.workers.subprocess.Popen", pytest.fail)
    assert len(read_entries(folders)) == 7
    assert read_entries([]) == []

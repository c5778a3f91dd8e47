"""One process for each run folder, told apart by the operating system and not by a file that stays behind."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from evidence.run.layout import LOCK
from evidence.run.lock import RunLock, is_alive, refuse_without_locks
from schemas.problems import ProblemError

HOLD = """
import sys, time
from pathlib import Path
from evidence.run.lock import RunLock
with RunLock(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.readline()
"""


@pytest.fixture
def holder(tmp_path: Path):
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "held\n"
    yield process
    process.kill()
    process.wait()
    process.stdin.close()
    process.stdout.close()


def test_second_process_is_refused_by_name(tmp_path: Path, holder: subprocess.Popen[str]) -> None:
    assert is_alive(tmp_path)
    with pytest.raises(ProblemError) as refused, RunLock(tmp_path):
        pass
    problem = refused.value.problems[0]
    assert refused.value.exit_code == 2
    assert (problem.code, problem.file) == ("TP090", str(tmp_path))
    assert problem.what == f"Another process is writing this run folder (process {holder.pid})."
    assert problem.next == "Wait for that run to end, or give another --output."


def test_killed_holder_holds_nothing(tmp_path: Path, holder: subprocess.Popen[str]) -> None:
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    assert (tmp_path / LOCK).exists()
    assert not is_alive(tmp_path)
    with RunLock(tmp_path):
        assert is_alive(tmp_path)


def test_lock_file_is_gone_afterwards(tmp_path: Path) -> None:
    assert not is_alive(tmp_path)
    with RunLock(tmp_path):
        assert is_alive(tmp_path)
    assert list(tmp_path.iterdir()) == []
    with RunLock(tmp_path):
        assert is_alive(tmp_path)


def test_a_folder_made_anew_is_held_by_whoever_holds_it_now(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    with RunLock(folder) as before:
        assert before.holds()
        folder.rename(tmp_path / "away")
        folder.mkdir()
        assert not before.holds()
        with RunLock(folder) as now:
            before.__exit__(None, None, None)
            assert now.holds()
            assert is_alive(folder)
        assert not before.holds()
    assert list(folder.iterdir()) == []


def test_looking_never_locks_out_a_run(tmp_path: Path) -> None:
    for _ in range(50):
        with RunLock(tmp_path):
            pass
        assert not is_alive(tmp_path)


def test_folder_that_is_not_there_is_held_by_nobody(tmp_path: Path) -> None:
    assert not is_alive(tmp_path / "absent")
    (tmp_path / LOCK).symlink_to("/etc/hostname")
    assert not is_alive(tmp_path)


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL])
def test_a_file_system_without_locks_is_named_with_a_way_out(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_descriptor: int, _operation: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", refuse)
    for take in (lambda: RunLock(tmp_path).__enter__(), lambda: refuse_without_locks(tmp_path / "new" / "run")):
        with pytest.raises(ProblemError) as refused:
            take()
        [problem] = refused.value.problems
        assert refused.value.exit_code == 2
        assert (problem.code, problem.file) == ("TP724", str(tmp_path))
        assert problem.what == f"The file system of this folder has no file locks ({os.strerror(number)})."
        assert "another file system" in problem.next
    assert list(tmp_path.iterdir()) == []
    assert not is_alive(tmp_path)


def test_a_folder_with_locks_is_left_as_it_was(tmp_path: Path) -> None:
    refuse_without_locks(tmp_path / "new" / "run")
    assert list(tmp_path.iterdir()) == []

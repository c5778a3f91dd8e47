"""The command as a process: what the system refuses is said in a sentence, and output of any kind has its way out."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from synthetic import write_run

from trainproof import neighbours

REPOSITORY = Path(__file__).parents[2]
PROGRAM = (sys.executable, "-m", "trainproof")


def ran(*arguments: str | Path, **environment: str) -> tuple[int, bytes, bytes]:
    """Return exit code, output and errors."""
    found = subprocess.run([*PROGRAM, *map(str, arguments)], capture_output=True, env={**os.environ, **environment})
    return found.returncode, found.stdout, found.stderr


@pytest.mark.parametrize("verb", ["check", "grade", "show", "runs", "note", "verify", "sign"])
def test_a_path_too_long_for_the_system(verb: str) -> None:
    code, out, errors = ran(verb, "a" * 5000)
    assert (code, out) == (2, b"")
    assert errors.startswith(b"error TP")
    assert b"Traceback" not in errors


def test_what_the_system_refuses_is_one_sentence() -> None:
    code, _, errors = ran("check", "a" * 5000)
    assert code == 2
    assert errors.decode() == (
        f"error TP101: {'a' * 300}…: The system refuses this: File name too long.\n  Next: Give a shorter path.\n"
    )


def test_a_disk_without_room_for_the_output(tmp_path: Path) -> None:
    with Path("/dev/full").open("wb") as full:
        found = subprocess.run([*PROGRAM, "check", write_run(tmp_path, "demo")], stdout=full, stderr=subprocess.PIPE)
    assert found.returncode == 2
    assert found.stderr.decode() == (
        "error TP101: The system refuses this: No space left on device.\n"
        "  Next: Make room, or write to another place.\n"
    )


def test_a_reader_that_stops_reading_hears_no_more(tmp_path: Path) -> None:
    read, write = os.pipe()
    os.close(read)
    found = subprocess.run([*PROGRAM, "check", write_run(tmp_path, "demo")], stdout=write, stderr=subprocess.PIPE)
    os.close(write)
    assert (found.returncode, found.stderr) == (1, b"")


def test_a_terminal_that_knows_only_ascii_and_a_name_that_is_no_text(tmp_path: Path) -> None:
    write_run(tmp_path, "demo", status="running")
    (tmp_path / os.fsdecode(b"b\xff")).mkdir()
    for verb in ("runs", "check", "grade"):
        for form in ("ascii", "utf-8:strict"):
            code, out, errors = ran(verb, tmp_path, PYTHONIOENCODING=form)
            assert (errors, code in {0, 1}) == (b"", True)
            assert b"demo" in out
    code, out, errors = ran("check", "--sarif", tmp_path)
    assert (b"b%FF" in out, errors) == (True, b"")


@pytest.mark.parametrize("start", [["-m", "trainproof"], [str(REPOSITORY / "trainproof")]], ids=["module", "folder"])
def test_another_package_of_the_same_name_is_named_in_a_sentence(tmp_path: Path, start: list[str]) -> None:
    (tmp_path / "schemas").mkdir()
    (tmp_path / "schemas" / "__init__.py").write_text("raise RuntimeError('not ours')")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    # What PYTHONPATH names comes before what is installed, and after the folder of a program.
    found = subprocess.run(
        [sys.executable, *start, "runs"], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    if start[0] == "-m":
        assert (found.returncode, found.stdout) == (2, "")
        assert found.stderr == (
            f"trainproof cannot start: Python finds another `schemas` in {tmp_path / 'schemas'}, and its own is "
            f"{REPOSITORY / 'schemas'}. Next: start it in another folder, take the other folder out of PYTHONPATH, or "
            "install trainproof in an environment of its own.\n"
        )
    else:
        assert found.stderr.startswith("error TP091")


def test_a_missing_package_is_named_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(neighbours, "find_spec", lambda name: None)
    assert (neighbours.stranger() or "").startswith(
        "trainproof cannot start: Python does not find `schemas`, and its own"
    )


def test_the_folder_of_runs_is_given_as_other_verbs_have_it(tmp_path: Path) -> None:
    write_run(tmp_path, "demo")
    assert ran("runs", "--root", tmp_path)[:2] == ran("runs", tmp_path)[:2]
    code, _, errors = ran("runs", tmp_path, "--root", tmp_path)
    assert (code, b"was given twice" in errors) == (2, True)

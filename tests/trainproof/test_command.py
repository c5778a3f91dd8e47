"""The command as a process: errors of the system and of trainproof become messages, and any output can be printed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import psutil
import pytest
from synthetic import write_run

from trainer.objectives.supervised import SupervisedLoss
from trainproof import neighbours

REPOSITORY = Path(__file__).parents[2]
PROGRAM = (sys.executable, "-m", "trainproof")


@pytest.mark.parametrize("verb", ["check", "show", "runs", "note", "verify", "sign"])
def test_a_path_too_long_for_the_system(verb: str, run) -> None:
    code, out, errors = run(verb, "a" * 5000)
    assert (code, out, errors[:8]) == (2, "", "error TP")
    what = "The operating system reports: File name too long."
    assert verb != "check" or errors == f"error TP101: {'a' * 300}…: {what}\n  Next: Give a shorter path.\n"


def test_a_disk_without_room_for_the_output(tmp_path: Path) -> None:
    with Path("/dev/full").open("wb") as full:
        found = subprocess.run([*PROGRAM, "check", write_run(tmp_path, "demo")], stdout=full, stderr=subprocess.PIPE)
    fix = "Next: Free some disk space, or write to another place."
    error = f"error TP101: The operating system reports: No space left on device.\n  {fix}\n"
    assert (found.returncode, found.stderr.decode()) == (2, error)


def test_a_reader_that_stops_reading_hears_no_more(tmp_path: Path) -> None:
    read, write = os.pipe()
    os.close(read)
    found = subprocess.run([*PROGRAM, "check", write_run(tmp_path, "demo")], stdout=write, stderr=subprocess.PIPE)
    os.close(write)
    assert (found.returncode, found.stderr) == (1, b"")


@pytest.mark.slow
def test_a_terminal_that_knows_only_ascii_and_a_name_that_is_no_text(tmp_path: Path) -> None:
    write_run(tmp_path, "demo", status="running")
    (tmp_path / os.fsdecode(b"b\xff")).mkdir()
    for verb, form, shown in (("runs", "ascii", b"demo"), ("check", "utf-8:strict", b"demo"), ("check", "", b"b%FF")):
        command = [*PROGRAM, verb, str(tmp_path), *([] if form else ["--sarif"])]
        done = subprocess.run(command, capture_output=True, env={**os.environ, "PYTHONIOENCODING": form})
        assert (done.stderr, shown in done.stdout, done.returncode in {0, 1}) == (b"", True, True)


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
            f"trainproof cannot start: Python finds another `schemas` in {tmp_path / 'schemas'}; its own is "
            f"{REPOSITORY / 'schemas'}. Next: start it in another folder, remove the other folder from PYTHONPATH, or "
            "install trainproof in its own environment.\n"
        )
    else:
        assert found.stderr.startswith("error TP091")


def test_a_missing_package_is_named_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(neighbours, "find_spec", lambda name: None)
    assert (neighbours.find_foreign_package() or "").startswith(
        "trainproof cannot start: Python does not find `schemas`; its own"
    )


TRAIN = ["train", "--config", str(REPOSITORY / "trainer/configs/tiny.yaml"), "--device", "cpu"]


def test_an_error_while_the_programs_are_traced_is_named_and_its_traceback_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run
) -> None:
    def mistaken(*arguments: object) -> None:
        message = "add got incompatible shapes: (4, 127), (4, 128)\nand more"
        raise TypeError(message)

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(SupervisedLoss, "loss_fn", mistaken)
    code, _, printed = run(*TRAIN, "--output", tmp_path / "run", "--set", "evaluation.eval_set=null")
    [kept] = tmp_path.glob("trainproof-error-*.txt")
    assert (code, (tmp_path / "run").exists()) == (4, False)
    assert printed.endswith(
        "error TP799: trainproof train: Internal error in trainproof: TypeError: add got incompatible "
        "shapes: (4, 127), (4, 128).\n"
        "  This is a bug in trainproof, not in your configuration.\n"
        f"  Next: Report it with the traceback in {kept} and the command as you typed it.\n"
    )
    traceback = kept.read_text("utf-8")
    assert ("Traceback" in printed, traceback[:9], "in mistaken" in traceback) == (False, "Traceback", True)


@pytest.mark.slow
def test_training_that_is_stopped_while_it_is_planned_leaves_nothing(tmp_path: Path) -> None:
    """The run is stopped when the compiler starts; it leaves no folder and no process."""
    for how in (signal.SIGINT, signal.SIGKILL):
        started = subprocess.Popen(
            [*PROGRAM, *TRAIN, "--output", str(tmp_path / "run")], stderr=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert started.stdout is not None
        with started:
            assert any(b"compiling the programs of the run" in line for line in iter(started.stdout.readline, b""))
            children = psutil.Process(started.pid).children(recursive=True)
            started.send_signal(how)
            printed = started.communicate(timeout=60)[1]
        assert started.returncode == (130 if how == signal.SIGINT else -how)
        assert (how != signal.SIGINT) or printed == b"train was stopped before it began; nothing was written.\n"
        assert psutil.wait_procs(children, timeout=60)[1] == []
        assert not (tmp_path / "run").exists()

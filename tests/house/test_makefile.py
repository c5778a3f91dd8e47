"""`make` finds a Python of 3.11 to 3.14 that runs, or says what to install."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

TOOLS = ("uname", "sh", "make")


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """Return a folder that is the whole PATH: the tools of the Makefile, and no Python."""
    for tool in TOOLS:
        (tmp_path / tool).symlink_to(shutil.which(tool) or pytest.fail(f"{tool} is not installed"))
    return tmp_path


def add(programs: Path, name: str, script: str) -> None:
    (programs / name).write_text(f"#!/bin/sh\n{script}\n")
    (programs / name).chmod(0o755)


def setup(programs: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "PYTHON"))}
    return subprocess.run(
        ["make", "--dry-run", "--always-make", "setup", *arguments],
        env={**environment, "PATH": str(programs)},
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_name_that_does_not_run_is_passed_over(programs: Path) -> None:
    add(programs, "python3.11", "echo 'pyenv: python3.11: command not found' >&2; exit 127")
    add(programs, "python3.13", f'exec {sys.executable} "$@"')
    add(programs, "python3", f'exec {sys.executable} "$@"')
    assert setup(programs).stdout.startswith("python3.13 -m venv .venv\n")


def test_without_a_suitable_python_the_message_says_what_to_install(programs: Path) -> None:
    add(programs, "python3", f'exec {sys.executable} -c "import sys; sys.version_info = (3, 9, 2); $2"')
    done = setup(programs)
    assert done.returncode == 2
    assert "trainproof needs Python 3.11, 3.12, 3.13 or 3.14" in done.stderr
    assert "apt install python3 python3-venv" in done.stderr


def test_a_python_that_is_named_is_taken(programs: Path) -> None:
    assert setup(programs, "PYTHON=/opt/python").stdout.startswith("/opt/python -m venv .venv\n")

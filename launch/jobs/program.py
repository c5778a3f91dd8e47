"""What is started: always this program, from the folder that it lies in, with arguments made here.

No file under a root states what is started. It is named by its path, since `python -m` would take a program of the same
name from the folder that the dashboard was started in, which may be another user's.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

HOME = Path(__file__).resolve().parents[2]
"""Folder of the program; what runs as a module is started from here."""

PROGRAM = (sys.executable, str(HOME / "trainproof"))


def train_arguments(config_path: Path, run_folder: Path, *, force: bool) -> list[str]:
    """Return what follows the program's name to train by a configuration into a run folder."""
    return _train("--config", config_path, run_folder, force=force)


def resume_arguments(stopped: Path, run_folder: Path, *, force: bool) -> list[str]:
    """Return what follows the program's name to continue a run, as a run of its own in another folder."""
    return _train("--resume", stopped, run_folder, force=force)


def as_command_line(arguments: Sequence[str]) -> str:
    """Return a command as a line to copy into a terminal."""
    return shlex.join(["trainproof", *arguments])


def _train(flag: str, source: Path, run_folder: Path, *, force: bool) -> list[str]:
    return ["train", flag, str(source), "--output", str(run_folder), *(["--force"] if force else [])]

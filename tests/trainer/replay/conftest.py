"""Runs that are replayed; each module trains its own `honest` one."""

import shutil
from pathlib import Path

import pytest

from evidence import layout


@pytest.fixture(autouse=True)
def own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep receipts of a test in its own folder."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "own"))


@pytest.fixture
def copy(honest: Path, tmp_path: Path) -> Path:
    """A copy of the honest run without its checkpoints, like a bundle."""
    return shutil.copytree(honest, tmp_path / "run", ignore=shutil.ignore_patterns(layout.CHECKPOINTS))

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
from commands import run_command


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Return a function that runs a command in this process, and returns exit code, output and errors."""
    return partial(run_command, capsys)

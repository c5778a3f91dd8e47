from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from stand_ins import stand_in, wait_for

from launch import queue
from launch.jobs import jobs


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return a runs folder whose jobs run small programs. They are killed after the test."""
    stand_in(monkeypatch)
    yield tmp_path
    for job in jobs(tmp_path):
        queue.kill(job)
    wait_for(lambda: not queue.has_worker(tmp_path))

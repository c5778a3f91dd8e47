"""Small Python programs in the place of training, for the tests of the queue: each stands as `code` in a configuration.

The worker (`stand_in_worker.py`) is the real one but for the program that it starts (`stand_in_program.py`).
"""

import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from launch import queue
from launch.jobs import OUTPUT, Job, enqueue, read_job


def stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the queue start what a configuration has as `code` instead of training."""
    monkeypatch.setattr(queue, "WORKER", (sys.executable, str(Path(__file__).with_name("stand_in_worker.py"))))


def put(root: Path, code: str, run: str = "a-run", **asked: Any) -> Job:
    """Queue a program."""
    config = yaml.safe_dump({"code": code})
    return enqueue(root, run=run, now=datetime.now(UTC), config=config, **{"working_folder": root, **asked})


def now(job: Job) -> Job:
    """Read a job again."""
    again = read_job(job.folder)
    assert again is not None
    return again


def output(job: Job) -> str:
    """Return what a job has printed so far."""
    path = job.folder / OUTPUT
    return path.read_text("utf-8") if path.exists() else ""


def wait_for(condition: Callable[[], bool], seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "the condition did not come true"
        time.sleep(0.05)

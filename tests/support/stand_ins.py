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

from launch.jobs import working
from launch.jobs.folder import CONFIG, Job, enqueue, new_job_folder, read_job


def stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the queue start what a configuration has as `code` instead of training."""
    monkeypatch.setattr(working, "WORKER", (sys.executable, str(Path(__file__).with_name("stand_in_worker.py"))))


def put(root: Path, code: str, run: str = "a-run", **asked: Any) -> Job:
    now = datetime.now(UTC)
    folder = new_job_folder(root, now)
    (folder / CONFIG).write_text(yaml.safe_dump({"code": code}), "utf-8")
    enqueue(folder, run=run, now=now, **{"working_folder": root, **asked})
    job = read_job(folder)
    assert job is not None
    return job


def wait_for(condition: Callable[[], bool], seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "the condition did not come true"
        time.sleep(0.05)

"""Whether a worker works on the queue of a root, and starting one."""

from __future__ import annotations

import subprocess
import sys
import threading
from dataclasses import asdict
from pathlib import Path

from evidence import lock
from evidence.writing import write_json
from launch.jobs import process
from launch.jobs.files import no_link, read_started
from launch.jobs.folder import launch_folder
from launch.jobs.program import HOME

_WORKER = "worker.json"
"""Process id and start time of the worker that was started last, in the folder of jobs."""

WORKER = (sys.executable, "-m", "launch.worker")


def is_worked_on(root: Path) -> bool:
    """Return whether a worker holds the queue of this root, or was started and is about to."""
    if lock.is_alive(launch_folder(root)):
        return True
    newest = read_started(launch_folder(root) / _WORKER)
    return newest is not None and process.is_alive(newest)


def start_worker(root: Path) -> None:
    """Start a worker for the queue; if another one is at work, the new one ends at once.

    Raises:
        ProblemError: The root has no file locks (exit code 2).
        OSError: It could not be started, or not be noted.
    """
    launch_folder(root).mkdir(parents=True, exist_ok=True)
    lock.refuse_without_locks(launch_folder(root))
    with no_link(launch_folder(root) / "worker.log").open("ab") as output:
        worker = process.start([*WORKER, str(root.resolve())], folder=HOME, output=output, errors=subprocess.STDOUT)
    # It takes a moment until it holds the queue, and the page must not say meanwhile that nothing works on it.
    write_json(launch_folder(root) / _WORKER, asdict(process.started_now(worker.pid)))
    # Anyone who starts a process must wait for it, or it stays in the process table after its end.
    threading.Thread(target=worker.wait, name="reap queue worker", daemon=True).start()

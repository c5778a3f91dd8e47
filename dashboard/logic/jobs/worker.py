"""The process that works through the queue of one root: `python -m dashboard.logic.jobs.worker ROOT`.

It starts the first job that waits for each device (one on a CPU may run beside one on a GPU), waits for every job that
it started, writes exit codes down, and ends when nothing waits. It is the parent of every job, so no zombie stays; it
holds no pipe, so nobody has to read; and it leads a session of its own, so that neither a closed browser nor a stopped
dashboard nor a logout reaches it. A lock keeps it alone.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from dashboard.logic.jobs.folder import (
    CONFIG,
    OUTPUT,
    Job,
    JobReader,
    launch_folder,
    mark_ended,
    mark_started,
    read_job,
)
from dashboard.logic.jobs.process import interrupt, started_now
from dashboard.logic.jobs.program import PROGRAM, resume_arguments, train_arguments
from evidence.lock import RunLock
from schemas.problems import ProblemError

CANNOT_START = 127
"""Exit code noted for a job that could not even be started, as shells use it."""

_POLL_SECONDS = 0.5


def main(root: Path) -> None:
    """Work through the queue until nothing waits; return at once if another worker already does."""
    # A worker started from a background shell inherits an ignored SIGINT, and its jobs would too.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    launch_folder(root).mkdir(parents=True, exist_ok=True)
    try:
        with RunLock(launch_folder(root)):
            _work(root)
    except ProblemError:
        return  # Somebody else holds the queue, and looks for new jobs before letting go.


def _work(root: Path) -> None:
    """Start jobs as devices become free, until none waits and none that was started here is at work."""
    waits: list[threading.Thread] = []
    reader = JobReader(root)
    while True:
        waits = [wait for wait in waits if wait.is_alive()]
        known = reader.jobs()
        # Jobs that an earlier worker left running have nobody here who waits for them, but their devices are taken.
        if not waits and all(job.has_ended for job in known):
            return
        for job in startable(known):
            process = _start(job)
            if process is not None:
                waits.append(threading.Thread(target=_wait, args=(job, process), name=job.job_id))
                waits[-1].start()
        time.sleep(_POLL_SECONDS)


def startable(known: Sequence[Job]) -> list[Job]:
    """Return the waiting jobs that may start now, in their order.

    A job starts when no job before it, be it at work or waiting, needs the same device. So nobody is overtaken on a
    device, and a job that takes whichever device it finds runs alone.
    """
    at_work = [job for job in known if job.state in {"running", "stopping"}]
    chosen, before = [], list(at_work)
    for job in known:
        if job.state == "waiting":
            if not any(job.shares_device(other) for other in before):
                chosen.append(job)
            before.append(job)
    return chosen


def arguments_of(job: Job) -> list[str]:
    """Return what follows the program's name to do a job; every path in it is inside the job's root."""
    output = job.root / job.run
    if job.resumes is not None:
        return resume_arguments(job.root / job.resumes, output, force=job.force)
    return train_arguments(job.folder / CONFIG, output, force=job.force)


def _start(job: Job) -> subprocess.Popen[bytes] | None:
    """Start a job and note its process; None if it could not be started, which is noted too."""
    # Nothing waits in a buffer: who sees that the job has ended finds its last words.
    with (job.folder / OUTPUT).open("ab", buffering=0) as output:
        try:
            process = subprocess.Popen(
                [*PROGRAM, *arguments_of(job)],
                cwd=job.working_folder,
                env={**os.environ, "PYTHONUNBUFFERED": "1"},  # or the page would see nothing for a long time
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        except OSError as error:
            output.write(f"The run could not be started: {error}\n".encode())
            mark_ended(job, CANNOT_START)
            return None
    started = started_now(process.pid)
    mark_started(job, started, worker=started_now(os.getpid()))
    again = read_job(job.folder)
    if again is not None and again.state == "stopping":
        interrupt(started)  # Somebody cancelled in the instant before the process was noted.
    return process


def _wait(job: Job, process: subprocess.Popen[bytes]) -> None:
    mark_ended(job, process.wait())


if __name__ == "__main__":
    main(Path(sys.argv[1]))

"""The process that works through the queue of one root: `python -m dashboard.logic.jobs.worker ROOT`.

It starts one job at a time, waits for it, writes its exit code down, and ends when nothing waits. It is the parent of
every job, so no zombie stays; it holds no pipe, so nobody has to read; and it leads a session of its own, so that
neither a closed browser nor a stopped dashboard nor a logout reaches it. A lock keeps it alone.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from dashboard.logic.jobs.folder import OUTPUT, Job, jobs, launch_folder, mark_ended, mark_started, read_job
from dashboard.logic.jobs.process import interrupt, started_now
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
            while (job := _next(root)) is not None:
                _run(job)
    except ProblemError:
        return  # Somebody else holds the queue, and looks for new jobs before letting go.


def _next(root: Path) -> Job | None:
    """Return the first job that waits, having waited for any job that an earlier worker left running."""
    while True:
        known = jobs(root)
        if not any(job.state in {"running", "stopping"} for job in known):
            return next((job for job in known if job.state == "waiting"), None)
        time.sleep(_POLL_SECONDS)


def _run(job: Job) -> None:
    with (job.folder / OUTPUT).open("ab") as output:
        try:
            process = subprocess.Popen(
                list(job.command),
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
            return
    started = started_now(process.pid)
    mark_started(job, started, worker=started_now(os.getpid()))
    again = read_job(job.folder)
    if again is not None and again.state == "stopping":
        interrupt(started)  # Somebody cancelled in the instant before the process was noted.
    mark_ended(job, process.wait())


if __name__ == "__main__":
    main(Path(sys.argv[1]))

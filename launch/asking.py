"""Asking the program something that takes a while: a process of its own, its answer kept on disk.

    <root>/.launch/<plans|repeats>/<hash of the question>/
        process.json   process id and start time of the one who waits for the answer
        answer.json    what the program printed: one JSON object
        output.log     what else it printed: how far it is, and why there is no answer
        cancelled      exists once a user does not want the answer any more
        watched        its time is when a page last looked, where the question ends with no one looking
        seal           this user's, over all of it; an answer without it came with the root and is not shown
        exit_code      once it has ended

The same question gets the same folder, so that its answer is found again after any restart; the world changes, so it
can be started again. Run as `python -m launch.asking FOLDER WORKING_FOLDER SECONDS WATCHED_SECONDS ARGUMENT …`, this
file waits for it. No process is ended by an id that was read from a file: the one who waits looks for `cancelled`.
"""

from __future__ import annotations

import hashlib
import math
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from evidence import hashes
from evidence.writing import write_json, write_text
from launch.jobs.files import no_link, read_number, read_object, read_started
from launch.jobs.folder import EXIT_CODE, OUTPUT, PROCESS
from launch.jobs.output import tail
from launch.jobs.process import is_alive, kill_all, start, started_now
from launch.jobs.program import HOME, PROGRAM

TIMED_OUT = 124
"""Exit code noted for a question that took too long, as the command `timeout` uses it."""

STOPPED = 130
"""Exit code noted for a question that was cancelled, as a shell notes it after Ctrl-C."""

_ANSWER = "answer.json"
_SEAL = "seal"
_CANCELLED = "cancelled"
_WATCHED = "watched"
_LOOK_EVERY_SECONDS = 0.1
_LINES = 400

State = Literal["none", "running", "cancelled", "answered", "failed"]


@dataclass(frozen=True, kw_only=True)
class PlanRequest:
    """What is known of one question.

    Attributes:
        state: none: never started by this user. cancelled: it was not wanted any more, and can be started again.
            failed: it ended without an answer.
        answer: What the program answered; None unless it did.
        exit_code: None until it has ended, or if it was killed.
        output: What it printed beside the answer, usually why there is no answer; of a running one, how far it is.
            Empty if it was killed.
        seconds: How long it has been running; None unless it is.
    """

    state: State
    answer: Mapping[str, Any] | None = None
    exit_code: int | None = None
    output: str = ""
    seconds: float | None = None


def read_request(folder: Path, *, is_answer: Callable[[Mapping[str, Any]], bool]) -> PlanRequest:
    """Return what is known about a question.

    Args:
        folder: The folder of the question, be it there or not.
        is_answer: Whether what the program printed answers it.
    """
    if not folder.is_dir():
        return PlanRequest(state="none")
    if (folder / _CANCELLED).exists():
        return PlanRequest(state="cancelled")
    code = read_number(folder / EXIT_CODE)
    if code is None:
        return _read_unended(folder)
    if not _is_own(folder, code):
        return PlanRequest(state="none")
    value = read_object(folder / _ANSWER)
    if value is not None and is_answer(value):
        return PlanRequest(state="answered", answer=value, exit_code=code, output=tail(folder / OUTPUT, lines=_LINES))
    return PlanRequest(state="failed", exit_code=code, output=tail(folder / OUTPUT))


def ask(folder: Path, arguments: Sequence[str], *, limit_seconds: float, watched_seconds: float | None = None) -> None:
    """Have the program answer; a question that is being answered, or is just being stopped, is left alone.

    Args:
        folder: The folder of the question; it is made.
        arguments: Arguments of the program. No text of a reader may stand among them.
        limit_seconds: Seconds after which it is stopped.
        watched_seconds: It is cancelled once no one has looked (`watch`) for so long, or the asking process has ended.
            None: it goes on.

    Raises:
        OSError: The question could not be written under the root.
    """
    if folder.is_dir() and _read_unended(folder).state == "running" and read_number(folder / EXIT_CODE) is None:
        return
    folder.mkdir(parents=True, exist_ok=True)
    for name in (_ANSWER, _SEAL, EXIT_CODE, OUTPUT, _CANCELLED):
        (folder / name).unlink(missing_ok=True)
    watch(folder)
    seconds = [str(limit_seconds), str(watched_seconds or math.inf)]
    waiting = start(
        [sys.executable, "-m", "launch.asking", str(folder), str(Path.cwd()), *seconds, *arguments],
        folder=HOME,
        output=subprocess.DEVNULL,
        errors=subprocess.DEVNULL,
    )
    write_json(folder / PROCESS, asdict(started_now(waiting.pid)))
    # Anyone who starts a process must wait for it, or it stays in the process table after its end.
    threading.Thread(target=waiting.wait, name="reap question", daemon=True).start()


def watch(folder: Path) -> None:
    """Note that a user looks at a question."""
    with suppress(OSError):
        (folder / _WATCHED).touch()


def cancel(folder: Path) -> None:
    """Have a question end with everything that it started; one that has ended already stays answered.

    Raises:
        OSError: The note could not be written down.
    """
    if read_request(folder, is_answer=bool).state == "running":
        write_text(folder / _CANCELLED, "")


def forget(folder: Path) -> None:
    """Remove a question with its answer; one that is being answered is left alone.

    Raises:
        OSError: It could not be removed.
    """
    if folder.is_dir() and read_request(folder, is_answer=bool).state != "running":
        shutil.rmtree(folder)


def main(
    folder: Path,
    working_folder: Path,
    limit_seconds: float,
    arguments: Sequence[str],
    *,
    watched_seconds: float = math.inf,
) -> None:
    """Ask the program, wait for its answer no longer than the limit, and write its exit code down.

    Args:
        folder: The folder of the question.
        working_folder: Where relative paths start.
        limit_seconds: Seconds after which it is stopped.
        arguments: Arguments of the program.
        watched_seconds: It is cancelled once no one has looked for so long, or the asking process has ended.
    """
    with (folder / _ANSWER).open("wb") as answer, (folder / OUTPUT).open("wb") as output:
        process = start([*PROGRAM, *arguments], folder=working_folder, output=answer, errors=output)
        code = _waited_for(process, folder, limit_seconds, watched_seconds)
        if code == TIMED_OUT:
            output.write(f"It was stopped after {limit_seconds / 60:.0f} minutes.\n".encode())
    mark_ended(folder, code)


def _waited_for(process: subprocess.Popen[bytes], folder: Path, limit_seconds: float, watched_seconds: float) -> int:
    """Return the exit code of a process; one that takes too long, or that no one wants any more, is ended."""
    end = time.monotonic() + limit_seconds
    asker = os.getppid()
    while True:
        try:
            return process.wait(timeout=_LOOK_EVERY_SECONDS)
        except subprocess.TimeoutExpired:
            if watched_seconds < math.inf and (os.getppid() != asker or _unwatched_for(folder) > watched_seconds):
                write_text(folder / _CANCELLED, "")
            is_unwanted = (folder / _CANCELLED).exists()
            if is_unwanted or time.monotonic() > end:
                kill_all(started_now(process.pid))
                process.wait()
                return STOPPED if is_unwanted else TIMED_OUT


def _unwatched_for(folder: Path) -> float:
    """Return for how many seconds no one has looked at a question, 0 where that is not known."""
    try:
        return time.time() - (folder / _WATCHED).stat().st_mtime
    except OSError:
        return 0.0


def mark_ended(folder: Path, code: int) -> None:
    """Seal what was answered and printed, and write the exit code down."""
    write_text(folder / _SEAL, hashes.make_seal(_sealed_content(folder, code)))
    write_text(folder / EXIT_CODE, f"{code}\n")


def _read_unended(folder: Path) -> PlanRequest:
    """Return what is known of a question that has no exit code: a user waits for it, or no one does any more."""
    waiting = read_started(folder / PROCESS)
    if waiting is None or not is_alive(waiting):
        return PlanRequest(state="failed")
    seconds = max(0.0, time.time() - waiting.created)
    return PlanRequest(state="running", output=tail(folder / OUTPUT, lines=_LINES), seconds=seconds)


def _is_own(folder: Path, code: int) -> bool:
    """Return whether this user's program ended so; an answer that came with another user's root does not count."""
    try:
        stated = no_link(folder / _SEAL).read_text("utf-8", "replace")
        return hashes.verify_seal(stated, _sealed_content(folder, code))
    except OSError:
        return False


def _sealed_content(folder: Path, code: int) -> bytes:
    """Return what the seal is on: the question by its hash, the exit code, the answer, and what else was printed."""
    said = [hashlib.sha256(no_link(folder / name).read_bytes()).hexdigest() for name in (_ANSWER, OUTPUT)]
    return " ".join([folder.parent.name, folder.name, str(code), *said]).encode()


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), float(sys.argv[3]), sys.argv[5:], watched_seconds=float(sys.argv[4]))

"""Asking what a configuration needs before it runs: `trainproof plan` as a process of its own, its answer kept on disk.

    <root>/.launch/plans/<hash of the configuration and the options>/
        config.yaml    the configuration that was asked about
        process.json   process id and start time of the one who waits for the answer
        answer.json    what `trainproof plan --json` printed
        output.log     what else it printed: how far it is, and why there is no answer
        cancelled      exists once somebody does not want the answer any more
        seal           this user's, over all of it; an answer without it came with the root and is not shown
        exit_code      once it has ended

The same question gets the same folder, so that its answer is found again after any restart; free memory changes, so it
can be asked again. Run as `python -m launch.planning FOLDER WORKING_FOLDER [OPTION …]`, this file waits for it. No
process is ended by an id that was read from a file: the one who waits looks for `cancelled`.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from evidence.run import seal
from evidence.run.write import write_json, write_text
from launch.jobs.files import no_link, read_number, read_object, read_started
from launch.jobs.folder import CONFIG, EXIT_CODE, OUTPUT, PROCESS, launch_folder
from launch.jobs.output import tail
from launch.jobs.process import is_alive, kill_all, start, started_now
from launch.jobs.program import HOME, PROGRAM
from schemas.reading.yaml_text import write_yaml

TIME_LIMIT_SECONDS = 900.0
"""What takes longer is stopped; a model on a slow disk may take minutes to be looked at."""

TIMED_OUT = 124
"""Exit code noted for a plan that took too long, as the command `timeout` uses it."""

STOPPED = 130
"""Exit code noted for a plan that was cancelled, as a shell notes it after Ctrl-C."""

_PLANS = "plans"
_ANSWER = "answer.json"
_SEAL = "seal"
_CANCELLED = "cancelled"
_LOOK_EVERY_SECONDS = 0.1
_ANSWERS = ("need_bytes", "where", "grid")
"""What an answer holds at least one of."""

State = Literal["none", "running", "cancelled", "answered", "failed"]


@dataclass(frozen=True, kw_only=True)
class Planning:
    """What is known of one question.

    Attributes:
        state: none: never asked by this user. cancelled: it was not wanted any more, and can be asked again. failed: it
            ended without an answer.
        plan: The answer, `plan.json` where no option asks for another; None unless it was answered.
        exit_code: None until it has ended, or if it was killed.
        output: What it printed beside the answer, usually why there is no answer; of a running one, how far it is.
            Empty if it was killed.
        seconds: How long it has been running; None unless it is.
    """

    state: State
    plan: Mapping[str, Any] | None = None
    exit_code: int | None = None
    output: str = ""
    seconds: float | None = None


def planning(root: Path, config: Mapping[str, Any], options: Sequence[str] = ()) -> Planning:
    """Return what is known about the need of a configuration.

    Args:
        root: The root of runs.
        config: The configuration, complete.
        options: What `trainproof plan` is told besides it: `--on t4`, `--grid`.
    """
    folder = folder_of(root, config, options)
    if not (folder / CONFIG).is_file():
        return Planning(state="none")
    if (folder / _CANCELLED).exists():
        return Planning(state="cancelled")
    code = read_number(folder / EXIT_CODE)
    if code is None:
        return _unended(folder)
    if not _is_own(folder, code):
        return Planning(state="none")
    plan = _answer(folder)
    if plan is not None:
        return Planning(state="answered", plan=plan, exit_code=code)
    return Planning(state="failed", exit_code=code, output=tail(folder / OUTPUT))


def ask(root: Path, config: Mapping[str, Any], options: Sequence[str] = ()) -> None:
    """Start planning a checked configuration; one that is being planned, or is just being stopped, is left alone.

    Args:
        root: The root of runs.
        config: The configuration, complete.
        options: As of `planning`. They become arguments of a program, so no text of a reader may stand among them.

    Raises:
        OSError: The question could not be written under the root.
    """
    folder = folder_of(root.resolve(), config, options)
    if _unended(folder).state == "running" and read_number(folder / EXIT_CODE) is None:
        return
    folder.mkdir(parents=True, exist_ok=True)
    for name in (_ANSWER, _SEAL, EXIT_CODE, OUTPUT, _CANCELLED):
        (folder / name).unlink(missing_ok=True)
    write_text(folder / CONFIG, write_yaml(dict(config)))
    waiting = start(
        [sys.executable, "-m", "launch.planning", str(folder), str(Path.cwd()), *options],
        folder=HOME,
        output=subprocess.DEVNULL,
        errors=subprocess.DEVNULL,
    )
    write_json(folder / PROCESS, asdict(started_now(waiting.pid)))
    # Whoever starts a process must wait for it, or it stays in the process table after its end.
    threading.Thread(target=waiting.wait, name="reap plan", daemon=True).start()


def cancel(root: Path, config: Mapping[str, Any], options: Sequence[str] = ()) -> None:
    """Have planning end with everything that it started; one that has ended already stays answered.

    Raises:
        OSError: The wish could not be written down.
    """
    folder = folder_of(root, config, options)
    if planning(root, config, options).state == "running":
        write_text(folder / _CANCELLED, "")


def main(
    folder: Path, working_folder: Path, options: Sequence[str] = (), limit_seconds: float = TIME_LIMIT_SECONDS
) -> None:
    """Ask the program, wait for its answer no longer than the limit, and write its exit code down.

    Args:
        folder: The folder of the question.
        working_folder: Where relative paths of the configuration start.
        options: What the program is told besides the configuration.
        limit_seconds: Seconds after which it is stopped.
    """
    command = [*PROGRAM, "plan", "--config", str(folder / CONFIG), *options, "--json"]
    with (folder / _ANSWER).open("wb") as answer, (folder / OUTPUT).open("wb") as output:
        process = start(command, folder=working_folder, output=answer, errors=output)
        code = _waited_for(process, folder, limit_seconds)
        if code == TIMED_OUT:
            output.write(f"Planning was stopped after {limit_seconds / 60:.0f} minutes.\n".encode())
    mark_ended(folder, code)


def _waited_for(process: subprocess.Popen[bytes], folder: Path, limit_seconds: float) -> int:
    """Return the exit code of a process; one that takes too long, or that nobody wants any more, is ended."""
    end = time.monotonic() + limit_seconds
    while True:
        try:
            return process.wait(timeout=_LOOK_EVERY_SECONDS)
        except subprocess.TimeoutExpired:
            is_unwanted = (folder / _CANCELLED).exists()
            if is_unwanted or time.monotonic() > end:
                kill_all(started_now(process.pid))
                process.wait()
                return STOPPED if is_unwanted else TIMED_OUT


def mark_ended(folder: Path, code: int) -> None:
    """Seal what was answered and printed, and write the exit code down."""
    write_text(folder / _SEAL, seal.sealed(_sealed_content(folder, code)))
    write_text(folder / EXIT_CODE, f"{code}\n")


def folder_of(root: Path, config: Mapping[str, Any], options: Sequence[str] = ()) -> Path:
    """Return the folder of the question about a configuration, be it there or not."""
    asked = "\0".join([write_yaml(dict(config)), *options])
    return launch_folder(root) / _PLANS / hashlib.sha256(asked.encode("utf-8")).hexdigest()[:24]


def _unended(folder: Path) -> Planning:
    """Return what is known of a question that has no exit code: somebody waits for it, or nobody does any more."""
    waiting = read_started(folder / PROCESS)
    if waiting is None or not is_alive(waiting):
        return Planning(state="failed")
    return Planning(
        state="running", output=tail(folder / OUTPUT, lines=1), seconds=max(0.0, time.time() - waiting.created)
    )


def _answer(folder: Path) -> dict[str, Any] | None:
    value = read_object(folder / _ANSWER)
    return value if value is not None and any(name in value for name in _ANSWERS) else None


def _is_own(folder: Path, code: int) -> bool:
    """Return whether this user's program ended so; an answer that came with another user's root does not count."""
    try:
        stated = no_link(folder / _SEAL).read_text("utf-8", "replace")
        return seal.holds(stated, _sealed_content(folder, code))
    except OSError:
        return False


def _sealed_content(folder: Path, code: int) -> bytes:
    """Return what the seal is on: the question by its hash, the exit code, the answer, and what else was printed."""
    said = [hashlib.sha256(no_link(folder / name).read_bytes()).hexdigest() for name in (_ANSWER, OUTPUT)]
    return " ".join(["plan", folder.name, str(code), *said]).encode()


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:])

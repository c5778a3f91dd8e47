"""Asking what a configuration needs before it runs: `trainproof plan` as a process of its own, its answer kept on disk.

    <root>/.launch/plans/<hash of the configuration>/
        config.yaml    the configuration that was asked about
        process.json   process id and start time of the one who waits for the answer
        answer.json    what `trainproof plan --json` printed
        output.log     what else it printed
        seal           this user's, over all of it; an answer without it came with the root and is not shown
        exit_code      once it has ended

The same configuration gets the same folder, so that its answer is found again after any restart; free memory changes,
so it can be asked again. Run as `python -m launch.planning FOLDER WORKING_FOLDER`, this file waits for it.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import threading
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from evidence.run.write import write_json, write_text
from launch.jobs import seal
from launch.jobs.files import no_link, read_number, read_object, read_started
from launch.jobs.folder import CONFIG, EXIT_CODE, OUTPUT, PROCESS, launch_folder
from launch.jobs.output import tail
from launch.jobs.process import is_alive, kill, start, started_now
from launch.jobs.program import HOME, PROGRAM
from schemas.reading.yaml_text import write_yaml

TIME_LIMIT_SECONDS = 900.0
"""What takes longer is stopped; a model on a slow disk may take minutes to be looked at."""

TIMED_OUT = 124
"""Exit code noted for a plan that took too long, as the command `timeout` uses it."""

_PLANS = "plans"
_ANSWER = "answer.json"
_SEAL = "seal"

State = Literal["none", "running", "answered", "failed"]


@dataclass(frozen=True, kw_only=True)
class Planning:
    """What is known of one question.

    Attributes:
        state: none: never asked by this user. failed: it ended without an answer.
        plan: The answer as `plan.json` would hold it; None unless it was answered.
        exit_code: None until it has ended, or if it was killed.
        output: What it printed beside the answer, usually why there is no answer. Empty if it was killed.
    """

    state: State
    plan: Mapping[str, Any] | None = None
    exit_code: int | None = None
    output: str = ""


def planning(root: Path, config: Mapping[str, Any]) -> Planning:
    """Return what is known about the need of a configuration."""
    folder = folder_of(root, config)
    if not (folder / CONFIG).is_file():
        return Planning(state="none")
    code = read_number(folder / EXIT_CODE)
    if code is None:
        waiting = read_started(folder / PROCESS)
        return Planning(state="running" if waiting is not None and is_alive(waiting) else "failed")
    if not _is_own(folder, code):
        return Planning(state="none")
    plan = _answer(folder)
    if plan is not None:
        return Planning(state="answered", plan=plan, exit_code=code)
    return Planning(state="failed", exit_code=code, output=tail(folder / OUTPUT))


def ask(root: Path, config: Mapping[str, Any]) -> None:
    """Start planning a checked configuration; one that is being planned already goes on.

    Raises:
        OSError: The question could not be written under the root.
    """
    folder = folder_of(root.resolve(), config)
    if planning(root, config).state == "running":
        return
    folder.mkdir(parents=True, exist_ok=True)
    for name in (_ANSWER, _SEAL, EXIT_CODE, OUTPUT):
        (folder / name).unlink(missing_ok=True)
    write_text(folder / CONFIG, write_yaml(dict(config)))
    waiting = start(
        [sys.executable, "-m", "launch.planning", str(folder), str(Path.cwd())],
        folder=HOME,
        output=subprocess.DEVNULL,
        errors=subprocess.DEVNULL,
    )
    write_json(folder / PROCESS, asdict(started_now(waiting.pid)))
    # Whoever starts a process must wait for it, or it stays in the process table after its end.
    threading.Thread(target=waiting.wait, name="reap plan", daemon=True).start()


def main(folder: Path, working_folder: Path, limit_seconds: float = TIME_LIMIT_SECONDS) -> None:
    """Ask the program, wait for its answer no longer than the limit, and write its exit code down.

    Args:
        folder: The folder of the question.
        working_folder: Where relative paths of the configuration start.
        limit_seconds: Seconds after which it is stopped.
    """
    command = [*PROGRAM, "plan", "--config", str(folder / CONFIG), "--json"]
    with (folder / _ANSWER).open("wb") as answer, (folder / OUTPUT).open("wb") as output:
        process = start(command, folder=working_folder, output=answer, errors=output)
        try:
            code = process.wait(timeout=limit_seconds)
        except subprocess.TimeoutExpired:
            kill(started_now(process.pid))
            process.wait()
            code = TIMED_OUT
            output.write(f"Planning was stopped after {limit_seconds / 60:.0f} minutes.\n".encode())
    mark_ended(folder, code)


def mark_ended(folder: Path, code: int) -> None:
    """Seal what was answered and printed, and write the exit code down."""
    write_text(folder / _SEAL, seal.sealed(_sealed_content(folder, code)))
    write_text(folder / EXIT_CODE, f"{code}\n")


def folder_of(root: Path, config: Mapping[str, Any]) -> Path:
    """Return the folder of the question about a configuration, be it there or not."""
    digest = hashlib.sha256(write_yaml(dict(config)).encode("utf-8")).hexdigest()
    return launch_folder(root) / _PLANS / digest[:24]


def _answer(folder: Path) -> dict[str, Any] | None:
    value = read_object(folder / _ANSWER)
    return value if value is not None and "need_bytes" in value else None


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
    main(Path(sys.argv[1]), Path(sys.argv[2]))

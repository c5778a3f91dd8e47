"""Train in several processes: join them, agree on values, share arrays, and end together.

All processes run the same programs on the same values. Process 0 writes the run folder, and the others record into a
temporary one. Everything that depends on one process alone, such as signals, paths or free memory, is exchanged first.
"""

from __future__ import annotations

import atexit
import json
import os
import re
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax._src import distributed
from jax.experimental.multihost_utils import process_allgather
from jax.sharding import Mesh, NamedSharding, PartitionSpec, Sharding

from schemas.problems import INTERNAL_ERROR, Problem, ProblemError, first_line, problem_of
from schemas.render import render_text

DECLARED = "TRAINPROOF_PROCESSES"
"""Environment variable with the number of processes that a run must have."""
JOIN_SECONDS = 300
"""How long a process waits for the others to start."""
GRACE_SECONDS = 15.0
"""How long a process that hears of the end of another may take to record how the run ended."""
LEAVE_SECONDS = 3.0
"""How long process 0 stays after a failure, so that the others hear of it: the messages go through it."""
TEXT_BYTES, VALUE_BYTES = 256, 8192
"""Space for the texts and values that processes exchange."""
ENDED = "trainproof/ended"
LOST = re.compile("gloo|nccl|coordination|barrier|heartbeat|connection|peer|socket|unavailable", re.IGNORECASE)
"""What errors of communication contain."""


@dataclass(frozen=True)
class Processes:
    """How to find the other processes; by default from Slurm, Kubernetes, Open MPI or the TPU pod."""

    coordinator: str | None = None
    """`HOST:PORT` where process 0 listens."""
    count: int | None = None
    index: int | None = None


def process_count() -> int:
    """Return the number of processes of this run, without starting JAX in a process of its own."""
    return jax.process_count() if jax.distributed.is_initialized() else 1


def is_lead() -> bool:
    """Return whether this process writes the run folder."""
    return process_count() == 1 or jax.process_index() == 0


def join(processes: Processes) -> None:
    """Call `jax.distributed.initialize` unless it was called already; JAX must not have looked for devices.

    Raises `ProblemError` with exit code 3 if the processes are not found. JAX aborts if they do not come in time, so
    that a timer ends the process before.
    """
    if jax.distributed.is_initialized():
        return
    if processes.count is not None:
        os.environ.setdefault(DECLARED, str(processes.count))
    where = processes.coordinator or "the coordinator"
    timer = threading.Timer(JOIN_SECONDS, _end, [_join_problem(f"Not all processes met at {where} in time."), 3])
    timer.daemon = True
    timer.start()
    jax.config.update("jax_enable_preemption_service", val=False)  # it would handle SIGTERM
    try:
        jax.distributed.initialize(
            processes.coordinator, processes.count, processes.index, initialization_timeout=10 * JOIN_SECONDS
        )
    except (RuntimeError, ValueError) as error:
        what = f"The process cannot join at {where}: {first_line(error)}."
        if processes.coordinator is None:
            what = "--distributed finds no cluster: neither Slurm, Kubernetes, Open MPI nor a TPU pod."
        raise ProblemError([_join_problem(what)], exit_code=3) from error
    finally:
        timer.cancel()


def _join_problem(what: str) -> Problem:
    return problem_of("TP780", file="--distributed", what=what)


def refuse_other_count() -> None:
    """Refuse a number of processes that is not the declared one (`ProblemError`, exit code 3); starts JAX."""
    declared = os.environ.get(DECLARED, "")
    if declared.isdecimal() and int(declared) != jax.process_count():
        what = f"{DECLARED} is {declared}, but JAX sees {jax.process_count()}."
        raise ProblemError([problem_of("TP781", file=DECLARED, what=what)], exit_code=3)


def start_exchange(text: str, size: int = TEXT_BYTES) -> Callable[[], list[str]]:
    """Start to exchange a text; the result waits for the texts of all processes and returns them by process.

    All processes call this in the same order as all other programs.
    """
    if process_count() == 1:
        return lambda: [text]
    data = text.encode()[:size].ljust(size, b"\0")
    row, (devices, sharding, gather) = np.frombuffer(data, np.uint8)[None], _gathering()
    shared = gather(jax.make_array_from_callback((len(devices), size), sharding, lambda _: row))

    def read() -> list[str]:
        rows = {device.process_index: row for device, row in zip(devices, np.asarray(shared), strict=True)}
        return [rows[index].tobytes().rstrip(b"\0").decode(errors="ignore") for index in sorted(rows)]

    return read


@cache
def _gathering() -> tuple[list[Any], NamedSharding, Any]:
    devices = jax.devices()
    mesh = Mesh(np.array(devices), ("devices",))
    gather = jax.jit(lambda rows: rows, out_shardings=NamedSharding(mesh, PartitionSpec()))
    return devices, NamedSharding(mesh, PartitionSpec("devices")), gather


def exchange(value: Any) -> list[Any]:
    """Return a JSON value of each process, by process; waits for all of them."""
    return [value] if process_count() == 1 else list(map(json.loads, start_exchange(json.dumps(value), VALUE_BYTES)()))


def refuse_differences(**values: Any) -> None:
    """Refuse values that must be equal in all processes (`ProblemError`, exit code 2)."""
    for name, found in ((name, exchange(value)) for name, value in values.items()):
        if different := [index for index, each in enumerate(found) if each != found[0]]:
            what = f"The {name} of process {different[0]} is not the one of process 0."
            raise ProblemError([problem_of("TP782", file="--distributed", what=what)], exit_code=2)


def place(values: Any, sharding: Sharding | None) -> Any:
    """Put a tree of arrays that every process has onto devices; each process copies its own parts."""
    if sharding is None or sharding.is_fully_addressable:
        return jax.device_put(values, sharding)
    return jax.tree.map(
        lambda value: jax.make_array_from_callback(value.shape, sharding, lambda index: value[index]), values
    )


def fetch(values: Any) -> Any:
    """Copy a tree of arrays to the host; all processes call it in the same order, and each gets whole arrays."""
    return jax.device_get(jax.tree.map(_gathered, values))


def _gathered(value: Any) -> Any:
    is_here = not isinstance(value, jax.Array) or value.is_fully_addressable or value.is_fully_replicated
    return value if is_here else process_allgather(value, tiled=True)


@contextmanager
def folder_of_process(folder: Path) -> Iterator[Path]:
    """Return the folder that this process records into: `folder` in process 0, or else a temporary one."""
    if is_lead():
        yield folder
        return
    with tempfile.TemporaryDirectory(prefix="trainproof-", ignore_cleanup_errors=True) as scratch:
        yield Path(scratch) / folder.name


def refuse_separate_folders(folder: Path) -> None:
    """Refuse a run folder that other processes do not see, after process 0 has made it (exit code 2)."""
    if process_count() == 1:
        return
    probe = folder / f".{uuid.uuid4().hex}.tmp"
    if is_lead():
        probe.touch()
    seen = exchange((folder / exchange(probe.name)[0]).exists())
    probe.unlink(missing_ok=True)
    if not all(seen):
        what = f"Process {seen.index(False)} does not see the folder that process 0 made."
        raise ProblemError([problem_of("TP783", file=str(folder), what=what)], exit_code=2)


def lost_process(error: BaseException) -> Problem | None:
    """Return the problem of an error that another process caused by its end, or None."""
    if process_count() == 1 or not isinstance(error, jax.errors.JaxRuntimeError | ValueError):
        return None
    if said := _announced():
        return problem_of("TP784", file="--distributed", what=said[2])
    if not LOST.search(str(error)):
        return None
    what = f"Another process ended or cannot be reached: {first_line(error)}"
    return problem_of("TP784", file="--distributed", what=what)


@contextmanager
def ending_together() -> Iterator[None]:
    """End all processes with a message if one of them fails; without several processes, do nothing."""
    if process_count() == 1:
        yield
        return
    threading.Thread(target=_end_with_others, name="processes", daemon=True).start()
    try:
        yield
    except BaseException as error:
        lost = lost_process(error)
        problems = error.problems if isinstance(error, ProblemError) else [lost] if lost else []
        code = error.exit_code if isinstance(error, ProblemError) else INTERNAL_ERROR
        what = " ".join(problem.what for problem in problems) or f"{type(error).__name__}: {first_line(error)}"
        _announce(code, f"Process {jax.process_index()} ended: {what}")
        # At exit JAX would wait for the other processes, and abort without them.
        atexit.register(_leave, code)
        if lost and not isinstance(error, ProblemError):
            raise ProblemError(problems, exit_code=INTERNAL_ERROR) from error
        raise


def _announce(code: int, what: str) -> None:
    client: Any = distributed.global_state.client
    try:
        client.key_value_set(f"{ENDED}/{jax.process_index()}", json.dumps([jax.process_index(), code, what]))
    except jax.errors.JaxRuntimeError:
        return  # process 0 is not there any more


def _announced() -> list[Any] | None:
    """Return index, exit code and message of another process that failed, or None."""
    client: Any = distributed.global_state.client
    try:
        found = [json.loads(value) for _, value in client.key_value_dir_get(ENDED)]
    except jax.errors.JaxRuntimeError:
        return None
    return next((each for each in found if each[0] != jax.process_index()), None)


def _end_with_others() -> None:
    """End this process if another one failed and this one does not notice, for example because it waits for it."""
    while (said := _announced()) is None:
        time.sleep(1)
    time.sleep(GRACE_SECONDS)
    _end(problem_of("TP784", file="--distributed", what=said[2]), said[1])


def _end(problem: Problem, code: int) -> None:
    sys.stderr.write(render_text([problem]))
    _leave(code)


def _leave(code: int) -> None:
    if distributed.global_state.service is not None:
        time.sleep(LEAVE_SECONDS)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)

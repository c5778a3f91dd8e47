"""Train in several processes: join them, exchange values, share arrays, and end together.

All processes run the same programs in one order. Process 0 writes the run folder, and the others record into a
temporary one. What depends on one process alone, such as signals, paths and free memory, is exchanged.
"""

from __future__ import annotations

import atexit
import json
import os
import re
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import count
from typing import Any

import jax
from jax._src.distributed import global_state
from jax.experimental.multihost_utils import process_allgather

from schemas.problems import INTERNAL_ERROR, Problem, ProblemError, first_line, problem_of
from schemas.render import render_text

DECLARED = "TRAINPROOF_PROCESSES"
"""Environment variable with the number of processes that a run must have."""
JOIN_SECONDS, HEARTBEAT_SECONDS = 300, 30
"""How long a process waits for the others to start, and how long JAX waits for a process that stopped responding."""
GRACE_SECONDS, LEAVE_SECONDS = 15.0, 3.0
"""Time limit of process 0 to record a failure, and how long it then waits until the others have noticed."""
ENDED = "trainproof/ended"
"""Keys of processes that failed."""
LOST = re.compile("gloo|nccl|coordination|barrier|heartbeat|connection|peer|socket|unavailable", re.IGNORECASE)
"""What errors of communication contain."""
_numbers = count()


def process_count() -> int:
    """Return the number of processes that joined; does not start JAX."""
    return int(global_state.num_processes)


def is_lead() -> bool:
    """Return whether this process writes the run folder."""
    return global_state.process_id == 0


def join(coordinator: str | None, processes: int | None, index: int | None) -> None:
    """Call `jax.distributed.initialize` unless it was called already; JAX must not have looked for devices.

    Raises `ProblemError` with exit code 3 if this process cannot join. JAX would abort it if others are missing, so a
    timer ends it before.
    """
    if processes is not None:
        os.environ.setdefault(DECLARED, str(processes))
    if jax.distributed.is_initialized():
        return
    where = coordinator or "the coordinator"
    timer = threading.Timer(JOIN_SECONDS, _end, [_problem("TP780", f"Not all processes met at {where} in time."), 3])
    timer.start()
    jax.config.update("jax_enable_preemption_service", val=False)  # it would handle SIGTERM
    try:
        jax.distributed.initialize(
            *(coordinator, processes, index),
            initialization_timeout=10 * JOIN_SECONDS,
            heartbeat_timeout_seconds=HEARTBEAT_SECONDS,
        )
    except (RuntimeError, ValueError) as error:
        what = f"This process cannot join at {where}: {first_line(error)}"
        if coordinator is None:
            what = "--distributed found no Slurm, Kubernetes, Open MPI or TPU pod."
        raise ProblemError([_problem("TP780", what)], exit_code=3) from error
    finally:
        timer.cancel()


def refuse_other_count() -> None:
    """Refuse a number of processes that is not the declared one (`ProblemError`, exit code 3); starts JAX."""
    declared, found = os.environ.get(DECLARED) or str(process_count()), jax.process_count()
    if declared != str(found):
        raise ProblemError(
            [_problem("TP781", f"{declared} processes are declared, but JAX sees {found}.")], exit_code=3
        )


def exchange(value: Any) -> list[Any]:
    """Return a JSON value of each process, by process; waits for their hosts, not for devices."""
    if process_count() == 1:
        return [value]
    number, own = next(_numbers), global_state.process_id
    _client().key_value_set(f"trainproof/{number}/{own}", json.dumps(value))
    values = [json.loads(_read(f"trainproof/{number}/{index}")) for index in range(process_count())]
    _client().key_value_delete(f"trainproof/{number - 1}/{own}")  # all had read it before they sent this one
    return values


def _read(key: str) -> str:
    """Wait for the value of a key; raise JaxRuntimeError if another process failed."""
    while True:
        try:
            return str(_client().blocking_key_value_get(key, 1000))
        except jax.errors.JaxRuntimeError as error:
            if "DEADLINE_EXCEEDED" not in str(error) or _heard():
                raise


def refuse_differences(**values: Any) -> None:
    """Refuse values that differ between processes (`ProblemError`, exit code 2)."""
    for name, value in values.items():
        if len({json.dumps(each, sort_keys=True) for each in exchange(value)}) > 1:
            raise ProblemError([_problem("TP782", f"The processes differ in {name.replace('_', ' ')}.")], exit_code=2)


def place(values: Any, sharding: Any) -> Any:
    """Put a tree of arrays that every process has onto devices; each process copies its own parts."""
    if sharding is None or sharding.is_fully_addressable:
        return jax.device_put(values, sharding)
    return jax.tree.map(
        lambda value: jax.make_array_from_callback(value.shape, sharding, lambda index: value[index]), values
    )


def fetch(values: Any) -> Any:
    """Copy a tree of whole arrays of a run to the host of each process; all call it in one order."""
    return jax.device_get(values) if process_count() == 1 else process_allgather(values, tiled=True)


@contextmanager
def ending_together() -> Iterator[None]:
    """End all processes with a message if one of them fails; do nothing if there is only one."""
    if process_count() == 1:
        yield
        return
    is_done = threading.Event()
    threading.Thread(target=_watch_others, args=[is_done], name="processes", daemon=True).start()
    try:
        yield
        exchange(None)  # until process 0 has recorded the end
        is_done.set()
    except BaseException as error:  # noqa: BLE001 - raised again when the others know
        lost = lost_process(error)
        raised = error if lost is None else ProblemError([lost], exit_code=INTERNAL_ERROR)
        code = raised.exit_code if isinstance(raised, ProblemError) else INTERNAL_ERROR
        said = json.dumps([code, f"Process {global_state.process_id} ended: {first_line(raised)}"])
        with suppress(jax.errors.JaxRuntimeError):  # process 0 may have ended
            _client().key_value_set(f"{ENDED}/{global_state.process_id}", said)
        atexit.register(_leave, code)  # JAX would wait for the others, and abort without them
        raise raised from (None if raised is error else error)


def lost_process(error: BaseException) -> Problem | None:
    """Return the problem of an error of communication, which the end of another process caused, or None."""
    if process_count() == 1 or not isinstance(error, jax.errors.JaxRuntimeError | ValueError):
        return None
    with suppress(jax.errors.JaxRuntimeError):
        if said := _heard():
            return _problem("TP783", said[1])
    what = f"Another process ended or cannot be reached: {first_line(error)}"
    return _problem("TP783", what) if LOST.search(str(error)) else None


def _problem(code: str, what: str) -> Problem:
    return problem_of(code, file="--distributed", what=what)


def _client() -> Any:
    return global_state.client


def _heard() -> list[Any] | None:
    """Return exit code and message of another process that failed, or None."""
    ended = {key.rpartition("/")[2]: json.loads(value) for key, value in _client().key_value_dir_get(ENDED)}
    return next((said for index, said in ended.items() if index != str(global_state.process_id)), None)


def _watch_others(is_done: threading.Event) -> None:
    """End this process if another one failed and this one waits for it."""
    with suppress(jax.errors.JaxRuntimeError):  # process 0 has ended, and JAX aborts this one
        while not is_done.wait(1):
            if (said := _heard()) and not is_done.wait(GRACE_SECONDS if is_lead() else 0):
                _end(_problem("TP783", said[1]), said[0])


def _end(problem: Problem, code: int) -> None:
    sys.stderr.write(render_text([problem]))
    _leave(code)


def _leave(code: int) -> None:
    time.sleep(LEAVE_SECONDS if is_lead() else 0)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)

"""Compile programs for devices that are not here, and read how much memory they need.

A server process of `multiprocessing` imports JAX and the trainer once. Each program is compiled in a fork of it,
because a compiler can only be stopped with its process. The fork is ended as soon as XLA has written its reports of
buffer assignment and live ranges, which takes seconds; machine code would take minutes. Answers are cached by the
lowered program, the device, and the versions that compile it.
"""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import os
import re
import shutil
import signal
import tempfile
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

import jax

from evidence.writing import write_json
from trainer.config.tree import Config
from trainer.data.answers import EvalShape
from trainer.loop.programs import list_programs
from trainer.loop.task import Task, build_mesh
from trainer.model.source import resolve_for_planning
from trainer.planning.compile.machines import Machine
from trainer.planning.out_of_memory import parse
from trainer.recorder.environment import cache_folder
from trainer.runtime import versions

LIMIT_SECONDS, POLL_SECONDS = 600.0, 0.05
GRACE_SECONDS = 30.0
"""Time limit for the end of a process that has closed its output."""
REMOVALS = 100
"""Attempts to remove a folder to which the compiler still writes."""

FLAGS = "--xla_dump_to={} --xla_dump_hlo_as_text --xla_dump_hlo_pass_re="
OUTPUT = "output.txt"
ENVIRONMENT = {
    "TPU_SKIP_MDS_QUERY": "1",
    # It only compiles, so it does not disturb a process that uses a real TPU.
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
    "TPU_LOG_DIR": "disabled",
}
"""Environment of the compiling process: no network, no devices."""

ASSIGNMENT = "after_optimizations-buffer-assignment.txt"
LIVE_RANGE = "after_optimizations-live-range.txt"
COMPLETE = (
    "after_optimizations_after_buffer_assignment.txt",
    "gpu_after_optimizations-memory-usage-report.txt",
    "cpu_after_optimizations-memory-usage-report.txt",
)
"""Suffixes of the files that XLA writes last, for a TPU, a GPU and a CPU."""

_ALLOCATION = re.compile(r"allocation \d+: size (\d+),(?: color (\d+),)?(?: page \d+)?(.*)")
_VALUE = re.compile(r" value: <\d+ (\S+?)(\{[\d,]*\})?(?: \(phi\))? @\d+> \(size=(\d+),offset=(\d+)\): (.*)")
_RANGE = re.compile(r"^\s+(\S+?\{[\d,]*\}):(\d+)-(\d+)$", re.MULTILINE)

LARGE_BYTES = 2**20


@dataclass(frozen=True, kw_only=True)
class Buffer:
    """One buffer at the peak: the instruction that creates it, and element type and axes: `bf16[16,2048,16384]`."""

    name: str
    shape: str
    bytes: int


@dataclass(frozen=True, kw_only=True)
class CompiledMemory:
    """Memory of one program on one device."""

    peak_bytes: int
    """Arguments, results and the largest sum of live temporaries; JAX's `peak_memory_in_bytes`."""
    allocated_bytes: int
    """The peak and the gaps between buffers."""
    arguments_bytes: int
    aliased_bytes: int
    """Arguments that results are written into: a donated state."""
    largest: tuple[Buffer, ...]
    """Temporaries of at least 1 MiB at the peak, largest first."""


@dataclass(frozen=True, kw_only=True)
class CompilerAnswer:
    """The compiler's answer about one program: its need, and its memory, or None if it was refused as too large."""

    peak_bytes: int
    memory: CompiledMemory | None
    seconds: float


class CompilerError(RuntimeError):
    """The compiler is missing, took too long, or failed for another reason than memory."""


def ask_compiler(
    program: str,
    config: Config,
    machine: Machine,
    *,
    eval_shape: EvalShape | None = None,
    limit_seconds: float = LIMIT_SECONDS,
) -> CompilerAnswer:
    """Compile one program of a run, by its name in `loop/programs.py`, from shapes; no weights are read.

    `model.name` may be a folder with only a `config.json`. `eval_shape` is for `decode`. Raises CompilerError if the
    compiler failed or took too long.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    receiver, sender = context.Pipe(duplex=False)
    began = time.monotonic()
    # The fork makes the folder, so that none is left if this process is killed before.
    folder = Path(tempfile.gettempdir(), f"trainproof-compile-{uuid.uuid4().hex}")
    with receiver, ExitStack() as cleanup:
        cleanup.callback(shutil.rmtree, folder, ignore_errors=True)
        environment = {**os.environ, **ENVIRONMENT, "XLA_FLAGS": f"{machine.flags} {FLAGS.format(folder)}"}
        order = (compile_program, program, config, machine, eval_shape)
        process = context.Process(target=_run_fork, args=(order, environment, folder, sender), daemon=True)
        process.start()
        sender.close()
        said: dict[str, Any] = {}
        try:
            while not is_complete(folder) and time.monotonic() - began < limit_seconds:
                if receiver.poll(POLL_SECONDS):
                    said |= receiver.recv()
        except EOFError:
            process.join(GRACE_SECONDS)
        finally:
            exit_code = process.exitcode
            process.kill()
            process.join()
        answer = _read_answer(said, folder, machine, seconds=time.monotonic() - began)
        if answer is None:
            why = f" within {limit_seconds:.0f} s" if exit_code is None else f": {_last_words(folder, exit_code)}"
            message = f"The compiler gave no answer{why}"
            raise CompilerError(message)
        if "key" in said:
            save_answer(said["key"], answer)
        return answer


def _read_answer(said: dict[str, Any], folder: Path, machine: Machine, *, seconds: float) -> CompilerAnswer | None:
    """Return the answer of a fork: from the cache, from the reports, or from the compiler's refusal for memory."""
    if is_complete(folder):
        try:
            memory = read_memory(folder)
        except ValueError as error:
            raise CompilerError(str(error)) from error
        # GPUs and CPUs allocate the memory of a program at once, with its gaps.
        peak = memory.peak_bytes if machine.platform == "tpu" else memory.allocated_bytes
        return CompilerAnswer(peak_bytes=peak, memory=memory, seconds=seconds)
    if "refusal" not in said:
        return said.get("answer")
    failure = parse(said["refusal"])
    if failure is None or failure.need_bytes is None:
        message = f"The compiler refused the program: {' '.join(said['refusal'].split())[-300:]}"
        raise CompilerError(message)
    return CompilerAnswer(peak_bytes=failure.need_bytes, memory=None, seconds=seconds)


def _last_words(folder: Path, exit_code: int) -> str:
    """Describe the end of a process that gave no answer."""
    output = folder / OUTPUT
    text = output.read_text(encoding="utf-8", errors="replace") if output.is_file() else ""
    last = text.strip().rpartition("\n")[2][-300:]
    if exit_code >= 0:
        return last or "the compiler process exited without output"
    name = signal.Signals(-exit_code).name
    cause = " (usually out of host memory)" if name == "SIGKILL" else ""
    return f"the compiler process was ended by {name}{cause}" + (f"; its last output: {last}" if last else "")


def _run_fork(order: tuple[Any, ...], environment: dict[str, str], folder: Path, sender: Connection) -> None:
    """Compile a program in this process, and send the result."""
    # Before the thread, which would otherwise find nothing to remove if the client has already ended.
    folder.mkdir(mode=0o700)
    threading.Thread(target=_end_with_parent, args=(folder,), daemon=True).start()
    output = os.open(folder / OUTPUT, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for stream in (1, 2):
        os.dup2(output, stream)
    os.environ.update(environment)
    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_enable_compilation_cache", val=False)  # what is not compiled leaves no reports
    compile_program, *arguments = order
    try:
        compile_program(*arguments, sender.send)
    except jax.errors.JaxRuntimeError as error:
        sender.send({"refusal": str(error)})
    os._exit(0)


def _end_with_parent(folder: Path) -> None:
    """Remove the folder and end this process when its client has ended."""
    parent = multiprocessing.parent_process()
    assert parent is not None, "this process is a fork"
    parent.join()
    for _ in range(REMOVALS):
        shutil.rmtree(folder, ignore_errors=True)
        if not folder.exists():
            break
    os._exit(1)


def compile_program(
    program: str, config: Config, machine: Machine, eval_shape: EvalShape | None, send: Callable[[dict[str, Any]], None]
) -> None:
    """Lower a program and compile it, unless the cache has its answer."""
    source = resolve_for_planning(config.model.name, config.model.revision)
    task = Task.of(config, source, build_mesh(machine.list_devices()), platform=machine.platform)
    found = list_programs(task, eval_shape=eval_shape)[program]
    lowered = found.function.trace(*found.arguments, **found.settings).lower()
    key = cache_key(lowered.as_text(), machine=asdict(machine), options=task.compiler_options)
    if (known := load_answer(key)) is not None:
        send({"answer": known})
        return
    send({"key": key})
    lowered.compile()


def cache_key(stablehlo: str, **device: Any) -> str:
    """Return the key of a lowered program for a device and compiler options."""
    program = hashlib.sha256(stablehlo.encode()).hexdigest()
    return hashlib.sha256(json.dumps([program, device, versions()], sort_keys=True).encode()).hexdigest()


def load_answer(key: str) -> CompilerAnswer | None:
    """Return a cached answer, or None if it is missing or cannot be read."""
    with suppress(OSError, ValueError, TypeError):
        found = json.loads((cache_folder() / "plans" / f"{key}.json").read_text(encoding="utf-8"))
        if found["memory"] is not None:
            largest = tuple(Buffer(**buffer) for buffer in found["memory"].pop("largest"))
            found["memory"] = CompiledMemory(**found["memory"], largest=largest)
        return CompilerAnswer(**found)
    return None


def save_answer(key: str, answer: CompilerAnswer) -> None:
    """Cache an answer, unless the cache folder is read-only."""
    plans = cache_folder() / "plans"
    with suppress(OSError):
        plans.mkdir(parents=True, exist_ok=True)
        write_json(plans / f"{key}.json", asdict(answer))


def is_complete(folder: Path) -> bool:
    """Return whether a folder contains all reports of a program.

    Since jax 0.12 the CPU compiler writes its reports in several threads, and its options once more at the end.
    """
    files = list(folder.iterdir()) if folder.is_dir() else []
    if not any(file.name.endswith(COMPLETE) for file in files):
        return False
    reports = [file.stat().st_mtime_ns for file in files if ".cpu_after_optimizations" in file.name]
    options = [file.stat().st_mtime_ns for file in files if file.name.endswith(".debug_options")]
    return not reports or max(options, default=0) >= max(reports)


def read_memory(folder: Path) -> CompiledMemory:
    """Read the memory of the program whose reports are in a folder, or raise a ValueError for an unknown format.

    Only the device's main memory counts (color 0). Temporaries share one allocation, everything else is live during
    the whole program.
    """
    fixed = arguments = aliased = shared = 0
    is_shared = False
    temporaries: list[_Temporary] = []
    assignment, live_ranges = _read(folder, ASSIGNMENT), _read(folder, LIVE_RANGE)
    body = live_ranges.partition("BufferLiveRange:")[2].partition("Live ranges at")[0]
    ranges = {name: (int(first), int(last)) for name, first, last in _RANGE.findall(body)}
    for line in assignment.splitlines():
        if allocation := _ALLOCATION.match(line):
            size, color, rest = int(allocation[1]), int(allocation[2] or 0), allocation[3]
            is_shared = color == 0 and "preallocated-temp" in rest
            if is_shared:
                shared += size
            elif color == 0 and "thread-local" not in rest:
                fixed += size
                if "parameter" in rest:
                    arguments += size
                    aliased += size if "maybe-live-out" in rest else 0
        elif is_shared and line.startswith(" value:"):
            if (value := _VALUE.match(line)) is None:
                message = f"unexpected value in XLA's buffer assignment: {line[:120]}"
                raise ValueError(message)
            buffer = Buffer(name=value[1], shape=value[5].partition("{")[0], bytes=int(value[3]))
            if live := ranges.get(value[1] + (value[2] or "{}")):
                temporaries.append(_Temporary(buffer, int(value[4]), *live))
    if not fixed:
        message = "XLA's buffer assignment has no allocation"
        raise ValueError(message)
    live_bytes, buffers = _largest_moment(temporaries)
    large = (buffer for buffer in buffers if buffer.bytes >= LARGE_BYTES)
    return CompiledMemory(
        peak_bytes=fixed + live_bytes,
        allocated_bytes=fixed + shared,
        arguments_bytes=arguments,
        aliased_bytes=aliased,
        largest=tuple(sorted(large, key=lambda buffer: -buffer.bytes)),
    )


class _Temporary(NamedTuple):
    """A buffer in the shared allocation, and the first and last instruction that need it."""

    buffer: Buffer
    offset: int
    first: int
    last: int


def _read(folder: Path, suffix: str) -> str:
    if not (files := sorted(folder.glob(f"*{suffix}"))):
        message = f"XLA wrote no *{suffix}"
        raise ValueError(message)
    return files[-1].read_text(encoding="utf-8")


def _largest_moment(temporaries: list[_Temporary]) -> tuple[int, list[Buffer]]:
    """Return the largest sum of live bytes, and the live buffers; values with the same place and size count once."""
    # Starts sort before ends: operands and result of an instruction exist together.
    events = sorted(
        (moment, is_end, number)
        for number, each in enumerate(temporaries)
        for moment, is_end in ((each.first, False), (each.last, True))
    )
    users: Counter[tuple[int, int]] = Counter()
    live: dict[tuple[int, int], Buffer] = {}
    now = most = 0
    at_most: list[Buffer] = []
    for _, is_end, number in events:
        buffer = temporaries[number].buffer
        place = (temporaries[number].offset, buffer.bytes)
        users[place] += -1 if is_end else 1
        if is_end and not users[place]:
            del live[place]
            now -= buffer.bytes
        elif not is_end and place not in live:
            live[place] = buffer
            now += buffer.bytes
        if now > most:
            most, at_most = now, list(live.values())
    return most, at_most

"""One program compiled for a device that is not here, in a process that is ended as soon as its memory is known."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from trainer.config.tree import Config, document_of
from trainer.data.answers import EvalShape
from trainer.planning.compile.buffers import Buffer, CompiledMemory, is_complete, read_memory
from trainer.planning.compile.machines import V5E_1, V5E_8, Cards, Chips, Machine, Processors

OUTPUT = "output.txt"
"""What was printed, by the compiler or on its way there."""
ANSWER = "answer.json"
"""What came of the order: JAX's own figures, a refusal, or a failure."""
ENDED = "ended.json"
"""How the order's process ended; it writes nothing any more."""


__all__ = ["V5E_1", "V5E_8", "Chips", "CompileRequest", "Compiler", "CompilerAnswer", "CompilerError", "compile_ahead"]

LOOK_EVERY_SECONDS = 0.1
GRACE_SECONDS = 10.0
"""For a process to end what it does, where it has been told to."""
LIMIT_SECONDS = 600.0

_OUT_OF_MEMORY = (
    re.compile(r"Used (?P<need>[\d.]+)(?P<unit>[KMGT]) of (?P<cap>[\d.]+)(?P<cap_unit>[KMGT]) hbm"),
    re.compile(r"\((?P<need>[\d.]+)(?P<unit>[KMGT])\) exceeds available HBM \((?P<cap>[\d.]+)(?P<cap_unit>[KMGT])\)"),
)
"""How the compiler says that a program does not fit, in older and newer words; its G is GiB."""
_UNITS = {"K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


@dataclass(frozen=True, kw_only=True)
class CompileRequest:
    """One program of one run for one kind of device."""

    program: str
    """Its name in `loop/programs.py`: start, train, decode, export, draw."""
    config: Config
    """The run; `model.name` may be a folder with nothing but a `config.json`."""
    machine: Machine
    asked: EvalShape | None = None
    """What the evaluation asks, for decode."""
    layers: int = 0
    """So many of the model's layers, the first ones. 0: all."""
    occupied_bytes: int = 0
    """Of each device, beside the program: what the other layers take."""

    def document(self) -> dict[str, Any]:
        """Return the question as plain values."""
        return {
            "program": self.program,
            "config": document_of(self.config),
            "machine": self.machine.order(),
            "asked": None if self.asked is None else asdict(self.asked),
            "layers": self.layers,
            "occupied_bytes": self.occupied_bytes,
        }


@dataclass(frozen=True, kw_only=True)
class CompilerAnswer:
    """What the compiler said of one program."""

    memory: CompiledMemory | None
    """None: it does not fit, or nothing was said."""
    need_bytes: int | None
    """What it would take where it does not fit, as the compiler says it."""
    said: str
    """The compiler's own words where it refused; empty otherwise."""
    seconds: float

    in_one_piece: bool = False
    """Whether the device's memory is given out for a whole program at once, gaps and all, as a GPU's and a CPU's is."""

    @property
    def peak_bytes(self) -> int:
        """What the program needs, whether it fits or not."""
        if self.memory is None:
            return self.need_bytes or 0
        return self.memory.allocated_bytes if self.in_one_piece else self.memory.peak_bytes

    def document(self) -> dict[str, Any]:
        """Return the answer as plain values."""
        return asdict(self)

    @classmethod
    def from_document(cls, document: dict[str, Any]) -> CompilerAnswer:
        """Return the answer of a document that `document` made."""
        memory = document["memory"]
        if memory is not None:
            largest = tuple(Buffer(**buffer) for buffer in memory["largest"])
            memory = CompiledMemory(**{**memory, "largest": largest})
        return cls(**{**document, "memory": memory})


class CompilerError(RuntimeError):
    """No answer: the compiler is missing, took too long, or failed for another reason than memory."""


class Compiler:
    """A process that compiles what it is asked, one program after the other; it ends with the `with` block."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._room = tempfile.TemporaryDirectory(prefix="trainproof-compile-", ignore_cleanup_errors=True)
        self._asked = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._process is not None:
            assert self._process.stdin is not None, "a pipe was asked for"
            # At the end of its orders it ends a compiler that still works, and removes the room.
            with suppress(BrokenPipeError):
                self._process.stdin.close()
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(GRACE_SECONDS)
            _kill(self._process)
        self._room.cleanup()

    def ask(self, question: CompileRequest, *, limit_seconds: float = LIMIT_SECONDS) -> CompilerAnswer:
        """Return what the compiler says of one program of a run. Shapes only: no weight is read, no array made.

        Raises:
            CompilerError: no answer came.
        """
        began = time.perf_counter()
        process = self.start()
        self._asked += 1
        folder = Path(self._room.name) / str(self._asked)
        folder.mkdir()
        _tell(process, json.dumps({**question.document(), "folder": str(folder)}))
        try:
            _wait(process, began + limit_seconds, lambda: is_complete(folder) or (folder / ENDED).is_file())
        finally:
            _tell(process, "")
        seconds = time.perf_counter() - began
        _wait(process, time.perf_counter() + GRACE_SECONDS, (folder / ENDED).is_file)
        if is_complete(folder):
            in_one_piece = isinstance(question.machine, Cards | Processors)
            memory = read_memory(folder)
            return CompilerAnswer(memory=memory, need_bytes=None, said="", seconds=seconds, in_one_piece=in_one_piece)
        return _answer_in(folder, seconds, limit_seconds)

    def start(self) -> subprocess.Popen[bytes]:
        """Start the process, which imports what it needs while others go on; once."""
        if self._process is None or self._process.poll() is not None:
            if self._process is not None:
                _kill(self._process)
            room = Path(self._room.name)
            with (room / OUTPUT).open("wb") as sink:
                self._process = subprocess.Popen(
                    [sys.executable, "-m", "trainer.planning.compile.child", str(room)],
                    stdin=subprocess.PIPE,
                    stdout=sink,
                    stderr=subprocess.STDOUT,
                    env=os.environ | ENVIRONMENT,
                    start_new_session=True,
                )
        return self._process


def _tell(process: subprocess.Popen[bytes], line: str) -> None:
    """Write a line to the compiling process, which may be gone."""
    assert process.stdin is not None, "a pipe was asked for"
    with suppress(BrokenPipeError):
        process.stdin.write(f"{line}\n".encode())
        process.stdin.flush()


def _kill(process: subprocess.Popen[bytes]) -> None:
    """End the compiling process and all that it has started."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _wait(process: subprocess.Popen[bytes], until: float, is_there: Callable[[], bool]) -> None:
    """Return when something is there, when nobody is left to bring it, or when its time is over."""
    while not is_there() and process.poll() is None and time.perf_counter() < until:
        time.sleep(LOOK_EVERY_SECONDS)


ENVIRONMENT = {
    "JAX_PLATFORMS": "cpu",
    "TPU_SKIP_MDS_QUERY": "1",
    # It only compiles: a process that holds a real TPU, or compiles too, is not in its way.
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
    "TPU_LOG_DIR": "disabled",
    "PYTHONDONTWRITEBYTECODE": "1",
    # A program that is taken from JAX's own cache is not compiled, and leaves no reports.
    "JAX_ENABLE_COMPILATION_CACHE": "false",
}
"""What the compiling process is told: to ask no network, and to leave every device alone."""


def compile_ahead(
    program: str,
    config: Config,
    machine: Machine,
    *,
    asked: EvalShape | None = None,
    limit_seconds: float = LIMIT_SECONDS,
) -> CompilerAnswer:
    """Return what the compiler says of one program, by a process for it alone.

    Raises:
        CompilerError: no answer came.
    """
    with Compiler() as compiler:
        question = CompileRequest(program=program, config=config, machine=machine, asked=asked)
        return compiler.ask(question, limit_seconds=limit_seconds)


def _answer_in(folder: Path, seconds: float, limit_seconds: float) -> CompilerAnswer:
    """Return the answer that lies in an order's folder.

    Raises:
        CompilerError: there is none.
    """
    if not (folder / ANSWER).is_file():
        message = f"The compiler gave no answer: {_why_none(folder, seconds, limit_seconds)}"
        raise CompilerError(message)
    said = json.loads((folder / ANSWER).read_text(encoding="utf-8"))
    refusal = said.get("refusal", "")
    for pattern in _OUT_OF_MEMORY:
        if found := pattern.search(refusal):
            need = float(found["need"]) * _UNITS[found["unit"]]
            return CompilerAnswer(memory=None, need_bytes=int(need), said=refusal, seconds=seconds)
    why = refusal or said.get("failure", "it compiled the program and wrote no reports of its memory")
    message = f"The compiler refused the program: {why[-300:].strip()}"
    raise CompilerError(message)


def _why_none(folder: Path, seconds: float, limit_seconds: float) -> str:
    """Return why no answer came: how its process ended, else the last words of it or of the process that started it."""
    if seconds >= limit_seconds:
        return f"ended after {limit_seconds:.0f} s"
    own = folder / OUTPUT
    said = (own if own.is_file() else folder.parent / OUTPUT).read_text(encoding="utf-8", errors="replace")
    last = said.strip().rpartition("\n")[2][-300:]
    number = json.loads((folder / ENDED).read_text(encoding="utf-8"))["signal"] if (folder / ENDED).is_file() else None
    if number is None:
        return last or "its process ended without a word"
    cause = ", as by a machine whose memory is used up" if number == signal.SIGKILL else ""
    words = f"; its last words: {last}" if last else ""
    return f"its process was ended by {signal.Signals(number).name}{cause}{words}"

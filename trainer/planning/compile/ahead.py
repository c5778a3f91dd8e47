"""One program compiled for a device that is not here, in a process of its own, ended as soon as its memory is known."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from trainer.config.tree import Config, document_of
from trainer.data.prompts import Asked
from trainer.planning.compile.buffers import Buffer, ProgramMemory, is_complete, read_memory
from trainer.planning.compile.machines import V5E_1, V5E_8, Cards, Chips, Machine

__all__ = ["V5E_1", "V5E_8", "Answer", "Chips", "Compiler", "CompilerError", "Question", "compile_ahead"]

LOOK_EVERY_SECONDS = 0.1
LIMIT_SECONDS = 600.0

_OUT_OF_MEMORY = (
    re.compile(r"Used (?P<need>[\d.]+)(?P<unit>[KMGT]) of (?P<cap>[\d.]+)(?P<cap_unit>[KMGT]) hbm"),
    re.compile(r"\((?P<need>[\d.]+)(?P<unit>[KMGT])\) exceeds available HBM \((?P<cap>[\d.]+)(?P<cap_unit>[KMGT])\)"),
)
"""How the compiler says that a program does not fit, in older and newer words; its G is GiB."""
_UNITS = {"K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


@dataclass(frozen=True, kw_only=True)
class Question:
    """One program of one run for one kind of device."""

    program: str
    """Its name in `loop/program.py`: start, train, decode, export, draw."""
    config: Config
    """The run; `model.name` may be a folder with nothing but a `config.json`."""
    machine: Machine
    asked: Asked | None = None
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
class Answer:
    """What the compiler said of one program."""

    memory: ProgramMemory | None
    """None: it does not fit, or nothing was said."""
    need_bytes: int | None
    """What it would take where it does not fit, as the compiler says it."""
    said: str
    """The compiler's own words where it refused; empty otherwise."""
    seconds: float

    in_one_piece: bool = False
    """Whether the device's memory is given out for a whole program at once, gaps and all, as a GPU's is."""

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
    def from_document(cls, document: dict[str, Any]) -> Answer:
        """Return the answer of a document that `document` made."""
        memory = document["memory"]
        if memory is not None:
            largest = tuple(Buffer(**buffer) for buffer in memory["largest"])
            memory = ProgramMemory(**{**memory, "largest": largest})
        return cls(**{**document, "memory": memory})


class CompilerError(RuntimeError):
    """No answer: the compiler is missing, took too long, or failed for another reason than memory."""


class Compiler:
    """A process that compiles what it is asked, one program after the other; it ends with the `with` block."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._room = tempfile.TemporaryDirectory(prefix="trainproof-compile-")
        self._asked = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            if self._process.stdin is not None:
                with suppress(BrokenPipeError):
                    self._process.stdin.close()
        self._room.cleanup()

    def ask(self, question: Question, *, limit_seconds: float = LIMIT_SECONDS) -> Answer:
        """Return what the compiler says of one program of a run. Shapes only: no weight is read, no array made.

        Raises:
            CompilerError: no answer came.
        """
        began = time.perf_counter()
        process = self.start()
        self._asked += 1
        folder = Path(self._room.name) / str(self._asked)
        folder.mkdir()
        order = {**question.document(), "folder": str(folder)}
        with suppress(BrokenPipeError):
            assert process.stdin is not None, "a pipe was asked for"
            process.stdin.write((json.dumps(order) + "\n").encode())
            process.stdin.flush()
        try:
            while not _has_ended(process, folder) and time.perf_counter() - began < limit_seconds:
                time.sleep(LOOK_EVERY_SECONDS)
        finally:
            _end(folder)
        seconds = time.perf_counter() - began
        if is_complete(folder):
            in_one_piece = isinstance(question.machine, Cards)
            memory = read_memory(folder)
            return Answer(memory=memory, need_bytes=None, said="", seconds=seconds, in_one_piece=in_one_piece)
        return _answer_in(self._output(folder), seconds, limit_seconds)

    def start(self) -> subprocess.Popen[bytes]:
        """Start the process, which imports what it needs while others go on; once."""
        if self._process is None or self._process.poll() is not None:
            with (Path(self._room.name) / "output.txt").open("wb") as sink:
                self._process = subprocess.Popen(
                    [sys.executable, "-m", "trainer.planning.compile.child"],
                    stdin=subprocess.PIPE,
                    stdout=sink,
                    stderr=subprocess.STDOUT,
                    env=os.environ | ENVIRONMENT,
                    start_new_session=True,
                )
        return self._process

    def _output(self, folder: Path) -> str:
        """Return what was said of one order; where nothing was, what the process itself said."""
        own = folder / "output.txt"
        file = own if own.is_file() else folder.parent / "output.txt"
        return file.read_text(encoding="utf-8", errors="replace")


ENVIRONMENT = {
    "JAX_PLATFORMS": "cpu",
    "TPU_SKIP_MDS_QUERY": "1",
    # It only compiles: a process that holds a real TPU, or compiles too, is not in its way.
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
    "TPU_LOG_DIR": "disabled",
    "PYTHONDONTWRITEBYTECODE": "1",
}
"""What the compiling process is told: to ask no network, and to leave every device alone."""


def compile_ahead(
    program: str,
    config: Config,
    machine: Machine,
    *,
    asked: Asked | None = None,
    limit_seconds: float = LIMIT_SECONDS,
) -> Answer:
    """Return what the compiler says of one program, by a process for it alone.

    Raises:
        CompilerError: no answer came.
    """
    with Compiler() as compiler:
        question = Question(program=program, config=config, machine=machine, asked=asked)
        return compiler.ask(question, limit_seconds=limit_seconds)


def _has_ended(process: subprocess.Popen[bytes], folder: Path) -> bool:
    """Return whether an order has its answer, or nobody is left to give one."""
    if is_complete(folder):
        return True
    if (working := _working(folder)) is None:
        return process.poll() is not None
    try:
        os.kill(working, 0)
    except ProcessLookupError:
        return True
    return process.poll() is not None


def _working(folder: Path) -> int | None:
    """Return the id of the process that carries out an order, None before there is one."""
    file = folder / "pid"
    return int(file.read_text()) if file.is_file() else None


def _end(folder: Path) -> None:
    """End the process of an order, if it still runs."""
    if (working := _working(folder)) is not None:
        with suppress(ProcessLookupError):
            os.kill(working, signal.SIGKILL)


def _answer_in(output: str, seconds: float, limit_seconds: float) -> Answer:
    """Return the answer that the last line holds.

    Raises:
        CompilerError: it holds none.
    """
    last = output.strip().rpartition("\n")[2]
    if not last.startswith("{"):
        why = f"ended after {limit_seconds:.0f} s" if seconds >= limit_seconds else last[-300:]
        message = f"The compiler gave no answer: {why}"
        raise CompilerError(message)
    said = json.loads(last)
    refusal = said.get("refusal", "")
    for pattern in _OUT_OF_MEMORY:
        if found := pattern.search(refusal):
            need = float(found["need"]) * _UNITS[found["unit"]]
            return Answer(memory=None, need_bytes=int(need), said=refusal, seconds=seconds)
    message = f"The compiler refused the program: {(refusal or said.get('failure', ''))[-300:].strip()}"
    raise CompilerError(message)

"""Ask a compiler for the memory of one program on a device that is not here."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from types import TracebackType
from typing import Any, Self

from trainer.config.tree import Config, to_document
from trainer.data.answers import EvalShape
from trainer.planning.compile.buffers import Buffer, CompiledMemory
from trainer.planning.compile.machines import Machine

LIMIT_SECONDS = 600.0
GRACE_SECONDS = 30.0
"""Time for the child process to import JAX, and to end."""

ENVIRONMENT = {
    "JAX_PLATFORMS": "cpu",
    "TPU_SKIP_MDS_QUERY": "1",
    # It only compiles, so it does not disturb a process that uses a real TPU.
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
    "TPU_LOG_DIR": "disabled",
    "PYTHONDONTWRITEBYTECODE": "1",
    # A program from JAX's own cache is not compiled and leaves no reports.
    "JAX_ENABLE_COMPILATION_CACHE": "false",
}
"""Environment of the child process: no network, no devices."""


@dataclass(frozen=True, kw_only=True)
class CompilerAnswer:
    """The compiler's answer about one program.

    Attributes:
        memory: Memory of the program, or None if it does not fit.
        need_bytes: The compiler's figure if it does not fit.
        seconds: Time until the reports were written.
        in_one_piece: Whether the device allocates the memory of a program at once with its gaps, as GPUs and CPUs do.
    """

    memory: CompiledMemory | None
    need_bytes: int | None
    seconds: float
    in_one_piece: bool = False

    @property
    def peak_bytes(self) -> int:
        """The need of the program, whether it fits or not."""
        if self.memory is None:
            return self.need_bytes or 0
        return self.memory.allocated_bytes if self.in_one_piece else self.memory.peak_bytes


class CompilerError(RuntimeError):
    """The compiler is missing, took too long, or failed for another reason than memory."""


class Compiler:
    """A child process that compiles programs one after the other; use it as a context manager."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed in __exit__

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._process is not None:
            assert self._process.stdin is not None, "stdin is a pipe"
            with suppress(BrokenPipeError):
                self._process.stdin.close()
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(GRACE_SECONDS)
        self._kill()
        self._errors.close()

    def ask(
        self,
        program: str,
        config: Config,
        machine: Machine,
        *,
        asked: EvalShape | None = None,
        limit_seconds: float = LIMIT_SECONDS,
    ) -> CompilerAnswer:
        """Compile one program of a run from shapes; no weights are read.

        Args:
            program: Its name in `loop/programs.py`.
            config: The run; `model.name` may be a folder with only a `config.json`.
            machine: The devices.
            asked: Shape of the evaluation prompts, for `decode`.
            limit_seconds: Time limit.

        Raises:
            CompilerError: There is no answer.
        """
        process = self.start()
        assert process.stdin is not None, "stdin is a pipe"
        order: dict[str, Any] = {
            "program": program,
            "config": to_document(config),
            "machine": machine.order(),
            "asked": None if asked is None else asdict(asked),
            "limit_seconds": limit_seconds,
        }
        try:
            with suppress(BrokenPipeError):
                process.stdin.write(json.dumps(order).encode() + b"\n")
                process.stdin.flush()
            said = self._read_answer(process, time.monotonic() + limit_seconds + GRACE_SECONDS)
        except BaseException:
            self._kill()  # a later answer would belong to an earlier question
            raise
        if "failure" in said:
            raise CompilerError(said["failure"])
        answer = said["answer"]
        if answer["memory"] is not None:
            largest = tuple(Buffer(**buffer) for buffer in answer["memory"]["largest"])
            answer["memory"] = CompiledMemory(**{**answer["memory"], "largest": largest})
        return CompilerAnswer(**answer)

    def start(self) -> subprocess.Popen[bytes]:
        """Start the child process, unless it runs."""
        if self._process is None or self._process.poll() is not None:
            self._kill()
            self._process = subprocess.Popen(
                [sys.executable, "-m", "trainer.planning.compile.child"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                env=os.environ | ENVIRONMENT,
                start_new_session=True,
            )
        return self._process

    def _read_answer(self, process: subprocess.Popen[bytes], until: float) -> dict[str, Any]:
        assert process.stdout is not None, "stdout is a pipe"
        line = b""
        while not line.endswith(b"\n"):
            ready, _, _ = select.select([process.stdout], [], [], max(until - time.monotonic(), 0))
            piece = os.read(process.stdout.fileno(), 1 << 16) if ready else b""
            if not piece:
                self._errors.seek(0)
                last = self._errors.read().decode("utf-8", errors="replace").strip().rpartition("\n")[2][-300:]
                what = "ended" if ready else "does not answer"
                message = f"The compiler process {what}: {last or 'it printed nothing'}"
                raise CompilerError(message)
            line += piece
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _kill(self) -> None:
        """End the child process and its forks."""
        if self._process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            with suppress(BrokenPipeError):  # closes the pipes and waits
                self._process.__exit__(None, None, None)
            self._process = None

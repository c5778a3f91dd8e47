"""One program compiled for a TPU that is not here, in a process of its own, ended as soon as its memory is known."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from trainer.config.tree import Config, document_of
from trainer.data.prompts import Asked
from trainer.planning.compile.buffers import COMPLETE, ProgramMemory, read_memory

LOOK_EVERY_SECONDS = 0.1

_OUT_OF_MEMORY = (
    re.compile(r"Used (?P<need>[\d.]+)(?P<unit>[KMGT]) of (?P<cap>[\d.]+)(?P<cap_unit>[KMGT]) hbm"),
    re.compile(r"\((?P<need>[\d.]+)(?P<unit>[KMGT])\) exceeds available HBM \((?P<cap>[\d.]+)(?P<cap_unit>[KMGT])\)"),
)
"""How the compiler says that a program does not fit, in older and newer words; its G is GiB."""
_UNITS = {"K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


@dataclass(frozen=True, kw_only=True)
class Chips:
    """TPU chips as libtpu names them."""

    topology: str
    """Kind and arrangement, `v5e:2x4`."""
    devices: int
    chips_per_host: tuple[int, int, int] | None = None
    """None: libtpu's own default for the kind."""


V5E_1 = Chips(topology="v5e:1x1", devices=1, chips_per_host=(1, 1, 1))
V5E_8 = Chips(topology="v5e:2x4", devices=8)


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


class CompilerError(RuntimeError):
    """No answer: the compiler is missing, took too long, or failed for another reason than memory."""


def compile_ahead(
    program: str, config: Config, chips: Chips, *, asked: Asked | None = None, limit_seconds: float = 600
) -> Answer:
    """Return what the TPU compiler says of one program of a run. Shapes only: no weight is read, no array made.

    Args:
        program: its name in `loop/program.py`: start, train, decode, draw.
        config: the run; `model.name` may be a folder with nothing but a `config.json`.
        chips: the target.
        asked: what the evaluation asks, for decode.
        limit_seconds: the process is ended after this time.

    Raises:
        CompilerError: no answer came.
    """
    order = {
        "program": program,
        "config": document_of(config),
        "topology": chips.topology,
        "devices": chips.devices,
        "chips_per_host": chips.chips_per_host,
        "asked": None if asked is None else asdict(asked),
    }
    began = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="trainproof-compile-") as name:
        folder = Path(name)
        output = _run_child(order, folder, until=began + limit_seconds)
        seconds = time.perf_counter() - began
        if any(folder.glob(f"*{COMPLETE}")):
            return Answer(memory=read_memory(folder), need_bytes=None, said="", seconds=seconds)
    return _answer_in(output, seconds, limit_seconds)


def _run_child(order: dict[str, Any], folder: Path, *, until: float) -> str:
    """Run the compiling process until it ends, its reports are complete or time is up; return what it wrote."""
    output = folder / "output.txt"
    with output.open("wb") as sink:
        child = subprocess.Popen(
            [sys.executable, "-m", "trainer.planning.compile.child"],
            stdin=subprocess.PIPE,
            stdout=sink,
            stderr=subprocess.STDOUT,
            env=os.environ | _environment(folder),
            start_new_session=True,
        )
        assert child.stdin is not None, "a pipe was asked for"
        with child.stdin as pipe:
            pipe.write(json.dumps(order).encode())
        try:
            while child.poll() is None and time.perf_counter() < until and not any(folder.glob(f"*{COMPLETE}")):
                time.sleep(LOOK_EVERY_SECONDS)
        finally:
            if child.poll() is None:
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()
    return output.read_text(encoding="utf-8", errors="replace")


def _environment(folder: Path) -> dict[str, str]:
    """Return what the compiling process is told: to report, to ask no network, to leave every device alone."""
    return {
        "JAX_PLATFORMS": "cpu",
        "TPU_SKIP_MDS_QUERY": "1",
        # It only compiles: a process that holds a real TPU is not in its way.
        "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
        "XLA_FLAGS": f"--xla_dump_to={folder} --xla_dump_hlo_as_text",
    }


def _answer_in(output: str, seconds: float, limit_seconds: float) -> Answer:
    """Return the answer that a child's last line holds.

    Raises:
        CompilerError: it holds none.
    """
    last = output.strip().rpartition("\n")[2]
    if not last.startswith("{"):
        why = f"ended after {limit_seconds:.0f} s" if seconds >= limit_seconds else last[-300:]
        message = f"The compiler gave no answer: {why}"
        raise CompilerError(message)
    refusal = json.loads(last).get("refusal", "")
    for pattern in _OUT_OF_MEMORY:
        if found := pattern.search(refusal):
            need = float(found["need"]) * _UNITS[found["unit"]]
            return Answer(memory=None, need_bytes=int(need), said=refusal, seconds=seconds)
    message = f"The compiler refused the program: {refusal[:300]}"
    raise CompilerError(message)

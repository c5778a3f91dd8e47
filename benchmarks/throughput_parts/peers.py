"""The processes that a benchmark measures: an environment for each, started, asked in turn, and what came of it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import IO, Any

HERE = Path(__file__).parents[1]


@dataclass(frozen=True, kw_only=True)
class Loop:
    """One of the loops."""

    script: str
    """In `benchmarks`."""
    arguments: tuple[str, ...] = ()
    environment: str | None = None
    variables: dict[str, str] = field(default_factory=dict)
    """Environment variables."""
    one_core: bool = False
    """Whether it may use one core alone."""


def made(folder: Path, wanted: Mapping[str, Sequence[str]], wheels: Path | None) -> dict[str, str]:
    """Make the environments that are not there; return why each of the others cannot be had.

    Args:
        folder: of the environments.
        wanted: what is installed into each.
        wheels: a folder with further wheels.
    """
    absent = {}
    for name in sorted(wanted):
        if (folder / name / "made").exists():
            continue
        links = () if wheels is None else ("--find-links", str(wheels))
        commands: Sequence[Sequence[str]] = (
            ("uv", "venv", "--quiet", "--clear", "--python", sys.executable, str(folder / name)),
            ("uv", "pip", "install", "--quiet", "--python", str(folder / name), *links, *wanted[name]),
        )
        for command in commands:
            done = subprocess.run((sys.executable, "-m", *command), capture_output=True, text=True, check=False)
            if done.returncode != 0:
                absent[name] = done.stderr.strip()[-500:]
                break
        else:
            (folder / name / "made").touch()
    return absent


def started(loop: Loop, environments: Path) -> subprocess.Popen[str]:
    """Start a loop; it builds its step and waits."""
    python = sys.executable if loop.environment is None else environments / loop.environment / "bin" / "python"
    where = ("taskset", "--cpu-list", "0") if loop.one_core else ()
    return subprocess.Popen(
        [*where, str(python), str(HERE / loop.script), *loop.arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={
            **os.environ,
            "PYTHONPATH": f"{HERE.parent}{os.pathsep}{HERE / 'throughput_parts'}",
            "JAX_PLATFORMS": "cpu",
            **loop.variables,
        },
    )


def answer(process: subprocess.Popen[str]) -> dict[str, Any]:
    """Return the next line of JSON that a loop says."""
    line = stream(process.stdout).readline()
    if not line:
        said = f"{process.args} ended with {process.wait()}"
        raise SystemExit(said)
    found: dict[str, Any] = json.loads(line)
    return found


def taken(process: subprocess.Popen[str], steps: int) -> dict[str, float]:
    """Have a loop take some steps and return what they cost."""
    given = stream(process.stdin)
    given.write(f"{steps}\n")
    given.flush()
    return answer(process)


def stream(found: IO[str] | None) -> IO[str]:
    """Return a pipe of a process that was started with it."""
    assert found is not None
    return found


def spread(values: list[float]) -> dict[str, float]:
    """Return the smallest, the middle and the largest value."""
    return {"min": round(min(values), 4), "median": round(median(values), 4), "max": round(max(values), 4)}

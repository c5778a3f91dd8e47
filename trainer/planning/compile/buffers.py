"""Read the memory of a program from XLA's reports of buffer assignment and live ranges.

XLA assigns buffers before it generates machine code. For Gemma-2B on a TPU v5e the reports are written after a few
seconds, the machine code after minutes; the figures are the same.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

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
    """Memory of one program on one device.

    Attributes:
        peak_bytes: Arguments, results and the largest sum of live temporaries; JAX's `peak_memory_in_bytes`.
        allocated_bytes: The peak and the gaps between buffers.
        aliased_bytes: Arguments that results are written into: a donated state.
        largest: Temporaries of at least 1 MiB at the peak, largest first.
    """

    peak_bytes: int
    allocated_bytes: int
    arguments_bytes: int
    aliased_bytes: int
    largest: tuple[Buffer, ...]


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
        message = "XLA's buffer assignment names no allocation"
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

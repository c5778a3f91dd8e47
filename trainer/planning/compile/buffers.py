"""Read the memory of a program from XLA's reports of buffer assignment and live ranges.

XLA assigns buffers before it generates machine code. For Gemma-2B on a TPU v5e the reports are written after a few
seconds, the machine code after minutes; the figures are the same.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

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
_RANGE = re.compile(r"^\s+(\S+?)(\{[\d,]*\}):(\d+)-(\d+)$", re.MULTILINE)

LARGE_BYTES = 2**20


@dataclass(frozen=True, kw_only=True)
class Buffer:
    """One buffer at the peak.

    Attributes:
        name: The instruction that creates it.
        shape: Element type and axes, `bf16[16,2048,16384]`.
    """

    name: str
    shape: str
    bytes: int


@dataclass(frozen=True, kw_only=True)
class CompiledMemory:
    """Memory of one program on one device.

    Attributes:
        peak_bytes: Arguments, results and the largest sum of live temporaries; JAX's `peak_memory_in_bytes`.
        allocated_bytes: The peak and the gaps between buffers.
        arguments_bytes: Arguments: state and batch of a train step.
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
    files = list(folder.iterdir())
    if not any(file.name.endswith(COMPLETE) for file in files):
        return False
    of_cpu = [file.stat().st_mtime_ns for file in files if ".cpu_after_optimizations" in file.name]
    options = [file.stat().st_mtime_ns for file in files if file.name.endswith(".debug_options")]
    return not of_cpu or max(options, default=0) >= max(of_cpu)


def read_memory(folder: Path) -> CompiledMemory:
    """Read the memory of the program whose reports are in a folder.

    Raises:
        ValueError: The reports have an unknown format.
    """
    allocated = _allocations(_text(folder, ASSIGNMENT))
    live_bytes, live = _largest_moment(allocated.placed, _ranges(_text(folder, LIVE_RANGE)))
    return CompiledMemory(
        peak_bytes=allocated.fixed_bytes + live_bytes,
        allocated_bytes=allocated.fixed_bytes + allocated.shared_bytes,
        arguments_bytes=allocated.arguments_bytes,
        aliased_bytes=allocated.aliased_bytes,
        largest=tuple(sorted((each for each in live if each.bytes >= LARGE_BYTES), key=lambda each: -each.bytes)),
    )


def _text(folder: Path, end: str) -> str:
    """Return the newest report of a kind."""
    files = sorted(folder.glob(f"*{end}"))
    if not files:
        message = f"XLA wrote no *{end}"
        raise ValueError(message)
    return files[-1].read_text(encoding="utf-8")


@dataclass(frozen=True, kw_only=True)
class _Placed:
    """A value in the memory that temporaries share."""

    key: str
    offset: int
    buffer: Buffer


@dataclass(kw_only=True)
class _Allocations:
    """Buffer assignment of the device's main memory (color 0); `fixed_bytes` are live during the whole program."""

    fixed_bytes: int = 0
    arguments_bytes: int = 0
    aliased_bytes: int = 0
    shared_bytes: int = 0
    placed: list[_Placed]


def _allocations(text: str) -> _Allocations:
    """Parse a buffer assignment."""
    found = _Allocations(placed=[])
    is_shared = False
    for line in text.splitlines():
        if allocation := _ALLOCATION.match(line):
            size, color, rest = int(allocation[1]), int(allocation[2] or 0), allocation[3]
            is_shared = color == 0 and "preallocated-temp" in rest
            if is_shared:
                found.shared_bytes += size
            elif color == 0 and "thread-local" not in rest:
                found.fixed_bytes += size
                if "parameter" in rest:
                    found.arguments_bytes += size
                    found.aliased_bytes += size if "maybe-live-out" in rest else 0
        elif is_shared and line.startswith(" value:"):
            found.placed.append(_placed(line))
    if not found.fixed_bytes:
        message = "XLA's buffer assignment names no allocation"
        raise ValueError(message)
    return found


def _placed(line: str) -> _Placed:
    """Parse one value of a buffer assignment."""
    value = _VALUE.match(line)
    if value is None:
        message = f"unexpected value in XLA's buffer assignment: {line[:120]}"
        raise ValueError(message)
    buffer = Buffer(name=value[1], shape=value[5].partition("{")[0], bytes=int(value[3]))
    return _Placed(key=value[1] + (value[2] or "{}"), offset=int(value[4]), buffer=buffer)


def _ranges(text: str) -> dict[str, tuple[int, int]]:
    """Return the first and last instruction of each value."""
    body = text.partition("BufferLiveRange:")[2].partition("Live ranges at")[0]
    return {name + index: (int(first), int(last)) for name, index, first, last in _RANGE.findall(body)}


def _largest_moment(placed: list[_Placed], ranges: dict[str, tuple[int, int]]) -> tuple[int, list[Buffer]]:
    """Return the largest sum of live bytes, and the live buffers; values with the same place and size count once."""
    # Starts sort before ends: operands and result of an instruction exist together.
    events = sorted(
        (moment, is_end, number)
        for number, value in enumerate(placed)
        if value.key in ranges
        for moment, is_end in zip(ranges[value.key], (False, True), strict=True)
    )
    users: dict[tuple[int, int], list[int]] = {}
    now = most = 0
    at_most: list[Buffer] = []
    for _, is_end, number in events:
        place = (placed[number].offset, placed[number].buffer.bytes)
        if is_end:
            users[place].remove(number)
            if not users[place]:
                del users[place]
                now -= place[1]
            continue
        users.setdefault(place, []).append(number)
        if len(users[place]) == 1:
            now += place[1]
        if now > most:
            most = now
            at_most = [placed[numbers[0]].buffer for numbers in users.values()]
    return most, at_most

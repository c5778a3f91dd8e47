"""The memory of a compiled program, from the reports that XLA writes when it has given every buffer its place.

XLA assigns buffers before it makes machine code. For Gemma-2B on a TPU v5e these reports are there after a few seconds,
the machine code only after minutes; the figures are the same. Two reports are read: which buffer lies where (buffer
assignment), and from which to which instruction it is in use (live range).
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
"""Ends of the names of what XLA writes; one comes when the reports are complete (of a TPU, of a GPU, of a CPU)."""

_ALLOCATION = re.compile(r"allocation \d+: size (\d+),(?: color (\d+),)?(?: page \d+)?(.*)")
_VALUE = re.compile(r" value: <\d+ (\S+?)(\{[\d,]*\})?(?: \(phi\))? @\d+> \(size=(\d+),offset=(\d+)\): (.*)")
_RANGE = re.compile(r"^\s+(\S+?)(\{[\d,]*\}):(\d+)-(\d+)$", re.MULTILINE)

LARGE_BYTES = 2**20
"""Smaller buffers are counted and not named."""


@dataclass(frozen=True, kw_only=True)
class Buffer:
    """One buffer in use when the program needs most."""

    name: str
    """The instruction that makes it."""
    shape: str
    """Element type and axes, `bf16[16,2048,16384]`."""
    bytes: int


@dataclass(frozen=True, kw_only=True)
class CompiledMemory:
    """What one program needs of one device's memory."""

    peak_bytes: int
    """Arguments, results and the most that is in use besides them at one time: `peak_memory_in_bytes` of JAX."""
    allocated_bytes: int
    """What the compiler sets aside: the peak, and gaps between buffers that it had no reason to close."""
    arguments_bytes: int
    """Of the allocated bytes, the program's arguments: a train step's state and batch."""
    aliased_bytes: int
    """Of the arguments, what the program's results are written into: a donated state."""
    largest: tuple[Buffer, ...]
    """What is in use at the peak besides the arguments, largest first; from one MiB on."""


def is_complete(folder: Path) -> bool:
    """Return whether all reports of a program lie in a folder.

    From jax 0.12 on a CPU's compiler writes its reports in several threads, in any order. When all are there, it writes
    once more the options that it also wrote at its begin.
    """
    files = list(folder.iterdir())
    if not any(file.name.endswith(COMPLETE) for file in files):
        return False
    of_cpu = [file.stat().st_mtime_ns for file in files if ".cpu_after_optimizations" in file.name]
    options = [file.stat().st_mtime_ns for file in files if file.name.endswith(".debug_options")]
    return not of_cpu or max(options, default=0) >= max(of_cpu)


def read_memory(folder: Path) -> CompiledMemory:
    """Return the memory of the one program whose reports lie in a folder.

    Raises:
        FileNotFoundError: the folder holds no reports.
        ValueError: the reports are not written as this reader knows them.
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
        message = f"no *{end} in {folder}"
        raise FileNotFoundError(message)
    return files[-1].read_text(encoding="utf-8")


@dataclass(frozen=True, kw_only=True)
class _Placed:
    """One value in the memory that buffers share, one after the other."""

    key: str
    offset: int
    buffer: Buffer


@dataclass(kw_only=True)
class _Allocations:
    """The buffer assignment, as far as it concerns the device's main memory (colour 0)."""

    fixed_bytes: int = 0
    """In use from the program's begin to its end."""
    arguments_bytes: int = 0
    aliased_bytes: int = 0
    shared_bytes: int = 0
    placed: list[_Placed]


def _allocations(text: str) -> _Allocations:
    """Return what a buffer assignment sets aside."""
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
        message = "the buffer assignment names no allocation"
        raise ValueError(message)
    return found


def _placed(line: str) -> _Placed:
    """Return the value of one line of a buffer assignment."""
    value = _VALUE.match(line)
    if value is None:
        message = f"a buffer assignment's value is written otherwise than expected: {line[:120]}"
        raise ValueError(message)
    buffer = Buffer(name=value[1], shape=value[5].partition("{")[0], bytes=int(value[3]))
    return _Placed(key=value[1] + (value[2] or "{}"), offset=int(value[4]), buffer=buffer)


def _ranges(text: str) -> dict[str, tuple[int, int]]:
    """Return the first and last instruction at which each value is in use."""
    body = text.partition("BufferLiveRange:")[2].partition("Live ranges at")[0]
    return {name + index: (int(first), int(last)) for name, index, first, last in _RANGE.findall(body)}


def _largest_moment(placed: list[_Placed], ranges: dict[str, tuple[int, int]]) -> tuple[int, list[Buffer]]:
    """Return the most bytes in use at one instruction, and what they are.

    Values that share place and size are one buffer handed on, and count once.
    """
    # At one instruction what begins comes before what ends: an instruction's operands and result exist together.
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

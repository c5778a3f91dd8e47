"""Texts of a machine whose main memory was full: a killed process, a restarted notebook, an array without a place."""

from __future__ import annotations

import math
import re

from trainer.planning.out_of_memory.amounts import AMOUNT, bytes_in, first
from trainer.planning.out_of_memory.report import Allocation, OutOfMemory

_ARRAY = re.compile(
    r"Unable to allocate (?P<size>[\d.]+ [KMGTP]?i?B) for an array with (?:shape|form) (?P<shape>\([\d, ]*\)) "
    r"and data type (?P<type>\w+)"
)
_CPU_ALLOCATOR = re.compile(
    r"DefaultCPUAllocator:[^\n]{0,80}?memory: you tried to allocate (\d+) bytes"
    r"|DefaultCPUAllocator:[^\n]{0,40}can't allocate memory"
)
_KILLED_PROCESS = re.compile(r"Killed process \d+ \((?P<name>[^)]+)\)[^\n]*?anon-rss:(?P<rss>\d+ ?kB)")
_PROGRAM = re.compile(rf"Program host requirement ({AMOUNT})")
_PINNED = re.compile(rf"Out of host memory while trying to allocate ({AMOUNT})[^\n]{{0,200}}")
_SENTENCES = (
    re.compile(r"Your notebook tried to allocate (?:too much|more) memory[^\n]{0,80}"),
    re.compile(r"Your session crashed after using all available RAM"),
    re.compile(r"\S* ?invoked oom-killer|Detected \d+ oom.kill event[^\n]{0,80}|\bOOMKilled\b"),
    re.compile(r"std::bad_alloc"),
    re.compile(
        r"(?:exit(?:ed)?|return(?:ed)?|status|finished)\s?(?:with )?(?:exit )?(?:status )?(?:code|status)[ :=]*137\b",
        re.IGNORECASE,
    ),
    re.compile(r"(?:exit|return) ?code[ :=]*-9\b", re.IGNORECASE),
    re.compile(r"\b(?:SIGKILL|signal 9)\b"),
    re.compile(r"^(?:\S+: line \d+:\s+\d+ )?Killed\b.{0,120}$", re.MULTILINE),
    re.compile(r"DeadKernelError[^\n]{0,80}|[Kk]ernel (?:appears to have )?died\b[^\n]{0,80}"),
    re.compile(r"^MemoryError\b[^\n]{0,80}", re.MULTILINE),
)
_CERTAIN = 4
"""So many of the sentences say that memory was the reason; after the others, something else may have been."""

_NUMPY = {"float64": "f64", "float32": "f32", "float16": "f16", "int64": "s64", "int32": "s32", "uint8": "u8"}


def read_host(text: str) -> OutOfMemory | None:
    """Return what is said of main memory, None if nothing is."""
    if found := _ARRAY.search(text):
        return _array(found)
    if found := _CPU_ALLOCATOR.search(text):
        tried = int(found[1]) if found[1] else None
        return OutOfMemory(memory="host", when="run", said=found[0], tried_bytes=tried)
    if found := _PROGRAM.search(text):
        return OutOfMemory(memory="host", when="compile", said=found[0], need_bytes=first(_PROGRAM, text))
    if found := _PINNED.search(text):
        return OutOfMemory(memory="host", when="run", said=found[0], tried_bytes=first(_PINNED, text), notes=(PINNED,))
    if found := _KILLED_PROCESS.search(text):
        held = bytes_in(found["rss"])
        return OutOfMemory(
            memory="host", when="run", said=found[0], need_bytes=held, notes=(f"{found['name']} held that much.",)
        )
    for number, pattern in enumerate(_SENTENCES):
        if sentence := pattern.search(text):
            return OutOfMemory(
                memory="host",
                when="run",
                said=sentence[0].strip(),
                notes=() if number < _CERTAIN else (NOT_CERTAIN,),
            )
    return None


PINNED = (
    "JAX keeps 64 GB of main memory at most for a GPU's copies, unless XLA_PJRT_GPU_HOST_MEMORY_LIMIT_GB says more."
)
NOT_CERTAIN = (
    "The system ended the process without saying why; full main memory is the usual reason. `dmesg | grep -i oom` "
    "tells, where you may read it."
)


def _array(found: re.Match[str]) -> OutOfMemory:
    """Return what NumPy says of an array."""
    axes = [axis.strip() for axis in found["shape"].strip("()").split(",") if axis.strip()]
    kind = _NUMPY.get(found["type"], found["type"])
    size = bytes_in(found["size"]) or 0
    shape = f"{kind}[{','.join(axes)}]"
    exact = math.prod(int(axis) for axis in axes) * {"f64": 8, "s64": 8, "f32": 4, "s32": 4, "f16": 2, "u8": 1}.get(
        kind, 0
    )
    return OutOfMemory(
        memory="host",
        when="run",
        said=found[0],
        tried_bytes=exact or size,
        largest=(Allocation(bytes=exact or size, shape=shape),),
    )

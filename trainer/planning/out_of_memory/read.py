"""Parse a pasted error as an out-of-memory failure, or report that it is not one, or that it is another tool's."""

from __future__ import annotations

import math
import re

from schemas.problems import Problem, ProblemError, problem_of
from trainer.planning.out_of_memory.gpu import read_cpu, read_cuda, read_gpu, read_pytorch
from trainer.planning.out_of_memory.report import AMOUNT, Allocation, OutOfMemory, bytes_in, first
from trainer.planning.out_of_memory.tpu import read_tpu

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
    re.compile(r"\S* ?invoked oom-killer|Detected \d+ oom.kill event[^\n]{0,80}|\bOOMKilled\b|by the OOM killer"),
    re.compile(r"std::bad_alloc"),
    re.compile(
        r"(?:exit(?:ed)?|return(?:ed)?|status|finished)\s?(?:with )?(?:exit )?(?:status )?(?:code|status)[ :=]*137\b",
        re.IGNORECASE,
    ),
    re.compile(r"(?:exit|return) ?code[ :=]*-9\b", re.IGNORECASE),
    re.compile(r"\b(?:SIGKILL|signal 9)\b"),
    re.compile(r"^(?:\S+: line \d+:\s+\d+ )?Killed\b.{0,120}$", re.MULTILINE),
    re.compile(r"DeadKernelError[^\n]{0,80}|[Kk]ernel (?:appears to have )?died\b[^\n]{0,80}"),
    re.compile(r"\[Errno 12\] Cannot allocate memory"),
    re.compile(r"^MemoryError\b[^\n]{0,80}", re.MULTILINE),
)
_CERTAIN = 4
"""So many of the sentences say that memory was the reason; after the others, something else may have been."""

_NUMPY = {"float64": "f64", "float32": "f32", "float16": "f16", "int64": "s64", "int32": "s32", "uint8": "u8"}


def read_host(text: str) -> OutOfMemory | None:
    """Return the failure for want of main memory that a text states, or None."""
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
                memory="host", when="run", said=sentence[0].strip(), notes=() if number < _CERTAIN else (NOT_CERTAIN,)
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


READERS = (read_tpu, read_pytorch, read_cpu, read_gpu, read_cuda, read_host)
"""The first that finds something counts: a program that is refused on a device is often killed on the host too."""

OTHER_TOOLS = (
    (re.compile(r"KV cache|max seq len|GPU memory utilization|cache blocks"), "vLLM"),
    (re.compile(r"ggml|llama_|kv cache|alloc_tensor_range"), "llama.cpp"),
    (re.compile(r"requires more system memory"), "Ollama"),
    (re.compile(r"ray\.exceptions|node running low on memory"), "Ray"),
    (re.compile(r"OOM when allocating tensor"), "TensorFlow"),
    (re.compile(r"fit the quantized model|Error out of memory at line"), "bitsandbytes"),
    (re.compile(r"kIOGPUCommandBuffer"), "Metal"),
    (re.compile(r"\[WinError 1455\]"), "Windows"),
    (re.compile(r"java\.lang\.OutOfMemoryError"), "Java"),
)
"""Tools whose failures are not explained here, by words of theirs."""

OTHER_REASONS = (
    (re.compile(r"No space left on device|Disk quota exceeded", re.IGNORECASE), "the disk is full, not the memory"),
    (re.compile(r"The TPU is already in use|libtpu_lockfile", re.IGNORECASE), "another process holds the TPU"),
    (re.compile(r"this is not a failure"), "the allocator warns that it had to do without, and the program went on"),
    (re.compile(r"out of resource: shared memory"), "a kernel's block is too large for the small memory inside a GPU"),
    (re.compile(r"device-side assert"), "an index on the GPU is out of range"),
    (re.compile(r"no kernel image is available"), "the installed CUDA code has no version for this GPU"),
    (re.compile(r"RESOURCE_EXHAUSTED|Resource exhausted"), "a resource is exhausted, but the text does not say which"),
)
"""What is often pasted instead, and what it is."""

EXPECTED = "an error of a TPU, JAX, CUDA, PyTorch, or of a machine whose main memory was full"
OTHER_NEXT = "Look it up in that tool's documentation; `trainproof plan` says what a training run of ours needs."

_PREFIX = re.compile(
    r"^(?:>\s?|\x1b\[[\d;]*m|(?:\(\w+ pid=\d+\) )|[EWIF]\d{4} [\d:.]+\s+\d+ \S+\] ?|"
    r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d[.,]\d+: [EWIF]\s+(?:\d+ )?\S+\] ?)+",
    re.MULTILINE,
)
"""What loggers, quotes and terminals put before each line."""

_COLOUR = re.compile(r"\x1b\[[\d;]*m")

MOST_CHARACTERS = 4_000_000
"""Of a longer text the end is read: that is where the failure stands."""


def read_out_of_memory(text: str, *, source: str) -> OutOfMemory:
    """Return the failure that a pasted text states.

    Args:
        text: the whole error, a log, or the one sentence that matters.
        source: what it came from, as the user named it.

    Raises:
        ProblemError: exit code 1; the text is not an out-of-memory error of a tool that is read here.
    """
    plain = without_prefixes(text[-MOST_CHARACTERS:])
    for reader in READERS:
        if (found := reader(plain)) is not None:
            return found
    raise ProblemError([_none(plain, source)], exit_code=1)


def without_prefixes(text: str) -> str:
    """Return the text without what loggers, quotes and terminals put before each line."""
    return _PREFIX.sub("", _COLOUR.sub("", text.replace("\r\n", "\n")))


def _none(text: str, source: str) -> Problem:
    """Return the problem for text that is not an OOM error; include the likely cause if it is recognised."""
    if not text.strip():
        return problem_of("TP745", file=source, what="The text is empty.")
    if tool := next((name for pattern, name in OTHER_TOOLS if pattern.search(text)), None):
        what = f"The text is of {tool}, whose messages are not explained here."
        return problem_of("TP745", file=source, what=what, why=None, expected=EXPECTED, next=OTHER_NEXT)
    reason = next((each for pattern, each in OTHER_REASONS if pattern.search(text)), None)
    last = text.strip().splitlines()[-1].strip()[:200]
    return problem_of(
        "TP745",
        file=source,
        what=f"The text tells of no missing memory: {reason}." if reason else "The text tells of no missing memory.",
        expected=EXPECTED,
        why=f"Its last line is: {last}",
    )

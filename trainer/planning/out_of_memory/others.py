"""Out-of-memory texts of other tools: vLLM, llama.cpp, Ollama, Ray, bitsandbytes, and CUDA's own libraries."""

from __future__ import annotations

import re
from collections.abc import Callable

from trainer.planning.out_of_memory.amounts import AMOUNT, bytes_in
from trainer.planning.out_of_memory.report import Memory, OutOfMemory

_CACHE = re.compile(
    rf"({AMOUNT}) KV cache is needed, which is larger than the available KV cache memory \(({AMOUNT})\)"
)
_ON_STARTUP = re.compile(
    rf"Free memory on device\s?\S*\s?\(([\d.]+)/({AMOUNT})\) on startup is less than desired GPU memory utilization "
    rf"\([\d.]+, ({AMOUNT})\)"
)
_GGML = re.compile(rf"allocating ({AMOUNT}) on device \d+: cudaMalloc failed: out of memory")
_SYSTEM = re.compile(rf"requires more system memory \(({AMOUNT})\) than is available \(({AMOUNT})\)")
_NODE = re.compile(rf"was running was ({AMOUNT}) / ({AMOUNT}) \([\d.]+\), which exceeds the memory usage threshold")
_BUFFER = re.compile(r"failed to allocate (?P<where>\w+) buffer of size (?P<bytes>\d+)")
_CONSTANT = re.compile(r"Failed to allocate (\d+) bytes for new constant")
_KV = re.compile(r"failed to allocate buffer for kv cache", re.IGNORECASE)
_ON_A_CPU = re.compile(r"RESOURCE_EXHAUSTED: Out of memory allocating (\d+) bytes")
"""XLA's CPU client says it so; of a GPU the same sentence has `while trying to allocate`."""

BESIDE_NOTE = "CUDA's libraries say so too where another process, or this one's allocator, holds all of the memory."
APPLE_NOTE = "An Apple GPU shares the machine's main memory."

_REFUSED_AT_THE_START = (
    re.compile(r"[Mm]odel's max seq len \(\d+\) is larger than the maximum number of tokens[^\n]{0,60}\(\d+\)"),
    re.compile(r"No available memory for the cache blocks"),
    re.compile(r"[^\n]{0,60}enough GPU RAM to fit the quantized model"),
)
_GPU_SENTENCES = (
    (re.compile(r"kIOGPUCommandBufferCallbackErrorOutOfMemory"), APPLE_NOTE),
    (re.compile(r"(?:CUDA|HIP|ROCm)[ _]error[^\n]{0,80}?out of memory", re.IGNORECASE), ""),
    (re.compile(r"Cuda failure(?: \d+)? '?out of memory'?", re.IGNORECASE), ""),
    (re.compile(r"Error out of memory at line \d+ in file \S+"), ""),
    (re.compile(r"cudaErrorMemoryAllocation|hipErrorOutOfMemory|cudaMalloc failed: out of memory"), ""),
    (re.compile(r"(?:CUBLAS|CUDNN|CUSOLVER|CUSPARSE|CUFFT)_(?:STATUS_)?ALLOC_FAILED"), BESIDE_NOTE),
)
_HOST_SENTENCES = (
    re.compile(r"\[Errno 12\] Cannot allocate memory"),
    re.compile(r"\[WinError 1455\][^\n]{0,80}"),
    re.compile(r"java\.lang\.OutOfMemoryError[^\n]{0,80}"),
    re.compile(r"killed due to the node running low on memory|killed by the OOM killer|result 'oom-kill'"),
)


def read_on_a_cpu(text: str) -> OutOfMemory | None:
    """Return what JAX says where a CPU computes and main memory is full, None if it says nothing of the kind."""
    found = _ON_A_CPU.search(text)
    return None if found is None else OutOfMemory(memory="cpu", when="run", said=found[0], tried_bytes=int(found[1]))


def read_other(text: str) -> OutOfMemory | None:
    """Return what another tool's text says, None if it is none."""
    for pattern, report in _WITH_AMOUNTS:
        if found := pattern.search(text):
            return report(found)
    for pattern in _REFUSED_AT_THE_START:
        if found := pattern.search(text):
            return OutOfMemory(memory="gpu", when="start", said=found[0].strip(), answers=True)
    for pattern, note in _GPU_SENTENCES:
        if found := pattern.search(text):
            return OutOfMemory(memory="gpu", when="run", said=found[0], notes=(note,) if note else ())
    for pattern in _HOST_SENTENCES:
        if found := pattern.search(text):
            return OutOfMemory(memory="host", when="run", said=found[0])
    return None


def _cache(found: re.Match[str]) -> OutOfMemory:
    need, cap = bytes_in(found[1]), bytes_in(found[2])
    return OutOfMemory(memory="gpu", when="start", said=found[0], need_bytes=need, cap_bytes=cap, answers=True)


def _on_startup(found: re.Match[str]) -> OutOfMemory:
    """Return what vLLM says before it begins: it wants a share of the card, and others hold some of it."""
    free, cap, wanted = bytes_in(f"{found[1]} GiB"), bytes_in(found[2]), bytes_in(found[3])
    return OutOfMemory(
        memory="gpu",
        when="start",
        said=found[0],
        cap_bytes=cap,
        tried_bytes=wanted,
        free_bytes=free,
        others_bytes=None if cap is None or free is None else cap - free,
        answers=True,
    )


def _ggml(found: re.Match[str]) -> OutOfMemory:
    return OutOfMemory(memory="gpu", when="run", said=found[0], tried_bytes=bytes_in(found[1]), answers=True)


def _buffer(found: re.Match[str]) -> OutOfMemory:
    """Return what llama.cpp says of a buffer; one that is kept for a device in main memory is `CUDA_Host`."""
    on_host = found["where"].startswith("CPU") or found["where"].endswith("_Host")
    memory: Memory = "host" if on_host else "gpu"
    return OutOfMemory(memory=memory, when="run", said=found[0], tried_bytes=int(found["bytes"]), answers=True)


def _kv(found: re.Match[str]) -> OutOfMemory:
    return OutOfMemory(memory="gpu", when="run", said=found[0], answers=True)


def _constant(found: re.Match[str]) -> OutOfMemory:
    return OutOfMemory(memory="gpu", when="run", said=found[0], tried_bytes=int(found[1]))


def _system(found: re.Match[str]) -> OutOfMemory:
    need, free = bytes_in(found[1]), bytes_in(found[2])
    return OutOfMemory(memory="host", when="start", said=found[0], tried_bytes=need, free_bytes=free)


def _node(found: re.Match[str]) -> OutOfMemory:
    need, cap = bytes_in(found[1]), bytes_in(found[2])
    return OutOfMemory(memory="host", when="run", said=found[0], need_bytes=need, cap_bytes=cap)


_WITH_AMOUNTS: tuple[tuple[re.Pattern[str], Callable[[re.Match[str]], OutOfMemory]], ...] = (
    (_CACHE, _cache),
    (_ON_STARTUP, _on_startup),
    (_GGML, _ggml),
    (_BUFFER, _buffer),
    (_KV, _kv),
    (_CONSTANT, _constant),
    (_SYSTEM, _system),
    (_NODE, _node),
)

"""Out-of-memory texts of XLA on a GPU or a CPU, and of CUDA's own libraries."""

from __future__ import annotations

import re

from trainer.planning.out_of_memory.report import AMOUNT, Allocation, OutOfMemory, bytes_in, first

_TRIED = (
    re.compile(rf"Out of memory (?:while trying to allocate|allocating) ({AMOUNT})", re.IGNORECASE),
    re.compile(rf"Allocator \(\w+\) ran out of memory trying to allocate ({AMOUNT})"),
    re.compile(
        rf"[Ff]ailed to allocate (?:request for )?({AMOUNT})(?: \([\d]+ ?B?(?:ytes)?(?:bytes)?\))? "
        r"(?:from device|on device|\(requested)"
    ),
    re.compile(r"cuMemAllocAsync failed to allocate (\d+ bytes)"),
    re.compile(r"CUDA_ERROR_OUT_OF_MEMORY|HIP_ERROR_OutOfMemory"),
)
_BEFORE_IT_RAN = re.compile(r"size of input/output arguments \((\d+)\) exceeds the base limit \((\d+)\)")
_PROGRAM = re.compile(r"executable_name='([^']+)'")
_NO_FAILURE = "this is not a failure"
"""The allocator's own words where it could do without: a warning, and the program went on."""

_FREE_AND_TOTAL = re.compile(r"Free memory/Total memory:\s*(\d+)/(\d+)")
_LIMIT = re.compile(r"Limit:\s+(\d+)")
_IN_USE = re.compile(r"(?<!Max)InUse:\s+(\d+)")
_PARTS = {
    "arguments": re.compile(rf"parameter allocation:\s+({AMOUNT})"),
    "constants": re.compile(rf"constant allocation:\s+({AMOUNT})"),
    "output": re.compile(rf"maybe_live_out allocation:\s+({AMOUNT})"),
    "temporaries": re.compile(rf"preallocated temp allocation:\s+({AMOUNT})"),
}
_TOTAL = re.compile(rf"total allocation:\s+({AMOUNT})")
_BUFFER = re.compile(r"^\s*Buffer \d+:\s*$(.*?)(?=^\s*=====|^\s*Buffer \d+:|\Z)", re.MULTILINE | re.DOTALL)
_SIZE = re.compile(rf"Size:\s*({AMOUNT})")
_SHAPE = re.compile(r"Shape:\s*(\w+\[[\d,]*\])")
_GIVEN = re.compile(r"Entry Parameter Subshape:\s*(\w+\[[\d,]*\])")
_OPERATOR = re.compile(r'op_name="([^"]+)')
_ON_A_CPU = re.compile(r"RESOURCE_EXHAUSTED: Out of memory allocating (\d+) bytes")
"""XLA's CPU client writes this; of a GPU the same sentence has `while trying to allocate`."""

BESIDE_NOTE = "CUDA's libraries say so too where another process, or this one's allocator, holds all of the memory."

_CUDA_SENTENCES = (
    (re.compile(r"(?:CUDA|HIP|ROCm)[ _]error[^\n]{0,80}?out of memory", re.IGNORECASE), ""),
    (re.compile(r"Cuda failure(?: \d+)? '?out of memory'?", re.IGNORECASE), ""),
    (re.compile(r"cudaErrorMemoryAllocation|hipErrorOutOfMemory"), ""),
    (re.compile(r"(?:CUBLAS|CUDNN|CUSOLVER|CUSPARSE|CUFFT)_(?:STATUS_)?ALLOC_FAILED"), BESIDE_NOTE),
)


def read_gpu(text: str) -> OutOfMemory | None:
    """Return the failure that XLA states of a GPU, or None; a warning after which the program went on is none."""
    kept = "\n".join(line for line in text.splitlines() if _NO_FAILURE not in line)
    tries = [found for pattern in _TRIED if (found := pattern.search(kept))]
    if not tries:
        return None
    tried = next((amount for found in tries if found.groups() if (amount := bytes_in(found[1])) is not None), None)
    parts = {name: value for name, pattern in _PARTS.items() if (value := first(pattern, kept))}
    total, limit, in_use = first(_TOTAL, kept), _LIMIT.search(kept), _IN_USE.search(kept)
    memory = _FREE_AND_TOTAL.search(kept)
    used = int(in_use[1]) if in_use else None
    need = total if used is None or tried is None else max(used + tried, total or 0)
    cap = int(limit[1]) if limit else int(memory[2]) if memory else None
    if given := _BEFORE_IT_RAN.search(kept):
        need, cap = max(int(given[1]), need or 0), cap or int(given[2])
    program = _PROGRAM.search(kept)
    left = int(memory[1]) if memory else max(cap - used, 0) if cap is not None and used is not None else None
    return OutOfMemory(
        memory="gpu",
        when="run",
        said=tries[0][0],
        need_bytes=need,
        cap_bytes=cap,
        tried_bytes=tried,
        free_bytes=left,
        parts=parts,
        largest=_largest(kept),
        notes=(f"The program is {program[1]}.",) if program else (),
    )


def read_cuda(text: str) -> OutOfMemory | None:
    """Return the failure that CUDA or one of its libraries states without an amount, or None."""
    for pattern, note in _CUDA_SENTENCES:
        if found := pattern.search(text):
            return OutOfMemory(memory="gpu", when="run", said=found[0], notes=(note,) if note else ())
    return None


def read_cpu(text: str) -> OutOfMemory | None:
    """Return the failure that JAX states where a CPU computes and main memory is full, or None."""
    found = _ON_A_CPU.search(text)
    return None if found is None else OutOfMemory(memory="cpu", when="run", said=found[0], tried_bytes=int(found[1]))


def _largest(text: str) -> tuple[Allocation, ...]:
    """Return the buffers of the list `Peak buffers`; a text that was printed twice has each once."""
    found: dict[tuple[str, ...], Allocation] = {}
    for block in _BUFFER.finditer(text):
        size = first(_SIZE, block[1])
        given = _GIVEN.search(block[1])
        shape, operator = given or _SHAPE.search(block[1]), _OPERATOR.search(block[1])
        if size is not None:
            key = " ".join(block[0].split())
            found[(key,)] = Allocation(
                bytes=size,
                shape=shape[1] if shape else None,
                operator=operator[1] if operator else None,
                is_argument=given is not None,
            )
    return tuple(sorted(found.values(), key=lambda each: -each.bytes))


_PYTORCH_TRIED = re.compile(
    rf"(?:CUDA|HIP|MPS|XPU)?[^.\n]{{0,40}}out of memory\.\s+Tried to allocate ({AMOUNT})", re.IGNORECASE
)
_MPS = re.compile(
    rf"out of memory \(MPS allocated: ({AMOUNT}), other allocations: ({AMOUNT}), max allowed: ({AMOUNT})\)\. "
    rf"Tried to allocate ({AMOUNT})"
)
_ASYNC = re.compile(
    rf"would exceed allowed memory\. \(out of memory\) Currently allocated\s*:\s*({AMOUNT}) Requested\s*:\s*({AMOUNT}) "
    rf"Device limit\s*:\s*({AMOUNT}) Free \(according to CUDA\):\s*({AMOUNT})"
)
_BARE = re.compile(r"Tried to allocate (\S+ [KMG]iB) \(GPU \d+;")
_OLDER = re.compile(
    rf"\(GPU \d+;\s+({AMOUNT})\s+total capacity;\s+({AMOUNT})\s+already\s+allocated;\s+({AMOUNT})\s+free"
    rf"(?:;\s+({AMOUNT})\s+(reserved\s+in\s+total|cached))?"
)
_CAPACITY = re.compile(rf"total capac\w*\s+of\s+({AMOUNT})\s+of\s+which\s+({AMOUNT})\s+is\s+free")
_OURS = re.compile(rf"this process has ({AMOUNT}) memory in use")
_OTHERS = re.compile(rf"Process \d+ has ({AMOUNT}) memory in use")
_ALLOCATED = re.compile(rf"allocated memory ({AMOUNT}) is allocated by PyTorch")
_UNUSED = re.compile(rf"({AMOUNT}) is reserved by PyTorch but unallocated")


def read_pytorch(text: str) -> OutOfMemory | None:
    """Return what PyTorch's text says, None if it is none."""
    joined = " ".join(text.split())
    if (other := _other_allocators(joined)) is not None:
        return other
    found = _PYTORCH_TRIED.search(joined) or _BARE.search(joined)
    if found is None:
        return None
    tried = bytes_in(found[1])
    if older := _OLDER.search(joined):
        cap, allocated, free, kept = (bytes_in(each) for each in older.groups()[:4])
        # What is `reserved` holds what is allocated; what is `cached`, in the oldest versions, is held beside it.
        reserved = _sum(allocated, kept) if older[5] == "cached" else kept
        in_use = reserved or allocated
        unused = None if reserved is None or allocated is None else max(reserved - allocated, 0)
        others = None if None in (cap, free, in_use) else max((cap or 0) - (free or 0) - (in_use or 0), 0)
    else:
        capacity = _CAPACITY.search(joined)
        cap, free = (bytes_in(capacity[1]), bytes_in(capacity[2])) if capacity else (None, None)
        allocated, unused = first(_ALLOCATED, joined), first(_UNUSED, joined)
        ours = first(_OURS, joined)
        in_use = ours if ours is not None else _sum(allocated, unused)
        others = sum(bytes_in(each) or 0 for each in _OTHERS.findall(joined)) or None
    parts = {name: value for name, value in (("allocated", allocated), ("allocator's reserve", unused)) if value}
    return OutOfMemory(
        memory="gpu",
        when="run",
        said=found[0].strip(),
        need_bytes=_sum(in_use, tried) if in_use is not None else None,
        cap_bytes=cap,
        tried_bytes=tried,
        free_bytes=free,
        unused_bytes=unused,
        others_bytes=others,
        parts=parts,
    )


def _other_allocators(joined: str) -> OutOfMemory | None:
    """Return what PyTorch says where Apple's allocator, or CUDA's asynchronous one, had no room."""
    if found := _MPS.search(joined):
        held, others, cap, tried = (bytes_in(each) for each in found.groups())
        free = None
    elif found := _ASYNC.search(joined):
        held, tried, cap, free = (bytes_in(each) for each in found.groups())
        others = None
    else:
        return None
    return OutOfMemory(
        memory="gpu",
        when="run",
        said=found[0],
        need_bytes=_sum(held, others, tried),
        cap_bytes=cap,
        tried_bytes=tried,
        free_bytes=free,
        parts={"allocated": held} if held else {},
    )


def _sum(*amounts: int | None) -> int | None:
    """Return the sum of what is known, None where nothing is."""
    known = [each for each in amounts if each is not None]
    return sum(known) if known else None

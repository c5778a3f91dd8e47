"""Out-of-memory texts of PyTorch on a GPU, of version 1 and of version 2."""

from __future__ import annotations

import re

from trainer.planning.out_of_memory.report import AMOUNT, OutOfMemory, bytes_in, first

_TRIED = re.compile(
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
    found = _TRIED.search(joined) or _BARE.search(joined)
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

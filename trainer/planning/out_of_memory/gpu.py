"""Out-of-memory texts of XLA on a GPU: the allocator's, the driver's, and the program's own list of buffers."""

from __future__ import annotations

import re

from trainer.planning.out_of_memory.amounts import AMOUNT, bytes_in, first
from trainer.planning.out_of_memory.report import Allocation, OutOfMemory

_TRIED = (
    re.compile(r"Out of memory (?:while trying to allocate|allocating) (\d+)\s*bytes", re.IGNORECASE),
    re.compile(rf"Allocator \(\w+\) ran out of memory trying to allocate ({AMOUNT})"),
    re.compile(
        rf"[Ff]ailed to allocate (?:request for )?({AMOUNT})(?: \([\d]+ ?B?(?:ytes)?(?:bytes)?\))? "
        r"(?:from device|on device|\(requested)"
    ),
    re.compile(r"cuMemAllocAsync failed to allocate (\d+ bytes)"),
    re.compile(r"CUDA_ERROR_OUT_OF_MEMORY|HIP_ERROR_OutOfMemory"),
)
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


def read_gpu(text: str) -> OutOfMemory | None:
    """Return what a GPU's text says, None if it is none, or only a warning that the program did not mind."""
    kept = "\n".join(line for line in text.splitlines() if _NO_FAILURE not in line)
    tries = [found for pattern in _TRIED if (found := pattern.search(kept))]
    if not tries:
        return None
    tried = next((amount for found in tries if found.groups() if (amount := _amount(found[1])) is not None), None)
    parts = {name: value for name, pattern in _PARTS.items() if (value := first(pattern, kept))}
    total, limit, in_use = first(_TOTAL, kept), _LIMIT.search(kept), _IN_USE.search(kept)
    memory = _FREE_AND_TOTAL.search(kept)
    used = int(in_use[1]) if in_use else None
    need = total if used is None or tried is None else max(used + tried, total or 0)
    cap = int(limit[1]) if limit else int(memory[2]) if memory else None
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
    )


def _amount(text: str) -> int | None:
    return int(text) if text.isdigit() else bytes_in(text)


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

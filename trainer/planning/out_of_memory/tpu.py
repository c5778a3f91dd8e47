"""Out-of-memory texts of TPUs: of the compiler (old, new, inside a core) and of the runtime."""

from __future__ import annotations

import re

from trainer.planning.out_of_memory.report import AMOUNT, Allocation, Memory, OutOfMemory, bytes_in, first

_USED = re.compile(
    rf"Ran out of memory in memory space (hbm|vmem|smem)\S*\s+Used ({AMOUNT}) of ({AMOUNT}) \w+"
    rf"(?:\.?\s*Exceeded \w+ capacity by ({AMOUNT}))?"
)
_ONLY_USED = re.compile(rf"Used ({AMOUNT}) of ({AMOUNT}) hbm")
_TEMPORARIES = re.compile(
    rf"memory required for HLO temporaries \(({AMOUNT})\)\s+exceeds available HBM \(({AMOUNT})\)", re.IGNORECASE
)
_CORES = re.compile(
    rf"TensorCore Hbm usage:?\s*({AMOUNT}),\s*SparseCore Hbm usage:?\s*({AMOUNT}),\s*exceeding available bytes:"
    rf"\s*({AMOUNT})"
)
_SCOPED = re.compile(
    rf"Ran out of memory in memory space (vmem|smem) while allocating on stack for (\S+)(?:.{{0,4000}}?"
    rf"Scoped allocation with size ({AMOUNT}) and limit ({AMOUNT}))?",
    re.DOTALL,
)
_BUFFER = re.compile(
    rf"Attempting to (?:allocate|reserve) ({AMOUNT})(?: at the bottom of memory)?\.\s+That was not possible\."
    rf"(?:\s+There are ({AMOUNT}) free)?",
    re.IGNORECASE,
)
_ALLOCATION = re.compile(r"Allocation \(size=(\d+)\) would exceed memory \(size=(\d+)\)")
_CAPACITY = re.compile(rf"HBM capacity ({AMOUNT})")
_ALLOCATED = re.compile(rf"Currently allocated:\s+({AMOUNT})")
_PARTS = {
    name: re.compile(rf"(?:^|[\s:]){words}\s+({AMOUNT})(?=[\s.;(]|$)", re.MULTILINE)
    for name, words in (
        ("reserved", r"reserved(?:\([^)]*\))?"),
        ("program", "program"),
        ("arguments", "arguments"),
        ("temporaries", "HLO temp"),
    )
}
_OUTPUT = re.compile(rf"Output size ({AMOUNT}); shares ({AMOUNT}) with arguments")
_LISTED = re.compile(r"^\s*\d+\.\s+Size:\s*(\S+)\s*$(.*?)(?=^\s*=====|^\s*\d+\.\s+Size:|\Z)", re.MULTILINE | re.DOTALL)
_SHAPE = re.compile(r"^\s*Shape:\s*\(?(\w+\[[\d,]*\])", re.MULTILINE)
_PADDING = re.compile(rf"Extra memory due to padding:\s*({AMOUNT})")
_OPERATOR = re.compile(r'op_name="([^"]+)')
_LABEL = re.compile(r"XLA label:\s*(\S+)")
_IS_ARGUMENT = re.compile(r"Allocation type:.*(?:parameter|argument)", re.IGNORECASE)


def read_tpu(text: str) -> OutOfMemory | None:
    """Return what a TPU's text says, None if it is none."""
    return _refused_program(text) or _inside_a_core(text) or _failed_allocation(text)


def _refused_program(text: str) -> OutOfMemory | None:
    """Return what the compiler said of a program that is too large."""
    for pattern in (_USED, _ONLY_USED, _TEMPORARIES, _CORES):
        if found := pattern.search(text):
            break
    else:
        return None
    memory: Memory = "tpu"
    amounts = [bytes_in(each) for each in found.groups() if each not in ("hbm", "vmem", "smem")]
    if pattern is _USED and found[1] != "hbm":
        memory = "vmem" if found[1] == "vmem" else "smem"
    need, cap = amounts[0], amounts[1]
    notes: tuple[str, ...] = ()
    if pattern is _CORES:
        need, cap = (amounts[0] or 0) + (amounts[1] or 0), amounts[2]
        notes = ("Both kinds of cores are counted: the TensorCore's and the SparseCore's.",)
    if pattern is _TEMPORARIES:
        notes = ("This compiler says one figure: arguments, results and temporaries together.",)
    output = _OUTPUT.search(text)
    parts = {name: value for name, each in _PARTS.items() if (value := first(each, text))}
    if output and (back := bytes_in(output[1])):
        parts["output"] = back
    return OutOfMemory(
        memory=memory,
        when="compile",
        said=" ".join(found[0].split()),
        need_bytes=need,
        cap_bytes=cap,
        parts=parts,
        shared_bytes=bytes_in(output[2]) if output else None,
        largest=_largest(text),
        notes=notes,
    )


def _inside_a_core(text: str) -> OutOfMemory | None:
    """Return what the compiler said of one operation that is too large for the memory inside a core."""
    found = _SCOPED.search(text)
    if found is None:
        return None
    return OutOfMemory(
        memory="vmem" if found[1] == "vmem" else "smem",
        when="compile",
        said=" ".join(found[0].split())[:300],
        need_bytes=bytes_in(found[3]),
        cap_bytes=bytes_in(found[4]),
        notes=(f"The operation is {found[2].rstrip('.')}.",),
    )


def _failed_allocation(text: str) -> OutOfMemory | None:
    """Return what the runtime said of a buffer, or a program, for which nothing was left."""
    if whole := _ALLOCATION.search(text):
        return OutOfMemory(
            memory="tpu", when="compile", said=whole[0], need_bytes=int(whole[1]), cap_bytes=int(whole[2])
        )
    found = _BUFFER.search(text)
    if found is None:
        return None
    tried, capacity = bytes_in(found[1]), first(_CAPACITY, text)
    allocated, reserved = first(_ALLOCATED, text), first(_PARTS["reserved"], text) or 0
    return OutOfMemory(
        memory="tpu",
        when="run",
        said=" ".join(found[0].split()),
        need_bytes=None if allocated is None or tried is None else allocated + tried + reserved,
        cap_bytes=capacity,
        tried_bytes=tried,
        free_bytes=bytes_in(found[2]),
        largest=_largest(text),
    )


def _largest(text: str) -> tuple[Allocation, ...]:
    """Return the buffers of the list `Largest program allocations`, each once, largest first."""
    found: dict[tuple[int, str | None, str | None], Allocation] = {}
    for number, block in enumerate(_LISTED.finditer(text)):
        size, rest = bytes_in(block[1]), block[2]
        if size is None:
            continue
        shape, operator = _SHAPE.search(rest), _OPERATOR.search(rest) or _LABEL.search(rest)
        found[size, shape[1] if shape else None, str(number)] = Allocation(
            bytes=size,
            shape=shape[1] if shape else None,
            operator=operator[1] if operator else None,
            is_argument=_IS_ARGUMENT.search(rest) is not None,
            padding_bytes=first(_PADDING, rest) or 0,
        )
    return tuple(sorted(found.values(), key=lambda each: -each.bytes))

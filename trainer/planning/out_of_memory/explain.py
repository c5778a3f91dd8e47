"""An out-of-memory failure explained: as plain values for JSON, and as one page of text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from schemas.formats import size
from trainer.planning.out_of_memory.advice import Remedy, remedies
from trainer.planning.out_of_memory.report import OutOfMemory
from trainer.planning.out_of_memory.roles import WORDS, NamedBuffer, Sizes, read_roles

SHOWN = 8
"""Kinds of buffers on the page."""

PLACES = {
    "tpu": "a TPU's memory (HBM)",
    "vmem": "the memory inside a TPU core (VMEM)",
    "smem": "the scalar memory inside a TPU core (SMEM)",
    "gpu": "a GPU's memory",
    "cpu": "the machine's main memory, on whose CPU the program computes",
    "host": "the machine's main memory",
}
MOMENTS = {"compile": "the compiler refused the program before it began", "run": "an allocation failed while it ran"}


@dataclass(frozen=True, kw_only=True)
class AccountPart:
    """One thing that the configured run needs memory for."""

    name: str
    bytes: int
    because: str

    def document(self) -> dict[str, str | int]:
        """Return it as plain values."""
        return {"name": self.name, "bytes": self.bytes, "because": self.because}


@dataclass(frozen=True, kw_only=True)
class Account:
    """A configuration beside a failure."""

    sizes: Sizes
    parts: tuple[AccountPart, ...]
    """Of the program that needs most, largest first."""
    notes: tuple[str, ...]
    """Whether the failure is that of this configuration, in sentences."""
    changes: tuple[Remedy, ...]
    """Cheapest first; what each frees is estimated anew."""


def explanation(failure: OutOfMemory, account: Account | None = None) -> dict[str, Any]:
    """Return the whole answer as plain values.

    Args:
        failure: what the text says.
        account: what the configuration says to it, where one was given.
    """
    buffers = read_roles(
        failure.largest,
        sizes=account.sizes if account else None,
        in_main_memory=failure.memory == "host" and failure.when == "run",
    )
    advised = account.changes if account and account.changes else remedies(failure, buffers)
    return {
        "memory": failure.memory,
        "when": failure.when,
        "said": failure.said,
        "need_bytes": failure.need_bytes,
        "cap_bytes": failure.cap_bytes,
        "missing_bytes": failure.missing_bytes,
        "tried_bytes": failure.tried_bytes,
        "free_bytes": failure.free_bytes,
        "parts": dict(failure.parts),
        "shared_bytes": failure.shared_bytes,
        "largest": [_buffer(same) for same in grouped(buffers)],
        "notes": [*failure.notes, *(account.notes if account else ())],
        "configuration": [part.document() for part in account.parts] if account else None,
        "changes": [_change(each) for each in advised],
    }


def grouped(buffers: Sequence[NamedBuffer]) -> list[list[NamedBuffer]]:
    """Return buffers of the same size, shape and role together, largest kind first."""

    def kind(each: NamedBuffer) -> tuple[int, str, str]:
        return -each.allocation.bytes, each.allocation.shape or "", each.role

    return [list(same) for _, same in groupby(sorted(buffers, key=kind), key=kind)]


def explanation_text(answer: dict[str, Any]) -> str:
    """Return the answer as one page of text."""
    lines = [f"Out of memory: {PLACES[answer['memory']]}; {MOMENTS[answer['when']]}.", f"It says: {answer['said']}", ""]
    lines += [f"  {name:<10}{size(answer[key]):>12}" for name, key in _FIGURES if answer[key] is not None]
    if answer["parts"]:
        lines += ["", f"It consists of: {_parts_text(answer['parts'], answer['shared_bytes'])}."]
    if answer["largest"]:
        lines += ["", "Largest buffers:"]
        lines += [_buffer_line(each) for each in answer["largest"][:SHOWN]]
    if answer["configuration"]:
        lines += ["", "What the configuration should need, on each device:"]
        lines += [
            f"  {size(each['bytes']):>12}  {each['name']:<16}  {each['because']}" for each in answer["configuration"]
        ]
    lines += ["", *answer["notes"]] if answer["notes"] else []
    if answer["changes"]:
        lines += ["", "What to change, cheapest first:"]
        lines += [
            line for number, each in enumerate(answer["changes"], start=1) for line in _change_lines(number, each)
        ]
    return "\n".join(lines) + "\n"


_FIGURES = (
    ("needs", "need_bytes"),
    ("has", "cap_bytes"),
    ("asked for", "tried_bytes"),
    ("free", "free_bytes"),
    ("missing", "missing_bytes"),
)


def _parts_text(parts: dict[str, int], shared: int | None) -> str:
    """Return the parts in words; what is inside another part, or reuses its memory, stands behind it in brackets."""
    inside = f" (temporaries {size(parts['temporaries'])})" if {"program", "temporaries"} <= set(parts) else ""
    reused = f" (of which {size(shared)} reuse arguments)" if shared is not None else ""
    behind = {"program": inside, "output": reused}
    return ", ".join(
        f"{name} {size(held)}{behind.get(name, '')}"
        for name, held in parts.items()
        if name != "temporaries" or not inside
    )


def _buffer(same: Sequence[NamedBuffer]) -> dict[str, Any]:
    one = same[0]
    return {
        "bytes": one.allocation.bytes,
        "count": len(same),
        "shape": one.allocation.shape,
        "role": one.role,
        "because": one.because,
        "operator": one.allocation.operator,
    }


def _buffer_line(each: dict[str, Any]) -> str:
    times = f"{each['count']} × " if each["count"] > 1 else ""
    role = WORDS[each["role"]] + (f": {each['because']}" if each["because"] else "")
    return f"  {times + size(each['bytes']):>16}  {each['shape'] or 'no shape said':<28}  {role}"


def _change(each: Remedy) -> dict[str, Any]:
    return {"what": each.what, "set": each.setting, "frees_bytes": each.frees_bytes, "costs": each.costs}


def _change_lines(number: int, each: dict[str, Any]) -> list[str]:
    frees = f"frees {size(each['frees_bytes'])}, " if each["frees_bytes"] else ""
    setting = [f"     --set {each['set']}"] if each["set"] else []
    return [f"  {number}. {each['what']}", *setting, f"     {frees}costs {each['costs']}"]

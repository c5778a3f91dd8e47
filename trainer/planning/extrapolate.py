"""Extrapolate peak memory from a model with few layers, and closed forms from what a compiler measured of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from schemas.formats import size
from trainer.planning.estimate.part import SHARDED_ERROR_FRACTION, Part, is_sharded, total_bytes
from trainer.planning.program_memory import ProgramMemory

FEW_LAYERS = 3

EXTRAPOLATED_ERROR = 0.23
"""Beyond the compiler's own, on one device: large models were within 5 %, the step of SmolLM2-135M 10 % and small
decoding 24 % apart."""

ANCHORED_ERROR = 0.08
"""The same of a run that differs in a setting or two from one whose whole was compiled, and is corrected by it: five
changes of Gemma 2B on eight chips were at most 5.4 % apart."""


@dataclass(frozen=True, kw_only=True)
class Whole:
    """What a whole program is said to need."""

    bytes: int
    error_fraction: float
    """Beyond the compiler's own, unless it is the sum."""
    because: str
    """The end of a sentence on how few layers were compiled; may be empty."""
    is_sum: bool = False
    """Whether it is what is summed, which few layers say less than."""


@dataclass(frozen=True, kw_only=True)
class Anchor:
    """A program whose few layers and whole were both compiled."""

    few_bytes: int
    sum_bytes: int
    said_bytes: int
    """What was said of the whole before it was compiled."""
    whole_bytes: int


def anchor_of(few: ProgramMemory, whole: ProgramMemory, parts: tuple[Part, ...]) -> Anchor:
    """Return what a program teaches that was asked about by its few layers first, and then whole."""
    assert few.few_bytes is not None, "its few layers were compiled"
    return Anchor(
        few_bytes=few.few_bytes, sum_bytes=total_bytes(parts), said_bytes=few.peak_bytes, whole_bytes=whole.peak_bytes
    )


def whole_from(few_bytes: int, parts: tuple[Part, ...], anchor: Anchor | None = None) -> Whole:
    """Return what few layers say of the whole.

    Of several devices few layers keep up to 30 % less than the whole, whose gathers run ahead of each other over as
    many layers as there are: there the sum is taken where it says more.

    Args:
        few_bytes: what the compiler said of few layers beside occupied memory.
        parts: what is summed for the whole.
        anchor: of the same program of a run that differs in a setting or two. None: its whole was not compiled.
    """
    summed = total_bytes(parts)
    said = max(few_bytes, summed) if is_sharded(parts) else few_bytes
    if anchor is not None and (few_bytes, summed) == (anchor.few_bytes, anchor.sum_bytes):
        because = ", and nothing of them differs from the run that was compiled whole"
        return Whole(bytes=anchor.whole_bytes, error_fraction=0.0, because=because)
    if anchor is not None:
        because = ", corrected by the whole of the run that was planned first"
        corrected = said * anchor.whole_bytes // anchor.said_bytes
        return Whole(bytes=corrected, error_fraction=ANCHORED_ERROR, because=because)
    error = SHARDED_ERROR_FRACTION if is_sharded(parts) else EXTRAPOLATED_ERROR
    if said > few_bytes:
        because = f". Adding up all parts gives more, {size(summed)}: that is taken, with the band of sums"
        return Whole(bytes=said, error_fraction=error, because=because, is_sum=True)
    return Whole(
        bytes=said, error_fraction=error, because=f". The band is of how far few layers may mislead, {error:.0%}"
    )


def ratios_of(answers: Iterable[ProgramMemory], sums: Iterable[ProgramMemory]) -> dict[str, float]:
    """Return by how much the sum of each program is to be multiplied to give what its compiler said.

    Args:
        answers: what is known of a run's programs; those that were only summed say nothing of the sums.
        sums: what the sums say of the same run.
    """
    summed = {each.name: each.peak_bytes for each in sums}
    return {
        each.name: each.peak_bytes / summed[each.name]
        for each in answers
        if each.way != "closed_form" and summed.get(each.name)
    }


def expected(
    sums: Sequence[ProgramMemory], ratios: Mapping[str, float], *, error_fraction: float | None = None
) -> list[ProgramMemory]:
    """Return sums as the compiler would say them; only where to look is decided by these.

    Args:
        sums: what the sums say of a changed run.
        ratios: from `ratios_of`, by program.
        error_fraction: how far an expected need may be off. None: as far as its sum.
    """
    return [
        replace(
            each,
            peak_bytes=round(each.peak_bytes * ratios[each.name]),
            error_fraction=each.error_fraction if error_fraction is None else error_fraction,
        )
        if each.name in ratios
        else each
        for each in sums
    ]

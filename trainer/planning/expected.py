"""What sums make expect of a changed run, once the compiler has said how far they are off for this one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from trainer.planning.program_answer import ProgramAnswer


def ratios_of(answers: Iterable[ProgramAnswer], sums: Iterable[ProgramAnswer]) -> dict[str, float]:
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
    sums: Sequence[ProgramAnswer], ratios: Mapping[str, float], *, error_fraction: float | None = None
) -> list[ProgramAnswer]:
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

"""The largest microbatch that fits, and which microbatches fit at which length."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from trainer.planning.changes import smallest_microbatch
from trainer.planning.memory import Estimator, ProgramMemory, deciding
from trainer.planning.subject import Subject

LARGEST = 4096
"""Sequences of the largest microbatch that is considered."""
GRID_SIZES = (1, 2, 4, 8, 16, 32, 64, 128)
GRID_LENGTHS = (128, 256, 512, 1024, 2048, 4096)
MAX_ASKED = 4
"""Sizes that are compiled in one search."""
CONFIRM_SECONDS = 240.0
"""Time limit of all compilations of a grid."""


def largest_microbatch(
    subject: Subject, estimator: Estimator, now: ProgramMemory, *, say: Callable[[str], None]
) -> dict[str, Any] | None:
    """Search the largest microbatch that fits at the configured length, with at most `MAX_ASKED` compilations.

    Args:
        subject: The run.
        estimator: Decides.
        now: The program that decides at the configured size.
        say: Called with lines about progress.

    Returns:
        Its size, need and method; None if the smallest does not fit or the memory is unknown.
    """
    if estimator.available_bytes is None:
        return None
    config, formula = subject.task.config, estimator.formula_only()
    each = smallest_microbatch(config)  # sizes are counted in pairs if the objective compares two

    def decides(size: int, by: Estimator) -> ProgramMemory:
        return _at(subject, by, size=each * size, length=config.data.max_length)

    size = config.batch.microbatch_size // each
    answer, scale = now, now.peak_bytes / decides(size, formula).peak_bytes
    best: tuple[int, ProgramMemory] | None = None
    fits, refused, asked = 0, LARGEST // each + 1, 0
    while True:
        if answer.verdict == "fits":
            fits, best = size, (size, answer)
        else:
            refused = size
        if refused - fits <= max(1, fits // 16) or asked >= MAX_ASKED:
            break
        # The formula, scaled to the last answer, proposes the next size.
        low, high = fits, refused - 1
        while low < high:
            middle = (low + high + 1) // 2
            need = scale * decides(middle, formula).peak_bytes * (1 + answer.error_fraction)
            low, high = (middle, high) if need <= estimator.available_bytes else (low, middle - 1)
        size = low if low > fits else min(fits + max(1, fits // 16), refused - 1)
        say(f"trying {each * size} sequences of {config.data.max_length} tokens")
        answer, asked = decides(size, estimator), asked + 1
        scale = answer.peak_bytes / decides(size, formula).peak_bytes
    if best is None:
        return None
    size, answer = best
    return {
        "microbatch_size": each * size,
        "max_length": config.data.max_length,
        "need_bytes": answer.peak_bytes,
        "method": answer.method,
    }


def grid(subject: Subject, estimator: Estimator) -> dict[str, Any]:
    """Return which microbatches fit at which lengths: by formula, and compiled at the boundary of each length.

    Args:
        subject: The run; its own size and length are included.
        estimator: Confirms the largest size that fits at each length, and the next one if it may fit.
    """
    config, longest = subject.task.config, subject.task.model.source.spec.max_positions
    lengths = sorted({*(length for length in GRID_LENGTHS if length <= longest), config.data.max_length})
    allowed = (size for size in GRID_SIZES if size % smallest_microbatch(config) == 0)
    sizes = sorted({*allowed, config.batch.microbatch_size})
    formula = estimator.formula_only()
    cells = []
    until = time.monotonic() + CONFIRM_SECONDS
    for length in lengths:
        row = [_at(subject, formula, size=size, length=length) for size in sizes]
        if estimator.machine is not None:
            _confirm(row, partial(_compile_cell, subject, estimator, sizes, length), until)
        cells += [
            {
                "microbatch_size": size,
                "max_length": length,
                "verdict": answer.verdict,
                "method": answer.method,
                "need_bytes": answer.peak_bytes,
                "error_fraction": answer.error_fraction,
            }
            for size, answer in zip(sizes, row, strict=True)
        ]
    return {
        "microbatch_sizes": sizes,
        "max_lengths": lengths,
        "cells": cells,
        "available_bytes": estimator.available_bytes,
    }


def _confirm(row: list[ProgramMemory], compile_cell: Callable[[int], ProgramMemory], until: float) -> None:
    """Compile the largest size of a row that fits, the next smaller one if it does not, and the next larger if open."""
    last = sum(answer.verdict in ("fits", "unknown") for answer in row) - 1
    for at in (last, last - 1, last + 1):
        is_open = (
            at == last
            or (at < last and row[last].verdict != "fits")
            or (at > last and at < len(row) and row[at].verdict == "tight")
        )
        if at >= 0 and is_open and time.monotonic() < until:
            row[at] = compile_cell(at)


def _compile_cell(
    subject: Subject, estimator: Estimator, sizes: Sequence[int], length: int, place: int
) -> ProgramMemory:
    return _at(subject, estimator, size=sizes[place], length=length)


def _at(subject: Subject, estimator: Estimator, *, size: int, length: int) -> ProgramMemory:
    """Return the program that decides with another microbatch and length."""
    config = subject.task.config
    batch, data = replace(config.batch, microbatch_size=size), replace(config.data, max_length=length)
    changed = subject.changed(replace(config, batch=batch, data=data))
    return deciding(estimator.programs(changed.task, changed.asked))

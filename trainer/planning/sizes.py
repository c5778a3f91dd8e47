"""The largest microbatch that fits, and which sizes fit at which length."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from trainer.config.tree import Config
from trainer.planning.advice import deciding
from trainer.planning.changes import fewest_sequences
from trainer.planning.estimator import Estimator
from trainer.planning.extrapolate import expected, ratios_of
from trainer.planning.program_memory import ProgramMemory
from trainer.planning.subject import Subject

LARGEST = 4096
"""Sequences of a microbatch beyond which nobody looks."""
GRID_SIZES = (1, 2, 4, 8, 16, 32, 64, 128)
GRID_LENGTHS = (128, 256, 512, 1024, 2048, 4096)
MOST_ASKED = 4
"""Sizes that a compiler is asked about in one search."""
CLOSE_ENOUGH = 16
"""A refused size that is larger by no more than one of so many parts ends the search: each answer takes a minute."""
MOST_CONFIRMED = 12
"""Cells of a grid that a compiler is asked about."""
CONFIRM_SECONDS = 240.0
"""For all of these together."""


def largest_microbatch(
    subject: Subject, asking: Estimator, *, programs: Sequence[ProgramMemory], say: Callable[[str], None]
) -> dict[str, Any] | None:
    """Return the largest microbatch that fits at the configuration's length, None where not even one sequence does.

    The search begins from what is known of the configured size. The sums say where to look, corrected by each answer of
    the compiler, which compiles whole programs there; after a refusal it halves. None too where the memory is unknown.

    Args:
        subject: the run.
        asking: whom to ask.
        programs: what the programs of the run need as it is.
        say: takes lines about progress.
    """
    if asking.available_bytes is None:
        return None
    quick, asking = asking.quick(), replace(asking.brief(), exact=True)
    each = fewest_sequences(subject.task.config)  # sizes are counted in pairs where the objective compares two
    length, configured = subject.task.config.data.max_length, subject.task.config.batch.microbatch_size
    answer, size = deciding(programs), configured // each
    ratios = ratios_of(programs, _at(subject, quick, size=configured))
    found, refused, asked = 0, LARGEST + 1, 0
    best: ProgramMemory | None = None
    while True:
        if _fits(answer):
            found, best = size, answer
        else:
            refused = size
        if refused - found <= max(1, found // CLOSE_ENOUGH) or (found and asked >= MOST_ASKED):
            break
        halved = asked and refused <= LARGEST
        size = (found + refused) // 2 if halved else _place(subject, quick, ratios, asking, each, found, refused)
        say(f"trying {each * size} sequences of {length} tokens")
        answers = _at(subject, asking, size=each * size)
        ratios |= ratios_of(answers, _at(subject, quick, size=each * size))
        answer, asked = deciding(answers), asked + 1
    if best is None:
        return None
    return {
        "microbatch_size": each * found,
        "max_length": length,
        "need_bytes": best.peak_bytes,
        "method": best.way,
    }


def _place(
    subject: Subject,
    quick: Estimator,
    ratios: Mapping[str, float],
    asking: Estimator,
    each: int,
    found: int,
    refused: int,
) -> int:
    """Return the largest size between one that fits and one that does not of which the sums expect that it fits.

    Where they expect that of none, the next size that would matter is to be refused by the compiler.
    """
    error = None if asking.machine is None else asking.compiled_error
    place = _bisected(partial(_may_fit, subject, quick, ratios, each, error), found + 1, refused - 1)
    return place or min(found + max(1, found // CLOSE_ENOUGH), refused - 1)


def _may_fit(
    subject: Subject, quick: Estimator, ratios: Mapping[str, float], each: int, error: float | None, size: int
) -> bool:
    """Return whether so many sequences, or pairs, may be expected to fit, by the error that answers are judged with."""
    return _fits(deciding(expected(_at(subject, quick, size=each * size), ratios, error_fraction=error)))


def grid(subject: Subject, asking: Estimator, *, say: Callable[[str], None]) -> dict[str, Any]:
    """Return which microbatches fit at which lengths: by the sums, and by the compiler at the line between the two.

    The configuration's own size and length are among them.

    Args:
        subject: the run.
        asking: whom to ask.
        say: takes lines about progress.
    """
    longest = subject.task.model.source.spec.max_positions
    config = subject.task.config
    lengths = sorted({*(length for length in GRID_LENGTHS if length <= longest), config.data.max_length})
    of_all = (size for size in GRID_SIZES if size % fewest_sequences(config) == 0)
    sizes = sorted({*of_all, config.batch.microbatch_size})
    quick = asking.quick()
    found = {
        (length, size): deciding(_at(subject, quick, size=size, length=length)) for length in lengths for size in sizes
    }
    if asking.machine is not None:
        confirm(found, subject, asking, say=say)
    cells = [
        {
            "microbatch_size": size,
            "max_length": length,
            "verdict": answer.verdict,
            "method": answer.way,
            "need_bytes": answer.peak_bytes,
            "error_fraction": answer.error_fraction,
        }
        for (length, size), answer in found.items()
    ]
    return {
        "microbatch_sizes": sizes,
        "max_lengths": lengths,
        "cells": cells,
        "available_bytes": asking.available_bytes,
    }


def confirm(
    found: dict[tuple[int, int], ProgramMemory], subject: Subject, asking: Estimator, *, say: Callable[[str], None]
) -> None:
    """Ask the compiler about the largest size that fits at each length, and about the next where that is open.

    Args:
        found: what the sums say by length and size, ascending; replaced by what the compiler says.
        subject: the run.
        asking: whom to ask.
        say: takes lines about progress.
    """
    until = time.perf_counter() + CONFIRM_SECONDS
    asked: set[tuple[int, int]] = set()
    while len(asked) < MOST_CONFIRMED and (cell := open_cell(found, asked)) is not None:
        if (left := until - time.perf_counter()) < 1:
            say(f"the rest is added up: {CONFIRM_SECONDS:.0f} s are over")
            return
        length, size = cell
        say(f"confirming {size} sequences of {length} tokens")
        brief = replace(asking.brief(), exact=True, limit_seconds=min(left, asking.limit_seconds))
        found[cell] = deciding(_at(subject, brief, size=size, length=length))
        asked.add(cell)


def open_cell(
    found: Mapping[tuple[int, int], ProgramMemory], asked: Collection[tuple[int, int]]
) -> tuple[int, int] | None:
    """Return the next cell to ask about, None where nothing is open.

    Of each length the largest size that fits comes first; then, where these are known, the next size that is tight.
    """
    rows: dict[int, list[tuple[int, int]]] = {}
    for cell in found:
        rows.setdefault(cell[0], []).append(cell)
    above = []
    for row in rows.values():
        fitting = [place for place, cell in enumerate(row) if _fits(found[cell])]
        last = fitting[-1] if fitting else -1
        if last >= 0 and row[last] not in asked:
            return row[last]
        if last + 1 < len(row) and found[row[last + 1]].verdict == "tight" and row[last + 1] not in asked:
            above.append(row[last + 1])
    return above[0] if above else None


def _at(subject: Subject, asking: Estimator, *, size: int, length: int | None = None) -> list[ProgramMemory]:
    """Return the programs of the run with another microbatch."""
    config: Config = subject.task.config
    config = replace(config, batch=replace(config.batch, microbatch_size=size))
    if length is not None:
        config = replace(config, data=replace(config.data, max_length=length))
    return asking.programs(subject.changed(config).task, subject.asked)


def _fits(answer: ProgramMemory) -> bool:
    return answer.verdict in ("fits", "unknown")


def _bisected(is_good: Callable[[int], bool], low: int, high: int) -> int:
    """Return the largest number from `low` on that is good, 0 where none is; what is above a bad one is bad too."""
    if not is_good(low):
        return 0
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if is_good(middle) else (low, middle - 1)
    return low

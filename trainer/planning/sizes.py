"""The largest microbatch that fits, and which sizes fit at which length."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from trainer.config.tree import Config
from trainer.planning.advice import deciding
from trainer.planning.ask import Asking
from trainer.planning.changes import fewest_sequences
from trainer.planning.program_answer import ProgramAnswer
from trainer.planning.subject import Subject

LARGEST = 4096
"""Sequences of a microbatch beyond which nobody looks."""
GRID_SIZES = (1, 2, 4, 8, 16, 32, 64, 128)
GRID_LENGTHS = (128, 256, 512, 1024, 2048, 4096)
MOST_ASKED = 5
"""Sizes that a compiler is asked about in one search."""


def largest_microbatch(subject: Subject, asking: Asking, *, say: Callable[[str], None]) -> dict[str, Any] | None:
    """Return the largest microbatch that fits at the configuration's length, None where not even one sequence does.

    The sums say where to look; the compiler is asked there, and the step is halved until it has answered on both sides.
    """
    quick, asking = asking.quick(), asking.brief()
    each = fewest_sequences(subject.task.config)  # sizes are counted in pairs where the objective compares two
    guess = _bisected(lambda size: _fits(_at(subject, quick, size=each * size)), 1, LARGEST)
    found, refused = 0, LARGEST + 1
    size, step = max(guess, 1), max(guess // 8, 1)  # a step grows until there are answers on both sides
    answers: dict[int, ProgramAnswer] = {}
    for _ in range(MOST_ASKED):
        say(f"trying {each * size} sequences of {subject.task.config.data.max_length} tokens")
        answers[size] = _at(subject, asking, size=each * size)
        if _fits(answers[size]):
            found = size
            size = size + step if refused > LARGEST else (found + refused) // 2
            step *= 2
        else:
            refused = size
            size = max(size - step, 1) if found == 0 else (found + refused) // 2
            step *= 2
        if size in answers:
            break
    if not found:
        return None
    best = answers[found]
    return {
        "microbatch_size": each * found,
        "max_length": subject.task.config.data.max_length,
        "need_bytes": best.peak_bytes,
        "method": best.way,
    }


def grid(subject: Subject, asking: Asking) -> dict[str, Any]:
    """Return which microbatches fit at which lengths, by the sums: a table of dozens of programs in seconds."""
    longest = subject.task.model.source.spec.max_positions
    lengths = [length for length in GRID_LENGTHS if length <= longest] or [longest]
    sizes = [size for size in GRID_SIZES if size % fewest_sequences(subject.task.config) == 0]
    cells = []
    for length in lengths:
        for size in sizes:
            answer = _at(subject, asking, size=size, length=length)
            cells.append(
                {
                    "microbatch_size": size,
                    "max_length": length,
                    "verdict": answer.verdict,
                    "method": answer.way,
                    "need_bytes": answer.peak_bytes,
                    "error_fraction": answer.error_fraction,
                }
            )
    return {
        "microbatch_sizes": sizes,
        "max_lengths": lengths,
        "cells": cells,
        "available_bytes": asking.available_bytes,
    }


def _at(subject: Subject, asking: Asking, *, size: int, length: int | None = None) -> ProgramAnswer:
    """Return the deciding program of the run with another microbatch."""
    config: Config = subject.task.config
    config = replace(config, batch=replace(config.batch, microbatch_size=size))
    if length is not None:
        config = replace(config, data=replace(config.data, max_length=length))
    return deciding(asking.programs(subject.changed(config).task, subject.asked))


def _fits(answer: ProgramAnswer) -> bool:
    return answer.verdict in ("fits", "unknown")


def _bisected(is_good: Callable[[int], bool], low: int, high: int) -> int:
    """Return the largest number from `low` on that is good, 0 where none is; what is above a bad one is bad too."""
    if not is_good(low):
        return 0
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if is_good(middle) else (low, middle - 1)
    return low

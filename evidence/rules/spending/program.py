"""The compiled step compared with what is declared: donation, the optimizer's state, how often it is compiled."""

from __future__ import annotations

from collections.abc import Iterator

from evidence.rules.spending.figures import RunFigures
from evidence.targets.target import Target
from schemas.formats import size
from schemas.problems import Problem, problem_of

SMALLEST_GROUP = 4

REUSED_AT_LEAST = 0.98
"""Share of the state that a donating step reuses; scalars and counters may be copied."""
BYTES_WITHIN = 0.02
OF_THE_STATE = 0.01
TILE_BYTES = 4096
"""A TPU keeps the smallest array as a tile of 8 × 128 numbers of four bytes: so much more may each of Adafactor's many
small arrays take. Another optimizer is off by far more."""
COMPILE_SHARE = 0.1
"""Share of a run's time from which on compiling again is a warning."""


def state_is_donated(figures: RunFigures, target: Target) -> Iterator[Problem]:
    """Yield a problem where the compiled step does not reuse the state's memory though it is declared so.

    A warning where it is declared that it does not: the public failure held 14.00 GiB twice, and 15.75 were there.
    """
    state, reused = figures.state_bytes, figures.alias_bytes
    if reused is None and not figures.donate_declared:
        reused = 0  # it does what it is told, and no compiler need be asked
    if state is None or reused is None or reused >= state * REUSED_AT_LEAST:
        return
    yield problem_of(
        "TP738",
        file=figures.file,
        pointer="/memory/donate",
        severity="error" if figures.donate_declared else "warning",
        what=f"The step reuses {size(reused)} of the {size(state)} of state that it replaces on each device "
        f"of {target.name}; memory.donate is {'true' if figures.donate_declared else 'false'}.",
        next="Report this as a defect: donation was asked for and the compiled step does not do it."
        if figures.donate_declared
        else f"Use --set memory.donate=true, which frees {size(state - reused)}.",
    )


def optimizer_is_the_declared_one(figures: RunFigures, target: Target) -> Iterator[Problem]:
    """Yield a problem where the compiled step's optimizer state has other bytes than the declared optimizer keeps."""
    found, declared = figures.opt_state_bytes, figures.opt_state_bytes_declared
    if found is None or declared is None:
        return
    padding = TILE_BYTES * max(figures.opt_state_arrays, 1)
    if abs(found - declared) <= max(declared * BYTES_WITHIN, (figures.state_bytes or 0) * OF_THE_STATE, padding):
        return
    yield problem_of(
        "TP739",
        file=figures.file,
        pointer="/optimizer/name",
        what=f"The compiled step for {target.name} takes {size(found)} of optimizer state; "
        f"{figures.optimizer or 'the declared optimizer'} keeps {size(declared)} for these parameters.",
        expected=size(declared),
    )


def one_shape_is_compiled(figures: RunFigures, target: Target) -> Iterator[Problem]:
    """Yield a warning where a run compiles its step for so many shapes that this takes a large part of its time."""
    shapes = figures.distinct_shapes
    if shapes is None or shapes <= 1:
        return
    seconds = None if figures.compile_seconds is None else shapes * figures.compile_seconds
    run = figures.run_seconds.likely if figures.run_seconds else None
    much = seconds is not None and run is not None and seconds > run * COMPILE_SHARE
    took = f", which takes {seconds / 60:.3g} minutes" if seconds is not None else ""
    yield problem_of(
        "TP737",
        file=figures.file,
        pointer="/data/max_length",
        severity="warning" if much else "note",
        what=f"Batches have {shapes} shapes, so the step is compiled {shapes} times for {target.name}{took}.",
    )


def groups_are_large_enough(figures: RunFigures, target: Target) -> Iterator[Problem]:
    """Yield a warning about groups below `SMALLEST_GROUP`.

    Rewards of 3.5 and 0.1 and rewards of 0.2 and 0.1 make the same two advantages, divided by their spread.
    """
    size = figures.group_size
    if size is None or size >= SMALLEST_GROUP:
        return
    only = (
        ": the two advantages are equal but for their sign, so of all rewards only the order of two sums survives"
        if size == 2 and figures.group_scaled
        else ""
    )
    what = f"objective.group_size is {size}{only}."
    yield problem_of("TP748", file=figures.file, pointer="/objective/group_size", what=what)


CHECKS = (state_is_donated, optimizer_is_the_declared_one, one_shape_is_compiled, groups_are_large_enough)

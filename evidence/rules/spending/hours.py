"""Hours: of a session, of a week, between two checkpoints, and those that a user stated."""

from __future__ import annotations

from collections.abc import Iterator

from evidence.rules.spending.figures import RunFigures
from evidence.targets.target import Target
from schemas.problems import Problem, problem_of

HOUR = 3600.0
LARGE_SHARE = 0.5
"""Share of a session from which on a lost interval between checkpoints is a warning."""
WITHIN = 0.1
"""Stated hours are rounded: this much beyond the band is not a contradiction."""


def checkpoints_within_sessions(figures: RunFigures, target: Target) -> Iterator[Problem]:
    """Yield a problem where the time between two checkpoints is as long as a session, or a large part of it.

    500 steps of 100 to 150 s are 14 to 21 hours: no session of 12 hours has a checkpoint.
    """
    if figures.step_seconds is None or target.session_seconds is None or _saves_before_the_end(figures, target):
        return
    every = min(figures.save_every_steps or figures.steps, figures.steps)
    low, likely, high = (every * each / HOUR for each in _step(figures))
    session = target.session_seconds / HOUR
    if likely < session * LARGE_SHARE:
        return
    how = f"every {every:,} steps" if figures.save_every_steps else f"only at the end, after {every:,} steps"
    lost = likely >= session
    least = max(1, int(session * LARGE_SHARE / 2 * HOUR / _step(figures)[2]))
    yield problem_of(
        "TP731",
        file=figures.file,
        pointer="/checkpoint/save_every_steps",
        severity="error" if lost else "warning",
        what=f"A checkpoint is written {how}, which takes {_between(low, high)} hours; a session of {target.name} has "
        f"{session:g}.",
        why=None
        if lost
        else f"A session that is taken away loses up to {_between(low, high)} of its {session:g} hours.",
        next=f"Use --set checkpoint.save_every_steps={least}, which is at most {least * _step(figures)[2] / HOUR:.2g} "
        "hours; or set limits.max_minutes so that the run saves before the session ends.",
    )


def run_within_session(figures: RunFigures, target: Target) -> Iterator[Problem]:
    """Yield a warning where a run likely needs more than one session."""
    if figures.run_seconds is None or target.session_seconds is None:
        return
    session = target.session_seconds
    if figures.run_seconds.high <= session:
        return
    likely = figures.run_seconds.likely > session
    count = f" in about {figures.sessions} sessions" if figures.sessions and likely else ""
    yield problem_of(
        "TP732",
        file=figures.file,
        severity="warning" if likely else "note",
        what=f"The run takes {_hours(figures)} hours{count}; a session of {target.name} has {session / HOUR:g}.",
        next=f"Use --set limits.max_minutes={int(session / 60) - 30} and `trainproof train --resume` in the next "
        "session; or train fewer steps.",
    )


def run_within_week(figures: RunFigures, target: Target) -> Iterator[Problem]:
    """Yield a warning where a run likely needs more than one week's quota, a note where it may."""
    if figures.run_seconds is None or target.week_seconds is None:
        return
    week = target.week_seconds
    if figures.run_seconds.high <= week:
        return
    yield problem_of(
        "TP733",
        file=figures.file,
        severity="warning" if figures.run_seconds.likely > week else "note",
        what=f"The run takes {_hours(figures)} hours; {target.name} has {week / HOUR:g} a week.",
    )


def stated_hours_hold(figures: RunFigures, target: Target) -> Iterator[Problem]:
    """Yield a problem where steps times step time are not the hours that a user stated.

    2,500 steps of 100 to 150 s are 69 to 104 hours, not 40.
    """
    if figures.hours_stated is None or figures.step_seconds is None:
        return
    low, _, high = (figures.steps * each / HOUR for each in _step(figures))
    stated = figures.hours_stated
    if low * (1 - WITHIN) <= stated <= high * (1 + WITHIN):
        return
    yield problem_of(
        "TP734",
        file=figures.file,
        what=f"{figures.steps:,} steps of {_between(*_ends(figures))} s on {target.name} are {_between(low, high)} "
        f"hours; {stated:g} are stated.",
        expected=f"{_between(low, high)} hours",
    )


def steps_fit_the_limit(figures: RunFigures, target: Target) -> Iterator[Problem]:
    """Yield a warning where the run likely stops at its own time limit before its last step, a note where it may.

    400 steps of 8 to 19 s, likely 12, are 80 minutes: a limit of 60 ends them at about step 300.
    """
    if figures.max_minutes is None or figures.step_seconds is None:
        return
    limit = figures.max_minutes * 60
    low, likely, high = (figures.steps * each for each in _step(figures))
    if high <= limit:
        return
    reached = int(limit / _step(figures)[1 if likely > limit else 2])
    how = "about" if likely > limit else "as few as"
    yield problem_of(
        "TP742",
        file=figures.file,
        pointer="/limits/max_minutes",
        severity="warning" if likely > limit else "note",
        what=f"{figures.steps:,} steps on {target.name} take {_between(low / 60, high / 60)} minutes; "
        f"limits.max_minutes is {figures.max_minutes:g}, which is enough for {how} {reached:,}.",
    )


def checkpoints_fit_the_disk(figures: RunFigures, target: Target) -> Iterator[Problem]:
    """Yield a problem where kept checkpoints and the one being written are more than the disk."""
    if figures.checkpoint_bytes is None or figures.checkpoints_on_disk is None or target.disk_bytes is None:
        return
    need = figures.checkpoint_bytes * figures.checkpoints_on_disk
    if need <= target.disk_bytes:
        return
    yield problem_of(
        "TP741",
        file=figures.file,
        pointer="/checkpoint/keep",
        what=f"{figures.checkpoints_on_disk} checkpoints of {figures.checkpoint_bytes / 1e9:.3g} GB are "
        f"{need / 1e9:.3g} GB; {target.name} has {target.disk_bytes / 1e9:.3g} GB.",
    )


def the_machine_has_room(figures: RunFigures, target: Target) -> Iterator[Problem]:
    """Yield a problem where what passes through the memory of the machine is more than it has."""
    if figures.host_bytes is None or target.host_memory_bytes is None:
        return
    if figures.host_bytes <= target.host_memory_bytes:
        return
    yield problem_of(
        "TP743",
        file=figures.file,
        what=f"{figures.host_because} is {figures.host_bytes / 1e9:.3g} GB; the machine of {target.name} has "
        f"{target.host_memory_bytes / 1e9:.3g} GB of memory.",
    )


def _saves_before_the_end(figures: RunFigures, target: Target) -> bool:
    """Return whether the run saves and stops by itself before the session ends."""
    session = target.session_seconds
    return figures.max_minutes is not None and session is not None and figures.max_minutes * 60 < session


def _step(figures: RunFigures) -> tuple[float, float, float]:
    assert figures.step_seconds is not None, "asked only where it is known"
    return figures.step_seconds.low, figures.step_seconds.likely, figures.step_seconds.high


def _ends(figures: RunFigures) -> tuple[float, float]:
    low, _, high = _step(figures)
    return low, high


def _hours(figures: RunFigures) -> str:
    assert figures.run_seconds is not None, "asked only where it is known"
    return _between(figures.run_seconds.low / HOUR, figures.run_seconds.high / HOUR)


def _between(low: float, high: float) -> str:
    """Return a range as text: `14 to 21`; one number where both ends are written alike."""
    first, last = f"{low:.3g}", f"{high:.3g}"
    return first if first == last else f"{first} to {last}"


CHECKS = (
    checkpoints_within_sessions,
    run_within_session,
    run_within_week,
    stated_hours_hold,
    steps_fit_the_limit,
    checkpoints_fit_the_disk,
    the_machine_has_room,
)

"""What a session's time goes to, how many sessions and weeks a run takes, and what a lost session costs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from trainer.planning.spending_rules import Band, exactly

PART_NAMES = ("install", "compile", "load", "train", "save", "evaluate", "export")
"""Parts of a session, in the order in which they happen."""

ONCE_A_SESSION = ("install", "compile", "load")
"""Parts that every further session of the same run begins with."""

HOUR_SECONDS = 3600.0


@dataclass(frozen=True, kw_only=True)
class SessionPart:
    """One thing that the time of a session goes to."""

    name: str
    """One of `PART_NAMES`."""
    seconds: Band
    because: str
    """The multiplication behind it, in words."""


def train_part(step: Band, steps: int) -> SessionPart:
    """Return the steps themselves.

    >>> train_part(Band(low=1, likely=2, high=4), 200).seconds
    Band(low=200, likely=400, high=800)
    """
    return SessionPart(name="train", seconds=step.times(steps), because=f"{steps:,} steps × {step.likely:.3g} s")


def copy_part(name: str, *, bytes_each: float, bytes_per_second: Band, times: int = 1) -> SessionPart:
    """Return what moving files takes: weights that are loaded, checkpoints that are saved, an export.

    5 GB over a connection of 50 MB/s (at least 20, at most 100):

    >>> copy_part("load", bytes_each=5e9, bytes_per_second=Band(low=20e6, likely=50e6, high=100e6)).seconds
    Band(low=50.0, likely=100.0, high=250.0)

    Args:
        name: load, save or export.
        bytes_each: of one copy.
        bytes_per_second: slowest, likely and fastest rate.
        times: how often it is done.
    """
    total = bytes_each * times
    rate = bytes_per_second
    seconds = Band(low=total / rate.high, likely=total / rate.likely, high=total / rate.low)
    because = f"{times} × {bytes_each / 1e9:.3g} GB at {rate.likely / 1e6:.3g} MB/s"
    return SessionPart(name=name, seconds=seconds, because=because)


def evaluate_part(
    *,
    prompts: int,
    batch_size: int,
    tokens: int,
    token_seconds: Band,
    reading_seconds: Band | None = None,
    times: int = 1,
    during: tuple[int, int] = (0, 0),
) -> SessionPart:
    """Return what answering an evaluation set takes: every batch is decoded token by token.

    100 prompts, 32 at a time, 160 tokens each, 20 ms a token, before and after training: 2 · 4 · 160 · 0.02 s.

    >>> part = evaluate_part(prompts=100, batch_size=32, tokens=160, token_seconds=exactly(0.02), times=2)
    >>> round(part.seconds.likely, 1)
    25.6

    Args:
        prompts: of the evaluation set.
        batch_size: answered at a time.
        tokens: of the longest answer; a batch waits for its longest.
        token_seconds: of one token of one batch; at least the time to read all parameters once.
        reading_seconds: of the prompts of one batch, all their tokens at once. None: they are not counted.
        times: evaluations, the one before training among them.
        during: how often items are asked during training, and how many.
    """
    batches, points, few = math.ceil(prompts / batch_size), during[0], math.ceil(during[1] / batch_size)
    count = times * batches + points * few
    whole = f"({times} × {batches} + {points} × {few})" if points else f"{times} × {batches}"
    because = f"{whole} batches × {tokens} tokens × {token_seconds.likely * 1000:.3g} ms"
    seconds = token_seconds.times(count * tokens)
    if reading_seconds is not None:
        seconds = seconds.plus(reading_seconds.times(count))
        because += f", and {reading_seconds.likely:.3g} s to read the prompts of each"
    return SessionPart(name="evaluate", seconds=seconds, because=because)


def total_seconds(parts: Sequence[SessionPart]) -> Band:
    """Return what all parts take, one after the other."""
    total = exactly(0.0)
    for part in parts:
        total = total.plus(part.seconds)
    return total


def sessions_needed(parts: Sequence[SessionPart], session_seconds: float) -> tuple[int | None, int | None, int | None]:
    """Return how many sessions the parts take: at least, likely, at most; None where no number of them is enough.

    Each session begins with `ONCE_A_SESSION`; the rest is divided over the time that is left. With 1 hour to begin and
    25 hours of work, sessions of 12 hours have 11 each: 3.

    >>> begin = SessionPart(name="load", seconds=exactly(3600.0), because="")
    >>> work = SessionPart(name="train", seconds=exactly(25 * 3600.0), because="")
    >>> sessions_needed([begin, work], 12 * 3600)
    (3, 3, 3)
    """
    again = total_seconds([part for part in parts if part.name in ONCE_A_SESSION])
    work = total_seconds([part for part in parts if part.name not in ONCE_A_SESSION])
    return (
        _sessions(again.low, work.low, session_seconds),
        _sessions(again.likely, work.likely, session_seconds),
        _sessions(again.high, work.high, session_seconds),
    )


def _sessions(again: float, work: float, session: float) -> int | None:
    """Return how many sessions are enough, each of which begins with the same; None where it leaves nothing."""
    if again >= session:
        return None
    return max(1, math.ceil(work / (session - again)))


def weeks_needed(parts: Sequence[SessionPart], *, session_seconds: float, week_seconds: float) -> int | None:
    """Return how many weeks of quota the parts are likely to take, None where sessions are too short for any number.

    25 hours of work in 3 sessions that begin with 1 hour each are 28 hours: within the 30 of one week, not of 20.

    >>> begin = SessionPart(name="load", seconds=exactly(3600.0), because="")
    >>> work = SessionPart(name="train", seconds=exactly(25 * 3600.0), because="")
    >>> [weeks_needed([begin, work], session_seconds=12 * 3600, week_seconds=hours * 3600) for hours in (30, 20)]
    [1, 2]
    """
    _, sessions, _ = sessions_needed(parts, session_seconds)
    if sessions is None:
        return None
    again = sum(part.seconds.likely for part in parts if part.name in ONCE_A_SESSION)
    once = sum(part.seconds.likely for part in parts if part.name not in ONCE_A_SESSION)
    return max(1, math.ceil((once + sessions * again) / week_seconds))


def saving_interval(step: Band, save_every_steps: int, steps: int) -> Band:
    """Return the time between two checkpoints, which is what a session that is taken away can lose.

    The guide that this project began with saves every 500 steps of 100 to 150 s: 14 to 21 hours, in sessions of 12.

    >>> between = saving_interval(Band(low=100, likely=125, high=150), 500, 3000)
    >>> [round(seconds / 3600) for seconds in (between.low, between.likely, between.high)]
    [14, 17, 21]

    Args:
        step: one step.
        save_every_steps: steps between checkpoints. 0: only at the end.
        steps: of the whole run.
    """
    return step.times(min(save_every_steps or steps, steps))

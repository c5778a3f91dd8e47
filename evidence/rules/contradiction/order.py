"""What comes after what: times of the run, its rows and its events, and steps that only go up."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

import numpy as np

from evidence.records.clock import CLOCK_SECONDS, set_back_seconds
from evidence.records.facts import Document, Facts, finding, where
from evidence.run import layout
from schemas.problems import Problem, truncate_problems
from schemas.reading import Array, parse_time, seconds_between

START_SECONDS = 300.0
"""Longest time from the plan to the start of the run, and from there to its first event: nothing waits in between."""
_TIMER_FRACTION = 0.02
"""How far two timers may disagree over the same interval."""


def run_starts_before_it_ends(facts: Facts) -> Iterator[Problem]:
    """Yield problems for a run, a plan or an evaluation that ends before it starts or belongs to another time."""
    if facts.manifest is None:
        return
    manifest, evaluated, plan = facts.manifest, facts.eval_summary, facts.plan
    started = ("the run started", manifest["started_at"])
    if committed_at := manifest["code"].get("committed_at"):
        committed = ("the commit of its code was made", committed_at)
        yield from _order(facts, layout.MANIFEST, "/code/committed_at", committed, started)
    if manifest["finished_at"] is not None:
        yield from _order(facts, layout.MANIFEST, "/finished_at", started, ("ended", manifest["finished_at"]))
        if plan is not None:
            ended = ("the run ended", manifest["finished_at"])
            yield from _order(facts, layout.PLAN, "/made_at", ("the plan was made", plan["made_at"]), ended)
    if evaluated is not None:
        began = ("the evaluation started", evaluated["started_at"])
        yield from _order(facts, layout.EVAL_SUMMARY, "/started_at", started, began)
        ended = ("ended", evaluated["finished_at"])
        yield from _order(facts, layout.EVAL_SUMMARY, "/finished_at", began, ended)
        if manifest["finished_at"] is not None:
            # An evaluation that is added later moves the end of the run.
            ended, sealed = (
                ("the evaluation ended", evaluated["finished_at"]),
                ("the run ended", manifest["finished_at"]),
            )
            yield from _order(facts, layout.EVAL_SUMMARY, "/finished_at", ended, sealed)


def rows_are_written_in_order(facts: Facts) -> Iterator[Problem]:
    """Yield problems for rows and events outside the time of the run, or before the row above them."""
    if facts.manifest is None:
        return
    if facts.metrics and not _surely_in_order(facts.columns["seconds"], facts.manifest):
        yield from truncate_problems(_times_in_order(facts, facts.manifest, layout.METRICS, facts.metrics))
    yield from truncate_problems(_times_in_order(facts, facts.manifest, layout.LOG, facts.log or []))


def start_is_one_moment(facts: Facts) -> Iterator[Problem]:
    """Yield a problem where plan, start and first event are not of the same few minutes."""
    if facts.manifest is None:
        return
    started = facts.manifest["started_at"]
    first = facts.log[0]["time"] if facts.log else None
    for name, pointer, what, earlier, later in (
        (layout.PLAN, "/made_at", "The plan was made", facts.plan["made_at"] if facts.plan else None, started),
        (layout.MANIFEST, "/started_at", "The run started", started, first),
    ):
        seconds = seconds_between(earlier, later) if earlier and later else None
        if seconds is not None and seconds > START_SECONDS:
            then = "the run started" if name == layout.PLAN else "its first event was logged"
            text = f"{what} at {earlier}, and {then} {seconds:,.0f} s later."
            yield finding(facts.folder, "TP320", name, text, pointer=pointer)


def steps_increase(facts: Facts) -> Iterator[Problem]:
    """Yield a problem for each row whose step is not after the one before."""
    yield from truncate_problems(_steps_going_back(facts))


def durations_fit(facts: Facts) -> Iterator[Problem]:
    """Yield a problem where the steps take longer than the loop, or the loop longer than the run."""
    if facts.manifest is None or facts.metrics is None:
        return
    rows, result = facts.metrics, facts.manifest["result"]
    first = facts.manifest["parent"]["step"] if facts.manifest["parent"] else 0
    columns = facts.columns
    of_steps = math.fsum((columns["step_seconds"] * np.diff(columns["step"], prepend=first)).tolist())
    loop = result["train_seconds"]
    if loop is not None and of_steps > _allowance(loop):
        yield _too_long(facts, f"The steps of metrics.jsonl take {of_steps:.1f} s", f"train_seconds is {loop:.1f} s")
    back = set_back_seconds(facts)
    wall = seconds_between(facts.manifest["started_at"], facts.manifest["finished_at"] or "")
    if wall is not None and wall + back >= 0 and loop is not None and loop > _allowance(wall + back):
        yield _too_long(facts, f"train_seconds is {loop:.1f} s", f"the run took {wall:.1f} s from start to end")
    between = seconds_between(rows[0]["time"], rows[-1]["time"]) if rows else None
    after_first = of_steps - rows[0]["step_seconds"] * (rows[0]["step"] - first) if rows else 0.0
    if between is not None and after_first > _allowance(between + back):
        stated = f"The steps after the first row take {after_first:.1f} s"
        yield _too_long(facts, stated, f"their rows were written within {between:.1f} s")


def _allowance(seconds: float) -> float:
    return seconds * (1 + _TIMER_FRACTION) + CLOCK_SECONDS


def _too_long(facts: Facts, part: str, whole: str) -> Problem:
    return finding(facts.folder, "TP323", layout.MANIFEST, f"{part}; {whole}.", pointer="/result/train_seconds")


def _order(
    facts: Facts, name: str, pointer: str, earlier: tuple[str, str], later: tuple[str, str]
) -> Iterator[Problem]:
    seconds = seconds_between(earlier[1], later[1])
    if seconds is None:
        for _, text in (earlier, later):
            if parse_time(text) is None:
                yield finding(facts.folder, "TP321", name, f"{text} is not a date of the calendar.", pointer=pointer)
    elif seconds < -CLOCK_SECONDS and seconds < -CLOCK_SECONDS - set_back_seconds(facts):
        what = f"{earlier[0]} at {earlier[1]} and {later[0]} at {later[1]}."
        yield finding(facts.folder, "TP320", name, what[0].upper() + what[1:], pointer=pointer)


def _surely_in_order(seconds: Array, manifest: Document) -> bool:
    """Return whether the times of rows are beyond doubt right, so that a million of them need no closer look."""
    started, ended = (parse_time(manifest[name] or "") for name in ("started_at", "finished_at"))
    after = np.diff(seconds, prepend=-math.inf if started is None else started.timestamp())
    ends = math.inf if ended is None else ended.timestamp()
    return bool((after > -CLOCK_SECONDS / 2).all() and seconds.max() < ends + CLOCK_SECONDS / 2)


def _times_in_order(facts: Facts, manifest: Document, name: str, rows: Iterable[Document]) -> Iterator[Problem]:
    spare = CLOCK_SECONDS + set_back_seconds(facts)
    before = parse_time(manifest["started_at"])
    end = parse_time(manifest["finished_at"]) if manifest["finished_at"] else None
    if end is not None and before is not None and end < before:
        end = None  # That the run ends before it starts is reported once, and not for each row.
    above = f"the run started at {manifest['started_at']}"
    for line, row in enumerate(rows, start=1):
        at = parse_time(row["time"])
        if at is None:
            what = f"{row['time']} is not a date of the calendar."
            yield finding(facts.folder, "TP321", name, what, line=line, pointer="/time")
            continue
        if before is not None and (at - before).total_seconds() < -spare:
            what = f"The row was written at {row['time']}; {above}."
            yield finding(facts.folder, "TP320", name, what, line=line, pointer="/time")
        elif end is not None and (at - end).total_seconds() > spare:
            what = f"The row was written at {row['time']}; the run ended at {manifest['finished_at']}."
            yield finding(facts.folder, "TP320", name, what, line=line, pointer="/time")
        before, above = at, f"the row above it at {row['time']}"


def _steps_going_back(facts: Facts) -> Iterator[Problem]:
    step = facts.columns["step"]
    above = np.maximum.accumulate(np.concatenate([[0.0], step]))[:-1]
    for index in where(step <= above):
        what = f"Step {step[index]:.0f} comes after step {above[index]:.0f}."
        yield finding(facts.folder, "TP322", layout.METRICS, what, line=index + 1, pointer="/step")


CHECKS = (run_starts_before_it_ends, rows_are_written_in_order, start_is_one_moment, steps_increase, durations_fit)

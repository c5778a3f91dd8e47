"""Times against the clock: steps that are far shorter than the time between their rows, and days that are not now."""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import UTC, datetime

import numpy as np

from evidence.records.clock import set_back_seconds
from evidence.records.facts import Facts, finding
from evidence.run import layout
from schemas.problems.problem import Problem
from schemas.problems.rule import Rule
from schemas.reading.times import moment, seconds_between

UNSPENT = Rule(
    "TP441",
    "Time between rows that no step took",
    "A row is written when its step is done, and the next step starts at once; only saving takes time in between.",
    "If the machine slept meanwhile, nothing is wrong; otherwise repeat a part of the run: `trainproof replay RUN`.",
    "warning",
)
NOT_NOW = Rule(
    "TP442",
    "Day that cannot be",
    "A run ends before it is checked, and started after the software it used was written.",
    "Set the clock of the machine, or have the time of the run stamped by an authority.",
    "warning",
)
ODD_END = Rule(
    "TP443",
    "End long after the last event",
    "A run states its end, and logs the seal, in the same moment.",
    "Restore log.jsonl and the manifest as the run wrote them.",
    "warning",
)

SET_BACK = Rule(
    "TP446",
    "Clock set back during the run",
    "Times of day then say less of the order of things; a clock that nobody sets, or the rows behind, show the rest.",
    "If the clock of the machine was corrected meanwhile, nothing is wrong.",
    "warning",
)

MOST_UNSPENT, SPARE_SECONDS = 1.0, 60.0
"""Time beside the steps as a share of theirs, and besides. Real runs: less than 0.1 s."""
FIRST_DAY = datetime(2025, 10, 1, tzinfo=UTC)
"""No commit of trainproof, and no version of jax that it takes, is older."""
CLOCK_DAYS = 1.0
END_SECONDS = 300.0


def steps_fill_the_time_between_rows(facts: Facts) -> Iterator[Problem]:
    """Yield a warning where most of the time between the first and the last row belongs to no step."""
    rows = facts.metrics or []
    if len(rows) < 2:
        return
    columns = facts.columns
    spent = math.fsum((columns["step_seconds"][1:] * np.diff(columns["step"])).tolist())
    stated = [record["fields"].get("seconds") for record in facts.log or [] if record["event"] == "checkpoint_saved"]
    saving = math.fsum(seconds for seconds in stated if type(seconds) in (int, float))
    saving += math.fsum(row.get("held_out_seconds", 0.0) for row in rows)
    between = seconds_between(rows[0]["time"], rows[-1]["time"])
    if between is not None and between > (1 + MOST_UNSPENT) * spent + saving + SPARE_SECONDS:
        what = f"{between:,.0f} s lie between the first row and the last; the steps take {spent:,.1f} s of them."
        yield finding(facts.folder, UNSPENT, layout.METRICS, what, pointer="/step_seconds")


def days_are_those_of_runs(facts: Facts) -> Iterator[Problem]:
    """Yield a warning for a run that starts before its software was written, or ends after today."""
    if facts.manifest is None:
        return
    for key in ("started_at", "finished_at"):
        at = moment(facts.manifest[key] or "")
        if at is None:
            continue
        ahead = (at - datetime.now(UTC)).total_seconds() / 86400
        if ahead > CLOCK_DAYS or at < FIRST_DAY:
            days = f"{ahead:,.0f} days from now" if ahead > 0 else f"before {FIRST_DAY:%B %Y}, when its software began"
            what = f"{key} is {facts.manifest[key]}, {days}."
            yield finding(facts.folder, NOT_NOW, layout.MANIFEST, what, pointer=f"/{key}")
            return


def clock_went_on(facts: Facts) -> Iterator[Problem]:
    """Yield a warning where the clock of the machine was set back between rows or events."""
    if back := set_back_seconds(facts):
        what = f"The clock was set back by {back:,.0f} s while the run went."
        yield finding(facts.folder, SET_BACK, layout.METRICS, what, pointer="/time")


def end_is_one_moment(facts: Facts) -> Iterator[Problem]:
    """Yield a warning where the stated end is minutes away from the last event of the log."""
    if facts.manifest is None or not facts.log or facts.manifest["finished_at"] is None:
        return
    seconds = seconds_between(facts.log[-1]["time"], facts.manifest["finished_at"])
    if seconds is not None and abs(seconds) > END_SECONDS + set_back_seconds(facts):
        what = f"The run ended at {facts.manifest['finished_at']}, {seconds:,.0f} s after its last event."
        yield finding(facts.folder, ODD_END, layout.MANIFEST, what, pointer="/finished_at")


CHECKS = (steps_fill_the_time_between_rows, days_are_those_of_runs, clock_went_on, end_is_one_moment)

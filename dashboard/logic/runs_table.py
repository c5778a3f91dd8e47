"""The table of runs: its columns, the values that the search box can ask for, and the rows as a frame or as CSV."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import pandas as pd

from dashboard.logic import numbers
from dashboard.logic.grades import GRADES, STATUSES, Sign, worded
from dashboard.logic.text import csv_cell, visible
from evidence.index import RunSummary

Kind = Literal["text", "count", "loss", "share", "minutes", "time", "line", "sign"]


@dataclass(frozen=True, kw_only=True)
class Column:
    """One column: how the search box calls it, its title, what it means, and how its values are shown."""

    key: str
    title: str
    kind: Kind
    meaning: str
    is_first_choice: bool = True
    width: int | None = None


COLUMNS = (
    Column(key="run", title="Run", kind="text", meaning="Name of the run and of its folder.", width=270),
    Column(key="grade", title="Grade", kind="sign", meaning="What its evidence is worth.", width=134),
    Column(key="status", title="Status", kind="sign", meaning="How it ended, or that it runs.", width=126),
    Column(key="curve", title="Loss curve", kind="line", meaning="The loss over the run.", width=110),
    Column(key="loss", title="Last loss", kind="loss", meaning="Loss of the last logged step.", width=84),
    Column(key="score", title="Score", kind="share", meaning="Exact match on the evaluation set.", width=76),
    Column(key="interval", title="95 % interval", kind="text", meaning="Wilson interval of the score.", width=112),
    Column(key="mode", title="Mode", kind="text", meaning="smoke proves the pipeline, full is meant.", width=62),
    Column(key="model", title="Model", kind="text", meaning="Model as it was built.", width=128),
    Column(key="device", title="Device", kind="text", meaning="Devices used.", width=110),
    Column(key="steps", title="Steps", kind="count", meaning="Optimizer steps completed.", width=70),
    Column(key="tokens", title="Tokens", kind="count", meaning="Tokens seen, padding included.", width=90),
    Column(key="minutes", title="Duration", kind="minutes", meaning="From start to end, in minutes.", width=90),
    Column(key="started", title="Started", kind="time", meaning="In your time zone.", width=140),
    Column(key="method", title="Method", kind="text", meaning="Which parameters were trained.", width=72),
    Column(key="problems", title="Problems", kind="count", meaning="Findings of `trainproof check`.", width=84),
    Column(key="planned", title="Planned", kind="count", meaning="Optimizer steps asked for.", is_first_choice=False),
    Column(
        key="baseline",
        title="Untrained",
        kind="share",
        meaning="Score of the model before training, on the same items.",
        is_first_choice=False,
        width=90,
    ),
    Column(
        key="problem",
        title="First problem",
        kind="text",
        meaning="The worst finding.",
        is_first_choice=False,
        width=420,
    ),
)
FIRST_CHOICE = tuple(column.key for column in COLUMNS if column.is_first_choice)
QUERY_FIELDS = tuple(
    column.key for column in COLUMNS if column.kind not in {"line", "time"} and column.key != "interval"
)


def values(summary: RunSummary) -> dict[str, object]:
    """Return a run's values by column: numbers as numbers, words without symbols, as the search box asks for them."""
    has_score = summary.score is not None
    return {
        "run": summary.path.name,
        "grade": summary.grade,
        "status": summary.status,
        "mode": summary.mode,
        "model": summary.model,
        "method": summary.method,
        "device": summary.device,
        "steps": summary.steps_done,
        "planned": summary.steps_planned,
        "tokens": summary.tokens_seen,
        "curve": list(summary.loss_points),
        "loss": summary.last_loss,
        "score": summary.score,
        "interval": numbers.interval(summary.score_low, summary.score_high) if has_score else None,
        "baseline": summary.baseline_score,
        "minutes": summary.duration_seconds / 60 if summary.duration_seconds is not None else None,
        "started": numbers.parse_time(summary.started_at),
        "problems": summary.problem_count,
        "problem": _problem(summary),
    }


def frame(rows: Sequence[Mapping[str, object]], columns: Sequence[str]) -> pd.DataFrame:
    """Return the rows as a frame with these columns, grades and statuses with their symbols."""
    shown = [
        {**row, "grade": _signed(GRADES, row["grade"]), "status": _signed(STATUSES, row["status"])} for row in rows
    ]
    data = {key: [row[key] for row in shown] for key in columns}
    table = pd.DataFrame(data)
    for column in COLUMNS:
        if column.key in table and column.kind == "text":
            table[column.key] = [None if cell is None else visible(str(cell)) for cell in table[column.key]]
        if column.key in table and column.kind in {"count", "loss", "share", "minutes"}:
            table[column.key] = pd.to_numeric(table[column.key])
        if column.key in table and column.kind == "share":
            table[column.key] *= 100
        if column.key in table and column.kind == "time":
            table[column.key] = pd.to_datetime(table[column.key], utc=True)
    return table


def as_csv(rows: Sequence[Mapping[str, object]], columns: Sequence[str]) -> bytes:
    """Return the rows as CSV for a spreadsheet; no cell of it is a formula."""
    keys = [key for key in columns if key != "curve"]
    table = pd.DataFrame({key: [csv_cell(row[key]) for row in rows] for key in keys})
    return table.to_csv(index=False).encode("utf-8")


def column(key: str) -> Column:
    """Return the column of a key."""
    return next(item for item in COLUMNS if item.key == key)


def _problem(summary: RunSummary) -> str | None:
    found = summary.first_problem
    return None if found is None else found.what


def _signed(signs: Mapping[str, Sign], word: object) -> list[str]:
    """Return a word with its symbol as the grid's labels take it; none for no word."""
    return [worded(signs, word)] if isinstance(word, str) else []

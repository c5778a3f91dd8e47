"""A run of another tool on the run page: curves, facts with their sources, and answers.

Values are shown as the files state them, with file and line. Inferred values are marked.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence, Sized
from typing import Any

import numpy as np

from dashboard.shared.charts.curves import RunLine
from dashboard.shared.files import Series
from dashboard.shared.tables.headline import HeadlineFigure
from evidence.bundle.secrets import hide_secrets
from evidence.imports.grade import tool_figures
from evidence.imports.run import ImportedRun, MetricRow, longest_course, loss_series
from evidence.report import ANSWERS, FACTS, ROWS, SCORES
from schemas.catalog import number_names
from schemas.formats import NOTHING, count, duration, number, quantity, short_count

_OTHER_NAMES: Mapping[str, tuple[str, ...]] = {"tokens_seen": ("num_tokens",), "step_seconds": ("step_time",)}
"""Other names of a column."""
_CONTENTS = {FACTS: "facts", SCORES: "scores", ROWS: "metrics", ANSWERS: "predictions"}
"""Attributes of a file by document (`evidence.report`)."""


def build_line(name: str, view: ImportedRun) -> tuple[RunLine, str]:
    """Return the curves of a run, and a text that says where its losses were read, or "" without losses."""
    rows = longest_course(view.metrics)
    evaluated = _evaluated_rows(view, rows)
    line = RunLine(
        name=name,
        series=_series(rows, "loss"),
        evaluation=_series(evaluated, "eval_loss") if evaluated else None,
        is_foreign=True,
    )
    if not (stated := rows or evaluated):
        return line, ""
    first, last = stated[0].source, stated[-1].source
    places = f", lines {first.line} to {last.line}" if first.line and last.line else ""
    return line, f"Read from {first.file}{places}."


def _series(rows: Sequence[MetricRow], loss: str) -> Series:
    """Return rows as columns, with the values of this name as the loss. Rows without steps are numbered."""
    columns = {
        name: np.array([_value(row, loss if name == "loss" else name) for row in rows]) for name in number_names()
    }
    if not np.isfinite(columns["step"]).all():
        columns["step"] = np.arange(1.0, len(rows) + 1)
    # Sources may have rows out of order.
    order = np.argsort(columns["step"], kind="stable")
    columns = {name: column[order] for name, column in columns.items()}
    columns["seconds"] = np.full(len(rows), np.nan)
    return Series(columns=columns, unread=0)


def _evaluated_rows(view: ImportedRun, losses: Sequence[MetricRow]) -> list[MetricRow]:
    """Return one row with an evaluation loss for each step; none if the training losses have no steps.

    Only rows from the file and stage of the training losses count: another file may belong to another run.
    """
    series = loss_series(view.metrics, "eval_loss")
    longest = max(series, key=lambda one: len(series[one]), default=None)
    place = (losses[0].source.file, losses[0].stage) if losses else longest
    found: dict[float, MetricRow] = {}
    are_known = all(math.isfinite(_value(row, "step")) for row in losses)
    for row in series.get(place, []) if place and are_known else ():
        if math.isfinite(step := _value(row, "step")):
            found.setdefault(step, row)
    return list(found.values())


def figures(view: ImportedRun) -> list[HeadlineFigure]:
    """Return the headline figures; a dash if no source has a value, or two differ."""
    found = tool_figures(view)
    facts = sum(fact.how == "inferred" for fact in view.facts)
    planned = f"of {count(found.steps_planned)} planned" if found.steps_planned is not None else ""
    first = f"from {number(found.first_loss)}" if found.first_loss is not None else ""
    return [
        HeadlineFigure("Steps", count(found.steps_done), planned),
        HeadlineFigure("Last loss", number(found.last_loss), first),
        HeadlineFigure("Mean loss", number(found.mean_loss), "as stated, not computed here"),
        HeadlineFigure("Tokens seen", short_count(found.tokens_seen)),
        HeadlineFigure("Training time", duration(found.train_seconds)),
        HeadlineFigure("Facts", count(len(view.facts)), f"{count(facts)} inferred"),
        HeadlineFigure("Answers", count(len(view.predictions)), "their scores are not recomputed"),
    ]


def fact_rows(view: ImportedRun) -> list[tuple[str, str, str, str, str]]:
    """Return the facts: name, value, stated or inferred, source, note."""
    values = [f"{fact.value:.8g}" if isinstance(fact.value, float) else str(fact.value) for fact in view.facts]
    return [
        (fact.name, hide_secrets(value), _how(fact.how), str(fact.source), fact.note or "")
        for fact, value in zip(view.facts, values, strict=True)
    ]


def score_rows(view: ImportedRun) -> list[tuple[str, str, str, str, str, str]]:
    """Return the scores: name, value, checkpoint, stated or inferred, source, note."""
    return [
        (one.name, number(one.value), one.checkpoint or NOTHING, _how(one.how), str(one.source), one.note or "")
        for one in view.scores
    ]


def file_rows(view: ImportedRun) -> list[tuple[str, str, str]]:
    """Return the files: path, tool, and contents."""
    rows = []
    for name, reading in view.files.items():
        parts: tuple[Sized, ...] = (reading.facts, reading.metrics, reading.scores, reading.predictions)
        nouns = ("fact", "row", "score", "answer")
        contents = ", ".join(quantity(len(part), noun) for part, noun in zip(parts, nouns, strict=True))
        is_template = "template or example, not counted" if reading.template else contents
        rows.append((name, reading.tool or "not recognised", is_template))
    return rows


def list_files(view: ImportedRun, document: str) -> list[str]:
    """Return the files that gave facts, scores, rows or answers."""
    contents = _CONTENTS[document]
    return [name for name, reading in view.files.items() if getattr(reading, contents) and not reading.template]


def prediction_rows(view: ImportedRun) -> list[dict[str, Any]]:
    """Return the answers as prediction rows; missing values are None."""
    return [{**vars(one), "id": one.id or str(one.source), "error": None} for one in view.predictions]


def _value(row: MetricRow, name: str) -> float:
    for key in (name, *_OTHER_NAMES.get(name, ())):
        value = row.values.get(key)
        if value is not None:
            return float(value)
    return math.nan


def _how(how: str) -> str:
    return "≈ inferred" if how == "inferred" else "stated"

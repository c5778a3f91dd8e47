"""A run of another tool on the run page: facts with their sources, and answers.

Values are shown as the files state them, with file and line. Inferred values are marked.
"""

from __future__ import annotations

from collections.abc import Sized
from typing import Any

from dashboard.shared.tables.headline import HeadlineFigure
from evidence.bundle.secrets import hide_secrets
from evidence.imports.grade import tool_figures
from evidence.imports.run import ImportedRun
from evidence.report import ANSWERS, FACTS, ROWS, SCORES
from schemas.formats import NOTHING, count, duration, number, quantity, short_count

CONTENTS = {FACTS: "facts", SCORES: "scores", ROWS: "metrics", ANSWERS: "predictions"}
"""Attributes of a file by document (`evidence.report`)."""


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


def prediction_rows(view: ImportedRun) -> list[dict[str, Any]]:
    """Return the answers as prediction rows; missing values are None."""
    return [{**vars(one), "id": one.id or str(one.source), "error": None} for one in view.predictions]


def _how(how: str) -> str:
    return "≈ inferred" if how == "inferred" else "stated"

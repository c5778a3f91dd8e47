"""Reports, lists and single runs in words: text for the terminal and plain values for JSON.

What lives here: wording and alignment. What does not: any figure or finding (`check`, `index`, `headlines`).
"""

from __future__ import annotations

import sys
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

from evidence import layout
from evidence.effective import observed_memory
from evidence.index.summary import RunSummary
from evidence.proof.timestamps import describe_timestamps
from evidence.proof.verification import grade_run
from evidence.report import build_record, headlines
from evidence.rules.plausibility import score_caveats
from evidence.run import Run
from evidence.scores.recompute import describe_form_losses, describe_run_gain
from schemas import formats
from schemas.formats import NOTHING, join_lines, quantity, visible
from schemas.reading import get_number
from schemas.render import render_json, render_text
from trainproof.terminal.imports import foreign_json, foreign_text

_RIGHT = {"steps", "tokens", "loss", "duration"}
"""Columns of numbers."""


def runs_table(summaries: Sequence[RunSummary]) -> tuple[list[str], list[list[str]]]:
    """Return heads and cells of the list of runs, as text; numbers carry their unit in the head or in the cell."""
    heads = ["run", "grade", "mode", "status", "model", "device", "steps", "tokens", "loss", "exact match", "duration"]
    return [*heads, "started"], [_cells(summary) for summary in summaries]


def runs_text(summaries: Sequence[RunSummary]) -> str:
    """Return the list of runs as aligned text; below it who verified a run, and the worst problem of a broken one."""
    heads, rows = runs_table(summaries)
    widths = [max(_width(row[column]) for row in [heads, *rows]) for column in range(len(heads))]
    lines = []
    for row in [heads, *rows]:
        cells = zip(heads, row, widths, strict=True)
        lines.append("  ".join(_pad(cell, width, right=head in _RIGHT) for head, cell, width in cells).rstrip())
    below = [line for summary in summaries for line in _below(summary)]
    return join_lines([*lines, "", *below] if below else lines)


def runs_json(summaries: Sequence[RunSummary]) -> list[dict[str, Any]]:
    """Return each summary with the names of its fields; paths as text."""
    return [
        asdict(summary)
        | {
            "path": str(summary.path),
            "first_problem": render_json([summary.first_problem])[0] if summary.first_problem else None,
        }
        for summary in summaries
    ]


def run_text(run: Run) -> str:
    """Return one run as the terminal shows it: what it is, its figures, its grade and its findings."""
    report = grade_run(run)
    record = build_record(run, report.findings)
    if record.sources is not None:
        return foreign_text(record, report)
    rows = [*_identity(run), *((line.name, line.as_text()) for line in headlines(record))]
    if gain := describe_run_gain(record.facts.eval_summary):
        rows.append(("gain", gain))
    rows += [("score", said) for _, said in score_caveats(record.facts.eval_summary)]
    rows += [("form", sentence) for sentence in describe_form_losses(record.facts.eval_summary, record.facts.log)]
    rows += planned_rows(run)
    rows += [("withheld", reason) for reason in record.withheld]
    rows.append(("grade", report.grade.words))
    width = max(len(name) for name, _ in rows)
    lines = [str(run.path), *(f"  {name.ljust(width)}  {value}" for name, value in rows)]
    lines += [f"  {''.ljust(width)}  {reason}" for reason in report.grade.reasons]
    lines += [f"  {'time'.ljust(width)}  {sentence}" for sentence in describe_timestamps(run.path, run.manifest)]
    return join_lines(lines) + render_text(report.findings)


def planned_rows(run: Run) -> list[tuple[str, str]]:
    """Return what was planned beside what was observed: memory, time of a step; nothing where one is unknown.

    Example: `memory planned    560 MiB within 30 %; observed 582 MiB of the process in train`.
    """
    rows = []
    memory = observed_memory(run.plan, run.manifest)
    if memory is not None and memory.planned_bytes is not None:
        within = "" if memory.error_fraction is None else f" within {memory.error_fraction:.0%}"
        during = "" if memory.part is None else f" in {memory.part}"
        observed = f"{formats.size(memory.observed_bytes)} of {memory.of}{during}"
        rows.append(("memory planned", f"{formats.size(memory.planned_bytes)}{within}; observed {observed}"))
    low, high = (get_number(run.plan, "time", "step_seconds", end) for end in ("low", "high"))
    seconds, steps = (
        get_number(run.manifest, "result", "train_seconds"),
        get_number(run.manifest, "training", "steps_done"),
    )
    if low is not None and high is not None and seconds is not None and steps:
        between = f"{formats.duration(low)} to {formats.duration(high)}"
        rows.append(("step planned", f"{between}; observed {formats.duration(seconds / steps)}"))
    return rows


def run_json(run: Run) -> dict[str, Any]:
    """Return what `run_text` shows, as values; `headlines` in the order of the text."""
    report = grade_run(run)
    record = build_record(run, report.findings)
    if record.sources is not None:
        return foreign_json(record, report)
    return {
        "path": str(run.path),
        **report.grade.document(),
        **{name.replace(" ", "_"): None if value == NOTHING else value for name, value in _identity(run)},
        "headlines": [asdict(line) for line in headlines(record)],
        "gain_of_form": describe_run_gain(record.facts.eval_summary),
        "form": describe_form_losses(record.facts.eval_summary, record.facts.log),
        "score_caveats": [said for _, said in score_caveats(record.facts.eval_summary)],
        "withheld": list(record.withheld),
        "stamps": describe_timestamps(run.path, run.manifest),
        "findings": render_json(report.findings),
    }


def _cells(summary: RunSummary) -> list[str]:
    return [
        summary.path.name,
        summary.grade,
        summary.mode or NOTHING,
        summary.status or NOTHING,
        summary.model or NOTHING,
        summary.device or NOTHING,
        _steps(summary),
        _or_nothing(summary.tokens_seen, lambda value: f"{value:,}"),
        _or_nothing(summary.last_loss, lambda value: f"{value:.4f}"),
        _score(summary),
        formats.duration(summary.duration_seconds),
        summary.started_at[:19].replace("T", " ") if summary.started_at else NOTHING,
    ]


def _steps(summary: RunSummary) -> str:
    done, planned = summary.steps_done, summary.steps_planned
    if done is None:
        return NOTHING
    return f"{done:,}" if planned in (None, done) else f"{done:,} of {planned:,}"


def _score(summary: RunSummary) -> str:
    if summary.score is None or summary.score_low is None or summary.score_high is None:
        return NOTHING
    return f"{summary.score:.3f} ({summary.score_low:.3f}–{summary.score_high:.3f})"


def _or_nothing(value: Any, write: Callable[[Any], str]) -> str:
    return NOTHING if value is None else write(value)


def _below(summary: RunSummary) -> list[str]:
    """Return what stands of a run below the list: how much was repeated and by whom, and its worst problem."""
    verified = [f"{summary.path.name}: {summary.coverage}. {summary.reasons[0]}"] if summary.coverage else []
    return [*verified, *([_worst(summary)] if summary.first_problem is not None else [])]


def _worst(summary: RunSummary) -> str:
    problem = summary.first_problem
    assert problem is not None
    more = f" ({summary.problem_count - 1} more)" if summary.problem_count > 1 else ""
    return f"{summary.path.name}: {problem.severity} {problem.code}: {problem.what}{more}"


def _identity(run: Run) -> list[tuple[str, str]]:
    """Return who, what and where of a run that may be broken, as names and texts."""
    manifest = run.raw(layout.MANIFEST)

    def text(*keys: str) -> str:
        value: Any = manifest
        for key in keys:
            value = value.get(key) if isinstance(value, dict) else None
        return value if isinstance(value, str) else NOTHING

    return [
        ("run id", text("run_id")),
        ("mode", text("mode")),
        ("status", run.status or NOTHING),
        ("model", text("model", "name")),
        ("dataset", text("dataset", "name")),
        ("device", text("devices", "kind")),
        ("commit", text("code", "commit")),
        ("started at", text("started_at")),
    ]


def _width(text: str) -> int:
    """Return the columns that a text takes on a terminal: East Asian wide signs take two."""
    return sum(2 if unicodedata.east_asian_width(sign) in "WF" else 1 for sign in text)


def _pad(text: str, width: int, *, right: bool) -> str:
    padding = " " * (width - _width(text))
    return padding + text if right else text + padding


def print_runs(summaries: Sequence[RunSummary], *, archived: bool = False) -> None:
    """Print the list of runs, as a table on a terminal, as plain aligned text elsewhere; archived ones on request."""
    kept = [summary for summary in summaries if archived or not summary.archived]
    _print_table(kept)
    if hidden := len(summaries) - len(kept):
        sys.stdout.write(f"{quantity(hidden, 'archived run')} not listed; --archived lists them too.\n")


def _print_table(summaries: Sequence[RunSummary]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console()
    if not console.is_terminal:
        sys.stdout.write(runs_text(summaries))
        return
    heads, rows = runs_table(summaries)
    table = Table(box=None, pad_edge=False)
    for head in heads:
        table.add_column(head, justify="right" if head in _RIGHT else "left")
    for row in rows:
        table.add_row(*(Text(visible(cell)) for cell in row))
    console.print(table)
    for line in (line for summary in summaries for line in _below(summary)):
        console.print(Text(visible(line)))

"""Report on checked runs: as text, JSON, SARIF or annotations, and the figures that may be shown of a run.

A figure is only shown as a result if it follows from rows without errors, whatever a document contains. Withheld
figures are reported with the reason.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any, Literal

import numpy as np

from evidence import layout
from evidence.effective import peak_memory, typical
from evidence.grade import GRADES, RunReport
from evidence.imports.grade import tool_figures
from evidence.imports.run import ImportedRun
from evidence.layout import EVAL_SUMMARY, LOG, MANIFEST, METRICS, PREDICTIONS
from evidence.run import Document, Figures, Run
from evidence.scores.recompute import compute_result
from evidence.writing import as_json_text
from schemas import formats
from schemas.catalog import document_kind, is_rows
from schemas.formats import NOTHING, join_lines, join_words, percent, percent_range, quantity
from schemas.problems import Problem, ProblemError, problem_of
from schemas.reading import Array, column, get_number, get_path, get_str, seconds_between
from schemas.render import render_github, render_json, render_sarif, render_text


@dataclass(frozen=True, kw_only=True)
class Report:
    """Result of `check`: a report per run folder, and the problems of each document named on the command line."""

    runs: tuple[RunReport, ...]
    documents: Mapping[Path, Sequence[Problem]]

    @property
    def all_findings(self) -> tuple[Problem, ...]:
        """Problems of runs and documents."""
        return tuple(chain.from_iterable([*(run.findings for run in self.runs), *self.documents.values()]))

    @property
    def ok(self) -> bool:
        """Whether nothing is an error; warnings and notes do not fail a build."""
        return all(problem.severity != "error" for problem in self.all_findings)

    def to_json(self) -> dict[str, Any]:
        """Return the report as `trainproof check --json` prints it."""
        return {
            "runs": [
                {"path": str(run.path), **run.grade.document(), "findings": render_json(run.findings)}
                for run in self.runs
            ],
            "documents": [
                {"path": str(path), "findings": render_json(found)} for path, found in self.documents.items()
            ],
        }


def report_text(report: Report) -> str:
    """Return a report as the terminal shows it: runs with their problems, and a line of totals."""
    width = max((len(str(run.path)) for run in report.runs), default=0)
    parts = []
    for run in report.runs:
        counts = _count(run.findings)
        lines = [f"{str(run.path).ljust(width)}  {run.grade.words}{counts and f': {counts}'}"]
        # Who verified the run, or why it is not consistent, without reasons that repeat a problem.
        reasons = run.grade.reasons[: {"verified": 1, "consistent": 0}.get(run.grade.name)]
        known = [problem.what for problem in run.findings]
        lines += [f"  {reason}" for reason in reasons if not any(what in reason for what in known)]
        parts.append(join_lines(lines) + render_text(run.findings))
    for path, found in report.documents.items():
        parts.append(join_lines([f"{path}  {_count(found) or 'valid'}"]) + render_text(found))
    return "".join([*parts, join_lines([_totals(report)])])


def _totals(report: Report) -> str:
    parts = []
    if report.runs:
        grades = Counter(run.grade.name for run in report.runs)
        counts = ", ".join(f"{grades[name]} {name}" for name in GRADES if grades[name])
        parts.append(f"{quantity(len(report.runs), 'run')}: {counts}")
    if report.documents:
        parts.append(quantity(len(report.documents), "document"))
    return "; ".join([*parts, _count(report.all_findings) or "nothing found"]) + "."


def report_as(report: Report, forms: Sequence[str]) -> str:
    """Return a report in the form json, github or sarif, or as text; raise ProblemError (exit code 2) for two forms."""
    if len(forms) > 1:
        what = f"{join_words([f'--{form}' for form in forms], last='and')} cannot be combined."
        raise ProblemError([problem_of("TP092", file="", what=what, why=None, next="Pass only one.")], exit_code=2)
    write: dict[str, Callable[[], str]] = {
        "json": lambda: as_json_text(report.to_json()),
        "github": lambda: render_github(report.all_findings),
        "sarif": lambda: render_sarif(report.all_findings),
    }
    return write[forms[0]]() if forms else report_text(report)


def _count(problems: Iterable[Problem]) -> str:
    counts = Counter(problem.severity for problem in problems)
    return ", ".join(quantity(counts[name], name) for name in ("error", "warning", "note") if counts[name])


_SCORE_FILES = (layout.EVAL_SUMMARY, layout.PREDICTIONS, layout.BASELINE_PREDICTIONS)

_RESULTS = ("tokens_seen", "first_loss", "last_loss", "best_loss", "mean_loss", "train_seconds")
_LARGEST = 1e300  # larger numbers come from invalid documents and cannot be displayed everywhere


@dataclass(frozen=True, kw_only=True)
class JudgedRecord:
    """A run as it may be shown.

    `facts` is the run without its withheld figures; `withheld` has a sentence for each reason. `sources` is what was
    read from another tool, whose answers are not scored, or None for a run of trainproof.
    """

    facts: Run
    figures: Figures
    withheld: tuple[str, ...]
    sources: ImportedRun | None


def build_record(run: Run, findings: Sequence[Problem]) -> JudgedRecord:
    """Return what may be shown of a run with these problems."""
    if (view := run.foreign()) is not None:
        figures = replace(tool_figures(view), run_id=get_str(run.raw(layout.IMPORT), "run_id"))
        return JudgedRecord(facts=run, figures=figures, withheld=(), sources=view)
    shown, withheld = withhold_faulty_figures(run, findings)
    return JudgedRecord(facts=shown, figures=_figures(shown), withheld=withheld, sources=None)


def withhold_faulty_figures(run: Run, findings: Iterable[Problem]) -> tuple[Run, tuple[str, ...]]:
    """Return the run without figures that an error concerns, and the reasons: scores as a whole, results one by one.

    Converted line endings (TP202) withhold nothing, because every figure was recomputed from the same rows.
    """
    errors = [problem for problem in findings if problem.severity == "error" and problem.code != "TP202"]
    faulty = {Path(problem.file).name for problem in errors}
    wrong_pointers = {problem.pointer for problem in errors if Path(problem.file).name == MANIFEST}
    manifest, reasons = run.manifest, []
    result = (manifest or {}).get("result", {})
    wrong = [name for name in result if f"/result/{name}" in wrong_pointers]
    lost = {*wrong, *(compute_result([]) if METRICS in faulty else ())}
    if "peak_memory_bytes" in wrong:
        lost |= {"observed_memory", "peak_arrays"}
    if manifest is not None:
        manifest = manifest | {"result": {name: None if name in lost else value for name, value in result.items()}}
    if METRICS in faulty:
        reasons.append(f"Losses, tokens and speed are not shown, because {METRICS} has errors.")
    elif wrong:
        verb = "is" if len(wrong) == 1 else "are"
        reasons.append(f"{join_words(wrong, last='and')} {verb} not shown, because {MANIFEST} contradicts the rows.")
    if (files := [name for name in _SCORE_FILES if name in faulty]) and EVAL_SUMMARY in run.files:
        verb = "has" if len(files) == 1 else "have"
        reasons.append(f"Scores are not shown, because {join_words(files, last='and')} {verb} errors.")
    summary = None if files else run.eval_summary
    shown = replace(run, manifest=manifest, eval_summary=summary, withheld=frozenset({METRICS} & faulty))
    return shown, tuple(reasons)


def _figures(run: Run) -> Figures:
    """Return the figures of a run; its name and settings are also read from invalid documents."""
    manifest, config = run.raw(MANIFEST), run.raw(layout.CONFIG)
    result: Document = run.manifest["result"] if run.manifest else {}
    if not run.is_sealed:
        result = result | compute_result(run.metrics or [])
    rows = run.rows(METRICS).values
    steps_done = _get_int(manifest, "training", "steps_done")
    if manifest.get("status") == "running" and rows:
        steps_done = rows[-1]["step"]
    losses = column(rows, "loss")
    started = get_str(manifest, "started_at")
    ended = get_str(manifest, "finished_at") or (rows[-1]["time"] if rows else None)
    kind, count = get_str(manifest, "devices", "kind"), _get_int(manifest, "devices", "count")
    return Figures(
        run_id=get_str(manifest, "run_id"),
        mode=get_str(manifest, "mode"),
        status=run.status,
        model=get_str(manifest, "model", "name") or get_str(config, "model", "name"),
        dataset=get_str(manifest, "dataset", "name"),
        method=get_str(manifest, "training", "method") or get_str(config, "method", "kind"),
        device=f"{count} × {kind}" if kind and count and count > 1 else kind,
        commit=get_str(manifest, "code", "commit"),
        started_at=started,
        steps_done=steps_done,
        steps_planned=_get_int(manifest, "training", "steps_planned") or _get_int(config, "limits", "steps"),
        losses=losses[np.isfinite(losses)],
        duration_seconds=seconds_between(started, ended) if started and ended else None,
        peak_memory=peak_memory(run.manifest),
        **{name: result.get(name) for name in _RESULTS},
    )


def _get_int(document: Any, *keys: str) -> int | None:
    value = get_path(document, *keys)
    return value if isinstance(value, int) and not isinstance(value, bool) and abs(value) < _LARGEST else None


Seal = Literal["matches", "differs", "not listed", "not stated", "not sealed", "not checked"]
"""State of a recorded hash. Not sealed: the run has not ended. Not checked: the manifest cannot be read."""

MANIFEST_CARD, SUMMARY_CARD, LOGS_CARD = "Run manifest", "Eval summary", "Logs"
CARDS = {MANIFEST_CARD: (MANIFEST,), SUMMARY_CARD: (EVAL_SUMMARY,), LOGS_CARD: (LOG, METRICS, PREDICTIONS)}
"""The three documents of a submission, and their files."""

FACTS, SCORES, ROWS, ANSWERS = "facts", "scores", "rows", "answers"
IN_THEIR_PLACE = {MANIFEST_CARD: (FACTS,), SUMMARY_CARD: (SCORES,), LOGS_CARD: (ROWS, ANSWERS)}
"""What replaces them for a run of another tool."""

_HASH_DIFFERS = {"TP201", "TP202", "TP210", "TP213"}


@dataclass(frozen=True, kw_only=True)
class DocumentState:
    """State of a document of a run, or of the `FACTS`, `SCORES`, `ROWS` or `ANSWERS` of another tool's files.

    `rows` is only set for a JSONL file, `version` is the schema version of the document or of the manifest, and `seal`
    the state of the recorded hash.
    """

    name: str
    is_there: bool
    rows: int | None
    schema: str = ""
    version: str | None = None
    errors: int = 0
    seal: Seal = "not stated"

    @property
    def mark(self) -> Literal["valid", "wrong", "missing", "another tool's"]:
        """Its state in a word."""
        if self.errors:
            return "wrong"
        if not self.is_there:
            return "missing"
        return "valid" if self.schema else "another tool's"


def list_documents(run: Run, view: ImportedRun | None, findings: Sequence[Problem]) -> tuple[DocumentState, ...]:
    """Return the documents in `CARDS`, or `IN_THEIR_PLACE` for a run of another tool, with errors not yet counted."""
    if view is not None:
        found = {FACTS: view.facts, SCORES: view.scores, ROWS: view.metrics, ANSWERS: view.predictions}
        return tuple(DocumentState(name=name, is_there=bool(some), rows=len(some)) for name, some in found.items())
    states = []
    for name in chain.from_iterable(CARDS.values()):
        schema = document_kind(name) or ""
        rows = run.rows(name) if is_rows(schema) and name in run.files else None
        state = DocumentState(
            name=name,
            is_there=name in run.files,
            rows=None if rows is None else len(rows.values) + len(rows.left_out),
            schema=schema,
            version=get_str(run.raw(EVAL_SUMMARY if name == EVAL_SUMMARY else MANIFEST), "schema_version"),
            seal=_seal_state(run, name, findings),
        )
        states.append(state)
    return tuple(states)


def document_errors(folder: Path, name: str, findings: Iterable[Problem]) -> list[Problem]:
    """Return the errors in one document of a run."""
    return [problem for problem in findings if problem.severity == "error" and problem.file == str(folder / name)]


def _seal_state(run: Run, name: str, findings: Sequence[Problem]) -> Seal:
    if run.manifest is None:
        return "not checked"
    if not run.is_sealed:
        return "not sealed"
    if name == MANIFEST:
        if any(problem.code == "TP212" for problem in findings):
            return "differs"
        is_recorded = any(row["event"] == "run_sealed" and "manifest_sha256" in row["fields"] for row in run.log or ())
        return "matches" if is_recorded else "not stated"
    if all(artifact["path"] != name for artifact in run.manifest["artifacts"]):
        return "not listed"
    path = str(run.folder / name)
    differs = any(problem.code in _HASH_DIFFERS and problem.file == path for problem in findings)
    return "differs" if differs or name not in run.files else "matches"


def thin(values: Array, most: int) -> list[int]:
    """Return at most `most` indexes of a series, in order, that keep its shape.

    They are the smallest and the largest value of equal parts, and the first gap (NaN) of each.
    """
    gaps = np.isnan(values)
    if len(values) <= most:
        return list(range(len(values)))
    kept: set[int] = set()
    for part in np.array_split(np.arange(len(values)), most // (3 if gaps.any() else 2)):
        numbers = part[~gaps[part]]
        ends = [numbers[values[numbers].argmin()], numbers[values[numbers].argmax()]] if len(numbers) else []
        kept.update(map(int, [*ends, *part[gaps[part]][:1]]))
    return sorted(kept)


Unit = Literal["count", "nats", "tokens per second", "bytes", "seconds", "fraction"]
Number = int | float

_FORMATS: dict[str, Callable[[Number], str]] = {
    "count": lambda value: f"{value:,}",
    "nats": lambda value: f"{value:.4f}",
    "tokens per second": lambda value: f"{value:,.0f} tokens/s",
    "bytes": formats.size,
    "seconds": formats.duration,
    "fraction": lambda value: f"{value:.3f}",
}


@dataclass(frozen=True, kw_only=True)
class Headline:
    """A main figure of a run, or one that was not measured, with its 95 % interval if it has one.

    `of` is what a count is out of, such as the planned steps, and `lenient` the score if answers in any form are
    accepted. Peak memory has a `scope`; figures of different scopes must not be compared.
    """

    name: str
    unit: Unit
    value: Number | None
    low: float | None = None
    high: float | None = None
    of: int | None = None
    lenient: Number | None = None
    scope: str | None = None

    def as_text(self) -> str:
        """Return the figure with its unit: `0.612 (0.515–0.702), n = 100`, `2.10 GiB`, or `–` for None."""
        if self.value is None:
            return NOTHING
        write = _FORMATS[self.unit]
        text = write(self.value)
        if self.low is not None and self.high is not None:
            text += f" ({write(self.low)}–{write(self.high)})"
        if self.of is not None:
            text += f", n\u00a0=\u00a0{self.of:,}" if self.unit == "fraction" else f" of {self.of:,}"
        if self.scope is not None:
            text += f", {self.scope}"
        return text if self.lenient is None else f"{text}; leniently {write(self.lenient)}"


def headlines(record: JudgedRecord) -> tuple[Headline, ...]:
    """Return the main figures of a run, always the same ones in the same order."""
    figures = record.figures
    seconds, tokens = figures.train_seconds, figures.tokens_seen
    steps = Headline(name="optimizer steps", unit="count", value=figures.steps_done, of=figures.steps_planned)
    peak, facts = figures.peak_memory, record.facts
    speed = None if METRICS in facts.withheld else typical(column(facts.metrics or [], "tokens_per_second"))
    if record.sources is not None and tokens and seconds:  # Other tools record no speed of each step.
        speed = tokens / seconds
    others: tuple[tuple[str, Unit, Number | None], ...] = (
        ("tokens seen", "count", tokens),
        ("first loss", "nats", figures.first_loss),
        ("last loss", "nats", figures.last_loss),
        ("best loss", "nats", figures.best_loss),
        ("speed", "tokens per second", speed),
        ("peak memory", "bytes", peak.bytes if peak else None),
        ("training time", "seconds", seconds),
    )
    scopes = {"bytes": peak.scope} if peak else {}
    measured = (Headline(name=name, unit=unit, value=value, scope=scopes.get(unit)) for name, unit, value in others)
    return (steps, *measured, *score_headlines(record.facts))


def score_headlines(run: Run) -> tuple[Headline, ...]:
    """Return exact match, format compliance and the baseline's exact match; with several samples also pass@k."""
    summary: Document = run.eval_summary or {}
    metrics = summary.get("metrics") or {}
    baseline = (summary.get("baseline") or {}).get("metrics") or {}
    found = [
        score_headline("exact match", metrics.get("exact_match"), get_number(metrics, "lenient_match", "value")),
        score_headline("format compliance", metrics.get("format_compliance")),
        score_headline(
            "exact match before training", baseline.get("exact_match"), get_number(baseline, "lenient_match", "value")
        ),
    ]
    if (sampled := summary.get("sampled")) is not None:
        first, *_, last = sampled["pass_at"]
        shares = {f"pass@{share['tries']}": share for share in (first, last)}
        shares[f"majority of {sampled['samples']}"] = sampled["majority"]
        found += [score_headline(name, {**share, "n": summary["eval_set"]["items"]}) for name, share in shares.items()]
    return tuple(found)


def score_headline(name: str, metric: Document | None, lenient: Number | None = None) -> Headline:
    """Return the headline of a metric in eval_summary.json."""
    if metric is None:
        return Headline(name=name, unit="fraction", value=None)
    low, high = (get_number(metric, "interval", end) for end in ("low", "high"))
    value = metric["value"]
    return Headline(name=name, unit="fraction", value=value, low=low, high=high, of=metric["n"], lenient=lenient)


def describe_sweep(document: Mapping[str, Any]) -> list[str]:
    """Return the best trial of a sweep with its scores, and what the place of the sweep does not support."""
    if (best := document["best"]) is None:
        return list(document["notes"])
    texts = []
    for name, meaning in (("choosing", "items that chose it, which is biased"), ("held_back", "items that did not")):
        if (score := best[name]) is not None:
            inside = percent_range(score["low"], score["high"])
            texts.append(f"{percent(score['value'])} ({inside}) on the {score['n']} {meaning}")
    reason = f" It was not evaluated again: {best['reason']}" if best["reason"] else ""
    said = f"Best of {best['of']}: trial {best['number']}, {best['run']}. Score {', '.join(texts) or NOTHING}.{reason}"
    return [said, *document["notes"]]

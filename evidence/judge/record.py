"""What may be shown of a run, by any author: lists, comparisons, pages and reports take their figures from here.

A number that cannot be traced is not shown as a result, whatever a document states: it must follow from rows without
an error. What is withheld is reported, with the reason.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from evidence.records.facts import Document, Facts
from evidence.run import layout
from evidence.run.figures import Figures
from evidence.scores.recompute import result_of
from foreign.checks.judgement import figures_of
from foreign.readers.view import ForeignRun
from schemas.formats import join_words
from schemas.problems import Problem
from schemas.reading import column, get_path, get_str, seconds_between

_OF_SCORES = (layout.EVAL_SUMMARY, layout.PREDICTIONS, layout.BASELINE_PREDICTIONS)

_LARGEST = 1e300
"""Numbers beyond it come from a document that is not valid, and do not fit every place where they are shown."""


@dataclass(frozen=True, kw_only=True)
class JudgedRecord:
    """A run as it may be shown.

    Attributes:
        facts: What its documents state, without what is withheld; of another tool's run, they state nothing.
        figures: The figures by which it is known.
        withheld: Which figures are not shown and why, as sentences; empty where none is kept back.
        sources: The files of another tool, with the place of each fact, row and answer. None: trainproof wrote the run.
        unscored: Why its answers have no score of ours, as the end of a sentence; empty where they have.
        findings: What is wrong with it.
    """

    facts: Facts
    figures: Figures
    withheld: tuple[str, ...]
    sources: ForeignRun | None
    unscored: str
    findings: tuple[Problem, ...]


def record_of(facts: Facts, findings: Sequence[Problem]) -> JudgedRecord:
    """Return what may be shown of a run, from its facts and everything that was found in it."""
    view = facts.run.foreign()
    if view is None:
        shown, withheld = trace(facts, findings)
        figures, unscored = _figures_of_ours(shown), ""
    else:
        shown, withheld = facts, ()
        figures = replace(figures_of(view), run_id=get_str(facts.run.imported, "run_id"))
        unscored = "another tool's run: its answers were not scored here"
    return JudgedRecord(
        facts=shown, figures=figures, withheld=withheld, sources=view, unscored=unscored, findings=tuple(findings)
    )


def trace(facts: Facts, findings: Iterable[Problem]) -> tuple[Facts, tuple[str, ...]]:
    """Return the facts without every figure that an error concerns, and why: scores as a whole, results one by one.

    Converted line ends leave every figure traceable: each was computed again from the same rows.
    """
    errors = [problem for problem in findings if problem.severity == "error" and problem.code != "TP202"]
    faulty = {Path(problem.file).name for problem in errors}
    result = (facts.manifest or {}).get("result", {})
    wrong = [name for name in result if any(_states_result(problem, name) for problem in errors)]
    lost = {*wrong, *(result_of([]) if layout.METRICS in faulty else ())}
    manifest = facts.manifest
    if manifest is not None:
        manifest = manifest | {"result": {name: None if name in lost else value for name, value in result.items()}}
    no_scores = any(name in faulty for name in _OF_SCORES)
    shown = replace(
        facts,
        manifest=manifest,
        eval_summary=None if no_scores else facts.eval_summary,
        withheld=frozenset({layout.METRICS} & faulty),
    )
    return shown, tuple(_reasons(facts, faulty, wrong))


def _states_result(problem: Problem, name: str) -> bool:
    return Path(problem.file).name == layout.MANIFEST and problem.pointer == f"/result/{name}"


def _reasons(facts: Facts, faulty: set[str], wrong: Sequence[str]) -> Iterator[str]:
    """Yield why figures are withheld."""
    if layout.METRICS in faulty:
        yield f"Losses, tokens and speed are not shown, because {layout.METRICS} has errors."
    elif wrong:
        verb = "is" if len(wrong) == 1 else "are"
        yield f"{join_words(wrong, last='and')} {verb} not shown, because {layout.MANIFEST} contradicts the rows."
    files = [name for name in _OF_SCORES if name in faulty]
    if files and layout.EVAL_SUMMARY in facts.files:
        verb = "has" if len(files) == 1 else "have"
        yield f"Scores are not shown, because {join_words(files, last='and')} {verb} errors."


def _figures_of_ours(facts: Facts) -> Figures:
    """Return the figures of a run of trainproof, its name and settings from whatever of a broken folder can be read."""
    run, manifest = facts.run, facts.run.manifest or {}
    result: Document = facts.manifest["result"] if facts.manifest else {}
    rows = run.metrics().values
    steps_done = _whole(manifest, "training", "steps_done")
    if not facts.is_sealed:
        result = result | result_of(facts.metrics or [])
    if manifest.get("status") == "running" and rows:
        steps_done = rows[-1]["step"]
    losses = column(rows, "loss")
    started = get_str(manifest, "started_at")
    ended = get_str(manifest, "finished_at") or (rows[-1]["time"] if rows else None)
    return Figures(
        run_id=get_str(manifest, "run_id"),
        mode=get_str(manifest, "mode"),
        status=run.status,
        model=get_str(manifest, "model", "name") or get_str(run.config, "model", "name"),
        dataset=get_str(manifest, "dataset", "name"),
        method=get_str(manifest, "training", "method") or get_str(run.config, "method", "kind"),
        device=_device(manifest),
        commit=get_str(manifest, "code", "commit"),
        started_at=started,
        steps_done=steps_done,
        steps_planned=_whole(manifest, "training", "steps_planned") or _whole(run.config, "limits", "steps"),
        tokens_seen=result.get("tokens_seen"),
        losses=losses[np.isfinite(losses)],
        first_loss=result.get("first_loss"),
        last_loss=result.get("last_loss"),
        best_loss=result.get("best_loss"),
        mean_loss=result.get("mean_loss"),
        train_seconds=result.get("train_seconds"),
        duration_seconds=seconds_between(started, ended) if started and ended else None,
        peak_memory_bytes=result.get("peak_memory_bytes"),
    )


def _device(manifest: Mapping[str, Any]) -> str | None:
    kind, count = get_str(manifest, "devices", "kind"), _whole(manifest, "devices", "count")
    return f"{count} × {kind}" if kind and count and count > 1 else kind


def _whole(document: Any, *keys: str) -> int | None:
    value = get_path(document, *keys)
    return value if isinstance(value, int) and not isinstance(value, bool) and abs(value) < _LARGEST else None

"""Grade a folder of another tool, and take from it the figures that its sources agree on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal

import numpy as np

from evidence.imports.checks import contradictions, is_finished, values_agree
from evidence.imports.run import ImportedRun, MetricRow, Scalar, longest_course, loss_series
from evidence.run import Figures
from schemas.formats import join_words
from schemas.problems import Problem, problem_of, worst_first

ImportGrade = Literal["measured", "partial", "template", "contradictory", "not a run"]

MAX_REASONS = 5

_DAMAGE = {"TP521", "TP101", "TP105", "TP106", "TP107", "TP108"}
"""Findings that mean that some of a file is missing."""

_STOPPED = {
    **dict.fromkeys(("failed", "error"), "failed"),
    **dict.fromkeys(("killed", "interrupted", "cancelled"), "interrupted"),
    "running": None,
}


def tool_findings(run: ImportedRun) -> list[Problem]:
    """Return every finding, worst first: of reading, contradictions, and that nothing was measured."""
    problems = [*run.problems, *(problem for reading in run.files.values() for problem in reading.problems)]
    problems += contradictions(run)
    if not run.is_measured:
        problems.append(problem_of("TP519", file=str(run.path), what="No file holds a loss, a score or an answer."))
    return list(worst_first(problems))


def grade_tool_run(run: ImportedRun, findings: Sequence[Problem]) -> tuple[ImportGrade, tuple[str, ...]]:
    """Return the grade and its reasons, worst first.

    Documents that only declare something are a template, even if they contradict each other. Nothing that another
    tool wrote is graded `consistent`.
    """
    errors = [problem.what for problem in findings if problem.code.startswith("TP3") and problem.severity == "error"]
    if not run.looks_like_run:
        return "not a run", ("Nothing in the folder is recognised as part of a run.",)
    if run.shows_a_run and errors:
        return "contradictory", _first_reasons(errors)
    if not run.is_measured:
        templates = [f"{Path(one.file).name}: {one.what}" for one in findings if one.code == "TP518"]
        return "template", ("No step and no answer was measured.", *_first_reasons(templates), *_first_reasons(errors))
    if reasons := (*_stopped_reasons(run), *_missing_reasons(run)):
        return "partial", reasons
    return "measured", (
        f"trainproof did not carry it out; it was read from {join_words(sorted(run.tools), last='and')}.",
    )


def _first_reasons(reasons: Sequence[str]) -> tuple[str, ...]:
    more = len(reasons) - MAX_REASONS
    return (*reasons[:MAX_REASONS], f"{more} more.") if more > 0 else tuple(reasons)


def _stopped_reasons(run: ImportedRun) -> Iterator[str]:
    """Yield why a run did not reach its end."""
    statuses = [fact for fact in run.facts_named("run.status") if not is_finished(fact.value)]
    if statuses and str(statuses[-1].value).lower() in _STOPPED:
        yield f"The run's status is {statuses[-1].value} ({statuses[-1].source})."
    for fact in run.facts_named("failure.error")[:1]:
        yield f"The log ends in an error: {fact.value} ({fact.source})."
    for fact in run.facts_named("failure.out_of_memory")[:1]:
        if not run.metrics:
            yield f"The device ran out of memory ({fact.source})."
    lasts = {rows[-1].source.file: rows[-1] for rows in loss_series(run.metrics).values()}
    yield from (f"The last loss is not finite ({row.source})." for row in lasts.values() if row.values["loss"] is None)
    is_ended = bool(run.facts_named("result.mean_loss"))  # The Trainer states a mean at its end.
    for place in ("step", "epoch"):
        planned = run.numbers(f"training.{place}s_planned")
        reached = [value for row in run.metrics if (value := row.values.get(place)) is not None]
        reached += run.numbers(f"training.{place}s_done")
        if planned and reached and not is_ended:
            is_from_zero = place == "epoch" and min(reached) == 0  # As Lightning and Keras count.
            if max(reached) + is_from_zero < 0.9 * max(planned):
                yield f"The last {place} shown is {max(reached):g} of {max(planned):g}."
            return


def _missing_reasons(run: ImportedRun) -> Iterator[str]:
    """Yield what the folder lacks."""
    if not run.metrics and not run.predictions:
        yield "Figures are stated, but no row and no answer shows how they came about."
    for name, reading in run.files.items():
        for problem in [problem for problem in reading.problems if problem.code in _DAMAGE][:1]:
            yield f"{name} could not be read whole: {problem.what}"
    items = run.facts_named("evaluation.items")[:1]
    if len({prediction.source.file for prediction in run.predictions}) == 1:
        for fact in items:
            if not isinstance(fact.value, str) and len(run.predictions) < fact.value:
                yield f"{len(run.predictions)} of {fact.value:g} items were answered ({fact.source})."


def tool_figures(run: ImportedRun) -> Figures:
    """Return the figures of a run as far as its sources agree on them."""
    series = longest_course(run.metrics)
    steps = [int(step) for row in series if (step := row.values.get("step")) is not None]
    # Lightning counts the first step as 0.
    counted = max(steps) + all(_counts_from_zero(run, row) for row in series) if steps else None
    done, status = _integer(run, "training.steps_done"), _text(run, "run.status")
    losses = np.array([loss for row in series if (loss := row.values["loss"]) is not None], dtype=np.float64)
    seconds = _number(run, "result.train_seconds")
    return Figures(
        model=_text(run, "model.name") or _text(run, "evaluation.model"),
        dataset=_text(run, "dataset.name"),
        method=_text(run, "training.method"),
        device=_text(run, "device.gpu") or _text(run, "device.kind") or _text(run, "device.platform"),
        commit=_text(run, "code.commit"),
        status="succeeded" if is_finished(status) else _STOPPED.get((status or "").lower()),
        started_at=_text(run, "run.started_at"),
        steps_done=next((n for n in (done, counted, _integer(run, "training.step")) if n is not None), None),
        steps_planned=_integer(run, "training.steps_planned"),
        tokens_seen=_integer(run, "result.tokens_seen"),
        losses=losses,
        first_loss=float(losses[0]) if len(losses) else None,
        best_loss=float(losses.min()) if len(losses) else None,
        last_loss=series[-1].values["loss"] if series else None,
        mean_loss=_number(run, "result.mean_loss"),
        train_seconds=seconds,
        duration_seconds=seconds,
    )


def _counts_from_zero(run: ImportedRun, row: MetricRow) -> bool:
    """Return whether Lightning wrote the row: next to hparams.yaml, with an epoch for each step."""
    folder, step, epoch = row.source.file.rpartition("/")[0], row.values.get("step"), row.values.get("epoch")
    beside = f"{folder}/hparams.yaml".removeprefix("/")
    return beside in run.files and step is not None and epoch is not None and (step > epoch or step == 0)


def _agreed(run: ImportedRun, name: str) -> Scalar | None:
    """Return the first value of a fact, or None if another place states something else."""
    facts = run.facts_named(name)
    return facts[0].value if facts and all(values_agree(facts[0], fact) for fact in facts[1:]) else None


def _text(run: ImportedRun, name: str) -> str | None:
    return value if isinstance(value := _agreed(run, name), str) else None


def _number(run: ImportedRun, name: str) -> float | None:
    return float(value) if isinstance(value := _agreed(run, name), int | float) else None


def _integer(run: ImportedRun, name: str) -> int | None:
    number = _number(run, name)
    return int(number) if number is not None and number == int(number) and abs(number) < 2**53 else None

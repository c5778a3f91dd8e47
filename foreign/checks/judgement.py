"""What a foreign folder is worth, and everything that was found in it.

Where sources contradict each other, the figure is None: no one can state which is right.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal

import numpy as np

from evidence.run.figures import Figures
from foreign.checks.contradictions import contradictions, is_finished
from foreign.checks.sameness import same_fact
from foreign.readers.rows import course_of, loss_series
from foreign.readers.statement import Fact, state
from foreign.readers.view import ForeignRun, MetricRow
from schemas.formats import join_words
from schemas.problems import Problem, problem_of, worst_first

Worth = Literal["measured", "partial", "template", "contradictory", "not a run"]
"""The grades that a run of another tool can have."""

MOST_REASONS = 5

_DAMAGE = {"TP521", "TP101", "TP105", "TP106", "TP107", "TP108"}
"""Findings after which some of a file is missing."""

_ENOUGH_ANSWERS = 5
"""Answers from which on it is strange that all are the same."""


def findings_of(view: ForeignRun) -> list[Problem]:
    """Return every finding of a view, worst first: of reading, contradictions, and what answers look like."""
    problems = [*view.all_problems(), *contradictions(view), *_constant_answers(view)]
    if not view.is_measured:
        what = "No file holds a loss, a score or an answer."
        problems.append(problem_of("TP519", file=str(view.path), what=what))
    return list(worst_first(problems))


def worth_of(view: ForeignRun, findings: Sequence[Problem]) -> tuple[Worth, tuple[str, ...]]:
    """Return the grade's name and its reasons, worst first.

    Documents that only declare something are a template, also where they contradict each other: nothing happened that
    they could be wrong about. Nothing read from another tool is `consistent`.
    """
    contradicting = [problem for problem in findings if problem.code.startswith("TP3") and problem.severity == "error"]
    if not view.looks_like_run:
        return "not a run", ("Nothing in the folder is recognised as part of a run.",)
    if not view.shows_a_run:
        return "template", (*_unmeasured_reasons(findings), *(problem.what for problem in contradicting[:MOST_REASONS]))
    if contradicting:
        more = len(contradicting) - MOST_REASONS
        told = tuple(problem.what for problem in contradicting[:MOST_REASONS])
        return "contradictory", (*told, f"{more} more.") if more > 0 else told
    if not view.is_measured:
        return "template", _unmeasured_reasons(findings)
    if reasons := tuple(_unfinished_reasons(view)):
        return "partial", reasons
    return "measured", (
        f"trainproof did not carry it out; it was read from {join_words(sorted(view.tools), last='and')}.",
    )


def _unmeasured_reasons(findings: Sequence[Problem]) -> tuple[str, ...]:
    """Return that nothing was measured, and which forms were found instead."""
    forms = [problem for problem in findings if problem.code == "TP518"]
    told = tuple(f"{Path(problem.file).name}: {problem.what}" for problem in forms[:MOST_REASONS])
    more = len(forms) - len(told)
    return ("No step and no answer was measured.", *told, *([f"{more} more."] if more else []))


def _unfinished_reasons(view: ForeignRun) -> Iterator[str]:
    """Yield why a folder shows less than a whole run."""
    statuses = [fact for fact in view.facts_named("run.status") if not is_finished(fact.value)]
    if statuses and str(statuses[-1].value).lower() in {
        "failed",
        "error",
        "killed",
        "running",
        "interrupted",
        "cancelled",
    }:
        yield f"The run's status is {statuses[-1].value} ({statuses[-1].source})."
    for fact in view.facts_named("failure.error")[:1]:
        yield f"The log ends in an error: {fact.value} ({fact.source})."
    for fact in view.facts_named("failure.out_of_memory")[:1]:
        if not view.metrics:
            yield f"The device ran out of memory ({fact.source})."
    if not view.metrics and not view.predictions:
        yield "Figures are stated, and no row and no answer shows how they came about."
    yield from _not_finite(view)
    yield from _unread(view)
    yield from _answers_reasons(view)
    yield from _short(view)


def _not_finite(view: ForeignRun) -> Iterator[str]:
    for rows in _by_file(view).values():
        if rows[-1].values["loss"] is None:
            yield f"The last loss is not finite ({rows[-1].source})."


def _by_file(view: ForeignRun) -> dict[str, list[MetricRow]]:
    of_file: dict[str, list[MetricRow]] = {}
    for (file, _), rows in loss_series(view.metrics).items():
        of_file.setdefault(file, []).extend(rows)
    return of_file


def _unread(view: ForeignRun) -> Iterator[str]:
    """Yield the files that gave nothing, or not all, because they are damaged."""
    for name, reading in view.files.items():
        damaged = [problem for problem in reading.problems if problem.code in _DAMAGE]
        if damaged:
            yield f"{name} could not be read whole: {damaged[0].what}"


def _answers_reasons(view: ForeignRun) -> Iterator[str]:
    if not view.predictions or len({one.source.file for one in view.predictions}) > 1:
        return
    for fact in view.facts_named("evaluation.items")[:1]:
        if isinstance(fact.value, int | float) and len(view.predictions) < fact.value:
            yield f"{len(view.predictions)} of {fact.value:g} items were answered ({fact.source})."


def _short(view: ForeignRun) -> Iterator[str]:
    done = [fact.value for fact in view.facts_named("training.steps_done") if isinstance(fact.value, int | float)]
    planned = [fact for fact in view.facts_named("training.steps_planned") if isinstance(fact.value, int | float)]
    ended = any(fact.name == "result.mean_loss" for fact in view.facts)
    rows = [row.values["step"] or 0 for row in view.metrics if row.values.get("step") is not None]
    if not planned or ended or not (done or rows):
        return
    reached = max([*(float(value) for value in done), *rows])
    most = max(float(fact.value) for fact in planned)
    if reached < 0.9 * most:
        yield f"The last step shown is {reached:g} of {most:g}."


def _constant_answers(view: ForeignRun) -> Iterator[Problem]:
    """Yield warnings for answers that all have the same reasoning, or are all the same."""
    for name, code in (("reasoning", "TP432"), ("output_text", "TP433")):
        texts = [text for one in view.predictions if (text := getattr(one, name))]
        if len(texts) < _ENOUGH_ANSWERS:
            continue
        text, times = Counter(texts).most_common(1)[0]
        if times == len(texts):
            quoted = f"“{text[:60]}…”" if len(text) > 60 else f"“{text}”"
            what = f"The {name.replace('output_text', 'output')} of all {times} answers is {quoted}."
            source = view.predictions[0].source
            yield problem_of(code, file=str(view.path / source.file), what=what)


_HPARAMS = "hparams.yaml"

_STATUS = {"failed": "failed", "error": "failed", "killed": "interrupted", "interrupted": "interrupted"}


def figures_of(view: ForeignRun) -> Figures:
    """Return the figures of a view."""
    series = course_of(view.metrics)
    steps = [int(step) for row in series if (step := row.values.get("step")) is not None]
    done = _whole(view, "training.steps_done")
    status = _text(view, "run.status")
    losses = np.array([loss for row in series if (loss := row.values["loss"]) is not None], dtype=np.float64)
    seconds = _number(view, "result.train_seconds")
    return Figures(
        model=_text(view, "model.name") or _text(view, "evaluation.model"),
        dataset=_text(view, "dataset.name"),
        method=_text(view, "training.method"),
        device=_text(view, "device.gpu") or _text(view, "device.kind") or _text(view, "device.platform"),
        commit=_text(view, "code.commit"),
        status=None if status is None else "succeeded" if is_finished(status) else _STATUS.get(status.lower()),
        started_at=_text(view, "run.started_at"),
        steps_done=done if done is not None else _steps_counted(view, series, steps),
        steps_planned=_whole(view, "training.steps_planned"),
        tokens_seen=_whole(view, "result.tokens_seen"),
        losses=losses,
        first_loss=float(losses[0]) if len(losses) else None,
        best_loss=float(losses.min()) if len(losses) else None,
        last_loss=series[-1].values["loss"] if series else None,
        mean_loss=_number(view, "result.mean_loss"),
        train_seconds=seconds,
        duration_seconds=seconds,
    )


def _steps_counted(view: ForeignRun, series: Sequence[MetricRow], steps: Sequence[int]) -> int | None:
    """Return how many steps the rows show; without rows, what a step is stated as."""
    if not steps:
        return _whole(view, "training.step")
    return max(steps) + (1 if all(_counts_from_zero(view, row) for row in series) else 0)


def _counts_from_zero(view: ForeignRun, row: MetricRow) -> bool:
    """Return whether a row is of PyTorch Lightning, which counts the first step as 0 (`_batches_that_stepped`).

    Its loggers write hparams.yaml beside their file, and an epoch with each step. Where the step is not larger than the
    epoch, a user logs another number under that name.
    """
    folder, step, epoch = row.source.file.rpartition("/")[0], row.values.get("step"), row.values.get("epoch")
    beside = f"{folder}/{_HPARAMS}" if folder else _HPARAMS
    return beside in view.files and step is not None and epoch is not None and (step > epoch or step == 0)


def _agreed_fact(view: ForeignRun, name: str) -> Fact | None:
    """Return the first fact of a name, if all others of that name state the same or nothing that can be compared."""
    facts = view.facts_named(name)
    comparable = [fact for fact in facts if same_fact(state(fact), state(fact))]
    if not comparable or any(not same_fact(state(comparable[0]), state(fact)) for fact in comparable[1:]):
        return None
    return comparable[0]


def _text(view: ForeignRun, name: str) -> str | None:
    fact = _agreed_fact(view, name)
    return fact.value if fact is not None and isinstance(fact.value, str) else None


def _number(view: ForeignRun, name: str) -> float | None:
    fact = _agreed_fact(view, name)
    return float(fact.value) if fact is not None and isinstance(fact.value, int | float) else None


def _whole(view: ForeignRun, name: str) -> int | None:
    number = _number(view, name)
    return int(number) if number is not None and number == int(number) and abs(number) < 2**53 else None

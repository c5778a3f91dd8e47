"""The few figures by which a foreign run is known in lists and reports, as far as its sources state them without doubt.

Where sources contradict each other, the figure is None: no one can state which is right.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from evidence.run.figures import Figures
from foreign.checks.contradictions import is_finished
from foreign.checks.sameness import same_fact
from foreign.readers.rows import course_of
from foreign.readers.statement import Fact, state
from foreign.readers.view import ForeignRun, MetricRow

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

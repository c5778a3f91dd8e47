"""What the rows of a folder imply of figures that they do not state: where it ended, between what a mean must lie."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from foreign.readers.keys import is_timing
from foreign.readers.rows import course_of, loss_series, times
from foreign.readers.statement import Statement
from foreign.readers.view import ForeignRun, MetricRow
from schemas.formats import quantity

_FEWEST = 3
"""Rows from which on a course states something about what lies between them."""

_RATE_SLACK = 1.01
"""A rate printed with three digits may stand one in a hundred above the peak."""

_AFTER_THE_PEAK = 0.5
"""Share of the stated rate that some row reaches, in a course that shows its peak."""

_DEVICES_OF_A_PROCESS = (*range(1, 9), 16)
"""Devices that one process is taken to drive."""

_MOST_CHECKPOINTS = 1000
"""Checkpoints of a run at which it may have been resumed there."""

_OF_A_RESUMED_MEAN = 0.02
"""Share by which a mean may differ from the one that a resumed run computes."""


def follows(view: ForeignRun) -> Iterator[Statement]:
    """Yield what rows give, as ranges that a stated figure must lie in."""
    counted_anew = any(row.stage > 1 for row in view.metrics)
    course = course_of(view.metrics)
    if len(course) >= _FEWEST and not counted_anew:
        yield from _last_step(view, course)
        yield from _mean(view, course)
    yield from _rates(view)
    yield from _epochs(view)
    yield from _best_metric(view)
    yield from _header(view)
    yield from times(view)
    yield from _batches(view)
    yield from _planned_steps(view)


def interval_of(metrics: Sequence[MetricRow]) -> float:
    """Return the largest distance in steps between two rows of a file: a log may end that much before its run."""
    largest = 0.0
    for rows in loss_series(metrics).values():
        steps = [row.values["step"] for row in rows if row.values.get("step") is not None]
        largest = max([largest, *((two or 0) - (one or 0) for one, two in pairwise(steps))])
    return largest


def _last_step(view: ForeignRun, course: Sequence[MetricRow]) -> Iterator[Statement]:
    steps = [row.values.get("step") for row in course if "step" not in row.inferred]
    if len(steps) < len(course) or None in steps:
        return
    # Rows without a loss, of an evaluation or of the learning rate, may stand after the last loss.
    last = max((row for row in view.metrics if _step(row) is not None), key=lambda row: _step(row) or 0.0)
    step = _step(last) or 0.0
    yield Statement(
        fact="training.steps_done",
        value=int(step),
        source=last.source,
        kind="measured",
        low=step,
        high=step + max(interval_of(view.metrics), 1.0),
        told=f"the rows end at step {step:g} ({last.source})",
    )


def _step(row: MetricRow) -> float | None:
    return row.values.get("step") if "step" not in row.inferred else None


def _mean(view: ForeignRun, course: Sequence[MetricRow]) -> Iterator[Statement]:
    losses = [loss for row in course if (loss := row.values["loss"]) is not None]
    if len(losses) < len(course):
        return
    least, most = min(losses), max(losses)
    slack = 0.05 * (most - least)
    lowest = course[losses.index(least)]
    stated = [fact.value for fact in view.facts_named("result.mean_loss") if isinstance(fact.value, int | float)]
    if any(_is_resumed_mean(view, course, float(value)) for value in stated):
        least = 0.0
    yield Statement(
        fact="result.mean_loss",
        value=least,
        source=lowest.source,
        kind="measured",
        low=least - slack,
        high=most + slack,
        told=f"the losses of its {quantity(len(losses), 'row')} lie between {least:g} and {most:g} ({lowest.source})",
    )


def _is_resumed_mean(view: ForeignRun, course: Sequence[MetricRow], mean: float) -> bool:
    """Return whether a mean is that of a run which was resumed at one of its checkpoints.

    The Hugging Face Trainer divides the sum of the losses after the resumption by all steps.
    """
    steps = [int(row.values.get("step") or 0) for row in course]
    if not steps or steps[-1] <= 0 or sorted(set(steps)) != steps:
        return False
    every = [int(fact.value) for fact in view.facts_named("training.save_steps") if isinstance(fact.value, int)]
    kept = {int(part.rpartition("-")[2]) for name in view.files for part in name.split("/") if _is_checkpoint(part)}
    candidates = kept | {
        step for gap in every if gap > steps[-1] / _MOST_CHECKPOINTS for step in range(gap, steps[-1], gap)
    }
    for begins in sorted(candidates)[:_MOST_CHECKPOINTS]:
        parts = zip([0, *steps], steps, course, strict=False)
        after = sum((two - one) * (row.values["loss"] or 0.0) for one, two, row in parts if two > begins)
        if abs(after / steps[-1] - mean) <= _OF_A_RESUMED_MEAN * mean:
            return True
    return False


def _is_checkpoint(part: str) -> bool:
    return part.startswith("checkpoint-") and part.removeprefix("checkpoint-").isdigit()


def _rates(view: ForeignRun) -> Iterator[Statement]:
    """Yield, for each file, between what the peak of the learning rate lies, as its rows show it."""
    for reading in view.files.values():
        rows = [row for row in reading.metrics if row.values.get("learning_rate") is not None]
        rates = [row.values["learning_rate"] or 0.0 for row in rows]
        if not rates or max(rates) <= 0:
            continue
        peak = rows[rates.index(max(rates))]
        ends_lower = rates[-1] < max(rates) or (len(set(rates)) == 1 and len(rates) >= _FEWEST)
        is_whole = len(rates) >= 2 * _FEWEST - 1 and ends_lower
        yield Statement(
            fact="training.learning_rate",
            value=max(rates),
            source=peak.source,
            kind="measured",
            low=max(rates) / _RATE_SLACK,
            high=max(rates) / _AFTER_THE_PEAK if is_whole else None,
            told=f"the largest of its {quantity(len(rates), 'row')} is {max(rates):g} ({peak.source})",
        )


def _epochs(view: ForeignRun) -> Iterator[Statement]:
    rows = [row for row in view.metrics if row.values.get("epoch") is not None and row.stage == 1]
    if rows and not any(row.stage > 1 for row in view.metrics):
        last = max(rows, key=lambda row: row.values["epoch"] or 0.0)
        epoch = last.values["epoch"] or 0.0
        for name in ("training.epochs_planned", "training.epochs_done"):
            yield Statement(
                fact=name,
                value=epoch,
                source=last.source,
                kind="measured",
                low=epoch - 0.02 * max(1.0, epoch),
                high=_last_epoch(rows) if name == "training.epochs_done" else None,
                told=f"its rows go to epoch {epoch:g} ({last.source})",
            )


def _last_epoch(rows: Sequence[MetricRow]) -> float | None:
    """Return the epoch that a run reached at most, by rows of one file: one more interval of its log, and an epoch.

    Trainers differ in whether they count the epoch that they are in.
    """
    epochs = [row.values["epoch"] or 0.0 for row in rows]
    if len({row.source.file for row in rows}) > 1 or len(epochs) < _FEWEST:
        return None
    gap = max(two - one for one, two in pairwise(epochs))
    return epochs[-1] + max(gap, 0.0) + 1.0


def _best_metric(view: ForeignRun) -> Iterator[Statement]:
    """Yield every figure of an evaluation that a trainer_state.json has: its best one is among them."""
    for fact in view.facts_named("result.best_metric"):
        for row in view.files[fact.source.file].metrics:
            for name, value in row.values.items():
                if name.startswith("eval_") and value is not None and not is_timing(name):
                    yield Statement(
                        fact="result.best_metric",
                        value=value,
                        source=row.source,
                        kind="measured",
                        series=f"{fact.source.file} evaluations",
                    )


def _header(view: ForeignRun) -> Iterator[Statement]:
    """Yield the steps that the head of a trainer's log gives: examples over batch, times epochs.

    Where steps decide, the number of epochs is rounded up, so that the last one need not be whole. Only of a log
    that states all of them itself: elsewhere examples may be counted before they are packed.
    """
    for file, reading in view.files.items():
        facts = {fact.name: fact for fact in reading.facts if isinstance(fact.value, int | float)}
        names = ("dataset.rows", "training.effective_batch_size", "training.epochs_planned")
        if reading.tool != "console log" or any(name not in facts for name in names):
            continue
        rows, batch, epochs = (float(facts[name].value) for name in names)
        if len([fact for fact in reading.facts if fact.name in names]) > len(names) or batch <= 0:
            continue  # Of several trainings.
        low, high = (rows // batch) * max(epochs - 1, 0), (-(-rows // batch)) * epochs
        yield Statement(
            fact="training.steps_planned",
            value=round(high),
            source=facts["dataset.rows"].source,
            how="inferred",
            low=0.98 * low - 1,
            high=1.02 * high + 1,
            told=f"{rows:g} examples in batches of {batch:g} over {epochs:g} epochs ({file}) are {high:g} steps",
        )


def _batches(view: ForeignRun) -> Iterator[Statement]:
    """Yield the batches that one process may have had, from that of a device: whole multiples of it.

    The Hugging Face Trainer's train_batch_size is that of a process, which may drive several devices.
    """
    if any(one.fact == "training.batch_is_found" for reading in view.files.values() for one in reading.statements):
        return
    for fact in view.facts_named("training.microbatch_size"):
        for devices in _DEVICES_OF_A_PROCESS if isinstance(fact.value, int) else ():
            yield Statement(
                fact="training.process_batch_size",
                value=int(fact.value) * devices,
                source=fact.source,
                how="inferred",
                series=f"{fact.source} devices",
                told=f"that of a device is {fact.value:g} ({fact.source})",
            )


def _planned_steps(view: ForeignRun) -> Iterator[Statement]:
    """Yield how many steps a run did at most: those that it was to do, the most where several are stated."""
    planned = [fact for fact in view.facts_named("training.steps_planned") if isinstance(fact.value, int | float)]
    if planned:
        most = max(planned, key=lambda fact: float(fact.value))
        yield Statement(
            fact="training.steps_done",
            value=int(most.value),
            source=most.source,
            how="inferred",
            low=0.0,
            high=float(most.value),
            told=f"it was to do {most.value:g} ({most.source})",
        )

"""What the sources of a foreign folder state against each other: facts, losses, and the end of the run.

Nothing is resolved here: each contradiction names both places.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from evidence.records.foreign import rules
from evidence.records.foreign.course import course_of, loss_series
from evidence.records.foreign.follows import interval_of
from evidence.records.foreign.numbers import agree
from evidence.records.foreign.statement import Fact, Scalar
from evidence.records.foreign.table import table_of
from evidence.records.foreign.view import ForeignRun, MetricRow
from evidence.rules.foreign.answers import against_answers
from evidence.rules.foreign.finding import found_at
from evidence.rules.foreign.pairs import contradicting_pairs
from evidence.rules.foreign.rows import different_rows
from schemas.problems.problem import Problem
from schemas.problems.words import shown


def contradictions(view: ForeignRun) -> Iterator[Problem]:
    """Yield everything that two places of a folder state against each other."""
    yield from contradicting_pairs(view, table_of(view))
    yield from _final_losses(view)
    yield from different_rows(view)
    yield from against_answers(view)
    yield from _early_ends(view)


def _final_losses(view: ForeignRun) -> Iterator[Problem]:
    """Yield a problem for a final loss that no series ends with, and a warning for a mean beside a step."""
    ends = [rows[-1] for rows in loss_series(view.metrics).values()]
    last = next(reversed(course_of(view.metrics)), None)
    means = [fact for fact in view.facts_named("result.mean_loss") if isinstance(fact.value, int | float)]
    for fact in (*_remarks_of_the_end(view), *view.facts_named("result.last_loss"), *view.facts_named("result.loss")):
        if isinstance(fact.value, str) or _is_shown(fact.value, ends, view.metrics if fact.how == "inferred" else ()):
            continue
        mean = next((one for one in means if isinstance(one.value, int | float) and agree(fact.value, one.value)), None)
        shows = _shows(last)
        if fact.name == "result.last_loss" and (last or mean):
            means_it = f" It is the mean of the run ({mean.source})." if mean else ""
            what = f"The final loss is stated as {shown(fact.value)}; {shows}.{means_it}"
            expected = shown(last.values["loss"]) if last and last.values["loss"] is not None else None
            yield found_at(view, fact.source, rules.FINAL_IS_NOT_LAST, what, expected=expected)
        elif fact.name == "result.loss" and mean and _key(fact) == "loss":
            what = f"The loss {shown(fact.value)} is the mean of the run ({mean.source}); {shows}."
            yield found_at(view, fact.source, rules.MEAN_AT_A_STEP, what)


def _remarks_of_the_end(view: ForeignRun) -> Iterator[Fact]:
    """Yield what a person wrote of a final loss, unless it is that of an evaluation."""
    losses = [row.values.get("eval_loss") for row in view.metrics]
    for reading in view.files.values():
        for one in reading.statements:
            value = one.value
            if one.fact != "result.last_loss" or value is None or isinstance(value, str):
                continue
            if not any(loss is not None and agree(value, loss) for loss in losses):
                yield Fact(name=one.fact, value=value, source=one.source)


def _shows(last: MetricRow | None) -> str:
    if last is None:
        return "no row shows the last one"
    loss = last.values["loss"]
    return f"the last row, {last.source}, has {'a loss that is not finite' if loss is None else shown(loss)}"


def _is_shown(value: float, ends: Sequence[MetricRow], others: Sequence[MetricRow]) -> bool:
    """Return whether a series ends with a loss, or any of the other rows has it."""
    losses = [row.values.get("loss") for row in (*ends, *others)]
    return any(loss is not None and agree(value, loss) for loss in losses)


def _early_ends(view: ForeignRun) -> Iterator[Problem]:
    """Yield a problem for a run that is said to have finished and whose rows, or whose log, end before."""
    done = next((fact for fact in view.facts_named("run.status") if is_finished(fact.value)), None)
    if done is None:
        return
    error = next(iter(view.facts_named("failure.error")), None)
    planned = [fact for fact in view.facts_named("training.steps_planned") if isinstance(fact.value, int | float)]
    steps = [row.values["step"] for row in view.metrics if row.values.get("step") is not None]
    last, gap = max((step or 0 for step in steps), default=0.0), interval_of(view.metrics)
    short = next(
        (fact for fact in planned if steps and not isinstance(fact.value, str) and last + gap < fact.value), None
    )
    # Where steps are counted anew, with each epoch or each training, the last one says nothing about their number.
    counted_anew = any(row.stage > 1 for row in view.metrics)
    if (
        short is not None
        and not counted_anew
        and not any(fact.value == short.value for fact in view.facts_named("training.steps_done"))
    ):
        said = f"{shown(short.value)} steps ({short.source})"
        what = f"The run is said to have finished {said}; its rows end at step {last:g}."
        yield found_at(view, done.source, rules.ENDS_EARLY, what)
    elif error is not None and done.source.file == error.source.file and not view.metrics:
        what = f"The run is said to have finished; {error.source} has {shown(error.value)} and no row follows."
        yield found_at(view, done.source, rules.ENDS_EARLY, what)


def is_finished(value: Scalar) -> bool:
    """Return whether a status says that a run did what it was to do."""
    return isinstance(value, str) and value.strip().lower() in {
        "completed",
        "complete",
        "finished",
        "succeeded",
        "success",
        "done",
    }


def _key(fact: Fact) -> str:
    return (fact.source.pointer or "").rpartition("/")[2]

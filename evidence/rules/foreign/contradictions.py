"""What the sources of a foreign folder state against each other: facts, losses, and the end of the run.

Nothing is resolved here: each contradiction names both places.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import combinations, pairwise

from evidence.records.foreign import rules
from evidence.records.foreign.course import course_of, goes_on, loss_series
from evidence.records.foreign.numbers import agree
from evidence.records.foreign.view import Fact, ForeignRun, MetricRow, Scalar, Source
from evidence.rules.foreign.answers import against_answers
from evidence.rules.foreign.finding import found_at
from evidence.rules.foreign.sameness import contradict, is_comparable
from schemas.problems.problem import Problem
from schemas.problems.rule import first_few
from schemas.problems.words import shown

_COMPARED = (
    *("model.name", "dataset.name", "dataset.rows"),
    *("training.steps_planned", "training.steps_done", "training.epochs_planned", "training.sequence_length"),
    *("training.batch_size", "training.microbatch_size", "training.effective_batch_size"),
    *("training.accumulation_steps", "training.optimizer", "training.learning_rate", "training.dtype"),
    "training.mixed_precision",
    *("training.method", "training.seed", "device.kind", "device.platform", "device.count", "code.commit", "run.id"),
    *("result.last_loss", "result.mean_loss", "result.best_loss", "result.first_loss", "result.train_seconds"),
)
"""Facts of which a run has one."""

_PEAKS = 2
"""Learning rates that the stages of one log may have."""

_MOST_COMPARED = 100
"""Sources of one fact that are held against each other."""


def contradictions(view: ForeignRun) -> Iterator[Problem]:
    """Yield everything that two places of a folder state against each other."""
    by_steps = any(view.facts_named("training.steps_planned"))
    for name in _COMPARED:
        if by_steps and name == "training.epochs_planned":
            continue  # Steps decide when a training ends; a number of epochs beside them is not used, or computed.
        yield from _between_sources(view, name)
    yield from _final_losses(view)
    yield from _series(view)
    yield from against_answers(view)
    yield from _early_ends(view)


def _between_sources(view: ForeignRun, name: str) -> Iterator[Problem]:
    """Yield a problem for two sources that have no value of a fact in common."""
    of_source: dict[str, list[Fact]] = defaultdict(list)
    for fact in view.facts_named(name):
        if is_comparable(name, fact):
            of_source[_source_key(name, fact)].append(fact)
    sources = [facts for facts in of_source.values() if not _is_course(name, facts)]
    for first, other in combinations(sources[:_MOST_COMPARED], 2):
        if all(contradict(name, one, two) for one in first for two in other):
            one, two = first[0], other[0]
            what = f"{name} is {shown(one.value)} in {one.source} and {shown(two.value)} in {two.source}."
            yield found_at(view, two.source, rules.STATED_TWICE, what)
            return  # Further sources agree with one of the two, or say nothing new.


def _is_course(name: str, facts: Sequence[Fact]) -> bool:
    """Return whether a log states a learning rate again and again: it then follows the schedule and is not the peak."""
    return name == "training.learning_rate" and len({fact.value for fact in facts}) > _PEAKS


def _source_key(name: str, fact: Fact) -> str:
    """Return what counts as one source: a log with all its stages, or one place of a document."""
    pointer = fact.source.pointer or ""
    if name == "training.steps_planned" and fact.how == "inferred":
        return ""  # All logs together: a run that is resumed may be given more steps.
    if name == "run.id":
        return f"{fact.source.file} {pointer.rpartition('/')[2]}"
    return f"{fact.source.file} {pointer}" if pointer and not fact.source.file.endswith(".jsonl") else fact.source.file


def _final_losses(view: ForeignRun) -> Iterator[Problem]:
    """Yield a problem for a final loss that no series ends with, and a warning for a mean beside a step."""
    ends = [rows[-1] for rows in loss_series(view.metrics).values()]
    last = next(reversed(course_of(view.metrics)), None)
    means = [fact for fact in view.facts_named("result.mean_loss") if isinstance(fact.value, int | float)]
    for fact in (*view.facts_named("result.last_loss"), *view.facts_named("result.loss")):
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


def _shows(last: MetricRow | None) -> str:
    if last is None:
        return "no row shows the last one"
    loss = last.values["loss"]
    return f"the last row, {last.source}, has {'a loss that is not finite' if loss is None else shown(loss)}"


def _is_shown(value: float, ends: Sequence[MetricRow], others: Sequence[MetricRow]) -> bool:
    """Return whether a series ends with a loss, or any of the other rows has it."""
    losses = [row.values.get("loss") for row in (*ends, *others)]
    return any(loss is not None and agree(value, loss) for loss in losses)


def _series(view: ForeignRun) -> Iterator[Problem]:
    """Yield problems for two files that state different losses for the same step."""
    series = loss_series(view.metrics)
    if any(stage > 1 for _, stage in series):
        return  # Stages count their steps anew; which of them another file means, nobody says.
    first_at: dict[int, list[MetricRow]] = {}
    found = []
    for (file, _), rows in series.items():
        resumed: dict[str, bool] = {}
        for step, here in _at_steps(rows).items():
            there = first_at.setdefault(step, here)
            other = there[0].source.file
            if other == file or any(agree(_loss(one), _loss(two)) for one in there for two in here):
                continue
            if other not in resumed:  # A resumed run does some steps again.
                resumed[other] = goes_on(series[other, 1], rows) or goes_on(rows, series[other, 1])
            if not resumed[other]:
                places = (
                    f"{shown(_loss(there[0]))} in {there[0].source} and {shown(_loss(here[0]))} in {here[0].source}"
                )
                place = Source(file=file, line=here[0].source.line)
                found.append(found_at(view, place, rules.STATED_TWICE, f"The loss at step {step} is {places}."))
    yield from first_few(found, limit=3)


def _at_steps(rows: Sequence[MetricRow]) -> dict[int, list[MetricRow]]:
    """Return the rows with a finite loss by the step that they state; some logs have two of one step."""
    at_step: dict[int, list[MetricRow]] = defaultdict(list)
    for row in rows:
        step = row.values.get("step")
        if step is not None and row.values["loss"] is not None and "step" not in row.inferred:
            at_step[int(step)].append(row)
    return at_step


def _loss(row: MetricRow) -> float:
    return row.values["loss"] or 0.0


def _early_ends(view: ForeignRun) -> Iterator[Problem]:
    """Yield a problem for a run that is said to have finished and whose rows, or whose log, end before."""
    done = next((fact for fact in view.facts_named("run.status") if is_finished(fact.value)), None)
    if done is None:
        return
    error = next(iter(view.facts_named("failure.error")), None)
    planned = [fact for fact in view.facts_named("training.steps_planned") if isinstance(fact.value, int | float)]
    steps = [row.values["step"] for row in view.metrics if row.values.get("step") is not None]
    last, gap = max((step or 0 for step in steps), default=0.0), _interval(view.metrics)
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


def _interval(metrics: Sequence[MetricRow]) -> float:
    """Return the largest distance between two rows of a file: a log may end that much before its run."""
    largest = 0.0
    for rows in loss_series(metrics).values():
        steps = [row.values["step"] for row in rows if row.values.get("step") is not None]
        largest = max([largest, *((two or 0) - (one or 0) for one, two in pairwise(steps))])
    return largest


def _key(fact: Fact) -> str:
    return (fact.source.pointer or "").rpartition("/")[2]

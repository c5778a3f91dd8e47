"""What the sources of a foreign folder state against each other: facts, losses, and the end of the run.

Nothing is resolved here: each contradiction names both places. What does not live here: what stands against a model's
answers (`answers`), and the grade (`judgement`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import combinations, pairwise

from evidence.foreign import rules
from evidence.foreign.answers import against_answers
from evidence.foreign.numbers import agree
from evidence.foreign.sameness import contradict, is_comparable
from evidence.foreign.view import Fact, ForeignRun, MetricRow, Scalar
from evidence.rules.finding import first_few, problem_of
from schemas.problems import Problem
from schemas.words import shown

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
            yield problem_of(
                rules.STATED_TWICE,
                file=str(view.path / two.source.file),
                what=what,
                line=two.source.line,
                pointer=two.source.pointer,
            )
            return  # Further sources agree with one of the two, or say nothing new.


def _is_course(name: str, facts: Sequence[Fact]) -> bool:
    """Return whether a log states a learning rate again and again: it then follows the schedule and is not the peak."""
    return name == "training.learning_rate" and len({fact.value for fact in facts}) > _PEAKS


def _source_key(name: str, fact: Fact) -> str:
    """Return what counts as one source: a log with all its stages, or one place of a document."""
    pointer = fact.source.pointer or ""
    if name == "run.id":
        return f"{fact.source.file} {pointer.rpartition('/')[2]}"
    return f"{fact.source.file} {pointer}" if pointer and not fact.source.file.endswith(".jsonl") else fact.source.file


def _final_losses(view: ForeignRun) -> Iterator[Problem]:
    """Yield a problem for a final loss that no series ends with, and a warning for a mean beside a step."""
    ends = [(rows, rows[-1]) for rows in loss_series(view.metrics).values()]
    means = [fact for fact in view.facts_named("result.mean_loss") if isinstance(fact.value, int | float)]
    for fact in (*view.facts_named("result.last_loss"), *view.facts_named("result.loss")):
        if isinstance(fact.value, str) or _is_shown(fact.value, ends, view.metrics if fact.how == "inferred" else ()):
            continue
        mean = next((one for one in means if isinstance(one.value, int | float) and agree(fact.value, one.value)), None)
        place = {"file": str(view.path / fact.source.file), "line": fact.source.line, "pointer": fact.source.pointer}
        last = ends[-1][1] if ends else None
        shows = (
            f"the last row, {last.source}, has {shown(last.values['loss'])}" if last else "no row shows the last one"
        )
        if fact.name == "result.last_loss" and (last or mean):
            means_it = f" It is the mean of the run ({mean.source})." if mean else ""
            what = f"The final loss is stated as {shown(fact.value)}; {shows}.{means_it}"
            expected = shown(last.values["loss"]) if last else None
            yield problem_of(rules.FINAL_IS_NOT_LAST, what=what, expected=expected, **place)  # type: ignore[arg-type]
        elif fact.name == "result.loss" and mean and _key(fact) == "loss":
            what = f"The loss {shown(fact.value)} is the mean of the run ({mean.source}); {shows}."
            yield problem_of(rules.MEAN_AT_A_STEP, what=what, **place)  # type: ignore[arg-type]


def _is_shown(value: float, ends: Sequence[tuple[object, MetricRow]], others: Sequence[MetricRow]) -> bool:
    """Return whether a series ends with a loss, or any of the other rows has it."""
    losses = [row.values.get("loss") for row in (*(row for _, row in ends), *others)]
    return any(loss is not None and agree(value, loss) for loss in losses)


def loss_series(metrics: Sequence[MetricRow], name: str = "loss") -> dict[tuple[str, int], list[MetricRow]]:
    """Return the rows with a finite loss of this name, of training or `eval_loss`, of each stage of each file."""
    series: dict[tuple[str, int], list[MetricRow]] = defaultdict(list)
    for row in metrics:
        if row.values.get(name) is not None:
            series[row.source.file, row.stage].append(row)
    return series


def _series(view: ForeignRun) -> Iterator[Problem]:
    """Yield problems for two files that state different losses for the same step."""
    at_step: dict[int, MetricRow] = {}
    found = []
    for (file, stage), rows in loss_series(view.metrics).items():
        if stage > 1:
            return  # Stages count their steps anew; which of them another file means, nobody says.
        for row in rows:
            step, loss = row.values.get("step"), row.values["loss"]
            if step is None or loss is None or "step" in row.inferred:
                continue
            known = at_step.setdefault(int(step), row)
            other = known.values["loss"]
            if known.source.file != file and other is not None and not agree(loss, other):
                places = f"{shown(other)} in {known.source} and {shown(loss)} in {row.source}"
                what = f"The loss at step {int(step)} is {places}."
                found.append(
                    problem_of(rules.STATED_TWICE, file=str(view.path / file), what=what, line=row.source.line)
                )
    yield from first_few(found, limit=3)


def _early_ends(view: ForeignRun) -> Iterator[Problem]:
    """Yield a problem for a run that is said to have finished and whose rows, or whose log, end before."""
    done = next((fact for fact in view.facts_named("run.status") if is_finished(fact.value)), None)
    if done is None:
        return
    place = {"file": str(view.path / done.source.file), "line": done.source.line, "pointer": done.source.pointer}
    error = next(iter(view.facts_named("failure.error")), None)
    planned = [fact for fact in view.facts_named("training.steps_planned") if isinstance(fact.value, int | float)]
    steps = [row.values["step"] for row in view.metrics if row.values.get("step") is not None]
    last, gap = max((step or 0 for step in steps), default=0.0), _interval(view.metrics)
    short = next(
        (fact for fact in planned if steps and not isinstance(fact.value, str) and last + gap < fact.value), None
    )
    if short is not None and not any(fact.value == short.value for fact in view.facts_named("training.steps_done")):
        said = f"{shown(short.value)} steps ({short.source})"
        what = f"The run is said to have finished {said}; its rows end at step {last:g}."
        yield problem_of(rules.ENDS_EARLY, what=what, **place)  # type: ignore[arg-type]
    elif error is not None and done.source.file == error.source.file and not view.metrics:
        what = f"The run is said to have finished; {error.source} has {shown(error.value)} and no row follows."
        yield problem_of(rules.ENDS_EARLY, what=what, **place)  # type: ignore[arg-type]


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

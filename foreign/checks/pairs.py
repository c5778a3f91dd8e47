"""Every pair of statements about the same fact, compared: the one place where two sources are compared with each other.

A source is a place, or a series of which any part may be meant; two sources contradict each other where they have no
value in common. Nothing is resolved: each finding names both places.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import combinations

from foreign.checks.sameness import contradict, is_comparable, same_score
from foreign.readers.statement import Statement
from foreign.readers.view import ForeignRun, found_at
from schemas.formats import format_value, quantity
from schemas.problems import Problem

COMPARED = (
    *("model.name", "model.parameters", "model.trainable_parameters", "dataset.name", "dataset.rows"),
    *("training.steps_planned", "training.steps_done", "training.epochs_planned", "training.epochs_done"),
    "training.sequence_length",
    *("training.batch_size", "training.microbatch_size", "training.effective_batch_size"),
    *("training.accumulation_steps", "training.optimizer", "training.learning_rate", "training.dtype"),
    *("training.mixed_precision", "training.weight_decay", "training.warmup_steps", "training.warmup_ratio"),
    *("training.schedule", "training.gradient_clipping", "training.process_batch_size"),
    *("lora.rank", "lora.alpha", "lora.dropout", "model.layers", "model.hidden_size", "model.vocabulary"),
    *("training.method", "training.seed", "device.kind", "device.gpu", "device.platform", "device.count"),
    *("code.commit", "run.id", "run.status", "run.seconds"),
    *("result.last_loss", "result.mean_loss", "result.best_loss", "result.first_loss", "result.train_seconds"),
    *("result.best_metric", "result.tokens_seen", "device.model", "evaluation.items"),
)
"""Facts of which a run has one; and every score, with its error."""

_MANY = ("score.", "stderr.", "figure.")
"""How names begin of facts of which there are as many as evaluations, or as figures of a summary."""

_PEAKS = 2
"""Learning rates that the stages of one log may have."""

_A_COURSE = 3
"""Values from which on a course has a best one."""

_MOST_COMPARED = 100
"""Sources of one fact that are compared with each other."""


def contradicting_pairs(view: ForeignRun, table: Sequence[Statement]) -> Iterator[Problem]:
    """Yield a problem for each fact of which two sources state different things."""
    of_fact: dict[str, list[Statement]] = defaultdict(list)
    for statement in table:
        of_fact[statement.fact].append(statement)
    # Steps decide when a training ends; a number of epochs beside them is not used, or computed.
    asked = [one for one in of_fact["training.steps_planned"] if not one.source.file.endswith("trainer_state.json")]
    for name in (*COMPARED, *sorted(name for name in of_fact if name.startswith(_MANY))):
        if not (name == "training.epochs_planned" and asked):
            yield from _of_one_fact(view, name, of_fact[name])


def _of_one_fact(view: ForeignRun, name: str, statements: Sequence[Statement]) -> Iterator[Problem]:
    """Yield a problem for the first two sources that have no value of a fact in common, of each scope."""
    sources: dict[str, list[Statement]] = defaultdict(list)
    if name.startswith("score."):
        yield from _remarks(view, statements)
        yield from _beyond_the_best(view, name, statements)
        statements = [one for one in statements if one.kind != "remark"]
    for statement in _with_one_split(statements):
        if is_comparable(statement):
            sources[_source_key(statement)].append(statement)
    kept = [one for one in sources.values() if not _is_course(name, one)]
    said: set[object] = set()
    for first, other in combinations(kept[:_MOST_COMPARED], 2):
        scope = (other[0].scope.words, other[0].scope.split)
        if scope in said or _are_of_one_series(first, other, kept):
            continue
        if all(contradict(one, two) for one in first for two in other):
            said.add(scope)  # Further sources agree with one of the two, or say nothing new.
            yield _problem(view, first, other)


def _remarks(view: ForeignRun, statements: Sequence[Statement]) -> Iterator[Problem]:
    """Yield a problem for a score in a README that no evaluation has which it can mean.

    Of a set that it names it may mean every evaluation of that set; where it names none, those that name none either.
    """
    for remark in (one for one in statements if one.kind == "remark"):
        meant = [
            replace(one, scope=remark.scope)
            for one in statements
            if one.kind != "remark"
            and one.scope.split in ((remark.scope.split, "") if remark.scope.split else ("", "eval", "test"))
            and (one.scope.words >= remark.scope.words if remark.scope.words else not one.scope.words)
        ]
        if meant and all(contradict(one, remark) for one in meant):
            yield _problem(view, [meant[-1]], [remark])


def _beyond_the_best(view: ForeignRun, name: str, statements: Sequence[Statement]) -> Iterator[Problem]:
    """Yield a problem for a best value that is better than every value of the only course of that metric."""
    is_lower_better = name in ("score.loss", "score.perplexity")
    for best in (one for one in statements if one.scope.best and not one.series and not one.is_range):
        courses: dict[str, list[Statement]] = defaultdict(list)
        for one in statements:
            if one.series and (one.scope.words, one.scope.split) == (best.scope.words, best.scope.split):
                courses[one.series].append(one)
        values = [_number(one) for one in next(iter(courses.values()), [])]
        if len(courses) != 1 or len(values) < _A_COURSE:
            continue
        most = min(values) if is_lower_better else max(values)
        stated = _number(best)
        if same_score(stated, most) or (stated > most) == is_lower_better:
            continue
        course = next(iter(courses.values()))[values.index(most)]
        what = (
            f"best {name.removeprefix('score.')} is {format_value(best.value)} in {best.source}; the best of the "
            f"{quantity(len(values), 'value')} in {course.source.file} is "
            f"{format_value(course.value)} ({course.source})."
        )
        yield found_at(view, best.source, "TP371", what)


def _are_of_one_series(
    first: Sequence[Statement], other: Sequence[Statement], sources: Sequence[Sequence[Statement]]
) -> bool:
    """Return whether two scores are both found in one series of evaluations: the best one and the last, say."""
    if not first[0].fact.startswith("score.") or len(first) > 1 or len(other) > 1 or first[0].told or other[0].told:
        return False
    return any(
        len(series) > 1 and all(any(not contradict(one, two) for two in series) for one in (first[0], other[0]))
        for series in sources
        if series[0].series
    )


def _with_one_split(statements: Sequence[Statement]) -> list[Statement]:
    """Return scores that name no split as those of the only one that others name; of several, as none of them."""
    named: dict[frozenset[str], set[str]] = defaultdict(set)
    for one in statements:
        named[one.scope.words].add(one.scope.split)
    return [
        replace(one, scope=replace(one.scope, split=next(iter(splits))))
        if not one.scope.split and len(splits := named[one.scope.words] - {""}) == 1 and "train" not in splits
        else one
        for one in statements
    ]


def _problem(view: ForeignRun, first: Sequence[Statement], other: Sequence[Statement]) -> Problem:
    """Return the problem at the place that states a value; where both do, at the second."""
    one, two = first[-1] if first[0].series else first[0], other[-1] if other[0].series else other[0]
    if two.told or (len(other) > 1 and two.series and len(first) == 1):
        one, two, first, other = two, one, other, first
    ends_early = two.fact == "training.steps_done" and one.low is not None and _number(two) > one.low
    name = two.fact.removeprefix("score.").removeprefix("figure.")
    if one.told:
        what = f"{name} is {format_value(two.value)} in {two.source}; {one.told}."
        return found_at(view, two.source, "TP374" if ends_early else "TP371", what)
    if one.series and len(first) > 1:
        what = (
            f"{name} is {format_value(two.value)} in {two.source}; none of the {quantity(len(first), 'value')} in "
            f"{one.source.file} is that, the last is {format_value(one.value)} ({one.source})."
        )
        return found_at(view, two.source, "TP371", what)
    what = f"{name} is {format_value(one.value)} in {one.source} and {format_value(two.value)} in {two.source}."
    return found_at(view, two.source, "TP371", what)


def _number(statement: Statement) -> float:
    value = statement.value
    return 0.0 if value is None or isinstance(value, str) else float(value)


def _is_course(name: str, statements: Sequence[Statement]) -> bool:
    """Return whether a log states a learning rate again and again: it then follows the schedule and is not the peak."""
    return name == "training.learning_rate" and len({one.value for one in statements}) > _PEAKS


def _source_key(statement: Statement) -> str:
    """Return what counts as one source: a log with all its stages, or one place of a document."""
    if statement.series or statement.told:
        return statement.series or statement.told
    name, file, pointer = statement.fact, statement.source.file, statement.source.pointer or ""
    if name == "training.steps_planned" and statement.how == "inferred":
        return ""  # All logs together: a run that is resumed may be given more steps.
    if name == "run.id":
        return f"{file} {pointer.rpartition('/')[2]}"
    return f"{file} {pointer}" if pointer and not file.endswith(".jsonl") else file

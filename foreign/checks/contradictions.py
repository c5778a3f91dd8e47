"""What the sources of a folder state against each other: facts, losses, the end, and rows of two files at one step.

Nothing is resolved here: each contradiction names both places.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

from foreign.checks.answers import against_answers
from foreign.checks.pairs import contradicting_pairs
from foreign.readers.derived import interval_of
from foreign.readers.keys import is_timing, split_name
from foreign.readers.rows import course_of, goes_on, loss_series
from foreign.readers.statement import Citation, Fact, Scalar
from foreign.readers.table import table_of
from foreign.readers.text import agree
from foreign.readers.view import ForeignRun, MetricRow, found_at
from schemas.formats import format_value
from schemas.problems import Problem, truncate_problems


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
            what = f"The final loss is stated as {format_value(fact.value)}; {shows}.{means_it}"
            expected = format_value(last.values["loss"]) if last and last.values["loss"] is not None else None
            yield found_at(view, fact.source, "TP372", what, expected=expected)
        elif fact.name == "result.loss" and mean and _key(fact) == "loss":
            what = f"The loss {format_value(fact.value)} is the mean of the run ({mean.source}); {shows}."
            yield found_at(view, fact.source, "TP431", what)


def _remarks_of_the_end(view: ForeignRun) -> Iterator[Fact]:
    """Yield what a user wrote of a final loss, unless it is that of an evaluation."""
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
    return f"the last row, {last.source}, has {'a loss that is not finite' if loss is None else format_value(loss)}"


def _is_shown(value: float, ends: Sequence[MetricRow], others: Sequence[MetricRow]) -> bool:
    """Return whether a series ends with a loss, or any of the other rows has it."""
    losses = [row.values.get("loss") for row in (*ends, *others)]
    return any(loss is not None and agree(value, loss) for loss in losses)


def _early_ends(view: ForeignRun) -> Iterator[Problem]:
    """Yield a problem for a run that is reported to have finished and whose rows, or whose log, end before."""
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
    # Where steps are counted anew, with each epoch or each training, the last one means nothing about their number.
    counted_anew = any(row.stage > 1 for row in view.metrics)
    if (
        short is not None
        and not counted_anew
        and not any(fact.value == short.value for fact in view.facts_named("training.steps_done"))
    ):
        said = f"{format_value(short.value)} steps ({short.source})"
        what = f"The run is said to have finished {said}; its rows end at step {last:g}."
        yield found_at(view, done.source, "TP374", what)
    elif error is not None and done.source.file == error.source.file and not view.metrics:
        what = f"The run is said to have finished; {error.source} has {format_value(error.value)} and no row follows."
        yield found_at(view, done.source, "TP374", what)


def is_finished(value: Scalar) -> bool:
    """Return whether a status states that a run did what it was to do."""
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


_PLACES = ("step", "epoch")
_HELD = re.compile(r"loss|acc|reward|perplexity|exact_match|bleu|rouge|(?:^|_)(?:f1|em|auc|score)(?:_|$)")
"""Names of what both measured alike. A learning rate may be logged before the step or after it, a norm before clipping
or after it."""

_NUMBER = re.compile(r"\d+")
_RANK = re.compile(r"rank|worker|process|proc|node|host|gpu|device", re.IGNORECASE)

_NUMBERED = re.compile(
    r"(?P<stem>.+?)[-_.]?(?:seed|run|trial|fold|exp|try)?[-_]?(?:\d{1,5}|(?<=[-_])[a-z])(?P<end>\.\w+)", re.IGNORECASE
)
"""Names of files that end in a number, or in a letter apart."""

_BY_CHANCE = 0.1
"""Rows in which two runs agree, as a share of those in which they do not."""

_FEWEST = 3
"""Rows from which on epochs distinguish them."""

_OUT_OF_THE_WAY = 0.5e-3
"""Part of an epoch that no trainer states, so that parts of epochs are held only against parts."""

Point = tuple[float, MetricRow]


def different_rows(view: ForeignRun) -> Iterator[Problem]:
    """Yield problems for two files that state different things of the same step or epoch."""
    if any(row.stage > 1 for row in view.metrics):
        return  # Stages count their steps anew; which of them another file means, is unknown.
    for name, files in sorted(_courses(view).items()):
        if len(files) > 1:
            yield from truncate_problems(_of_one_name(view, name, files), limit=3)


def _courses(view: ForeignRun) -> dict[str, dict[str, list[MetricRow]]]:
    """Return the rows of each file by the name of what they measured: `val_accuracy` is `eval_accuracy` here."""
    courses: dict[str, dict[str, list[MetricRow]]] = defaultdict(lambda: defaultdict(list))
    for row in view.metrics:
        for key, value in row.values.items():
            if value is not None and _HELD.search(key) and not is_timing(key):
                courses[split_name(key)][row.source.file].append(row)
    return courses


def _of_one_name(view: ForeignRun, name: str, files: dict[str, list[MetricRow]]) -> Iterator[Problem]:
    for place in _PLACES:
        first_at: dict[float, list[Point]] = {}
        found: list[tuple[str, str, Problem]] = []
        agreeing: Counter[tuple[str, str]] = Counter()
        for file, rows in files.items():
            resumed: dict[str, bool] = {}
            for at, here in _points(rows, place, name).items():
                there = first_at.setdefault(at, here)
                other = there[0][1].source.file
                if other == file or _are_of_ranks(file, other):
                    continue
                if any(agree(one, two) for one, _ in there for two, _ in here):
                    agreeing[other, file] += 1
                    continue
                if other not in resumed:  # A resumed run does some steps again.
                    resumed[other] = goes_on(files[other], rows) or goes_on(rows, files[other])
                if not resumed[other]:
                    at_place = f"{place} {here[0][1].values[place]:g}"
                    found.append((other, file, _problem(view, name, at_place, there[0], here[0])))
        differing = Counter((one, two) for one, two, _ in found)
        told = [
            problem
            for one, two, problem in found
            if agreeing[one, two] > _BY_CHANCE * differing[one, two] or not _are_numbered(one, two)
        ]
        if told:
            yield from told
            return


def _are_numbered(one: str, other: str) -> bool:
    """Return whether two files are of two runs, by a letter or a number at the end of their names: run_a, run_b.

    Only where hardly a row of the one is a row of the other: files of one run have most in common.
    """
    stems = [_NUMBERED.fullmatch(name) for name in (one, other)]
    return one != other and all(stems) and len({stem.group("stem", "end") for stem in stems if stem}) == 1


def _are_of_ranks(one: str, other: str) -> bool:
    """Return whether two files differ only in a number: each process of a run then wrote its own."""
    return _NUMBER.sub("0", one) == _NUMBER.sub("0", other) and _RANK.search(one) is not None


def _problem(view: ForeignRun, name: str, at: str, one: Point, two: Point) -> Problem:
    values = f"{format_value(one[0])} in {one[1].source} and {format_value(two[0])} in {two[1].source}"
    place = Citation(file=two[1].source.file, line=two[1].source.line)
    return found_at(view, place, "TP371", f"The {name} at {at} is {values}.")


def _points(rows: Sequence[MetricRow], place: str, name: str) -> dict[float, list[Point]]:
    """Return the values of a name by the step, or the epoch, that the rows state; some logs have two of one step."""
    at_place: dict[float, list[Point]] = defaultdict(list)
    shift = _shift(rows) if place == "epoch" else 0.0
    for row in rows if shift is not None else ():
        at = row.values.get(place)
        value = next((value for key, value in row.values.items() if split_name(key) == name), None)
        if at is not None and value is not None and place not in row.inferred:
            at_place[float(at) - (shift or 0.0)].append((value, row))
    return at_place


def _shift(rows: Sequence[MetricRow]) -> float | None:
    """Return what is taken off each epoch, so that whole ones count from 0.

    None where rows cannot be divided by epochs.

    Parts of an epoch are those of one trainer and are moved out of the way of whole ones, which a user may count
    from 1.
    """
    places = [row.values.get("epoch") for row in rows]
    epochs = [at for at in places if at is not None]
    if len(epochs) < len(places) or len(set(epochs)) < len(epochs) or len(epochs) < _FEWEST:
        return None
    if any(at != int(at) for at in epochs):
        return _OUT_OF_THE_WAY
    return 1.0 if min(epochs) == 1 else 0.0

"""The table of everything that a folder of another tool states, one statement a line."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace

from foreign.readers.derived import follows
from foreign.readers.keys import SCORE_KEYS, is_timing, split_name
from foreign.readers.scores import identity, metric_and_scope
from foreign.readers.statement import Fact, Kind, Scope, Statement, state
from foreign.readers.view import ForeignRun, MetricRow

MOST_OF_A_SERIES = 20_000
"""Scores of one series of rows that are looked at."""

_CHIPS = re.compile(
    r"\b(?:[ahb][12]0{1,2}0?|gh200|gb200|v100|p100|k80|t4|l4|l40s?|a10g?|a40|a6000|h20|mi\d{3}x?|"
    r"rtx ?\d{4}(?: ?ti)?|v[2-6]e)\b",
    re.IGNORECASE,
)
"""Names of chips as they stand in the names of devices."""

_AT_STEP = re.compile(r"^figure\..* at step \d")

_KINDS: dict[str, Kind] = {"configuration": "declared"}


def table_of(view: ForeignRun) -> tuple[Statement, ...]:
    """Return every statement of a folder: facts, scores, what its rows give, and what readers stated themselves."""
    facts = [_of_fact(view, fact) for fact in view.facts]
    own = (one for reading in view.files.values() for one in reading.statements)
    of_file = {name: _scope_of_file(view, name) for name, reading in view.files.items() if reading.scores}
    scores = _with_training([*_scores(view, of_file), *_score_rows(view)])
    everything = (*facts, *own, *scores, *follows(view), *_at_steps(view))
    return (*everything, *(chip for one in everything if (chip := _chip(one)) is not None))


def _of_fact(view: ForeignRun, fact: Fact) -> Statement:
    statement = state(fact, _kind(view, fact.source.file))
    if fact.name == "run.status" and view.files[fact.source.file].tool == "console log":
        return replace(statement, fact="run.words_of_the_end")  # What a log states of one of several parts.
    if fact.name == "evaluation.model" and not view.metrics and _has_one_model(view):
        return replace(statement, fact="model.name")  # Nothing was trained: there is only the model that answered.
    if fact.name != "evaluation.items":
        return statement
    groups = (fact.source.pointer or "").strip("/").split("/")[:-1]
    _, scope = metric_and_scope(".".join([*(part for part in groups if not part.isdigit()), "acc"]), fact.source.file)
    return replace(statement, scope=scope)


def _has_one_model(view: ForeignRun) -> bool:
    return len({str(fact.value).lower() for fact in view.facts_named("evaluation.model")}) == 1


def _with_training(statements: list[Statement]) -> list[Statement]:
    """Return scores without a split as those of the training where the same tool states one of an evaluation beside it.

    `accuracy` beside `val_accuracy` is that of the training.
    """
    splits: dict[tuple[str, str, frozenset[str]], set[str]] = defaultdict(set)
    for one in statements:
        splits[_written_by(one), one.fact, one.scope.words].add(one.scope.split)
    return [
        replace(one, scope=replace(one.scope, split="train"))
        if not one.scope.split and splits[_written_by(one), one.fact, one.scope.words] - {""}
        else one
        for one in statements
    ]


def _written_by(statement: Statement) -> str:
    """Return the file of a statement; of a run of MLflow, which keeps a file for each metric, its folder."""
    run, metrics, _ = statement.source.file.rpartition("/metrics/")
    return run if metrics else statement.source.file


def _chip(statement: Statement) -> Statement | None:
    """Return the chip in a device's name: of `NVIDIA A100-SXM4-40GB` the A100; or None if it is missing."""
    if statement.fact not in ("device.gpu", "device.kind") or not isinstance(statement.value, str):
        return None
    chips = sorted({chip.group().upper().replace(" ", "") for chip in _CHIPS.finditer(statement.value)})
    return replace(statement, fact="device.model", value=chips[0]) if len(chips) == 1 else None


def _kind(view: ForeignRun, file: str) -> Kind:
    """Return who writes a file: configurations and argument lists request, everything else states what it used."""
    name = file.rpartition("/")[2].lower()
    asks = "/params/" in file or "args" in name or "config" in name or "hparams" in name
    return "declared" if asks else _KINDS.get(view.files[file].tool or "", "effective")


def _scope_of_file(view: ForeignRun, file: str) -> Scope:
    """Return what a file states of its evaluation as a whole: the set, the model, the number of items."""
    named = {fact.name: fact.value for fact in view.files[file].facts}
    items = [fact.value for fact in view.files[file].facts if fact.name == "evaluation.items"]
    return Scope(
        of_set=str(named.get("evaluation.set") or named.get("evaluation.dataset") or "").lower(),
        model=str(named.get("evaluation.model") or "").lower(),
        items=float(items[0]) if len(items) == 1 and not isinstance(items[0], str) else None,
    )


def _scores(view: ForeignRun, of_file: dict[str, Scope]) -> Iterator[Statement]:
    for score in view.scores:
        if score.checkpoint and score.name in _measured_in(view, score.source.file):
            continue  # One of the rows of the same file, which are a series.
        metric, scope = identity(score)
        more = of_file[score.source.file]
        scope = replace(scope, of_set=more.of_set, model=more.model, items=more.items)
        is_of_log = score.source.pointer is None
        yield Statement(
            fact=f"score.{metric}",
            value=score.value,
            source=score.source,
            kind="measured",
            scope=scope,
            series=score.source.file if is_of_log else "",  # A log may state a score after every epoch.
        )


def _measured_in(view: ForeignRun, file: str) -> set[str]:
    return {name for row in view.files[file].metrics for name in row.values}


def _score_rows(view: ForeignRun) -> Iterator[Statement]:
    """Yield the scores that rows state, where the rows go on to the end of the run: any of them may be meant."""
    end = {place: max(_places(view.metrics, place), default=None) for place in ("step", "epoch")}
    for file, reading in view.files.items():
        names = {name for row in reading.metrics for name in row.values if _is_score(name)}
        for name in sorted(names):
            rows = [row for row in reading.metrics if row.values.get(name) is not None][:MOST_OF_A_SERIES]
            if not _reaches(rows, end):
                continue
            of_training = all("loss" in row.values for row in rows)
            metric, scope = metric_and_scope(name, file)
            scope = replace(scope, split=scope.split or "train") if of_training else scope
            for row in rows:
                value = row.values[name] or 0.0
                yield Statement(
                    fact=f"score.{metric}",
                    value=value,
                    source=row.source,
                    kind="measured",
                    scope=scope,
                    series=f"{file} {name}",
                )


def _at_steps(view: ForeignRun) -> Iterator[Statement]:
    """Yield what rows measured at the steps of which a card states the same."""
    told = {one.fact for reading in view.files.values() for one in reading.statements if _AT_STEP.search(one.fact)}
    for row in view.metrics if told else ():
        for name, value in row.values.items():
            fact = f"figure.{split_name(name)} at step {row.values.get('step') or 0:g}"
            if fact in told and value is not None:
                series = f"{row.source.file} {fact}"
                yield Statement(fact=fact, value=value, source=row.source, kind="measured", series=series)


def _is_score(name: str) -> bool:
    metric, _ = metric_and_scope(name, "")
    return name == "eval_loss" or (metric in SCORE_KEYS and not is_timing(name))


def _reaches(rows: list[MetricRow], end: dict[str, float | None]) -> bool:
    """Return whether the last of some rows stands where the last of all rows does."""
    for place in ("step", "epoch"):
        own, last = _places(rows, place), end[place]
        if place == "step" and _counts_itself(rows, own):
            return True
        if own and last is not None:
            return max(own) >= 0.98 * last
    return True


def _counts_itself(rows: list[MetricRow], steps: list[float]) -> bool:
    """Return whether a metric of MLflow counts its own values, 0, 1, 2: of such a count, other metrics know nothing."""
    is_tracked = "/metrics/" in rows[0].source.file if rows else False
    return (
        is_tracked
        and len(steps) > 1
        and steps in ([float(n) for n in range(len(steps))], [float(n + 1) for n in range(len(steps))])
    )


def _places(rows: tuple[MetricRow, ...] | list[MetricRow], place: str) -> list[float]:
    return [at for row in rows if (at := row.values.get(place)) is not None]

"""What the sources of a foreign folder state against each other: facts, losses, and the end of the run.

Nothing is resolved here: each contradiction names both places. What does not live here: what stands against a model's
answers (`answers`), and the grade (`judgement`).
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import pairwise

from evidence.foreign import rules
from evidence.foreign.answers import against_answers
from evidence.foreign.numbers import agree
from evidence.foreign.view import Fact, ForeignRun, MetricRow, Scalar
from evidence.rules.finding import first_few, problem_of
from schemas.problems import Problem
from schemas.words import shown

_COMPARED = (
    *("model.name", "dataset.name", "dataset.rows", "evaluation.set", "evaluation.items"),
    *("training.steps_planned", "training.steps_done", "training.epochs_planned", "training.sequence_length"),
    *("training.batch_size", "training.microbatch_size", "training.effective_batch_size"),
    *("training.accumulation_steps", "training.optimizer", "training.learning_rate", "training.dtype"),
    *("training.method", "training.seed", "device.kind", "device.platform", "device.count", "code.commit", "run.id"),
    *("result.last_loss", "result.mean_loss", "result.best_loss", "result.first_loss", "result.train_seconds"),
)
"""Facts of which a run has one."""

_PLATFORMS = {
    "tpu": ("tpu",),
    "gpu": ("gpu", "cuda", "nvidia", "rtx", "tesla", "t4", "p100", "a100", "h100", "l4"),
    "cpu": ("cpu",),
}
_DTYPES = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32", "half": "float16", "float": "float32"}
_OPTIMIZERS = re.compile(r"^(?:paged_)?(adamw|adam|adafactor|sgd|lion|lamb)")

SECONDS_MAY_DIFFER = 0.1
"""Share by which two durations of one run may differ: clocks start and stop at different moments."""


def contradictions(view: ForeignRun) -> Iterator[Problem]:
    """Yield everything that two places of a folder state against each other."""
    for name in _COMPARED:
        yield from _between_sources(view, name)
    yield from _final_losses(view)
    yield from _series(view)
    yield from against_answers(view)
    yield from _early_ends(view)


def _between_sources(view: ForeignRun, name: str) -> Iterator[Problem]:
    """Yield a problem for two sources that have no value of a fact in common."""
    of_source: dict[str, list[Fact]] = defaultdict(list)
    for fact in view.facts_named(name):
        if _normal(name, fact) is not None:
            of_source[_source_key(name, fact)].append(fact)
    if not of_source:
        return
    first, *further = of_source.values()
    for facts in further:
        if not any(_same(name, one, two) for one in first for two in facts):
            one, two = first[0], facts[0]
            what = f"{name} is {shown(one.value)} in {one.source} and {shown(two.value)} in {two.source}."
            yield problem_of(
                rules.STATED_TWICE,
                file=str(view.path / two.source.file),
                what=what,
                line=two.source.line,
                pointer=two.source.pointer,
            )
            return  # Further sources agree with one of the two, or say nothing new.


def _source_key(name: str, fact: Fact) -> str:
    """Return what counts as one source: a log with all its stages, or one place of a document."""
    pointer = fact.source.pointer or ""
    if name == "run.id":
        return f"{fact.source.file} {pointer.rpartition('/')[2]}"
    return f"{fact.source.file} {pointer}" if pointer and not fact.source.file.endswith(".jsonl") else fact.source.file


def same_fact(name: str, one: Fact, two: Fact) -> bool:
    """Return whether two facts of a name state the same; False where one of them cannot be compared."""
    if _normal(name, one) is None or _normal(name, two) is None:
        return False
    return _same(name, one, two)


def _same(name: str, one: Fact, two: Fact) -> bool:
    if (
        name == "run.id"
        and (one.source.pointer or "").rpartition("/")[2] != (two.source.pointer or "").rpartition("/")[2]
    ):
        return True  # A run's name, version and id are different things.
    left, right = _normal(name, one), _normal(name, two)
    if isinstance(left, frozenset) and isinstance(right, frozenset):
        return bool(left & right)
    if isinstance(left, str) and isinstance(right, str):
        return left == right or (name == "code.commit" and (left.startswith(right) or right.startswith(left)))
    if not isinstance(left, int | float) or not isinstance(right, int | float):
        return left == right
    if name == "result.train_seconds":
        return abs(left - right) <= SECONDS_MAY_DIFFER * max(abs(left), abs(right))
    return agree(left, right) if name.startswith("result.") else abs(left - right) <= 1e-9 * max(abs(left), abs(right))


def _normal(name: str, fact: Fact) -> Scalar | frozenset[str] | None:
    """Return a value in the form in which it can be compared; None where it cannot, a path instead of a name."""
    value = fact.value
    if not isinstance(value, str):
        return value
    text = value.strip().lower()
    if name.startswith("device."):
        words = re.split(r"[^a-z0-9]+", re.sub(r"(?<=[a-z])_?device", "", text))
        return (
            frozenset(
                kind
                for kind, marks in _PLATFORMS.items()
                if any(word.startswith(mark) for word in words for mark in marks)
            )
            or None
        )
    if name == "training.dtype":
        text = text.removeprefix("torch.").removeprefix("jnp.")
        return _DTYPES.get(text, text)
    if name == "training.optimizer":
        match = _OPTIMIZERS.match(text)
        return match.group(1) if match else text
    if name == "code.commit":
        return text if re.fullmatch(r"[0-9a-f]{7,64}", text) else None
    if name == "evaluation.set":
        return re.split(r"[/\\]", text)[-1].rpartition(".")[0] or text
    if name in ("model.name", "dataset.name"):
        if text.count("/") > 1 or "\\" in text or text.startswith((".", "/", "~")) or "checkpoint" in text:
            return None
        return text.rpartition("/")[2]
    return text


def _final_losses(view: ForeignRun) -> Iterator[Problem]:
    """Yield a problem for a final loss that no series ends with, and a warning for a mean beside a step."""
    ends = [(rows, rows[-1]) for rows in loss_series(view.metrics).values()]
    means = [fact for fact in view.facts_named("result.mean_loss") if isinstance(fact.value, int | float)]
    for fact in (*view.facts_named("result.last_loss"), *view.facts_named("result.loss")):
        if isinstance(fact.value, str) or any(agree(fact.value, row.values["loss"] or 0) for _, row in ends):
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

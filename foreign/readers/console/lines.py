"""The forms of single lines in training logs: Python dicts, step and loss in words, progress bars, `key: value`."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from itertools import pairwise

from foreign.readers.keys import metric_of, plain
from foreign.readers.rows import is_trainer_summary
from foreign.readers.text import NUMBER, finite, number_of
from foreign.readers.view import MetricRow


def with_sound_steps(rows: list[MetricRow]) -> list[MetricRow]:
    """Return the rows without steps that a progress bar cannot have meant.

    Where bar and rows went through two streams, the bar may stand at its end before the first row: then the same step
    would be given to several rows, or the steps would not grow with the epochs.
    """
    stages = {row.stage for row in rows if "step" in row.inferred and "epoch" in row.values}
    unsound = {stage for stage in stages if not _is_sound([row for row in rows if row.stage == stage])}
    return [
        replace(row, values={name: value for name, value in row.values.items() if name != "step"}, inferred=())
        if row.stage in unsound and "step" in row.inferred
        else row
        for row in rows
    ]


def _is_sound(rows: list[MetricRow]) -> bool:
    """Return whether steps taken from a bar grow from row to row, and with the epochs."""
    guessed = [row.values for row in rows if "step" in row.inferred and "loss" in row.values]
    steps = [values["step"] or 0 for values in guessed]
    ratios = [
        step / epoch
        for values in guessed
        if (step := values["step"]) and (epoch := values.get("epoch")) is not None and epoch
    ]
    grows = all(one < two for one, two in pairwise(steps))
    return len(guessed) > 1 and grows and (not ratios or max(ratios) <= 1.25 * min(ratios))


_DICT = re.compile(r"\{\s*['\"][^{}]{3,4000}\}")
_MEMBER = re.compile(rf"['\"]([\w@./ -]{{1,80}})['\"]\s*:\s*['\"]?({NUMBER})['\"]?(?=\s*[,}}])", re.IGNORECASE)
_OF_ROWS = {"loss", "train_loss", "learning_rate", "epoch", "train_runtime", "eval_loss", "eval_runtime", "reward"}

_STEP = re.compile(
    r"\b(?:global[_ ]?step|train(?:ing)?[_ ]step|step|iteration|iter)\b\s*[:=#]?\s*[\[(]?\s*(\d[\d,]{0,19})(?![\d,]*\d)"
    r"(?:\s*(?:/|of)\s*(\d[\d,]{0,19})(?![\d,]*\d))?",
    re.IGNORECASE,
)
_COUNTED = re.compile(r"^\W*\[\s*(\d{1,20})\s*/\s*(\d{1,20})\s*\]")
_EPOCH = re.compile(r"\bepoch\b\s*[:=#]?\s*[\[(]?\s*(\d+(?:\.\d+)?)", re.IGNORECASE)
_LOSS = re.compile(
    r"(?P<mean>\b(?:avg|average|mean|running|smoothed)[ _.]*)?(?P<name>\b(?:(?:train(?:ing)?|eval(?:uation)?|"
    rf"val(?:idation)?|valid|test)[ _/]?)?loss)\b\s*(?:at step \d+\s*)?(?:[:=]|is|->)?\s*(?P<value>{NUMBER})",
    re.IGNORECASE,
)
_PAIR = re.compile(rf"\b([A-Za-z][\w./@]*(?: [a-z]\w*)?)\s*[:=]\s*({NUMBER})(?![\w%/])", re.IGNORECASE)
_BESIDE = {
    *("learning_rate", "grad_norm", "reward", "kl", "perplexity", "accuracy", "eval_loss", "tokens_per_second"),
    *("training_perplexity", "mean_reward", "rewards", "epoch"),
}
"""Values that a line with a step may hold beside the loss."""

_BAR = re.compile(r"(?P<name>[^|]{0,80}?)\s*\d+%\|[^|]*\|\s*(?P<done>\d+)/(?P<total>\d+)\s*\[(?P<rest>[^\]]*)\]?")
_OF_TRAINING = re.compile(r"^\W*$|train|epoch|step|sft|grpo|dpo|fine", re.IGNORECASE)


@dataclass(frozen=True, kw_only=True)
class LineRow:
    """The numbers of one line, by our names."""

    values: dict[str, float | None]
    """Name to number."""
    is_summary: bool = False
    """Whether it is what the Hugging Face Trainer prints at the end of a training."""
    steps_planned: int | None = None
    """The total in `step 10/200`. None: the line names none."""


@dataclass(frozen=True, kw_only=True)
class Bar:
    """A progress bar."""

    done: int
    """What is done."""
    total: int
    """Out of."""
    is_training: bool
    """Whether it counts steps of training, by its name."""
    by_epoch: bool
    """Whether it begins anew with each epoch."""
    values: dict[str, float | None]
    """Figures that it shows at its end, the loss among them."""


def dict_row(text: str) -> LineRow | None:
    """Return the row that a line holds as a Python dict or as JSON, numbers in quotes or not; None without one.

    Example:
        >>> dict_row("{'loss': 1.2, 'grad_norm': nan, 'epoch': 0.5}").values
        {'loss': 1.2, 'grad_norm': None, 'epoch': 0.5}
    """
    match = _DICT.search(text)
    if match is None:
        return None
    members = _MEMBER.findall(match.group())
    names = {name for name, _ in members}
    if not (names & _OF_ROWS) or len(names) < 2:
        return None
    is_summary = is_trainer_summary(dict.fromkeys(names))
    values: dict[str, float | None] = {}
    for name, number in members:
        found = number_of(number)
        if found is not None:
            values.setdefault("train_loss" if is_summary and name == "train_loss" else metric_of(name), finite(found))
    return LineRow(values=values, is_summary=is_summary)


def step_row(text: str) -> LineRow | None:
    """Return the row that a line states in words: a step or an epoch, and a loss; None where one of them is missing.

    Example:
        >>> step_row("Step 10/200 | loss: 2.31 | lr: 1e-05").values
        {'step': 10, 'loss': 2.31, 'learning_rate': 1e-05}
        >>> step_row("iter 250: train loss 1.9, val loss 2.1").values
        {'step': 250, 'loss': 1.9, 'eval_loss': 2.1}
    """
    losses = list(_LOSS.finditer(text))
    step = _STEP.search(text) or _COUNTED.search(text)
    epoch = _EPOCH.search(text)
    if not losses or (step is None and epoch is None):
        return None
    values: dict[str, float | None] = {}
    if step is not None:
        values["step"] = int(step.group(1).replace(",", ""))
    elif epoch is not None:
        values["epoch"] = number_of(epoch.group(1))
    for loss in losses:
        name = "mean_loss" if loss.group("mean") else metric_of(loss.group("name"))
        _put(values, name, loss.group("value"))
    for name, number in _PAIR.findall(text):
        if metric_of(name) in _BESIDE:
            _put(values, metric_of(name), number)
    total = step.group(2) if step is not None and epoch is None else None  # Beside an epoch it may be the epoch's.
    return LineRow(values=values, steps_planned=int(total.replace(",", "")) if total else None)


def bar_of(text: str) -> Bar | None:
    """Return the last progress bar of a line with the figures that it shows."""
    matches = list(_BAR.finditer(text))
    if not matches:
        return None
    match = matches[-1]
    values: dict[str, float | None] = {}
    for name, number in _PAIR.findall(match.group("rest")):
        if "loss" in plain(name) or metric_of(name) in _BESIDE:
            _put(values, metric_of(name), number)
    name = match.group("name")
    return Bar(
        done=int(match.group("done")[:15]),
        total=int(match.group("total")[:15]),
        is_training=_OF_TRAINING.search(name) is not None,
        by_epoch="epoch" in name.lower(),
        values=values,
    )


def _put(values: dict[str, float | None], name: str, literal: str) -> None:
    number = number_of(literal)
    if number is not None:
        values.setdefault(name, finite(number))

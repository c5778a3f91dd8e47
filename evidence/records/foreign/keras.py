"""What Keras leaves: the lists of a History as JSON, the table of CSVLogger under the name of a log, its console lines.

Source: keras.callbacks.History, CSVLogger (epochs count from 0) and ProgbarLogger (epochs count from 1).
"""

from __future__ import annotations

import re
from typing import Any

from evidence.records.foreign.keys import metric_of
from evidence.records.foreign.numbers import NUMBER, finite, number_of
from evidence.records.foreign.statement import Source
from evidence.records.foreign.view import FileReading, MetricRow
from schemas.problems.problem import Lines, pointer_to

KERAS = "Keras"

_EPOCH_LINE = re.compile(r"^\s*Epoch (\d{1,7})/(\d{1,7})\s*$")
_END_OF_EPOCH = re.compile(r"\d+/\d+\b.*?\d(?:m?s|us|ms)?(?:/step|/sample|/epoch)\b(?P<rest>.*)$")
_FIGURE = re.compile(rf"\b([A-Za-z]\w*):\s*({NUMBER})", re.IGNORECASE)
_HEAD = re.compile(r"^(?:epoch|step|,)[\w,;/ .-]*$", re.IGNORECASE)


def is_history(value: Any) -> bool:
    """Return whether a document is the `history` of a training: lists of numbers of one length, a loss among them."""
    if not isinstance(value, dict) or not 1 <= len(value) <= 200 or "loss" not in value:
        return False
    columns = list(value.values())
    first = len(columns[0]) if isinstance(columns[0], list) else 0
    return first > 0 and all(
        isinstance(column, list) and len(column) == first and all(isinstance(one, int | float) for one in column)
        for column in columns
    )


def read_history(value: dict[str, list[float]], lines: Lines, file: str) -> FileReading:
    """Return one row for each epoch; the first is epoch 0, as Keras counts."""
    names = {key: metric_of(key) for key in value}
    count = len(value["loss"])
    rows = [
        MetricRow(
            values={"epoch": index} | {names[key]: finite(value[key][index]) for key in value},
            source=Source(file=file, line=lines(pointer_to(("loss", index))), pointer=pointer_to(("loss", index))),
        )
        for index in range(count)
    ]
    return FileReading(tool=KERAS, metrics=tuple(rows))


def is_table(text: str) -> bool:
    """Return whether a log is a table: a line of names with an epoch or a step first, and numbers below it."""
    head, _, rest = text.lstrip("\ufeff").partition("\n")
    first = rest.partition("\n")[0]
    cells = re.split(r"[,;]", head.strip())
    below = re.split(r"[,;]", first.strip())
    has_names = len(cells) > 1 and _HEAD.match(head.strip()) is not None
    return has_names and len(below) == len(cells) and number_of(below[0]) is not None


def epoch_of(text: str) -> tuple[int, int] | None:
    """Return epoch and number of epochs of a line that opens one: `Epoch 3/10` is (3, 10)."""
    match = _EPOCH_LINE.match(text)
    return (int(match.group(1)), int(match.group(2))) if match else None


def figures_of_line(text: str) -> dict[str, float | None]:
    """Return the figures of a finished progress bar of Keras by our names; empty where a line is none.

    Example:
        >>> figures_of_line("32/32 [=====] - 1s 8ms/step - loss: 0.5 - accuracy: 0.8 - val_loss: 0.6")
        {'loss': 0.5, 'accuracy': 0.8, 'eval_loss': 0.6}
        >>> figures_of_line("Step 10 loss: 0.5")
        {}
    """
    match = _END_OF_EPOCH.search(text)
    if match is None or "loss" not in match.group("rest"):
        return {}
    counted = re.search(r"(\d+)/(\d+)\b", text)
    if counted is None or counted.group(1) != counted.group(2):
        return {}  # A bar that still runs.
    figures: dict[str, float | None] = {}
    for name, literal in _FIGURE.findall(match.group("rest")):
        number = number_of(literal)
        if number is not None:
            figures.setdefault(metric_of(name), finite(number))
    return figures

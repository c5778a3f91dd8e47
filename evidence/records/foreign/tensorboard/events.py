"""TensorBoard event files: the scalars, by step.

Fields from tensorflow/core/util/event.proto and tensorflow/core/framework/{summary,tensor}.proto.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

from evidence.records.foreign import rules
from evidence.records.foreign.keys import metric_of
from evidence.records.foreign.numbers import finite
from evidence.records.foreign.statement import Source
from evidence.records.foreign.tensorboard.tfrecord import BrokenRecordError, Field, fields, records
from evidence.records.foreign.view import FileReading, MetricRow
from schemas.problems.problem import Problem
from schemas.problems.rule import problem_of

_STEP, _SUMMARY = 2, 5
_VALUE = 1
_TAG, _SIMPLE, _TENSOR = 1, 2, 8
_DTYPE, _CONTENT, _FLOATS, _DOUBLES, _INTS, _INT64S = 1, 4, 5, 6, 7, 10

_OF_DTYPE = {1: "<f", 2: "<d", 3: "<i", 9: "<q"}
"""Struct formats of the element types that scalars have: float, double, int32, int64."""


MOST_SCALARS = 2_000_000
"""Scalars of one file that are read."""

_LONGEST_NUMBER = 10
"""Bytes of the longest number of variable length."""


def is_event_file(name: str) -> bool:
    """Return whether a file is an event file, by its name."""
    return "tfevents" in name.rpartition("/")[2]


def read_events(data: bytes, file: str, where: str) -> FileReading:
    """Return the scalars of an event file as rows, one for each step; what is damaged ends the reading.

    Args:
        data: The file's content.
        file: Its path inside the folder.
        where: Its name in problems.
    """
    at_step: dict[int, dict[str, float | None]] = {}
    problems: list[Problem] = []
    read = 0
    try:
        for record in records(data):
            step, scalars = _event(record, most=MOST_SCALARS - read)
            read += len(scalars)
            if scalars:
                at_step.setdefault(step, {}).update(scalars)
    except BrokenRecordError as error:
        what = f"{str(error)[0].upper()}{str(error)[1:]}; the events before it were read."
        problems.append(problem_of(rules.NOT_READ, file=where, what=what))
    rows = [
        MetricRow(values={"step": step, **values}, source=Source(file=file, pointer=f"step {step}"))
        for step, values in sorted(at_step.items())
    ]
    return FileReading(tool="TensorBoard", metrics=tuple(rows), problems=tuple(problems))


def _event(record: bytes, *, most: int) -> tuple[int, dict[str, float | None]]:
    """Return step and scalars of an event.

    Raises:
        BrokenRecordError: It is damaged, or has more scalars than are read.
    """
    step, scalars = 0, {}
    for field in fields(record):
        if field.number == _STEP and field.wire == 0:
            step = field.as_signed()
        elif field.number == _SUMMARY and field.wire == 2:
            for value in fields(field.content):
                if value.number == _VALUE and value.wire == 2:
                    tag, number = _scalar(value.content)
                    if number is not None:
                        scalars[metric_of(tag)] = finite(number)
                        if len(scalars) > most:
                            message = f"the file has more than the {MOST_SCALARS:,} scalars that are read"
                            raise BrokenRecordError(message)
    return step, scalars


def _scalar(message: bytes) -> tuple[str, float | None]:
    tag, number = "", None
    for field in fields(message):
        if field.number == _TAG and field.wire == 2:
            tag = field.content.decode("utf-8", "replace")
        elif field.number == _SIMPLE and field.wire == 5:
            number = field.as_float()
        elif field.number == _TENSOR and field.wire == 2:
            number = _tensor(field.content)
    return tag, number


def _tensor(message: bytes) -> float | None:
    """Return the number of a tensor with one element; None for any other."""
    dtype = next((field.whole for field in fields(message) if field.number == _DTYPE and field.wire == 0), 0)
    for field in fields(message):
        if field.number == _CONTENT and dtype in _OF_DTYPE:
            return _unpacked(_OF_DTYPE[dtype], field.content)
        if field.number in (_FLOATS, _DOUBLES):
            return _unpacked("<f" if field.number == _FLOATS else "<d", field.content)
        if field.number in (_INTS, _INT64S):
            return _packed_whole(field)
    return None


def _unpacked(form: str, content: bytes) -> float | None:
    return float(struct.unpack(form, content)[0]) if len(content) == struct.calcsize(form) else None


def _packed_whole(field: Field) -> float | None:
    if field.wire == 0:
        return float(field.as_signed())
    if not 0 < len(field.content) <= _LONGEST_NUMBER:
        return None  # Of several numbers.
    values: Sequence[Field] = list(fields(b"\x08" + field.content))
    return float(values[0].as_signed()) if len(values) == 1 else None

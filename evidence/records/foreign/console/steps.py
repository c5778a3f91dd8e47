"""Steps that rows of a log were given from a progress bar, and which of them the bar cannot have meant."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

from evidence.records.foreign.view import MetricRow


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

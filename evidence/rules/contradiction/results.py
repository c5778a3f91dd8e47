"""The result that the manifest states against the rows of metrics.jsonl, and each row against the settings."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from evidence.records.facts import Document, Facts, finding, same, where
from evidence.run import layout
from evidence.scores.recompute import learning_rates, result_of
from schemas.formats import format_value
from schemas.problems import Problem

_SPEED_TOLERANCE = 0.01
"""Relative; the two figures may have been rounded before they were written."""
_FLOAT32 = 1e-6
_SCHEDULE_FRACTION = 1e-4
"""Of the peak; schedules are computed in float32, cosines of it included."""
_SCHEDULE = {"schedule", "learning_rate", "warmup_steps", "final_learning_rate_fraction"}


def result_follows_from_rows(facts: Facts) -> Iterator[Problem]:
    """Yield a problem for each figure of `result` that the rows do not give."""
    if facts.manifest is None or facts.metrics is None or not facts.is_sealed:
        return
    if facts.succeeded and not facts.metrics:
        return  # That nothing was recorded has its own rule.
    computed = result_of(facts.metrics)
    stated = facts.manifest["result"]
    for name, right in computed.items():
        if not same(stated[name], right):
            yield finding(
                facts.folder,
                "TP310",
                layout.MANIFEST,
                f"result.{name} is {format_value(stated[name])}; metrics.jsonl gives {format_value(right)}."
                f"{_confused_with(name, stated[name], computed)}",
                expected=format_value(right),
                pointer=f"/result/{name}",
            )


def steps_done_have_rows(facts: Facts) -> Iterator[Problem]:
    """Yield a problem where the manifest counts steps that no row shows, or fewer than the rows show."""
    if facts.training is None or not facts.metrics or not facts.is_sealed:
        return
    last = facts.metrics[-1]["step"]
    done = facts.training["steps_done"]
    every = 1 if facts.succeeded else (facts.config or {}).get("recording", {}).get("log_every_steps", 1)
    if not last <= done < last + every:
        yield finding(
            facts.folder,
            "TP311",
            layout.MANIFEST,
            f"training.steps_done is {done}; the last row of metrics.jsonl is step {last}.",
            expected=str(last),
            pointer="/training/steps_done",
        )


def rows_follow_from_settings(facts: Facts) -> Iterator[Problem]:
    """Yield problems for rows whose tokens, speed or learning rate the manifest's settings do not give."""
    if facts.training is None or facts.metrics is None:
        return
    tokens_per_step = facts.training["tokens_per_step"]
    yield from _once(facts.metrics, _wrong_tokens(facts, facts.metrics, tokens_per_step))
    dataset, batch = {} if facts.manifest is None else facts.manifest["dataset"], facts.training["batch_size"]
    if dataset.get("sequences") and "tokens" in dataset:
        yield from _once(facts.metrics, _tokens_off_the_passes(facts, facts.metrics, dataset, batch))
    yield from _once(facts.metrics, _wrong_speed(facts, facts.metrics, tokens_per_step))
    schedule = facts.training["schedule"]
    declared = (facts.config or {}).get("optimizer", {})
    if declared.keys() >= _SCHEDULE:
        steps = facts.training["steps_planned"]
        yield from _once(facts.metrics, _off_schedule(facts, facts.metrics, declared, steps))
    else:
        yield from _once(facts.metrics, _wrong_rate(facts, facts.metrics, schedule["peak_learning_rate"]))
    yield from _wrong_final_rate(facts, facts.metrics, facts.training)


def memory_is_a_peak(facts: Facts) -> Iterator[Problem]:
    """Yield problems where the peak memory falls from row to row, or the run's peak is below a row's."""
    if facts.manifest is None or facts.metrics is None:
        return
    yield from _reported_now_and_then(facts, facts.manifest["devices"]["platform"])
    memory = np.nan_to_num(facts.columns["device_memory_bytes"])
    peaks = np.maximum.accumulate(memory)
    falls = (
        _row_problem(
            facts,
            "TP315",
            index + 1,
            "device_memory_bytes",
            f"device_memory_bytes is {memory[index]:.0f}, after {peaks[index]:.0f} in an earlier row.",
        )
        for index in where((memory > 0) & (memory < peaks))
    )
    yield from _once(facts.metrics, falls)
    highest = int(peaks[-1]) if len(peaks) else 0
    stated = facts.manifest["result"]["peak_memory_bytes"]
    if stated is not None and stated < highest:
        yield finding(
            facts.folder,
            "TP315",
            layout.MANIFEST,
            f"result.peak_memory_bytes is {stated}; a row of metrics.jsonl has {highest}.",
            expected=f"at least {highest}",
            pointer="/result/peak_memory_bytes",
        )


def _reported_now_and_then(facts: Facts, platform: str) -> Iterator[Problem]:
    """Yield a problem where some rows state device memory and others do not, or a CPU states any."""
    stated = ~np.isnan(facts.columns["device_memory_bytes"])
    if not stated.any() or (stated.all() and platform != "cpu"):
        return
    reason = "a cpu reports none" if platform == "cpu" else "other rows state none"
    line = int(np.argmax(stated)) + 1
    what = f"device_memory_bytes is stated, and {reason}."
    yield _row_problem(facts, "TP316", line, "device_memory_bytes", what)


def _confused_with(name: str, stated: Any, computed: Document) -> str:
    """Return a hint where the stated figure is another of the same kind: a mean given as the last loss."""
    others = [other for other in computed if other != name and other.endswith("_loss") and name.endswith("_loss")]
    for other in others:
        if stated is not None and same(stated, computed[other]):
            return f" The stated figure is the {other.removesuffix('_loss')} loss."
    return ""


def _wrong_tokens(facts: Facts, rows: Sequence[Document], tokens_per_step: int) -> Iterator[Problem]:
    """Yield a problem for each row whose tokens are not those of the row before and of the steps between."""
    columns = facts.columns
    real = ~np.isnan(columns["padding_fraction"])
    computed = columns["step"] * tokens_per_step  # the most where sequences have several lengths
    yield from _more_than_computed(facts, rows, tokens_per_step, where((columns["tokens_seen"] != computed) & ~real))
    yield from _more_than_computed(facts, rows, tokens_per_step, where((columns["tokens_seen"] > computed) & real))
    resumed = facts.manifest is not None and facts.manifest["parent"] is not None
    before = {name: np.concatenate([[0.0], columns[name][:-1]]) for name in ("step", "tokens_seen")}
    of_a_step = _computed_in_a_step(facts, tokens_per_step)
    for index in where(of_a_step > tokens_per_step):
        stated = rows[index]["tokens_per_step"]
        what = f"tokens_per_step is {stated:g}; the longest sequences give {tokens_per_step}."
        yield _row_problem(facts, "TP312", index + 1, "tokens_per_step", what, expected=f"at most {tokens_per_step}")
    taken_in = (columns["step"] - before["step"]) * of_a_step
    right = before["tokens_seen"] + taken_in * (1 - columns["padding_fraction"])
    off = real & (np.abs(columns["tokens_seen"] - right) > 1 + _FLOAT32 * taken_in)
    if len(off) and resumed:
        off[0] = False  # the row before is another run's
    for index in where(off):
        row = rows[index]
        what = (
            f"tokens_seen is {row['tokens_seen']} at step {row['step']}; the row before, the steps since and "
            f"padding_fraction {row['padding_fraction']:g} give {right[index]:.0f}."
        )
        yield _row_problem(facts, "TP312", index + 1, "tokens_seen", what, expected=f"{right[index]:.0f}")


def _computed_in_a_step(facts: Facts, tokens_per_step: int) -> Any:
    """Return for each row the mean tokens of a step since the row before, padding included."""
    stated = facts.columns["tokens_per_step"]
    return np.where(np.isnan(stated), tokens_per_step, stated)


def _more_than_computed(
    facts: Facts, rows: Sequence[Document], tokens_per_step: int, wrong: Sequence[int]
) -> Iterator[Problem]:
    for index in wrong:
        row = rows[index]
        most = row["step"] * tokens_per_step
        what = f"tokens_seen is {row['tokens_seen']} at step {row['step']}; {tokens_per_step} per step give {most}."
        expected = f"at most {most}" if "padding_fraction" in row else str(most)
        yield _row_problem(facts, "TP312", index + 1, "tokens_seen", what, expected=expected)


def _tokens_off_the_passes(facts: Facts, rows: Sequence[Document], dataset: Document, batch: int) -> Iterator[Problem]:
    """Yield a problem for each row whose tokens are not between those of the passes that were whole and of one more."""
    columns, sequences, tokens = facts.columns, dataset["sequences"], dataset["tokens"]
    taken = columns["step"] * batch
    least, most = (np.floor(taken / sequences) * tokens, np.ceil(taken / sequences) * tokens)
    seen = columns["tokens_seen"]
    real = ~np.isnan(columns["padding_fraction"])
    for index in where(real & ((seen < least) | (seen > most))):
        row = rows[index]
        what = (
            f"tokens_seen is {row['tokens_seen']} at step {row['step']}, after {taken[index]:.0f} of the data's "
            f"{sequences} sequences of {tokens} tokens in all."
        )
        expected = f"{least[index]:.0f} to {most[index]:.0f}"
        yield _row_problem(facts, "TP312", index + 1, "tokens_seen", what, expected=expected)


def _wrong_speed(facts: Facts, rows: Sequence[Document], tokens_per_step: int) -> Iterator[Problem]:
    tokens = facts.columns["tokens_per_second"] * facts.columns["step_seconds"]
    right = _computed_in_a_step(facts, tokens_per_step) * (1 - np.nan_to_num(facts.columns["padding_fraction"]))
    for index in where(abs(tokens - right) > _SPEED_TOLERANCE * tokens_per_step):
        row = rows[index]
        what = (
            f"{row['tokens_per_second']:g} tokens per second times {row['step_seconds']:g} seconds per step are "
            f"{tokens[index]:.0f} tokens; a step has {right[index]:.0f}."
        )
        yield _row_problem(facts, "TP313", index + 1, "tokens_per_second", what)


def _wrong_rate(facts: Facts, rows: Sequence[Document], peak: float) -> Iterator[Problem]:
    for index in where(facts.columns["learning_rate"] > peak * (1 + _FLOAT32)):
        what = f"learning_rate is {rows[index]['learning_rate']:g}; the manifest states a peak of {peak:g}."
        yield _row_problem(facts, "TP314", index + 1, "learning_rate", what, expected=f"at most {peak:g}")


def _wrong_final_rate(facts: Facts, rows: Sequence[Document], training: Document) -> Iterator[Problem]:
    final = training["schedule"]["final_learning_rate"]
    if rows and rows[-1]["step"] == training["steps_planned"]:
        actual = rows[-1]["learning_rate"]
        if abs(actual - final) > _FLOAT32 * training["schedule"]["peak_learning_rate"]:
            what = f"learning_rate is {actual:g} at the last step; the manifest states a final one of {final:g}."
            yield _row_problem(facts, "TP314", len(rows), "learning_rate", what, expected=f"{final:g}")


def _off_schedule(facts: Facts, rows: Sequence[Document], declared: Document, steps: int) -> Iterator[Problem]:
    tolerance = _SCHEDULE_FRACTION * declared["learning_rate"]
    right = learning_rates(declared, facts.columns["step"], steps)
    for index in where(abs(facts.columns["learning_rate"] - right) > tolerance):
        row, rate = rows[index], f"{right[index]:g}"
        what = f"learning_rate is {row['learning_rate']:g} at step {row['step']}; config.yaml gives {rate}."
        yield _row_problem(facts, "TP314", index + 1, "learning_rate", what, expected=rate)


def _once(rows: Sequence[Document], problems: Iterable[Problem]) -> Iterator[Problem]:
    """Yield the first of the problems that rows have of one cause; where there are more, it states of which steps."""
    every = list(problems)
    if len(every) > 1:
        first, last = (rows[(one.line or 1) - 1]["step"] for one in (every[0], every[-1]))
        what = f"{every[0].what} {len(every):,} rows are wrong like this, from step {first} to step {last}."
        every = [replace(every[0], what=what)]
    yield from every


def _row_problem(facts: Facts, code: str, line: int, key: str, what: str, expected: str | None = None) -> Problem:
    return finding(facts.folder, code, layout.METRICS, what, expected=expected, line=line, pointer=f"/{key}")


CHECKS = (result_follows_from_rows, steps_done_have_rows, rows_follow_from_settings, memory_is_a_peak)

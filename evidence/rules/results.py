"""Check that result, tokens, speed, learning rate, memory and times agree with the rows of metrics.jsonl."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from evidence.records.clock import CLOCK_SECONDS, set_back_seconds
from evidence.records.facts import Document, where
from evidence.rules.checker import Checker, ValidRun, rule
from evidence.run.layout import EVAL_SUMMARY, LOG, MANIFEST, METRICS, PLAN
from evidence.scores.recompute import learning_rates, result_of
from schemas.problems.words import quantity
from schemas.reading.columns import Array
from schemas.reading.times import moment, seconds_between
from schemas.reading.values import at

START_SECONDS = 300.0
"""Longest time from the plan to the start of the run, and from there to its first event."""
_ORDER = (
    ("commit", "start of the run", "commit"),
    ("plan", "end of the run", "plan"),
    ("start of the run", "end of the run", "end of the run"),
    ("start of the run", "start of the evaluation", "start of the evaluation"),
    ("start of the evaluation", "end of the evaluation", "end of the evaluation"),
    ("end of the evaluation", "end of the run", "end of the evaluation"),
)
"""Earlier moment, later moment, and the one at which a wrong order is reported."""
_FLOAT32 = 1e-6
_SPEED_TOLERANCE = 0.01
"""Share of a step's tokens; speed and step time may have been rounded."""
_SCHEDULE_TOLERANCE = 1e-4
"""Share of the peak; schedules are computed in float32, cosines included."""
_TIMER_TOLERANCE = 0.02
"""How far two timers may disagree over the same interval, as a share of it."""


def report_rows(
    check: Checker,
    wrong: NDArray[np.bool_],
    key: str,
    describe: Callable[[int], str],
    *,
    file: str = METRICS,
    code: str | None = None,
) -> None:
    """Report the first row for which `wrong` holds, with the number of further ones.

    Args:
        check: Checker of the rule.
        wrong: `[rows]` flags.
        key: Field of the row.
        describe: Returns what is wrong with the row at an index, as a sentence.
        file: File of the rows.
        code: Code, if it is not that of the rule.
    """
    if rows := where(wrong):
        more = f" The same holds for {quantity(len(rows) - 1, 'more row')}." if len(rows) > 1 else ""
        check.report(file, describe(rows[0]) + more, f"/{key}", line=rows[0] + 1, code=code)


@rule("TP310", "manifest", "metrics")
def result(run: ValidRun, check: Checker) -> None:
    """Compute the losses and tokens of the result again from the rows."""
    if run.is_sealed and (run.metrics or not run.succeeded):
        for name, expected in result_of(run.metrics).items():
            check.equal(MANIFEST, f"/result/{name}", run.manifest["result"][name], expected, METRICS)


@rule("TP311", "training", "metrics")
def steps_done(run: ValidRun, check: Checker) -> None:
    """Check that the last row is that of the last step, or of the last one that was logged."""
    if run.metrics and run.is_sealed:
        done, last = run.training["steps_done"], run.metrics[-1]["step"]
        interval = 1 if run.succeeded else at(run.config, "recording", "log_every_steps") or 1
        what = f"training.steps_done is {done}, but the last row of metrics.jsonl is step {last}."
        pointer = "/training/steps_done"
        check.require(last <= done < last + interval, MANIFEST, what, pointer, expected=str(last))


def _tokens_of_steps(run: ValidRun) -> Array:
    """Return the mean tokens of a step since the previous row, padding included, `[rows]`."""
    stated = run.columns["tokens_per_step"]
    return np.where(np.isnan(stated), run.training["tokens_per_step"], stated)


@rule("TP312", "training", "metrics")
def tokens(run: ValidRun, check: Checker) -> None:
    """Compare the tokens of each row with the steps, the padding and the passes over the data."""
    seen, step, padding = (run.columns[name] for name in ("tokens_seen", "step", "padding_fraction"))
    most, per_step, is_padded = run.training["tokens_per_step"], _tokens_of_steps(run), ~np.isnan(padding)

    def described(index: int, source: str) -> str:
        return f"tokens_seen is {seen[index]:.0f} at step {step[index]:.0f}; {source}."

    computed = step * most
    wrong = np.where(is_padded, seen > computed, seen != computed)
    report_rows(check, wrong, "tokens_seen", lambda i: described(i, f"{most} per step give {computed[i]:.0f}"))
    text = f"the longest sequences give {most}"
    report_rows(check, per_step > most, "tokens_per_step", lambda i: f"tokens_per_step is {per_step[i]:g}; {text}.")
    since = np.diff(step, prepend=0) * per_step
    expected = np.concatenate([[0.0], seen[:-1]]) + since * (1 - padding)
    wrong = np.abs(seen - expected) > 1 + _FLOAT32 * since
    if run.manifest["parent"]:
        wrong[:1] = False  # The previous row is in another run.
    source = "the previous row and the padding since give"
    report_rows(check, wrong, "tokens_seen", lambda i: described(i, f"{source} {expected[i]:.0f}"))
    dataset = run.manifest["dataset"]
    if dataset.get("sequences") and "tokens" in dataset:
        passes = step * run.training["batch_size"] / dataset["sequences"]
        low, high = (rounded(passes) * dataset["tokens"] for rounded in (np.floor, np.ceil))
        wrong = is_padded & ((seen < low) | (seen > high))
        source = f"passes over {dataset['tokens']} tokens give"
        report_rows(
            check,
            wrong,
            "tokens_seen",
            lambda i: described(i, f"{passes[i]:.2f} {source} {low[i]:.0f} to {high[i]:.0f}"),
        )


@rule("TP313", "training", "metrics")
def speed(run: ValidRun, check: Checker) -> None:
    """Check that tokens per second times seconds per step are the tokens of a step."""
    rate, seconds = run.columns["tokens_per_second"], run.columns["step_seconds"]
    expected = _tokens_of_steps(run) * (1 - np.nan_to_num(run.columns["padding_fraction"]))
    wrong = np.abs(rate * seconds - expected) > _SPEED_TOLERANCE * run.training["tokens_per_step"]

    def describe(i: int) -> str:
        product = f"{rate[i]:g} tokens/s × {seconds[i]:g} s/step are {rate[i] * seconds[i]:.0f} tokens"
        return f"{product}, but a step has {expected[i]:.0f}."

    report_rows(check, wrong, "tokens_per_second", describe)


@rule("TP314", "training", "metrics")
def learning_rate(run: ValidRun, check: Checker) -> None:
    """Compare the learning rates with the declared schedule, or else with its peak and its end."""
    rate, step = run.columns["learning_rate"], run.columns["step"]
    planned, schedule, declared = run.training["steps_planned"], run.training["schedule"], at(run.config, "optimizer")
    peak, final = schedule["peak_learning_rate"], schedule["final_learning_rate"]

    def described(index: int, source: str) -> str:
        return f"learning_rate is {rate[index]:g} at step {step[index]:.0f}; {source}."

    if {"schedule", "learning_rate", "warmup_steps", "final_learning_rate_fraction"} <= (declared or {}).keys():
        expected = learning_rates(declared, step, planned)
        wrong = np.abs(rate - expected) > _SCHEDULE_TOLERANCE * declared["learning_rate"]
        report_rows(check, wrong, "learning_rate", lambda i: described(i, f"config.yaml gives {expected[i]:g}"))
    else:
        wrong = rate > peak * (1 + _FLOAT32)
        report_rows(check, wrong, "learning_rate", lambda i: described(i, f"the manifest states a peak of {peak:g}"))
    wrong = (step == planned) & (np.abs(rate - final) > _FLOAT32 * peak)
    report_rows(check, wrong, "learning_rate", lambda i: described(i, f"the manifest states a final {final:g}"))


@rule("TP315", "manifest", "metrics")
def device_memory(run: ValidRun, check: Checker) -> None:
    """Check that memory is a running peak, not above that of the run, and stated by all rows or, on a CPU, by none."""
    stated, is_cpu = run.columns["device_memory_bytes"], run.manifest["devices"]["platform"] == "cpu"
    memory, key = np.nan_to_num(stated), "device_memory_bytes"
    peak, highest = np.maximum.accumulate(memory), int(memory.max(initial=0))
    is_lower = (memory > 0) & (memory < peak)
    report_rows(check, is_lower, key, lambda i: f"{key} is {memory[i]:.0f} after {peak[i]:.0f} in an earlier row.")
    of_run = run.manifest["result"]["peak_memory_bytes"]
    what = f"result.peak_memory_bytes is {of_run}, but a row of metrics.jsonl has {highest}."
    fits = of_run is None or of_run >= highest
    check.require(fits, MANIFEST, what, "/result/peak_memory_bytes", expected=f"at least {highest}")
    what = f"{key} is stated, but {'a CPU reports none' if is_cpu else 'other rows have none'}."
    odd = np.isfinite(stated) & (is_cpu or np.isnan(stated).any())
    report_rows(check, odd, key, lambda _: what, code="TP316")


@rule("TP320", "manifest")
def times(run: ValidRun, check: Checker) -> None:
    """Check that commit, plan, run and evaluation follow one another."""
    manifest, summary = run.manifest, run.eval_summary or {}
    stated = {
        "commit": (MANIFEST, "/code/committed_at", manifest["code"].get("committed_at")),
        "plan": (PLAN, "/made_at", at(run.plan, "made_at")),
        "start of the run": (MANIFEST, "/started_at", manifest["started_at"]),
        "start of the evaluation": (EVAL_SUMMARY, "/started_at", summary.get("started_at")),
        "end of the evaluation": (EVAL_SUMMARY, "/finished_at", summary.get("finished_at")),
        "end of the run": (MANIFEST, "/finished_at", manifest["finished_at"]),
    }
    for file, pointer, time in stated.values():
        check.require(time is None or moment(time), file, f"{time} is not a date.", pointer, code="TP321")
    stated["first event"] = (LOG, "/time", run.log[0]["time"] if run.log else None)

    def seconds(earlier: str, later: str) -> float | None:
        return seconds_between(stated[earlier][2] or "", stated[later][2] or "")

    earliest = -CLOCK_SECONDS - set_back_seconds(run)
    for earlier, later, reported in _ORDER:
        between, (file, pointer, _) = seconds(earlier, later), stated[reported]
        what = f"The {later} ({stated[later][2]}) is before the {earlier} ({stated[earlier][2]})."
        check.require(between is None or between >= earliest, file, what, pointer)
    for earlier, later in (("plan", "start of the run"), ("start of the run", "first event")):
        between, (file, pointer, _) = seconds(earlier, later), stated[earlier]
        what = f"The {later} is {between or 0:,.0f} s after the {earlier}."
        check.require(between is None or between <= START_SECONDS, file, what, pointer)


@rule("TP320", "manifest")
def times_of_rows(run: ValidRun, check: Checker) -> None:
    """Check that rows and events were written one after the other, between start and end of the run."""
    start, end = (moment(run.manifest[key] or "") for key in ("started_at", "finished_at"))
    first = start.timestamp() if start else -math.inf
    last = end.timestamp() if end and end.timestamp() >= first else math.inf
    allowed = CLOCK_SECONDS + set_back_seconds(run)
    logged = np.array([time.timestamp() if (time := moment(row["time"])) else math.nan for row in run.log or ()])
    for file, rows, seconds in ((METRICS, run.metrics, run.columns["seconds"]), (LOG, run.log, logged)):
        if rows:
            _check_row_times(check, file, rows, seconds, first, last, allowed)


def _check_row_times(
    check: Checker, file: str, rows: Sequence[Document], seconds: Array, first: float, last: float, allowed: float
) -> None:
    def report(wrong: NDArray[np.bool_], what: str, code: str | None = None) -> None:
        report_rows(check, wrong, "time", lambda i: f"The time {rows[i]['time']} is {what}.", file=file, code=code)

    is_early = np.diff(seconds, prepend=first) < -allowed
    report(np.isnan(seconds), "not a date", "TP321")
    report(is_early, "before that of the previous row, or the start of the run")
    report(~is_early & (seconds > last + allowed), "after the end of the run")


@rule("TP322", "metrics")
def steps_increase(run: ValidRun, check: Checker) -> None:
    """Check that each row is of a later step than all before it."""
    step = run.columns["step"]
    highest = np.maximum.accumulate(np.concatenate([[0.0], step]))[:-1]
    report_rows(check, step <= highest, "step", lambda i: f"Step {step[i]:.0f} comes after step {highest[i]:.0f}.")


@rule("TP323", "manifest", "metrics")
def durations(run: ValidRun, check: Checker) -> None:
    """Check that the steps took no longer than the training loop, and the loop no longer than the run."""
    manifest, rows, clock = run.manifest, run.metrics, set_back_seconds(run)
    per_row = run.columns["step_seconds"] * np.diff(run.columns["step"], prepend=at(manifest["parent"], "step") or 0)
    loop = manifest["result"]["train_seconds"]
    wall = seconds_between(manifest["started_at"], manifest["finished_at"] or "")
    written = seconds_between(rows[0]["time"], rows[-1]["time"]) if rows else None
    for part, seconds, whole, limit in (
        ("The steps take", per_row.sum(), "train_seconds is", loop),
        ("train_seconds is", loop, "the run took", None if wall is None or wall + clock < 0 else wall + clock),
        (
            "The steps after the first row take",
            per_row[1:].sum(),
            "their rows were written within",
            written + clock if written is not None else None,
        ),
    ):
        if seconds is not None and limit is not None:
            what = f"{part} {seconds:.1f} s, but {whole} {limit:.1f} s."
            fits = seconds <= limit * (1 + _TIMER_TOLERANCE) + CLOCK_SECONDS
            check.require(fits, MANIFEST, what, "/result/train_seconds")

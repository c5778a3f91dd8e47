"""Check that result, tokens, speed, learning rate, memory, times and the chain of states agree with metrics.jsonl.

Only repeating the run confirms the hash of a state; the links show that no entry was changed by itself.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evidence.hashes import hash_entry
from evidence.layout import CHAIN, EVAL_SUMMARY, LOG, MANIFEST, METRICS, PLAN, TRAINED_PARAMS, is_lfs_pointer
from evidence.rules.checker import Checker, ValidRun, rule
from evidence.run import CLOCK_SECONDS, clock_set_back_seconds, where
from evidence.scores.recompute import compute_result, learning_rates
from schemas.formats import quantity
from schemas.reading import Array, get_path, parse_time, seconds_between

_START_SECONDS = 300.0  # longest time from the plan to the start of the run, and from there to its first event
_MOMENTS = {
    "commit": (MANIFEST, "/code/committed_at"),
    "plan": (PLAN, "/made_at"),
    "start of the run": (MANIFEST, "/started_at"),
    "start of the evaluation": (EVAL_SUMMARY, "/started_at"),
    "end of the evaluation": (EVAL_SUMMARY, "/finished_at"),
    "end of the run": (MANIFEST, "/finished_at"),
}
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
_SPEED_TOLERANCE = 0.01  # share of a step's tokens; speed and step time may have been rounded
_SCHEDULE_TOLERANCE = 1e-4  # share of the peak; schedules are computed in float32, cosines included
_TIMER_TOLERANCE = 0.02  # share of an interval by which two timers may disagree


def report_rows(
    check: Checker, wrong: NDArray[np.bool_], key: str, what: str, *columns: Sequence[Any] | Array, **more: Any
) -> None:
    """Report the first row that is flagged in `wrong`, `[rows]`, and the number of further ones.

    `what` is formatted with the row's values of `columns`. `more` are `file`, by default metrics.jsonl, and `code`.
    """
    if rows := where(wrong):
        text = what.format(*(column[rows[0]] for column in columns))
        if others := len(rows) - 1:
            text += f" {quantity(others, 'more row')} {'is' if others == 1 else 'are'} wrong."
        check.report(more.get("file", METRICS), text, f"/{key}", line=rows[0] + 1, code=more.get("code"))


@rule("TP310", "manifest", "metrics")
def result(run: ValidRun, check: Checker) -> None:
    """Compute the losses and tokens of the result again from the rows."""
    if run.is_sealed and (run.metrics or not run.succeeded):
        for name, expected in compute_result(run.metrics).items():
            check.equal(MANIFEST, f"/result/{name}", run.manifest["result"][name], expected, METRICS)


@rule("TP311", "training", "metrics")
def steps_done(run: ValidRun, check: Checker) -> None:
    """Check that the last row belongs to the last step, or to the last step that was logged."""
    if run.metrics and run.is_sealed:
        done, last = run.training["steps_done"], run.metrics[-1]["step"]
        interval = 1 if run.succeeded else get_path(run.config, "recording", "log_every_steps") or 1
        what = f"training.steps_done is {done}, but the last row of metrics.jsonl is step {last}."
        check.require(last <= done < last + interval, MANIFEST, what, "/training/steps_done", expected=str(last))


def _tokens_of_steps(run: ValidRun) -> Array:
    """Return the mean tokens of a step since the previous row, padding included, `[rows]`."""
    stated = run.columns["tokens_per_step"]
    return np.where(np.isnan(stated), run.training["tokens_per_step"], stated)


@rule("TP312", "training", "metrics")
def tokens(run: ValidRun, check: Checker) -> None:
    """Compare the tokens of each row with the steps, the padding and the passes over the data."""
    seen, step, padding = (run.columns[name] for name in ("tokens_seen", "step", "padding_fraction"))
    most, per_step, is_padded = run.training["tokens_per_step"], _tokens_of_steps(run), ~np.isnan(padding)

    what = "tokens_seen is {:.0f} at step {:.0f}; "
    computed = step * most
    wrong = np.where(is_padded, seen > computed, seen != computed)
    report_rows(check, wrong, "tokens_seen", what + f"{most} per step give {{:.0f}}.", seen, step, computed)
    text = f"tokens_per_step is {{:g}}; the longest sequences give {most}."
    report_rows(check, per_step > most, "tokens_per_step", text, per_step)
    since = np.diff(step, prepend=0) * per_step
    expected = np.concatenate([[0.0], seen[:-1]]) + since * (1 - padding)
    wrong = np.abs(seen - expected) > 1 + _FLOAT32 * since
    if run.manifest["parent"]:
        wrong[:1] = False  # The previous row is in another run.
    text = what + "the previous row and the padding since give {:.0f}."
    report_rows(check, wrong, "tokens_seen", text, seen, step, expected)
    dataset = run.manifest["dataset"]
    if dataset.get("sequences") and "tokens" in dataset:
        passes = step * run.training["batch_size"] / dataset["sequences"]
        low, high = (rounded(passes) * dataset["tokens"] for rounded in (np.floor, np.ceil))
        wrong = is_padded & ((seen < low) | (seen > high))
        text = what + "{:.2f} passes over the data give {:.0f} to {:.0f}."
        report_rows(check, wrong, "tokens_seen", text, seen, step, passes, low, high)


@rule("TP313", "training", "metrics")
def speed(run: ValidRun, check: Checker) -> None:
    """Check that tokens per second times seconds per step are the tokens of a step."""
    found = run.columns["tokens_per_second"] * run.columns["step_seconds"]
    expected = _tokens_of_steps(run) * (1 - np.nan_to_num(run.columns["padding_fraction"]))
    wrong = np.abs(found - expected) > _SPEED_TOLERANCE * run.training["tokens_per_step"]
    text = "tokens_per_second × step_seconds is {:.0f}, but a step has {:.0f} tokens."
    report_rows(check, wrong, "tokens_per_second", text, found, expected)


@rule("TP314", "training", "metrics")
def learning_rate(run: ValidRun, check: Checker) -> None:
    """Compare the learning rates with the declared schedule, or else with its peak and its end."""
    rate, step, key = run.columns["learning_rate"], run.columns["step"], "learning_rate"
    planned, schedule = run.training["steps_planned"], run.training["schedule"]
    declared = get_path(run.config, "optimizer")
    peak, final = schedule["peak_learning_rate"], schedule["final_learning_rate"]
    what = "learning_rate is {:g} at step {:.0f}; "
    if {"schedule", "learning_rate", "warmup_steps", "final_learning_rate_fraction"} <= (declared or {}).keys():
        expected = learning_rates(declared, step, planned)
        wrong = np.abs(rate - expected) > _SCHEDULE_TOLERANCE * declared["learning_rate"]
        report_rows(check, wrong, key, what + "config.yaml gives {:g}.", rate, step, expected)
    else:
        wrong = rate > peak * (1 + _FLOAT32)
        report_rows(check, wrong, key, what + f"the manifest states a peak of {peak:g}.", rate, step)
    wrong = (step == planned) & (np.abs(rate - final) > _FLOAT32 * peak)
    report_rows(check, wrong, key, what + f"the manifest states a final {final:g}.", rate, step)


@rule("TP315", "manifest", "metrics")
def device_memory(run: ValidRun, check: Checker) -> None:
    """Check that memory is a running peak, at most the peak of the run, and in all rows or, on a CPU, in none."""
    stated, is_cpu = run.columns["device_memory_bytes"], run.manifest["devices"]["platform"] == "cpu"
    memory, key = np.nan_to_num(stated), "device_memory_bytes"
    peak, highest = np.maximum.accumulate(memory), int(memory.max(initial=0))
    is_lower = (memory > 0) & (memory < peak)
    report_rows(check, is_lower, key, key + " is {:.0f} after {:.0f} in an earlier row.", memory, peak)
    of_run = run.manifest["result"]["peak_memory_bytes"]
    what = f"result.peak_memory_bytes is {of_run}, but a row of metrics.jsonl has {highest}."
    fits = of_run is None or of_run >= highest
    check.require(fits, MANIFEST, what, "/result/peak_memory_bytes", expected=f"at least {highest}")
    what = f"{key} is stated, but {'a CPU reports none' if is_cpu else 'some rows do not state it'}."
    report_rows(check, np.isfinite(stated) & (is_cpu or np.isnan(stated).any()), key, what, code="TP316")


@rule("TP320", "manifest")
def times(run: ValidRun, check: Checker) -> None:
    """Check that commit, plan, run and evaluation follow one another."""
    documents = {MANIFEST: run.manifest, PLAN: run.plan, EVAL_SUMMARY: run.eval_summary}
    times = {name: get_path(documents[file], *pointer.split("/")[1:]) for name, (file, pointer) in _MOMENTS.items()}
    for name, time in times.items():
        file, pointer = _MOMENTS[name]
        check.require(time is None or parse_time(time), file, f"{time} is not a date.", pointer, code="TP321")
    times["first event"] = run.log[0]["time"] if run.log else None
    earliest = -CLOCK_SECONDS - clock_set_back_seconds(run)
    for earlier, later, reported in _ORDER:
        seconds, (file, pointer) = seconds_between(times[earlier] or "", times[later] or ""), _MOMENTS[reported]
        what = f"The {later} ({times[later]}) is before the {earlier} ({times[earlier]})."
        check.require(seconds is None or seconds >= earliest, file, what, pointer)
    for earlier, later in (("plan", "start of the run"), ("start of the run", "first event")):
        seconds, (file, pointer) = seconds_between(times[earlier] or "", times[later] or ""), _MOMENTS[earlier]
        what = f"The {later} is {seconds or 0:,.0f} s after the {earlier}."
        check.require(seconds is None or seconds <= _START_SECONDS, file, what, pointer)


@rule("TP320", "manifest")
def times_of_rows(run: ValidRun, check: Checker) -> None:
    """Check that rows and events were written one after the other, between start and end of the run."""
    start, end = (parse_time(run.manifest[key] or "") for key in ("started_at", "finished_at"))
    first = start.timestamp() if start else -math.inf
    last = end.timestamp() if end and end.timestamp() >= first else math.inf
    allowed = CLOCK_SECONDS + clock_set_back_seconds(run)
    logged = np.array([time.timestamp() if (time := parse_time(row["time"])) else math.nan for row in run.log or ()])
    for file, rows, seconds in ((METRICS, run.metrics or [], run.columns["seconds"]), (LOG, run.log or [], logged)):
        is_early = np.diff(seconds, prepend=first) < -allowed
        is_late = ~is_early & (seconds > last + allowed)
        for code, wrong, what in (
            ("TP321", np.isnan(seconds), "{[time]} is not a date."),
            ("TP320", is_early, "The time {[time]} is before the previous row, or before the start of the run."),
            ("TP320", is_late, "The time {[time]} is after the end of the run."),
        ):
            report_rows(check, wrong, "time", what, rows, file=file, code=code)


@rule("TP322", "metrics")
def steps_increase(run: ValidRun, check: Checker) -> None:
    """Check that each row is of a later step than all before it."""
    step = run.columns["step"]
    highest = np.maximum.accumulate(np.concatenate([[0.0], step]))[:-1]
    report_rows(check, step <= highest, "step", "Step {:.0f} comes after step {:.0f}.", step, highest)


@rule("TP323", "manifest", "metrics")
def durations(run: ValidRun, check: Checker) -> None:
    """Check that the steps took no longer than the training loop, and the loop no longer than the run."""
    manifest, rows, clock = run.manifest, run.metrics, clock_set_back_seconds(run)
    first = get_path(manifest["parent"], "step") or 0
    per_row = run.columns["step_seconds"] * np.diff(run.columns["step"], prepend=first)
    loop = manifest["result"]["train_seconds"]
    wall = seconds_between(manifest["started_at"], manifest["finished_at"] or "")
    written = seconds_between(rows[0]["time"], rows[-1]["time"]) if rows else None
    if wall is not None and wall + clock < 0:
        wall = None  # The order of start and end is checked above.
    for part, seconds, whole, limit in (
        ("The steps take", per_row.sum(), "train_seconds is", loop),
        ("train_seconds is", loop, "the run took", None if wall is None else wall + clock),
        ("The later steps take", per_row[1:].sum(), "their rows span", None if written is None else written + clock),
    ):
        if seconds is not None and limit is not None:
            what = f"{part} {seconds:.1f} s, but {whole} {limit:.1f} s."
            fits = seconds <= limit * (1 + _TIMER_TOLERANCE) + CLOCK_SECONDS
            check.require(fits, MANIFEST, what, "/result/train_seconds")


# The chain of training states

_LENGTH_BYTES, _LARGEST_HEADER = 8, 1 << 24
_DTYPES = {"F32": ("float32", 4), "BF16": ("bfloat16", 2), "F16": ("float16", 2), "F64": ("float64", 8)}
"""Name and bytes of the element types of safetensors."""


@rule("TP324", "chain")
def links(run: ValidRun, check: Checker) -> None:
    """Check that each entry holds the hash of the previous one, and that no two steps have the same state."""
    parent = get_path(run.manifest, "parent") or {}
    previous, step = parent.get("link"), parent.get("step", 0)
    first_step: dict[str, int] = {}
    for line, entry in enumerate(run.chain, start=1):
        if line > 1 or run.manifest is not None:
            source = "the hash of the previous entry" if line > 1 else "the start of the run"
            check.equal(CHAIN, "/previous", entry["previous"], previous, source, line=line)
        what = f"Step {entry['step']} comes after step {step}."
        check.require(entry["step"] >= step, CHAIN, what, "/step", line=line)
        same_state = first_step.setdefault(entry["state_sha256"], entry["step"])
        what = f"The state after step {entry['step']} is that after step {same_state}, bit for bit."
        check.require(same_state == entry["step"], CHAIN, what, "/state_sha256", line=line)
        previous, step = hash_entry(entry), entry["step"]


@rule("TP326", "manifest", "chain")
def end_of_chain(run: ValidRun, check: Checker) -> None:
    """Compare the end of the chain with the one in the manifest."""
    stated, entries = run.manifest.get("chain"), len(run.chain)
    if not run.is_sealed:
        return
    if stated is None:
        what = f"chain.jsonl has {entries} entries, but the manifest does not state its end."
        check.require(not entries, MANIFEST, what, "/chain")
        return
    check.equal(MANIFEST, "/chain/entries", stated["entries"], entries, CHAIN)
    if entries and stated["entries"] == entries:
        check.equal(MANIFEST, "/chain/head", stated["head"], hash_entry(run.chain[-1]), "the last entry of chain.jsonl")


@rule("TP325", "chain", "metrics")
def rows_of_chain(run: ValidRun, check: Checker) -> None:
    """Compare the rows and the data position of each entry with metrics.jsonl and the batch size."""
    text = (run.folder / METRICS).read_bytes() if METRICS in run.files else b""
    # Converted line ends are another rule's finding.
    lines = [line + b"\n" for line in text.replace(b"\r\n", b"\n").split(b"\n")[:-1]]
    steps, digest, hashed = run.columns["step"], hashlib.sha256(), 0
    for line, entry in enumerate(run.chain, start=1):
        step, rows = entry["step"], entry["rows"]
        for row in lines[hashed:rows]:
            digest.update(row)
        hashed = max(hashed, min(rows, len(lines)))
        written = int((steps <= step).sum())
        # A run that is stopped writes its last row after an entry of the same step, and then one more entry.
        fewest = written if line == len(run.chain) else int((steps < step).sum())
        if not fewest <= rows <= written:
            what = f"The chain counts {rows} rows at step {step}, but metrics.jsonl has {written} until then."
            check.report(CHAIN, what, "/rows", line=line)
        elif entry["rows_sha256"] != digest.hexdigest():
            what = f"The first {rows} rows of metrics.jsonl do not have the hash in the chain at step {step}."
            check.report(CHAIN, what, "/rows_sha256", line=line)
        if run.training is not None:
            position, source = step * run.training["batch_size"], "step × batch_size"
            check.equal(CHAIN, "/data_position", entry["data_position"], position, source, line=line)
    if run.succeeded and run.chain:
        end, done = run.chain[-1], get_path(run.training, "steps_done")
        what = f"The chain ends at step {end['step']} and row {end['rows']}; the run at {done} and {len(run.metrics)}."
        check.require((end["step"], end["rows"]) == (done, len(run.metrics)), CHAIN, what, line=len(run.chain))


@rule("TP327", "chain")
def parameters_of_chain(run: ValidRun, check: Checker) -> None:
    """Compare the parameters of the first and the last entry with manifest and evaluation."""
    evaluated, pointer = get_path(run.eval_summary, "checkpoint"), "/params_sha256"
    if run.chain and run.model is not None:
        stated, expected = run.chain[0]["params_sha256"], run.model["weights_sha256"]
        check.equal(CHAIN, pointer, stated, expected, "model.weights_sha256", line=1)
    if run.chain and evaluated and evaluated["step"] == run.chain[-1]["step"]:
        stated, expected = run.chain[-1]["params_sha256"], evaluated["params_sha256"]
        check.equal(CHAIN, pointer, stated, expected, "the evaluation", line=len(run.chain))


@rule("TP328", "training", "model")
def saved_parameters(run: ValidRun, check: Checker) -> None:
    """Compare number and hash of the saved parameters with what the run trained.

    The hash of adapters includes their base, which is not in the file, so only their number is compared.
    """
    trained, path = run.model["trainable_parameters"], run.folder / TRAINED_PARAMS
    most = trained * max(width for _, width in _DTYPES.values()) + _LARGEST_HEADER
    if TRAINED_PARAMS not in run.files:
        return
    try:
        found = path.stat().st_size
        if found <= most and is_lfs_pointer(path):
            return
        saved = _read_safetensors(path.read_bytes()) if found <= most else None
    except OSError:
        return  # Reported by the rule that hashes the file, as is an LFS pointer.
    if saved is None:
        large = f"The file has {found:,} bytes; {trained:,} parameters take {most:,} at most."
        check.report(TRAINED_PARAMS, large if found > most else "The file is not valid safetensors.")
        return
    count, sha256 = saved
    evaluated, last = get_path(run.eval_summary, "checkpoint"), run.chain[-1]["params_sha256"] if run.chain else None
    if not last and evaluated and evaluated["step"] == run.training["steps_done"]:
        last = evaluated["params_sha256"]
    expected = last if run.trains_all else None
    what = f"The file holds {count:,} parameters; the run trained {trained:,}."
    check.require(count == trained, TRAINED_PARAMS, what, expected=f"{trained:,}")
    if count == trained and expected and expected != sha256:
        what = f"The file holds the parameters {sha256[:12]}…; the run ended with {expected[:12]}…."
        check.report(TRAINED_PARAMS, what, expected=expected)


def _read_safetensors(content: bytes) -> tuple[int, str] | None:
    """Return number and hash (as `trainer.model.decoder` computes it) of the parameters in a file, or None."""
    length, digest, count = int.from_bytes(content[:_LENGTH_BYTES], "little"), hashlib.sha256(), 0
    if length > min(_LARGEST_HEADER, len(content)):
        return None
    body = memoryview(content)[_LENGTH_BYTES + length :]
    try:
        header: dict[str, Any] = json.loads(content[_LENGTH_BYTES : _LENGTH_BYTES + length])
        for name in sorted(header.keys() - {"__metadata__"}):
            dtype, width = _DTYPES[header[name]["dtype"]]
            shape = [int(size) for size in header[name]["shape"]]
            begin, end = (int(offset) for offset in header[name]["data_offsets"])
            if not 0 <= begin <= end <= len(body) or end - begin != width * math.prod(shape):
                return None
            digest.update(json.dumps([name, shape, dtype]).encode() + b"\n")
            digest.update(body[begin:end])
            count += math.prod(shape)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    return count, digest.hexdigest()

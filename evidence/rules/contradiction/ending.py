"""How a run ended: its status against its exit code, its steps, its last row and what evaluated it."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from evidence.records.facts import Facts, finding, where
from evidence.run import layout
from schemas.formats import format_value
from schemas.problems import Problem


def status_has_an_end(facts: Facts) -> Iterator[Problem]:
    """Yield problems where a running run states an end or an ended one states none."""
    if facts.manifest is None:
        return
    running = not facts.is_sealed
    for key in ("finished_at", "exit"):
        if (facts.manifest[key] is None) != running:
            what = f"The status is {facts.manifest['status']} and {key} is {format_value(facts.manifest[key])}."
            expected = "null" if running else "a value"
            yield finding(facts.folder, "TP330", layout.MANIFEST, what, expected=expected, pointer=f"/{key}")


def exit_fits_status(facts: Facts) -> Iterator[Problem]:
    """Yield problems where the exit code or the error belongs to another status."""
    if facts.manifest is None or facts.manifest["exit"] is None or not facts.is_sealed:
        return
    status, ending = facts.manifest["status"], facts.manifest["exit"]
    if (status == "succeeded") != (ending["code"] == 0):
        what = f"The status is {status} and the exit code is {ending['code']}."
        expected = "0" if status == "succeeded" else "a code above 0"
        yield finding(facts.folder, "TP330", layout.MANIFEST, what, expected=expected, pointer="/exit/code")
    if (status == "succeeded" and ending["error"] is not None) or (status == "failed" and ending["error"] is None):
        what = f"The status is {status} and the error is {format_value(ending['error'])}."
        expected = "null" if status == "succeeded" else "the kind of error"
        yield finding(facts.folder, "TP330", layout.MANIFEST, what, expected=expected, pointer="/exit/error")


def log_fits_status(facts: Facts) -> Iterator[Problem]:
    """Yield a problem where a run that succeeded logged an error: whatever stops a run is logged, and nothing else."""
    for line, record in enumerate(facts.log or [] if facts.succeeded else [], start=1):
        if record["level"] == "error":
            what = f"The run succeeded and logged an error: {record['event']}: {format_value(record['message'])}."
            yield finding(facts.folder, "TP330", layout.LOG, what, line=line, pointer="/level")
            return


def steps_fit_status(facts: Facts) -> Iterator[Problem]:
    """Yield a problem where a run succeeded with steps left, or did more than were planned."""
    if facts.training is None:
        return
    done, planned = facts.training["steps_done"], facts.training["steps_planned"]
    if done > planned or (facts.succeeded and done < planned):
        status = "succeeded" if facts.succeeded else str(facts.status)
        what = f"The run {status} with {done} steps done of {planned} planned."
        yield finding(
            facts.folder,
            "TP330",
            layout.MANIFEST,
            what,
            expected=str(planned) if facts.succeeded else f"at most {planned}",
            pointer="/training/steps_done",
        )


def lost_loss_ends_the_run(facts: Facts) -> Iterator[Problem]:
    """Yield a problem where rows follow a loss that is not finite and whose step was not skipped, or no failure did."""
    rows = facts.metrics or []
    lost = np.isnan(facts.columns["loss"]) & ~_is_skipped(facts)
    for index in where(lost)[:1]:
        step, following = rows[index]["step"], len(rows) - index - 1
        if following:
            what = f"The loss at step {step} is null, and {following} rows follow."
        elif facts.succeeded:
            what = f"The loss at step {step}, the last one, is null, and the run says succeeded."
        else:
            return
        yield finding(facts.folder, "TP331", layout.METRICS, what, line=index + 1, pointer="/loss")


def _is_skipped(facts: Facts) -> np.ndarray:
    """Return for each row whether it counts its step among those that were skipped."""
    rows, optimizer = facts.metrics or [], (facts.config or {}).get("optimizer", {})
    counts = np.array([row.get("skipped_steps", 0) for row in rows])
    skips: np.ndarray = (
        np.diff(counts, prepend=0) > 0 if optimizer.get("max_nonfinite_steps") is not None else counts < 0
    )
    return skips


def evaluation_is_of_the_last_step(facts: Facts) -> Iterator[Problem]:
    """Yield problems where the scores belong to other parameters than the run's last and first."""
    evaluated = facts.eval_summary
    if evaluated is None or facts.training is None or facts.model is None:
        return
    step = evaluated["checkpoint"]["step"]
    if step != facts.training["steps_done"]:
        what = f"The scores are of step {step}; the run did {facts.training['steps_done']} steps."
        yield finding(
            facts.folder,
            "TP332",
            layout.EVAL_SUMMARY,
            what,
            expected=str(facts.training["steps_done"]),
            pointer="/checkpoint/step",
        )
    if evaluated["baseline"] is None:
        return
    before = evaluated["baseline"]["checkpoint"]
    first = facts.manifest["parent"]["step"] if facts.manifest and facts.manifest["parent"] else 0
    if before["step"] != first:
        what = f"The baseline is of step {before['step']}; the run began at step {first}."
        pointer = "/baseline/checkpoint/step"
        yield finding(facts.folder, "TP332", layout.EVAL_SUMMARY, what, expected=str(first), pointer=pointer)
    if before["params_sha256"] != facts.model["weights_sha256"]:
        what = "The baseline's parameters have another hash than the manifest's model.weights_sha256."
        yield finding(
            facts.folder,
            "TP332",
            layout.EVAL_SUMMARY,
            what,
            expected=facts.model["weights_sha256"],
            pointer="/baseline/checkpoint/params_sha256",
        )


CHECKS = (
    status_has_an_end,
    exit_fits_status,
    log_fits_status,
    steps_fit_status,
    lost_loss_ends_the_run,
    evaluation_is_of_the_last_step,
)

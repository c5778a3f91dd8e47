"""TP5xx: what a run of this kind must state and does not."""

from __future__ import annotations

import os
from collections.abc import Iterator

import numpy as np

from evidence.records.facts import Facts, finding, where
from evidence.run import layout
from schemas.formats import format_value
from schemas.problems import Problem, truncate_problems

REQUIRED = (layout.MANIFEST, layout.CONFIG, layout.PLAN, layout.METRICS, layout.LOG, layout.FIRST_EXAMPLES)
"""Files without which a finished run cannot be followed."""


def required_files_are_there(facts: Facts) -> Iterator[Problem]:
    """Yield a problem for each required file that is not there; a run that has not ended may lack all but one."""
    for name in REQUIRED:
        if name in facts.files or os.path.lexists(facts.folder / name):
            continue
        if name == layout.MANIFEST:
            yield finding(facts.folder, "TP503", "", "The folder has no run_manifest.json.")
        elif facts.succeeded:
            yield finding(facts.folder, "TP504", "", f"The folder has no {name}.")


def chain_is_there(facts: Facts) -> Iterator[Problem]:
    """Yield a problem where a succeeded run has no chain although its recorder writes one."""
    recording = (facts.config or {}).get("recording", {})
    if facts.succeeded and "chain_every_steps" in recording and layout.CHAIN not in facts.files:
        what = "The folder has no chain.jsonl; config.yaml states recording.chain_every_steps."
        yield finding(facts.folder, "TP531", "", what)


def steps_were_recorded(facts: Facts) -> Iterator[Problem]:
    """Yield problems for a succeeded run without rows, or whose rows leave steps out."""
    if facts.metrics is None:
        return
    if facts.succeeded and not facts.metrics:
        yield finding(facts.folder, "TP505", layout.METRICS, "metrics.jsonl has no row.")
    if facts.succeeded and facts.log == []:
        yield finding(facts.folder, "TP515", layout.LOG, "log.jsonl has no event.")
    yield from truncate_problems(_gaps(facts))


def results_are_stated(facts: Facts) -> Iterator[Problem]:
    """Yield a problem for each part of a succeeded run's result that is null."""
    if facts.manifest is None or not facts.succeeded:
        return
    for group in ("model", "training"):
        if facts.manifest[group] is None:
            yield finding(facts.folder, "TP506", layout.MANIFEST, f"{group} is null.", pointer=f"/{group}")
    # The losses and tokens are compared with the rows by their own rule; these only the run itself can know.
    for key in ("train_seconds", "compile_seconds", "peak_memory_bytes", "stopped_because"):
        if facts.manifest["result"][key] is None:
            what = f"result.{key} is null."
            yield finding(facts.folder, "TP506", layout.MANIFEST, what, pointer=f"/result/{key}")
    if _eval_set(facts) is not None and facts.manifest["dataset"]["overlap_with_eval"] is None:
        what = "dataset.overlap_with_eval is null."
        yield finding(facts.folder, "TP506", layout.MANIFEST, what, pointer="/dataset/overlap_with_eval")


def evaluation_is_there(facts: Facts) -> Iterator[Problem]:
    """Yield a problem where a finished run was to be evaluated and was not, and a note where it was not to be."""
    if not facts.succeeded or layout.EVAL_SUMMARY in facts.files:
        return
    if (asked := _eval_set(facts)) is not None:
        what = f"The run has no eval_summary.json; config.yaml asks for {format_value(asked)}."
        yield finding(facts.folder, "TP508", "", what)
    else:
        yield finding(facts.folder, "TP509", "", "The run has no eval_summary.json.")


def predictions_are_there(facts: Facts) -> Iterator[Problem]:
    """Yield problems for scores without their rows, a baseline that was requested, and an unfinished evaluation."""
    evaluated = facts.eval_summary
    if evaluated is None:
        return
    names = [layout.PREDICTIONS, *([layout.BASELINE_PREDICTIONS] if evaluated["baseline"] else [])]
    for name, stated in zip(names, [evaluated, evaluated["baseline"]], strict=False):
        path = stated["predictions"]["path"]
        if name not in facts.files or path != name:
            what = f"There are scores and no {name}." if path == name else f"The scores name {path}, not {name}."
            yield finding(facts.folder, "TP510", layout.EVAL_SUMMARY, what)
    if _asks_for_baseline(facts) and evaluated["baseline"] is None:
        what = "There is no baseline; config.yaml asks for one."
        yield finding(facts.folder, "TP511", layout.EVAL_SUMMARY, what, pointer="/baseline")
    if evaluated["status"] == "partial":
        answered, items = evaluated["predictions"]["rows"], evaluated["eval_set"]["items"]
        what = f"{answered} of {items} items were answered."
        yield finding(facts.folder, "TP514", layout.EVAL_SUMMARY, what, pointer="/status")


def killed_runs_are_named(facts: Facts) -> Iterator[Problem]:
    """Yield a warning where the manifest states running and no process runs."""
    if facts.manifest is not None and facts.manifest["status"] == "running" and facts.status == "interrupted":
        rows = len(facts.metrics or [])
        what = f"The run was killed; {rows} rows of metrics.jsonl are there."
        yield finding(facts.folder, "TP513", layout.MANIFEST, what, pointer="/status")


def _eval_set(facts: Facts) -> object:
    return (facts.config or {}).get("evaluation", {}).get("eval_set")


def _asks_for_baseline(facts: Facts) -> bool:
    """Return whether a run was to evaluate the untrained model; one that continues another, or stopped, cannot."""
    if facts.manifest is None or not facts.succeeded or facts.manifest["parent"] is not None:
        return False
    return _eval_set(facts) is not None and bool((facts.config or {}).get("evaluation", {}).get("baseline"))


def _gaps(facts: Facts) -> Iterator[Problem]:
    every = (facts.config or {}).get("recording", {}).get("log_every_steps")
    if every is None or facts.manifest is None:
        return
    first = facts.manifest["parent"]["step"] if facts.manifest["parent"] else 0
    steps = facts.columns["step"]
    allowed = np.where(np.arange(len(steps)) == 0, 1, every)
    for index in where(np.diff(steps, prepend=first) > allowed):
        step, above = int(steps[index]), int(steps[index - 1]) if index else first
        missing = f"step {above + 1}" if step - above == 2 else f"steps {above + 1} to {step - 1}"
        what = f"Step {step} follows step {above}: {missing} left no row."
        yield finding(facts.folder, "TP512", layout.METRICS, what, line=index + 1, pointer="/step")


CHECKS = (
    required_files_are_there,
    chain_is_there,
    steps_were_recorded,
    results_are_stated,
    evaluation_is_there,
    predictions_are_there,
    killed_runs_are_named,
)

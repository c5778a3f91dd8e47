"""Runs held against what is predicted of them, so that later plans on the same kind of device say it more narrowly."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

from evidence import layout
from evidence.grade import check_run
from evidence.run import Run, read_existing_run
from evidence.targets import Target, find_target
from schemas.problems import ProblemError
from trainer.config.tree import Config, config_of
from trainer.loop.mesh import shapes_mesh
from trainer.loop.task import Task
from trainer.model.source import resolve_for_planning
from trainer.planning.calibration import Measured, device_of
from trainer.planning.estimator import Estimator
from trainer.planning.step_time import unmeasured_band, with_state
from trainer.planning.step_work import step_work
from trainer.recorder.memory import BY_DEVICE

FEWEST_ROWS = 3
"""Rows of metrics.jsonl after the first, whose step is slower, that a step's time is taken from."""

USED = ("verified", "consistent", "measured")
"""Grades of runs that are believed: nothing in them contradicts them."""

PREDICTED = ("compiler", "closed_form")


def measured_of(folder: Path) -> Measured | str:
    """Return a run held against what is predicted of it, or why it is of no use here.

    Raises:
        ProblemError: exit code 2; there is no such folder.
    """
    run = read_existing_run(folder)
    if (why := unusable(run)) is not None:
        return why
    assert run.manifest is not None, "a run of a good grade has its manifest"
    assert run.config is not None, "a run of a good grade has its configuration"
    manifest = run.manifest
    config = config_of(run.config)
    seconds = step_seconds_of(run)
    if config.data.buckets > 1 or seconds is None:
        few = f"it has fewer than {FEWEST_ROWS} rows of metrics.jsonl after the first"
        return few if seconds is None else "its steps have several lengths (data.buckets)"
    try:
        likely, task = likely_seconds(config, manifest["devices"])
    except ProblemError as error:
        return error.problems[0].what
    ratio, method = memory_ratio(run.plan, manifest["result"].get("observed_memory"))
    devices = manifest["devices"]
    return Measured(
        run=manifest["run_id"],
        device=device_of(devices["platform"], devices["kind"], manifest["environment"]),
        step_ratio=round(seconds / likely, 6),
        memory_ratio=ratio,
        method=method,
        layer_compile_seconds=layer_compile_seconds(run, task),
    )


def unusable(run: Run) -> str | None:
    """Return why a run's figures teach nothing, None where they do."""
    report = check_run(run)
    if report.grade.name not in USED or run.manifest is None or run.config is None:
        first = f": {report.findings[0].what}" if report.findings else ""
        return f"its grade is {report.grade.name}{first}"
    if run.manifest["training"] is None:
        return "it has no compiled step"
    return None


def layer_compile_seconds(run: Run, task: Task) -> float | None:
    """Return the seconds that compiling one layer of the step took; None where it was read, or layers lie stacked."""
    assert run.manifest is not None, "the caller has looked"
    result = run.manifest["result"]
    was_read = "train" in result.get("compiled_before", ())
    if was_read or task.is_scanned or result["compile_seconds"] is None:
        return None
    return round(float(result["compile_seconds"]) / task.model.source.spec.layers, 6)


def step_seconds_of(run: Run) -> float | None:
    """Return the median time of a step, the first row left out; None where there are too few rows.

    Where completions are drawn, of its update alone: that is what is predicted from the compiled step.
    """
    times = [float(row.get("update_seconds") or row["step_seconds"]) for row in run.rows(layout.METRICS).values[1:]]
    return median(times) if len(times) >= FEWEST_ROWS else None


def likely_seconds(config: Config, devices: dict[str, Any]) -> tuple[float, Task]:
    """Return the likely time of a run's step, as it is predicted where nothing was measured, and its task.

    Args:
        config: the run's.
        devices: the manifest's group of that name.

    Raises:
        ProblemError: exit code 2; the model's shapes are not to be had any more.
    """
    target = as_target(devices)
    source = resolve_for_planning(config.model.name, config.model.revision)
    task = Task.of(config, source, shapes_mesh(devices["count"]), platform=target.platform)
    asking = Estimator(platform=target.platform, available_bytes=target.memory_bytes, why_not="a run is looked back at")
    train = next(answer for answer in asking.programs(task, None) if answer.name == "train")
    work = with_state(step_work(task), train)
    band, _ = unmeasured_band(task, target, flops=work.flops, moved=work.moved)
    return band.likely, task


def as_target(devices: dict[str, Any]) -> Target:
    """Return the target that a manifest's devices are: of the table, or one whose speed nobody knows."""
    known = find_target(devices["kind"], devices["count"])
    return known or Target(
        name=devices["kind"],
        title=devices["kind"],
        platform=devices["platform"],
        device_kinds=(devices["kind"],),
        devices=devices["count"],
        memory_bytes=devices["memory_bytes"],
        memory_source="the run's manifest",
        memory_bandwidth=None,
        peak_flops={},
        element_types=(),
    )


def memory_ratio(plan: dict[str, Any] | None, observed: dict[str, Any] | None) -> tuple[float | None, str | None]:
    """Return the observed peak of arrays over the planned one of the same program, and how that was planned.

    None and None if no allocator reported it: the growth of a process is not what a program needs.
    """
    if observed is None or observed["source"] != BY_DEVICE:
        return None, None
    programs: Sequence[dict[str, Any]] = (plan or {}).get("programs", [])
    for program in programs:
        if program["name"] == observed["part"] and program["method"] in PREDICTED:
            return round(observed["bytes"] / program["peak_bytes"], 6), program["method"]
    return None, None

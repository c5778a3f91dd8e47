"""Compare measured runs with their predictions; the ratios narrow the plan of another run on the same device."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

from evidence import layout
from evidence.grade import check_run
from evidence.run import Run, read_existing_run
from evidence.targets import Target, find_target
from schemas.problems import ProblemError
from trainer.config.tree import build_config
from trainer.loop.task import Task, shapes_mesh
from trainer.model.source import resolve_for_planning
from trainer.planning.duration import predict_step
from trainer.planning.memory import Estimator
from trainer.recorder.sensors import BY_DEVICE

FEWEST_ROWS = 3
"""Rows of metrics.jsonl, without the first slow one, that a step time needs."""
GRADES = ("verified", "consistent", "measured")


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """A measured run.

    Attributes:
        run: Its id.
        kind: Kind of device, as JAX names it.
        device: The same, or the CPU's model.
        step_ratio: Median step time over the likely one.
        memory_ratio: Observed peak over the planned one, or None if no device allocator reported it.
    """

    run: str
    kind: str
    device: str
    step_ratio: float
    memory_ratio: float | None

    def document(self) -> dict[str, Any]:
        """Return plain values."""
        return asdict(self)


def calibrate_from_run(folder: Path) -> Calibration | str:
    """Compare a run with its prediction, or return why it cannot be used.

    Raises:
        ProblemError: Exit code 2; the folder does not exist.
    """
    run = read_existing_run(folder)
    grade, findings = (report := check_run(run)).grade.name, report.findings
    if grade not in GRADES or run.manifest is None or run.config is None:
        return f"its grade is {grade}" + (f": {findings[0].what}" if findings else "")
    config, devices = build_config(run.config), run.manifest["devices"]
    # Where completions are drawn, only the update is predicted from the compiled step.
    rows = run.rows(layout.METRICS).values[1:]
    times = [float(row.get("update_seconds") or row["step_seconds"]) for row in rows]
    if len(times) < FEWEST_ROWS:
        return f"it has fewer than {FEWEST_ROWS} rows of metrics.jsonl after the first"
    if config.data.buckets > 1:
        return "its steps have several lengths (data.buckets)"
    target = find_target(devices["kind"], devices["count"]) or Target(
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
    try:
        source = resolve_for_planning(config.model.name, config.model.revision)
        task = Task.of(config, source, shapes_mesh(target.devices), platform=target.platform)
    except ProblemError as error:
        return error.problems[0].what
    programs = Estimator(platform=target.platform, available_bytes=None).programs(task, None)
    train = next(program for program in programs if program.name == "train")
    # Relative to the prediction, or to a nominal speed if the device's is unknown.
    predicted = predict_step(task, target, train, step_ratio=1.0).update
    assert predicted is not None, "a ratio makes the time known"
    cpu = run.manifest["environment"].get("cpu") if target.platform == "cpu" else None
    return Calibration(
        run=run.manifest["run_id"],
        kind=devices["kind"],
        device=cpu or devices["kind"],
        step_ratio=round(median(times) / predicted.likely, 6),
        memory_ratio=_memory_ratio(run),
    )


def _memory_ratio(run: Run) -> float | None:
    """Return observed over planned memory of the same program; the growth of a CPU process is not comparable."""
    observed = (run.manifest or {})["result"].get("observed_memory")
    if observed is None or observed["source"] != BY_DEVICE:
        return None
    peaks = {program["name"]: program["peak_bytes"] for program in (run.plan or {}).get("programs", ())}
    peak = peaks.get(observed["part"])
    return None if peak is None else float(round(observed["bytes"] / peak, 6))

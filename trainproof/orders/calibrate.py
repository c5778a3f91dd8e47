"""`trainproof plan --calibrate`: compare measured runs with their predictions."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

from evidence.layout import MANIFEST
from evidence.targets import Target
from schemas.problems import ProblemError, problem_of
from trainer.planning.calibration import Calibration, calibrate_from_run


def calibrate_plans(runs: Sequence[Path]) -> dict[str, Any]:
    """Return the ratios of measured runs to their predictions, and which runs were left out.

    Args:
        runs: run folders, or folders of them.

    Raises:
        ProblemError: exit code 2; there is no such folder, or no run can be used.
    """
    used, left = _read(runs)
    return {"used": [each.document() for each in used], "left_out": left}


def step_ratio(runs: Sequence[Path], target: Target) -> float:
    """Return the median of measured over predicted step time of the runs on a target's kind of device.

    Raises:
        ProblemError: exit code 2; no run can be used.
    """
    used, _ = _read(runs, target)
    return median(each.step_ratio for each in used)


def _read(runs: Sequence[Path], target: Target | None = None) -> tuple[list[Calibration], list[dict[str, str]]]:
    used: list[Calibration] = []
    left: list[dict[str, str]] = []
    for folder in folders_of(runs):
        found = calibrate_from_run(folder)
        if isinstance(found, Calibration) and target is not None and found.kind not in target.device_kinds:
            found = f"it ran on {found.device}"
        if isinstance(found, Calibration):
            used.append(found)
        else:
            left.append({"run": str(folder), "because": found})
    if not used:
        reasons = "; ".join(f"{each['run']}: {each['because']}" for each in left) or "the folder contains no run"
        problem = problem_of("TP747", file=", ".join(map(str, runs)), what=f"No run can be used: {reasons}")
        raise ProblemError([problem], exit_code=2)
    return used, left


def folders_of(named: Sequence[Path]) -> list[Path]:
    """Return the named run folders, and the run folders inside other folders."""
    found: list[Path] = []
    for folder in named:
        inside = sorted(path.parent for path in folder.glob(f"*/{MANIFEST}")) if folder.is_dir() else []
        found += [folder] if (folder / MANIFEST).is_file() or not inside else inside
    return list(dict.fromkeys(found))


def calibration_text(answer: dict[str, Any]) -> str:
    """Return the ratios as text, one line a run."""
    lines = []
    for each in answer["used"]:
        memory = "" if each["memory_ratio"] is None else f", memory {each['memory_ratio']:.3g} × the plan"
        lines.append(f"{each['run']} on {each['device']}: steps took {each['step_ratio']:.3g} × the prediction{memory}")
    lines += [f"skipped {each['run']}: {each['because']}" for each in answer["left_out"]]
    lines.append("Add --config FILE to plan another run with these step times.")
    return "\n".join(lines) + "\n"

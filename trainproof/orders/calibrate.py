"""What `trainproof plan --calibrate` does: measured runs are compared with what is predicted, and kept or forgotten."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from evidence.layout import MANIFEST
from schemas.formats import quantity
from schemas.problems import ProblemError, problem_of
from trainer.planning import calibration
from trainer.planning.calibration import Measured
from trainer.planning.measured_runs import measured_of


def calibrate_plans(runs: Sequence[Path]) -> dict[str, Any]:
    """Hold runs against what is predicted of them, keep them for later plans, and return what came of each.

    Args:
        runs: run folders, or folders of them.

    Raises:
        ProblemError: exit code 2; there is no such folder, or not one of the runs is of use.
    """
    used: list[Measured] = []
    left: list[dict[str, str]] = []
    for folder in folders_of(runs):
        found = measured_of(folder)
        if isinstance(found, Measured):
            used.append(found)
        else:
            left.append({"run": str(folder), "because": found})
    if not used:
        reasons = "; ".join(f"{each['run']}: {each['because']}" for each in left) or "there is no run in it"
        problem = problem_of("TP747", file=", ".join(map(str, runs)), what=f"No run is of use: {reasons}")
        raise ProblemError([problem], exit_code=2)
    file = calibration.keep(used)
    return {"file": str(file), "used": [each.document() for each in used], "left_out": left}


def forget_runs() -> dict[str, Any]:
    """Forget every run that plans were narrowed by."""
    return {"forgotten": calibration.forget()}


def folders_of(named: Sequence[Path]) -> list[Path]:
    """Return the run folders that are named, and of other folders the run folders inside."""
    found: list[Path] = []
    for folder in named:
        inside = sorted(path.parent for path in folder.glob(f"*/{MANIFEST}")) if folder.is_dir() else []
        found += [folder] if (folder / MANIFEST).is_file() or not inside else inside
    return list(dict.fromkeys(found))


def calibration_text(answer: dict[str, Any]) -> str:
    """Return what was learned as text, one line a run."""
    if "forgotten" in answer:
        return "Forgotten.\n" if answer["forgotten"] else "There was nothing to forget.\n"
    lines = [f"Plans are narrowed by {quantity(len(answer['used']), 'run')} more, kept in {answer['file']}:"]
    for each in answer["used"]:
        memory = "" if each["memory_ratio"] is None else f", memory {each['memory_ratio']:.3g} × ({each['method']})"
        lines.append(
            f"  {each['run']} on {each['device']}: a step took {each['step_ratio']:.3g} × as predicted{memory}"
        )
    lines += [f"  not used: {each['run']}: {each['because']}" for each in answer["left_out"]]
    return "\n".join(lines) + "\n"

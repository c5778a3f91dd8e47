"""A plan in words. This module does not import JAX."""

from __future__ import annotations

from typing import Any

from schemas.formats import size
from schemas.problems import Problem, problem_of

METHODS = {"closed_form": "estimated", "compiler": "compiled", "extrapolated": "extrapolated"}
NAMED_PARTS = 4
"""Parts and changes named in a message."""


def in_words(plan: dict[str, Any]) -> str:
    """Return the memory of a plan as one line."""
    how = f"{METHODS[plan['method']]}, ±{plan['error_fraction']:.0%}"
    need = f"needs about {size(plan['need_bytes'])} on each device ({how})"
    if plan["available_bytes"] is None:
        return f"{need}; the device reports no limit"
    verdicts = {"fits": "it fits", "tight": "it may not fit", "does_not_fit": "it does not fit"}
    return f"{need}, of {size(plan['available_bytes'])}: {verdicts[plan['verdict']]}"


def does_not_fit(plan: dict[str, Any], *, model: str, can_force: bool = True, who: str = "The run") -> Problem:
    """Return the refusal of a run that needs more memory than each device has.

    Args:
        plan: `plan.json`.
        model: Name of the model.
        can_force: Whether `--force` can start it, which is not so if the compiler refused it.
        who: What needs the memory.
    """
    target, over = plan["target"], plan["need_bytes"] - plan["available_bytes"]
    largest = ", ".join(f"{part['name']} {size(part['bytes'])}" for part in plan["parts"][:NAMED_PARTS])
    what = (
        f"{who} needs about {size(plan['need_bytes'])} on each device, but {target['name']} has "
        f"{size(plan['available_bytes'])} ({target['memory_source']}), {size(over)} less."
    )
    force = " Or start it anyway with --force." if can_force else ""
    fix = advice(plan["advice"]) + force
    return problem_of("TP710", file=model, what=what, why=f"Largest parts: {largest}.", next=fix)


def advice(sets: list[dict[str, Any]]) -> str:
    """Return what to change as a sentence."""
    fitting = [each for each in sets if each["verdict"] == "fits"]
    shown = (fitting or sets)[:NAMED_PARTS]
    if not shown:
        return "Use a smaller model or a larger device."
    listed = "; or ".join(
        f"{' '.join(f'--set {setting}' for setting in each['set'])} (frees {size(max(each['frees_bytes'], 0))})"
        for each in shown
    )
    return f"{'Use' if fitting else 'Combine'} {listed}."

"""A plan in words: in one line, as the refusal of a run that does not fit. Nothing here needs JAX."""

from __future__ import annotations

from typing import Any

from evidence.run.plan_words import METHODS
from schemas.formats import size
from schemas.problems import Problem, problem_of

NAMED_PARTS = 4
"""Parts named in a refusal."""


def in_words(plan: dict[str, Any]) -> str:
    """Return the plan as one line."""
    how = METHODS[plan["method"]].word
    need = f"needs about {size(plan['need_bytes'])} on each device ({how}, within {plan['error_fraction']:.0%})"
    if plan["available_bytes"] is None:
        return f"{need}; the device does not say what it has"
    verdicts = {"fits": "it fits", "tight": "it is tight and may not fit", "does_not_fit": "it does not fit"}
    return f"{need}, of {size(plan['available_bytes'])}: {verdicts[plan['verdict']]}"


def does_not_fit(plan: dict[str, Any], *, model: str, can_force: bool = True, who: str = "The run") -> Problem:
    """Return the refusal of a run that needs more memory than each device has.

    Args:
        plan: `plan.json`.
        model: of the run.
        can_force: whether it could be started all the same; what a compiler has refused cannot.
        who: what needs the memory.
    """
    target = plan["target"]
    largest = ", ".join(f"{part['name']} {size(part['bytes'])}" for part in plan["parts"][:NAMED_PARTS])
    over = plan["need_bytes"] - plan["available_bytes"]
    return problem_of(
        "TP710",
        file=model,
        what=(
            f"{who} needs about {size(plan['need_bytes'])} on each device; {target['name']} has "
            f"{size(plan['available_bytes'])} ({target['memory_source']}), so it is "
            f"{size(over)} over."
        ),
        why=f"Largest parts: {largest}.",
        next=advice(plan["changes"]) + (" Or start it all the same with --force." if can_force else ""),
    )


OF_MOMENTS = ("optimizer.name=", "optimizer.state=")
"""Beginnings of settings of which a run takes one: without moments there are none to narrow."""


def advice(changes_found: list[dict[str, Any]]) -> str:
    """Return what to change: the settings that suffice alone, else the largest savings to combine."""
    enough = [change for change in changes_found if change["fits"]]
    moments = [change for change in changes_found if change["set"].startswith(OF_MOMENTS)]
    together = [change for change in changes_found if change not in moments[1:]]
    shown = (enough or together)[:3]
    listed = "; ".join(f"--set {change['set']} saves {size(change['saves_bytes'])}" for change in shown)
    if enough:
        enough_alone = "each is enough alone" if len(shown) > 1 else "that is enough"
        return f"{listed}; {enough_alone}."
    if shown:
        return f"{listed}; none is enough alone, so combine them."
    return "Use a smaller model or a larger device."

"""A plan in words: in one line, as the refusal of a run that does not fit. Nothing here needs JAX."""

from __future__ import annotations

from typing import Any

from schemas.formats import size
from schemas.problems import Problem, problem_of

_METHODS = {"closed_form": "summed", "compiler": "compiled", "extrapolated": "extrapolated"}

NAMED_PARTS = 4
"""Parts named in a refusal."""


def in_words(plan: dict[str, Any]) -> str:
    """Return the plan as one line."""
    how = _METHODS[plan["method"]]
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


COSTS = {
    "memory.donate": "nothing: the old state's memory is used again",
    "memory.loss_chunk_tokens": "a few percent of speed",
    "evaluation.batch_size": "a slower evaluation",
    "memory.mlp_chunk_tokens": "smaller products of matrices; with memory.remat=none the MLP is computed once more",
    "memory.attention": "attention is computed in blocks, and once more on the way back",
    "optimizer.max_grad_norm": "gradients are no longer clipped",
    "batch.microbatch_size": "smaller products of matrices, which a device computes less efficiently",
    "memory.remat=dots": "a few percent more arithmetic: activations and attention are computed again",
    "memory.remat": "about a third more arithmetic: layers are computed again",
    "precision.compute=bfloat16": "products are rounded to 2 to 3 decimal digits",
    "precision.compute=float16": "products are rounded to 3 to 4 decimal digits",
    "precision.params=bfloat16": "weights are rounded to 2 to 3 decimal digits, up or down by chance where they learn",
    "precision.params=float16": "frozen weights are rounded to 3 to 4 decimal digits",
    "optimizer.state=bfloat16": "the optimizer's numbers are rounded to 2 to 3 decimal digits, up or down by chance",
    "optimizer.state=int8": "the optimizer's numbers are kept in 8 bits, blocks of them under one magnitude",
    "optimizer.name": "another optimizer: its learning rate and schedule must be looked at",
    "method.kind": "adapters learn instead of all parameters",
    "mesh.shard_params": "the devices exchange parameters in each step",
    "data.max_length": "rows beyond it are cut or refused",
}
"""Cost of changing a setting, or of changing it to a value, cheapest first; advice uses this order."""


def cost_of(setting: str) -> str:
    """Return the cost of a change, written like the argument of `--set`."""
    return COSTS.get(setting) or COSTS[setting.partition("=")[0]]


def rank_of(setting: str) -> int:
    """Return the rank of a change by cost, cheapest first; unknown changes rank last."""
    names = list(COSTS)
    return next((names.index(name) for name in (setting, setting.partition("=")[0]) if name in COSTS), len(names))

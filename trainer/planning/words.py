"""A plan in words, and what its changes cost. This module does not import JAX."""

from __future__ import annotations

from typing import Any

from schemas.formats import size
from schemas.problems import Problem, problem_of

METHODS = {"closed_form": "estimated", "compiler": "compiled"}
NAMED_PARTS = 4
"""Parts and changes named in a message."""

COSTS = {
    "memory.donate": "nothing: the memory of the old state is reused",
    "memory.loss_chunk_tokens": "a few percent of speed",
    "evaluation.batch_size": "a slower evaluation",
    "memory.mlp_chunk_tokens": "smaller matrix products; with memory.remat=none the MLP is recomputed",
    "memory.attention": "attention is computed in blocks and recomputed in the backward pass",
    "batch.microbatch_size": "smaller matrix products, which are less efficient",
    "memory.remat=dots": "a few percent more arithmetic: activations and attention are recomputed",
    "memory.remat": "about a third more arithmetic: layers are recomputed",
    "precision.compute=bfloat16": "products are rounded to 2 to 3 decimal digits",
    "precision.compute=float16": "products are rounded to 3 to 4 decimal digits",
    "precision.params=bfloat16": "weights are rounded to 2 to 3 decimal digits, stochastically if trained",
    "precision.params=float16": "frozen weights are rounded to 3 to 4 decimal digits",
    "optimizer.max_grad_norm": "gradients are not clipped",
    "optimizer.state=bfloat16": "moments are rounded stochastically to 2 to 3 decimal digits",
    "optimizer.state=int8": "moments are quantised to 8 bits in blocks",
    "optimizer.name": "another optimizer: tune its learning rate and schedule",
    "method.kind": "adapters are trained instead of all parameters",
    "mesh.shard_params": "devices exchange parameters in each step",
    "data.max_length": "longer rows are cut or refused",
}
"""Cost of a setting, or of a setting with this value."""


def in_words(plan: dict[str, Any]) -> str:
    """Return the memory of a plan as one line."""
    how = f"{METHODS[plan['method']]}, ±{plan['error_fraction']:.0%}"
    need = f"needs about {size(plan['need_bytes'])} on each device ({how})"
    if plan["available_bytes"] is None:
        return f"{need}; the device reports no limit"
    verdicts = {"fits": "it fits", "tight": "it may not fit", "does_not_fit": "it does not fit"}
    return f"{need}, of {size(plan['available_bytes'])}: {verdicts[plan['verdict']]}"


def does_not_fit(plan: dict[str, Any], *, model: str, can_force: bool = True) -> Problem:
    """Return the refusal of a run that needs more memory than each device has.

    Args:
        plan: `plan.json`.
        model: Name of the model.
        can_force: Whether `--force` can start it; it cannot if the compiler refused a program.
    """
    target, over = plan["target"], plan["need_bytes"] - plan["available_bytes"]
    largest = ", ".join(f"{part['name']} {size(part['bytes'])}" for part in plan["parts"][:NAMED_PARTS])
    what = (
        f"The run needs about {size(plan['need_bytes'])} on each device, but {target['name']} has "
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


def setting_cost(setting: str) -> str:
    """Return the cost of a change, written like the argument of `--set`."""
    return COSTS.get(setting) or COSTS[setting.partition("=")[0]]

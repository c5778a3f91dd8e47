"""The words of a plan, for its refusal, the terminal and the page: verdicts, methods, and what changes cost."""

from __future__ import annotations

from typing import NamedTuple


class MethodWords(NamedTuple):
    """How a need was found."""

    word: str
    phrase: str


METHODS = {
    "closed_form": MethodWords("summed", "added up from formulas"),
    "compiler": MethodWords("compiled", "read from the compiled program"),
    "extrapolated": MethodWords("extrapolated", "compiled with fewer layers and extrapolated"),
}

VERDICTS = {
    "fits": "fits",
    "tight": "tight",
    "does_not_fit": "does not fit",
    "unsupported": "unsupported",
    "unknown": "not known",
}

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
"""What one gives for a change of a setting, or of one to a value, the cheapest first: the order of all advice."""


def cost_of(setting: str) -> str:
    """Return what one gives for a change, by its setting as `--set` takes it."""
    return COSTS.get(setting) or COSTS[setting.partition("=")[0]]


def rank_of(setting: str) -> int:
    """Return the place of a change among all, the cheapest first; of one that is not among them, the last."""
    names = list(COSTS)
    return next((names.index(name) for name in (setting, setting.partition("=")[0]) if name in COSTS), len(names))

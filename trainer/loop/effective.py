"""What really runs, read back from the traced and the compiled train step rather than from the configuration.

A public run once declared Adafactor, bfloat16 and donation; its code used AdamW, float32 and none. These functions
look at the program itself.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import jax

from trainer.model.attention import BLOCKWISE_NAME as BLOCKWISE
from trainer.model.attention import AttentionKind
from trainer.model.layers import KEEPS_NOTHING
from trainer.model.stacks import REMAT_POLICIES, Remat

TOLERANCE = 0.01
"""Share of the state that may be missing from the aliased bytes: scalars and padding."""


def donation(compiled: Any, state: Any) -> dict[str, Any]:
    """Return the manifest's group `training.donation` of a compiled step whose first argument is `state`.

    Args:
        compiled: a `jax.stages.Compiled`.
        state: the train state, as arrays or as shapes with shardings.
    """
    state_bytes = bytes_on_one_device(state)
    analysis = compiled.memory_analysis()
    if analysis is None:
        return {"state_bytes": state_bytes, "aliased_bytes": None, "effective": None}
    aliased = int(analysis.alias_size_in_bytes)
    return {
        "state_bytes": state_bytes,
        "aliased_bytes": aliased,
        "effective": aliased >= (1 - TOLERANCE) * state_bytes,
    }


def bytes_on_one_device(tree: Any) -> int:
    """Return the bytes that a tree of arrays takes on each device, its sharding counted."""
    return sum(local_size(leaf) * leaf.dtype.itemsize for leaf in jax.tree.leaves(tree))


def local_size(leaf: Any) -> int:
    """Return the elements of one array on one device."""
    shape = leaf.sharding.shard_shape(leaf.shape) if getattr(leaf, "sharding", None) is not None else leaf.shape
    size = 1
    for length in shape:
        size *= length
    return size


def is_split(tree: Any) -> bool:
    """Return whether any array of the tree is divided over devices rather than repeated on them."""
    return any(local_size(leaf) < leaf.size for leaf in jax.tree.leaves(tree))


def compute_dtype(jaxpr: Any) -> str:
    """Return the element type of most matrix products of a traced step, by the numbers they multiply."""
    types = Counter(
        str(equation.invars[0].aval.dtype)
        for equation in equations_of(jaxpr)
        if equation.primitive.name == "dot_general"
    )
    return types.most_common(1)[0][0]


def rematerialised_blocks(jaxpr: Any) -> int:
    """Return how many rematerialised blocks a traced step holds, chunks of an MLP not counted."""
    return sum(
        equation.primitive.name in ("remat", "remat2", "checkpoint") and equation.params["policy"] is not KEEPS_NOTHING
        for equation in equations_of(jaxpr)
    )


def remat_kind(jaxpr: Any, *, besides: int) -> Remat:
    """Return how far the layers of a traced step are computed again.

    Args:
        jaxpr: of the step.
        besides: its rematerialised blocks that are no layers.
    """
    if any(equation.params.get("policy") is REMAT_POLICIES["dots"] for equation in equations_of(jaxpr)):
        return "dots"
    return "layer" if rematerialised_blocks(jaxpr) > besides else "none"


def attention_kind(jaxpr: Any) -> AttentionKind:
    """Return how a traced step reads whole sequences: by what its calls are named, or a kernel."""
    equations = list(equations_of(jaxpr))
    if any(equation.primitive.name == "pallas_call" for equation in equations):
        return "splash"
    called = {equation.params.get("name") for equation in equations}
    return "blockwise" if BLOCKWISE in called else "plain"


def equations_of(jaxpr: Any) -> Iterator[Any]:
    """Yield every equation of a traced program, those inside loops, branches and calls too."""
    inner = getattr(jaxpr, "jaxpr", jaxpr)
    for equation in inner.eqns:
        yield equation
        for value in equation.params.values():
            for part in value if isinstance(value, tuple | list) else (value,):
                if hasattr(part, "eqns") or hasattr(part, "jaxpr"):
                    yield from equations_of(part)

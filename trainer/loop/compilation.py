"""Compile programs from shapes, and read back their dtypes, rematerialization, attention and donation.

A public run once declared Adafactor, bfloat16 and donation; its code used AdamW, float32 and none. So the manifest
records what the traced and compiled step contains, not what the configuration says.
"""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from trainer.loop.task import Task
from trainer.model.attention import BLOCKWISE_NAME, AttentionKind
from trainer.model.layers import KEEPS_NOTHING
from trainer.model.stacks import REMAT_POLICIES, Remat

CACHE_HIT = "/jax/compilation_cache/cache_hits"
"""Event of JAX for a program that is loaded from the compilation cache."""

DONATION_TOLERANCE = 0.01
"""Fraction of the state that donation may miss: scalars and padding."""


@dataclass(frozen=True, kw_only=True)
class Compiled:
    """A compiled program.

    Attributes:
        call: Runs the program.
        executable: The `jax.stages.Compiled`.
        jaxpr: The traced program.
        seconds: Time of tracing and compiling, or of loading from the cache.
        is_kept: Whether it was loaded from the compilation cache.
    """

    call: Any
    executable: Any
    jaxpr: Any
    seconds: float
    is_kept: bool = False

    @property
    def peak_bytes(self) -> int | None:
        """Peak memory on one device with arguments and results, or None if the backend does not report it."""
        analysis, added = self.executable.memory_analysis(), self.added_bytes
        return None if added is None else int(analysis.argument_size_in_bytes) + added

    @property
    def added_bytes(self) -> int | None:
        """Memory on one device beyond the arguments (temporaries and results that reuse no argument), or None."""
        analysis = self.executable.memory_analysis()
        if analysis is None:
            return None
        return int(analysis.temp_size_in_bytes + analysis.output_size_in_bytes - analysis.alias_size_in_bytes)


@dataclass(frozen=True, kw_only=True)
class Program:
    """A program to compile.

    Attributes:
        function: A jitted function.
        arguments: Shapes, dtypes and shardings of its arguments.
        settings: Static keyword arguments.
        donated: Positions of donated arguments.
        static: Positions of arguments that are not arrays.
    """

    function: Any
    arguments: tuple[Any, ...]
    settings: dict[str, Any]
    donated: tuple[int, ...] = ()
    static: tuple[int, ...] = ()

    def compile(self) -> Compiled:
        """Compile the program for the devices of its arguments, which need not be present."""
        began, hits = time.perf_counter(), list[str]()

        def listen(event: str, **_: Any) -> None:
            if event == CACHE_HIT:
                hits.append(event)

        traced = self.function.trace(*self.arguments, **self.settings)
        jax.monitoring.register_event_listener(listen)
        try:
            executable = traced.lower().compile()
        finally:
            jax.monitoring.unregister_event_listener(listen)
        seconds = time.perf_counter() - began
        # A CPU's executables reject arrays of 4-bit numbers, which lack a layout. The jitted function accepts them and
        # finds the program compiled here.
        is_packed = any(leaf.dtype == jnp.uint4 for leaf in jax.tree.leaves(self.arguments) if hasattr(leaf, "dtype"))
        call = self.function if is_packed else executable
        return Compiled(call=call, executable=executable, jaxpr=traced.jaxpr, seconds=seconds, is_kept=bool(hits))


def jitted(task: Task, function: Callable[..., Any], **settings: Any) -> Any:
    """Return `jax.jit` of a function with the compiler options of a task."""
    return jax.jit(function, compiler_options=dict(task.compiler_options) or None, **settings)


def donation(compiled: Any, state: Any) -> dict[str, Any]:
    """Return the manifest's `training.donation` of a `jax.stages.Compiled` whose first argument is like `state`."""
    state_bytes = sum(_size_on_one_device(leaf) * leaf.dtype.itemsize for leaf in jax.tree.leaves(state))
    analysis = compiled.memory_analysis()
    aliased = None if analysis is None else int(analysis.alias_size_in_bytes)
    effective = None if aliased is None else aliased >= (1 - DONATION_TOLERANCE) * state_bytes
    return {"state_bytes": state_bytes, "aliased_bytes": aliased, "effective": effective}


def _size_on_one_device(leaf: Any) -> int:
    sharding = getattr(leaf, "sharding", None)
    return math.prod(leaf.shape if sharding is None else sharding.shard_shape(leaf.shape))


def is_split(tree: Any) -> bool:
    """Return whether any array of a tree is split over devices."""
    return any(_size_on_one_device(leaf) < leaf.size for leaf in jax.tree.leaves(tree))


def most_common_dtype(tree: Any) -> str:
    """Return the dtype of most numbers of a tree."""
    sizes = Counter[str]()
    for leaf in jax.tree.leaves(tree):
        sizes[str(leaf.dtype)] += leaf.size
    return sizes.most_common(1)[0][0]


def compute_dtype(jaxpr: Any) -> str:
    """Return the dtype of most matrix products of a traced step."""
    products = (each for each in iter_equations(jaxpr) if each.primitive.name == "dot_general")
    return Counter(str(each.invars[0].aval.dtype) for each in products).most_common(1)[0][0]


def count_remat_blocks(jaxpr: Any) -> int:
    """Return the number of rematerialized blocks of a traced step, without chunks of an MLP."""
    return sum(
        each.primitive.name in ("remat", "remat2", "checkpoint") and each.params["policy"] is not KEEPS_NOTHING
        for each in iter_equations(jaxpr)
    )


def remat_kind(jaxpr: Any, *, besides: int) -> Remat:
    """Return the rematerialization of layers in a traced step; `besides` is the number of blocks outside layers."""
    if any(each.params.get("policy") is REMAT_POLICIES["dots"] for each in iter_equations(jaxpr)):
        return "dots"
    return "layer" if count_remat_blocks(jaxpr) > besides else "none"


def attention_kind(jaxpr: Any) -> AttentionKind:
    """Return the attention over whole sequences of a traced step."""
    equations = list(iter_equations(jaxpr))
    if any(each.primitive.name == "pallas_call" for each in equations):
        return "splash"
    return "blockwise" if BLOCKWISE_NAME in {each.params.get("name") for each in equations} else "plain"


def iter_equations(jaxpr: Any) -> Iterator[Any]:
    """Yield every equation of a traced program, including those inside loops, branches and calls."""
    for equation in getattr(jaxpr, "jaxpr", jaxpr).eqns:
        yield equation
        for value in equation.params.values():
            for part in value if isinstance(value, tuple | list) else (value,):
                if hasattr(part, "eqns") or hasattr(part, "jaxpr"):
                    yield from iter_equations(part)

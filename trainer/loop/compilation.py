"""A program that JAX compiles from shapes, before anything is there to run it on."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from trainer.loop.task import Task


@dataclass(frozen=True, kw_only=True)
class Compiled:
    """A program that can be called."""

    call: Any
    """Runs it."""
    executable: Any
    """The `jax.stages.Compiled`, which knows its memory."""
    jaxpr: Any
    """The traced program, for reading back what runs."""
    seconds: float
    """How long tracing and compiling took, or reading what was compiled before."""
    is_kept: bool = False
    """Whether it was compiled before, by this run or an earlier one, and read from JAX's cache."""

    @property
    def peak_bytes(self) -> int | None:
        """The most bytes that it has on one device at one time, its arguments and results among them.

        A runtime sets a program's temporaries aside as one piece, so all of them count. None: the backend does not
        state it.
        """
        analysis, added = self.executable.memory_analysis(), self.added_bytes
        return None if added is None else int(analysis.argument_size_in_bytes) + added

    @property
    def added_bytes(self) -> int | None:
        """What it takes on one device besides its arguments: temporaries, and results that lie in no argument's place.

        None: the backend does not state it.
        """
        analysis = self.executable.memory_analysis()
        if analysis is None:
            return None
        return int(analysis.temp_size_in_bytes + analysis.output_size_in_bytes - analysis.alias_size_in_bytes)


HIT = "/jax/compilation_cache/cache_hits"
"""What JAX calls it when it finds a program in its cache."""


@contextmanager
def cache_hits() -> Iterator[list[str]]:
    """Give a list that grows with every program that JAX takes from its cache while it is open."""
    hits: list[str] = []

    def heard(event: str, **_: Any) -> None:
        if event == HIT:
            hits.append(event)

    jax.monitoring.register_event_listener(heard)
    try:
        yield hits
    finally:
        jax.monitoring.unregister_event_listener(heard)


@dataclass(frozen=True, kw_only=True)
class Program:
    """A program before it is compiled."""

    function: Any
    """A function under `jax.jit`."""
    arguments: tuple[Any, ...]
    """Shapes, types and shardings of what it is called with."""
    settings: dict[str, Any]
    """Static arguments by name."""
    donated: tuple[int, ...] = ()
    """Arguments that are used up, by place."""
    static: tuple[int, ...] = ()
    """Arguments that are not arrays, by place."""

    def compile(self) -> Compiled:
        """Compile it for the devices of its arguments, which need not be there."""
        began = time.perf_counter()
        traced = self.function.trace(*self.arguments, **self.settings)
        with cache_hits() as hits:
            executable = traced.lower().compile()
        seconds = time.perf_counter() - began
        # A CPU's arrays of 4-bit numbers do not state a layout that its own executables accept. The jitted function
        # takes them, and finds what was compiled here.
        packed = any(leaf.dtype == jnp.uint4 for leaf in jax.tree.leaves(self.arguments) if hasattr(leaf, "dtype"))
        call = self.function if packed else executable
        return Compiled(call=call, executable=executable, jaxpr=traced.jaxpr, seconds=seconds, is_kept=bool(hits))


def jitted(task: Task, function: Callable[..., Any], **settings: Any) -> Any:
    """Return a function under `jax.jit`, compiled for the instructions that the task's configuration states."""
    return jax.jit(function, compiler_options=dict(task.compiler_options) or None, **settings)

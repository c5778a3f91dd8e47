"""The programs that draw the completions of a step, and their sizes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec

from trainer.data.order import global_batch_size
from trainer.generate.groups import group_functions, half_rows
from trainer.loop.compilation import Program
from trainer.loop.mesh import rows_sharding
from trainer.loop.state import with_shardings
from trainer.loop.task import Task
from trainer.objectives.grpo import GroupPolicy


@dataclass(frozen=True, kw_only=True)
class RolloutSize:
    """What a roll-out draws, over all devices."""

    prompts: int
    width: int
    """Tokens that prompts are padded to."""
    group_size: int
    """Completions of each prompt."""
    new_tokens: int
    """Most tokens of each."""
    updates: int
    """Optimizer steps on them."""

    @property
    def rows(self) -> int:
        """Completions."""
        return self.prompts * self.group_size

    @property
    def slots(self) -> int:
        """Tokens of a completion with its prompt, padding included."""
        return self.width + self.new_tokens


def rollout_size(task: Task) -> RolloutSize | None:
    """Return what a roll-out of a run draws, None where nothing is drawn."""
    objective = task.objective
    if not isinstance(objective, GroupPolicy):
        return None
    return RolloutSize(
        prompts=global_batch_size(task.config, devices=task.mesh.size) // objective.sequences_each,
        width=objective.prompt_width,
        group_size=objective.sequences_each,
        new_tokens=objective.settings.max_completion_tokens,
        updates=objective.updates_per_rollout,
    )


def rollout_programs(task: Task) -> dict[str, Program]:
    """Return the programs of a roll-out by name; none where nothing is drawn.

    `rollout` reads prompts and draws the first token of each completion, `rollout_further` draws the others,
    `rollout_taken` takes half of the rows, `rollout_half` draws the others of these.
    """
    size, objective = rollout_size(task), task.objective
    if size is None or not isinstance(objective, GroupPolicy):
        return {}
    rows = rows_sharding(task.mesh)
    first, further, taken = group_functions(task.compiler_options, rows)
    described: Any = jax.ShapeDtypeStruct
    graphdef, params = task.model.graphdef, with_shardings(task.model.shapes, task)
    stop, half = described((), jnp.int32), half_rows(size.rows, rows)
    counter = described((), jnp.int32, sharding=NamedSharding(task.mesh, PartitionSpec()))
    prompts = described((size.prompts, size.width), jnp.int32, sharding=rows)
    lengths = described((size.prompts,), jnp.int32, sharding=rows)
    keys = described((size.rows,), jax.eval_shape(lambda: jax.random.key(0)).dtype)
    drawn: dict[str, Any] = {"sampling": objective.sampling}
    grouped = drawn | {"max_new_tokens": size.new_tokens}
    begin = Program(
        function=first, arguments=(graphdef, params, prompts, lengths, stop, keys), settings=grouped, static=(0,)
    )
    begun = first.eval_shape(*begin.arguments, **grouped)

    def state_of(count: int) -> Any:
        """Return the state of so many rows; its counter is everywhere."""
        return jax.tree.map(
            lambda leaf: described((count, *leaf.shape[1:]), leaf.dtype, sharding=rows) if leaf.ndim else counter, begun
        )

    def go_on(count: int) -> Program:
        of_rows = described((count,), jnp.int32, sharding=rows)
        arguments = (graphdef, params, state_of(count), of_rows, stop, stop)
        return Program(function=further, arguments=arguments, settings=drawn, donated=(2,), static=(0,))

    found = {"rollout": begin, "rollout_further": go_on(size.rows)}
    if half < size.rows:
        all_lengths, kept = described((size.rows,), jnp.int32, sharding=rows), described((half,), jnp.int32)
        arguments = (params, state_of(size.rows), all_lengths, kept)
        found["rollout_taken"] = Program(function=taken, arguments=arguments, settings={})
        found["rollout_half"] = go_on(half)
    return found

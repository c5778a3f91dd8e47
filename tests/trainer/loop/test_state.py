"""Parameters never exist twice at a start: by the compiler's figure, and by the buffers that are shared."""

from typing import Any

import jax
import pytest
from refusals import catch_problems
from tasks import inputs_of, task_of, with_settings

from trainer.loop.checkpoints import restored_state
from trainer.loop.compilation import Compiled
from trainer.loop.programs import train_program
from trainer.loop.state import initial_params, refuse_other_base, start_program, state_shapes
from trainer.model.export import export


def buffers(tree: Any) -> set[int]:
    return {shard.data.unsafe_buffer_pointer() for leaf in jax.tree.leaves(tree) for shard in leaf.addressable_shards}


def bytes_of(tree: Any) -> int:
    """Return the bytes of arrays or shapes on one device."""
    shards = [jax.ShapeDtypeStruct(leaf.sharding.shard_shape(leaf.shape), leaf.dtype) for leaf in jax.tree.leaves(tree)]
    return sum(shard.size * shard.dtype.itemsize for shard in shards)


@pytest.mark.compiles_anew
@pytest.mark.parametrize("optimizer", ["adamw", "adafactor"])
@pytest.mark.parametrize("stored", ["float32", "bfloat16"])
@pytest.mark.parametrize("devices", [1, 4])
def test_a_start_needs_the_memory_of_one_state(optimizer, stored, devices, config):
    settings = {"optimizer": {"name": optimizer}, "precision": {"params": stored}, "mesh": {"devices": devices}}
    task = task_of(with_settings(config, **settings))
    state = state_shapes(task)
    figure = start_program(task).compile().executable.memory_analysis()
    assert figure.alias_size_in_bytes == bytes_of(state.trained)
    peak = figure.argument_size_in_bytes + figure.output_size_in_bytes + figure.temp_size_in_bytes
    assert peak - figure.alias_size_in_bytes <= 1.01 * bytes_of(state) + 1024


@pytest.mark.parametrize("devices", [1, 4])
@pytest.mark.parametrize("weights", ["random", "pretrained"])
def test_a_new_state_has_the_params_own_buffers(weights, devices, config, tmp_path):
    task = task_of(with_settings(config, mesh={"devices": devices}))
    if weights == "pretrained":
        export(tmp_path / "model", initial_params(task), task.model.source)
        task = task_of(with_settings(task.config, model={"name": str(tmp_path / "model")}))
    assert task.model.origin == weights
    params = initial_params(task)
    before = buffers(params)
    state = start_program(task).compile().call(params)
    assert len(before) == devices * len(params)
    assert buffers(state.trained) == before


@pytest.mark.slow
def test_a_resumed_state_is_updated_in_its_own_buffers(config, finished):
    task, data = inputs_of(config)
    states, frozen = restored_state(finished(config), task)
    before = buffers(states[0])
    after, _ = train_program(task).compile().call(states.pop(), frozen, data.source.batch(0))
    assert buffers(after) == before


@pytest.fixture
def adapted(config, tmp_path):
    """Return a task with adapters on the files of a model."""
    task = task_of(config)
    export(tmp_path / "model", initial_params(task), task.model.source)
    return task_of(with_settings(config, model={"name": str(tmp_path / "model")}, method={"kind": "lora"}))


def test_adapters_are_drawn_after_files_are_read_and_the_start_is_reported(adapted):
    order = []
    draw = Compiled(call=lambda: order.append("draw") or {}, executable=None, jaxpr=None, seconds=0.0)
    initial_params(adapted, draw, on_start=lambda: order.append("start"))
    assert order == ["start", "draw"]


def test_another_tokenizer_and_other_weights_are_refused_together(adapted):
    model = {"name": "base", "revision": "main", "weights": "pretrained"}
    model |= dict.fromkeys(("weights_sha256", "frozen_sha256", "tokenizer_sha256"), "0" * 64)
    problems = catch_problems(
        refuse_other_base, {"model": model, "parent": None}, adapted, file="run", trains=False, exit_code=3
    )
    assert [(each.code, each.what.split()[1]) for each in problems] == [("TP765", "tokenizer"), ("TP765", "weights")]

"""Parameters never exist twice at a start: by the compiler's figure, and by the buffers that are shared."""

from dataclasses import replace
from pathlib import Path

import jax
import pytest

from trainer.assemble import continued_from, first_params
from trainer.config.tree import Config, Mesh, Model, Optimizer, Precision
from trainer.loop.program import compile_program, compile_start, start_state, state_shapes
from trainer.loop.step import Batch
from trainer.model.files.export import export
from trainer.prepare import prepare
from trainer.recorder.progress import Watch
from trainer.run import Order, run


def buffers(tree) -> set[int]:
    return {shard.data.unsafe_buffer_pointer() for leaf in jax.tree.leaves(tree) for shard in leaf.addressable_shards}


def bytes_of(tree) -> int:
    """Return the bytes of arrays or shapes on one device."""
    shards = [leaf.sharding.shard_shape(leaf.shape) for leaf in jax.tree.leaves(tree)]
    sizes = [jax.ShapeDtypeStruct(shape, leaf.dtype) for shape, leaf in zip(shards, jax.tree.leaves(tree), strict=True)]
    return sum(size.size * size.dtype.itemsize for size in sizes)


@pytest.mark.parametrize("optimizer", ["adamw", "adafactor"])
@pytest.mark.parametrize("stored", ["float32", "bfloat16"])
@pytest.mark.parametrize("devices", [1, 4])
def test_by_the_compiler_a_start_needs_one_state(optimizer: str, stored: str, devices: int, config: Config):
    changed = replace(
        config,
        optimizer=Optimizer(name=optimizer),
        precision=Precision(params=stored),
        mesh=Mesh(device="cpu", devices=devices),
    )
    prepared = prepare(changed, forced=False)
    _, params, _ = first_params(changed, prepared.source, prepared.devices)
    figure = compile_start(params, changed, prepared.devices).memory_analysis()
    assert figure.alias_size_in_bytes == bytes_of(params)
    peak = (
        figure.argument_size_in_bytes
        + figure.output_size_in_bytes
        + figure.temp_size_in_bytes
        - figure.alias_size_in_bytes
    )
    assert peak <= 1.01 * bytes_of(state_shapes(params, changed, prepared.devices)) + 1024


@pytest.mark.parametrize("devices", [1, 4])
@pytest.mark.parametrize("weights", ["drawn", "loaded"])
def test_a_new_state_has_the_params_own_buffers(weights: str, devices: int, config: Config, tmp_path: Path):
    changed = replace(config, mesh=Mesh(device="cpu", devices=devices))
    prepared = prepare(changed, forced=False)
    if weights == "loaded":
        _, drawn, _ = first_params(changed, prepared.source, prepared.devices)
        export(tmp_path / "model", drawn, prepared.source)
        changed = replace(changed, model=Model(name=str(tmp_path / "model")))
        prepared = prepare(changed, forced=False)
    _, params, origin = first_params(changed, prepared.source, prepared.devices)
    assert origin == ("pretrained" if weights == "loaded" else "random")
    before = buffers(params)
    state = start_state(params, changed, prepared.devices)
    assert len(before) == devices * len(params)
    assert buffers(state.params) == before


def test_a_resumed_state_is_updated_in_its_own_buffers(config: Config, tmp_path: Path):
    with Watch(quiet=True) as watch:
        assert run(Order(config=config, folder=tmp_path / "run", command=["trainproof"]), watch) == 0
    prepared = prepare(config, forced=False)
    start = continued_from(tmp_path / "run", prepared)
    before = buffers(start.state)
    program = compile_program(start.graphdef, start.state, config, prepared.devices)
    rows = prepared.data
    batch = Batch(rows.tokens[:4].reshape(1, 4, -1), rows.loss_mask[:4].reshape(1, 4, -1))
    after, _ = program.step(start.state, batch)
    assert buffers(after) == before

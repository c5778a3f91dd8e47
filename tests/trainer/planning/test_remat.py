"""`memory.remat`: what `dots` keeps, held by the compiler, and what becomes of `auto`."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from tasks import task_of
from whole_runs import carried_out, errors_of, manifest_of

from trainer.config.tree import BatchConfig, Config, DataConfig, MemoryConfig, MeshConfig, ModelConfig
from trainer.loop.mesh import shapes_mesh
from trainer.loop.programs import train_program
from trainer.loop.task import Task
from trainer.methods.model import model_of
from trainer.model.files.known import known_source
from trainer.objectives import objective_of
from trainer.planning.estimate.part import total_bytes
from trainer.planning.estimate.programs import estimates
from trainer.planning.remat import with_remat
from trainer.replay.place import replay_config
from trainer.replay.recorded import ReplayRequest, read_recorded
from trainer.run import RunRequest


def large(remat: str, **method: str) -> Task:
    config = Config(model=ModelConfig(name="Qwen/Qwen2.5-0.5B"), memory=MemoryConfig(remat=remat))  # type: ignore[arg-type]
    config = replace(config, method=replace(config.method, **method))
    source = known_source(config.model.name)
    assert source is not None
    model = model_of(config, source)
    return Task(config=config, model=model, objective=objective_of(config), mesh=shapes_mesh(1), platform="tpu")


def test_auto_is_the_first_that_fits_with_its_whole_band():
    needs = {
        remat: total_bytes(estimates(large(remat), platform="tpu")["train"]) for remat in ("none", "dots", "layer")
    }
    assert needs["none"] > 1.1 * needs["dots"] > 1.2 * needs["layer"]
    for remat, bytes_needed in needs.items():
        found = with_remat(large("auto"), available_bytes=int(1.09 * bytes_needed))
        assert found.config == large(remat).config
        assert found.model.structure.remat == remat
    assert with_remat(large("auto"), available_bytes=needs["layer"] // 2).config.memory.remat == "layer"
    assert with_remat(large("auto"), available_bytes=None).config.memory.remat == "layer"
    quantised = with_remat(large("auto", kind="lora", base="nf4"), available_bytes=10**15)
    assert quantised.config.memory.remat == "dots"


@pytest.mark.slow
@pytest.mark.compiles_anew
def test_what_dots_keeps_is_what_the_compiler_adds_to_layer():
    """A CPU's layers are stacked: before jax 0.11.1 its compiler undoes it where they follow each other."""
    memory = MemoryConfig(layers="scanned", loss_chunk_tokens=128)

    def temporary(remat: str) -> tuple[int, Task]:
        config = Config(
            model=ModelConfig(name="demo"),
            data=DataConfig(max_length=128),
            batch=BatchConfig(microbatch_size=32),
            mesh=MeshConfig(device="cpu", devices=1),
            memory=replace(memory, remat=remat),  # type: ignore[arg-type]
        )
        task = task_of(config)
        return train_program(task).compile().executable.memory_analysis().temp_size_in_bytes, task

    (least, layer), (more, dots) = temporary("layer"), temporary("dots")
    of_layer, of_dots = (total_bytes(estimates(task, platform="cpu")["train"]) for task in (layer, dots))
    assert more - least == pytest.approx(of_dots - of_layer, rel=0.15)


@pytest.mark.slow
def test_a_run_states_what_became_of_auto_and_is_repeated_so(config: Config, order_of: Callable[..., RunRequest]):
    order = order_of(replace(config, memory=replace(config.memory, remat="auto")))
    assert carried_out(order) == 0
    assert manifest_of(order.folder)["training"]["remat"] == "none"
    assert errors_of(order.folder) == []
    assert replay_config(read_recorded(order.folder), ReplayRequest(folder=order.folder)).memory.remat == "none"

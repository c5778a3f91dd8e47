"""The loop: memory of its states, states written by a thread, model FLOPs utilization, and profiles."""

from pathlib import Path
from threading import Event
from typing import Any
from unittest.mock import Mock

import jax
import jax.numpy as jnp
import pytest
from jax.profiler import ProfileData
from refusals import catch_problems
from tasks import inputs_of, task_of, with_settings
from whole_runs import errors_of, logged, manifest_of, refusal, rows, saved_steps

from evidence import layout
from evidence.bundle.contents import files_of_run
from evidence.hashes import Chain
from trainer.config.tree import Config
from trainer.loop.chain import StateWriter
from trainer.loop.checkpoints import Checkpoints, restored_state, state_sha256, to_stored
from trainer.loop.compilation import Compiled
from trainer.loop.programs import train_program
from trainer.loop.state import initial_params, refuse_other_base, start_program, state_shapes
from trainer.loop.step import TrainState
from trainer.model.export import export


class HeldRecorder(Mock):
    chain, may, asked = Chain(), Event(), Event()

    def link(self, **entry: Any) -> None:
        self.asked.set()
        assert self.may.wait(30)
        self.chain.entry(**entry)


def test_the_loop_goes_on_and_the_entry_is_of_the_state_and_rows_that_were_taken(config):
    recorder = HeldRecorder()
    entries = StateWriter(task=task_of(config), recorder=recorder, asynchronous=True)
    state = TrainState(step=jnp.int32(3), trained={"a": jnp.arange(4.0)}, opt_state=(jnp.ones((2, 2), jnp.bfloat16),))
    expected = state_sha256(to_stored(state))
    recorder.chain.row(b"one\n")
    then = recorder.chain.rows_so_far()
    with entries:
        entries.submit(state, saved=False)
        assert recorder.asked.wait(30)
        entries.raise_errors()
        state = jax.jit(lambda held: jax.tree.map(lambda leaf: leaf * 0, held), donate_argnums=0)(state)
        recorder.chain.row(b"two\n")
        assert recorder.chain.entries == []
        recorder.may.set()
    [entry] = recorder.chain.entries
    assert (entry["step"], entry["state_sha256"]) == (3, expected)
    assert entry["data_position"] == 3 * config.batch.microbatch_size
    assert (entry["rows"], entry["rows_sha256"]) == then


@pytest.fixture
def saving(config) -> Config:
    """A run of four steps with a checkpoint after each, and states that are kept."""
    checkpoint, recording = {"save_every_steps": 1}, {"chain_every_steps": 1}
    return with_settings(config, checkpoint=checkpoint, recording=recording, limits={"steps": 4})


@pytest.fixture
def in_place(saving, finished, monkeypatch) -> Path:
    """The run with one checkpoint and its entries written between the steps; runs after it write in a thread."""
    folder = finished(with_settings(saving, checkpoint={"save_every_steps": 0}))
    monkeypatch.setattr("trainer.run.StateWriter", lambda **fields: StateWriter(**fields | {"asynchronous": True}))
    return folder


def chain_entries(folder: Path) -> list[Any]:
    return [(row["step"], row["rows"], row["state_sha256"], row["params_sha256"]) for row in rows(folder, layout.CHAIN)]


@pytest.mark.slow
def test_an_asynchronous_run_writes_the_same_entries_states_and_checkpoints(saving, in_place, train):
    folder = train(saving)
    assert saved_steps(folder) == ["3", "4"]
    assert [row["fields"]["step"] for row in logged(folder, "checkpoint_saved")] == [1, 2, 3, 4]
    assert chain_entries(folder) == chain_entries(in_place)
    kept, expected = (
        {path.name: path.read_bytes() for path in (each / layout.STATES).iterdir()} for each in (folder, in_place)
    )
    assert kept == expected != {}


@pytest.mark.slow
def test_a_full_disk_ends_an_asynchronous_run_and_its_checkpoint_is_continued(
    saving, in_place, order_of, train, monkeypatch
):
    real = Checkpoints.save

    def save(self: Checkpoints, state: Any, **fields: Any) -> int:
        if int(state.step) == 3:
            raise OSError(28, "No space left on device", "checkpoints")
        return real(self, state, **fields)

    order = order_of(saving)
    with monkeypatch.context() as patch:
        patch.setattr(Checkpoints, "save", save)
        assert refusal(order)[0] == 4
    assert manifest_of(order.folder)["exit"]["error"] == "disk_full"
    assert saved_steps(order.folder) == ["1", "2"]
    assert chain_entries(order.folder)[-1][0] == 3
    assert errors_of(order.folder) == []
    resumed = train(saving, "resumed", resume=order.folder)
    assert chain_entries(resumed)[-1][2:] == chain_entries(in_place)[-1][2:]


@pytest.mark.slow
def test_rows_have_the_share_of_a_known_peak_as_mfu(config, train, finished, monkeypatch):
    assert not any("mfu" in row for row in rows(finished(config)))
    monkeypatch.setattr("trainer.run.ideal_seconds", lambda task, target: 0.001)
    folder = train(config)
    assert all(row["mfu"] * row["step_seconds"] == pytest.approx(0.001) for row in rows(folder))


def traced_steps(folder: Path) -> list[int]:
    [file] = (folder / layout.PROFILE).rglob("*.xplane.pb")
    planes = ProfileData.from_file(str(file)).planes
    found = [event for plane in planes for line in plane.lines for event in line.events if event.name == "step"]
    return sorted(dict(event.stats)["step_num"] for event in found)


@pytest.mark.slow
@pytest.mark.parametrize(("asked", "expected"), [(2, [2, 3]), (9, [2, 3, 4])])
def test_a_trace_has_the_steps_after_the_first_and_is_not_packed(asked, expected, config, train):
    folder = train(with_settings(config, limits={"steps": 4}), profile_steps=asked)
    assert traced_steps(folder) == expected
    [row] = logged(folder, "profiled")
    assert row["message"] == f"profile of {len(expected)} steps: .profile"
    assert not any(layout.PROFILE in name for name in files_of_run(folder).packed)


def buffers(tree: Any) -> set[int]:
    return {shard.data.unsafe_buffer_pointer() for leaf in jax.tree.leaves(tree) for shard in leaf.addressable_shards}


def count_bytes(tree: Any) -> int:
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
    assert figure.alias_size_in_bytes == count_bytes(state.trained)
    peak = figure.argument_size_in_bytes + figure.output_size_in_bytes + figure.temp_size_in_bytes
    assert peak - figure.alias_size_in_bytes <= 1.01 * count_bytes(state) + 1024


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
    assert len(before) == devices * len(params)
    assert buffers(start_program(task).compile().call(params).trained) == before


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

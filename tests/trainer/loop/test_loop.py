"""The loop: states written by a thread, model FLOPs utilization, and profiles."""

from collections.abc import Callable
from pathlib import Path
from threading import Event
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax.profiler import ProfileData
from tasks import task_of, with_settings
from whole_runs import errors_of, logged, manifest_of, refusal, rows, saved_steps

from evidence import layout
from evidence.bundle.contents import files_of_run
from evidence.hashes import Chain
from trainer.config.tree import Config
from trainer.loop.chain import StateWriter
from trainer.loop.checkpoints import Checkpoints, state_sha256, to_stored
from trainer.loop.step import TrainState


class HeldRecorder:
    def __init__(self) -> None:
        self.chain = Chain()
        self.may, self.asked = Event(), Event()

    def link(self, **entry: Any) -> None:
        self.asked.set()
        assert self.may.wait(30)
        self.chain.entry(**entry)

    def log(self, *said: Any, **fields: Any) -> None: ...

    def sync(self) -> None: ...


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
def in_place(saving: Config, finished: Callable[[Config], Path]) -> Path:
    """The run with its entries written between the steps, and one checkpoint."""
    return finished(with_settings(saving, checkpoint={"save_every_steps": 0}))


@pytest.fixture
def beside(in_place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Write entries in a thread beside the steps, of every run that begins after `in_place`."""
    monkeypatch.setattr("trainer.run.StateWriter", lambda **fields: StateWriter(**fields | {"asynchronous": True}))


def entries_of(folder: Path) -> list[Any]:
    return [(row["step"], row["rows"], row["state_sha256"], row["params_sha256"]) for row in rows(folder, layout.CHAIN)]


@pytest.mark.slow
def test_an_asynchronous_run_writes_the_same_entries_states_and_checkpoints(saving, in_place, train, beside):
    folder = train(saving)
    assert errors_of(folder) == []
    assert saved_steps(folder) == ["3", "4"]
    assert [row["fields"]["step"] for row in logged(folder, "checkpoint_saved")] == [1, 2, 3, 4]
    assert entries_of(folder) == entries_of(in_place)
    kept, expected = (
        {path.name: path.read_bytes() for path in (each / layout.STATES).iterdir()} for each in (folder, in_place)
    )
    assert kept == expected != {}


@pytest.mark.slow
def test_a_full_disk_ends_an_asynchronous_run_and_its_checkpoint_is_continued(
    saving, in_place, order_of, train, beside, monkeypatch
):
    real = Checkpoints.save

    def save(self: Checkpoints, state: Any, **fields: Any) -> int:
        if int(state.step) == 3:
            raise OSError(28, "No space left on device", "checkpoints")
        return real(self, state, **fields)

    monkeypatch.setattr(Checkpoints, "save", save)
    order = order_of(saving)
    assert refusal(order)[0] == 4
    manifest = manifest_of(order.folder)
    assert (manifest["status"], manifest["exit"]["error"]) == ("failed", "disk_full")
    assert saved_steps(order.folder) == ["1", "2"]
    assert entries_of(order.folder)[-1][0] == 3
    assert errors_of(order.folder) == []
    monkeypatch.setattr(Checkpoints, "save", real)
    resumed = train(saving, "resumed", resume=order.folder)
    assert entries_of(resumed)[-1][2:] == entries_of(in_place)[-1][2:]


@pytest.mark.slow
def test_rows_have_the_share_of_a_known_peak_as_mfu(config, train, finished, monkeypatch):
    assert not any("mfu" in row for row in rows(finished(config)))
    monkeypatch.setattr("trainer.run.ideal_seconds", lambda task, target: 0.001)
    folder = train(config)
    assert all(row["mfu"] * row["step_seconds"] == pytest.approx(0.001) for row in rows(folder))
    assert errors_of(folder) == []


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
    assert errors_of(folder) == []
    assert not any(layout.PROFILE in name for name in files_of_run(folder).packed)

"""Whole runs in small: what a run leaves behind when it ends well, badly, and early."""

import errno
import fcntl
import os
import shutil
import subprocess
import sys
import weakref
from collections.abc import Callable
from dataclasses import replace
from itertools import count

import jax
import jax.numpy as jnp
import pytest
from compiled import QUICK
from tasks import with_settings
from whole_runs import carried_out, errors_of, logged, manifest_of, refusal, rows, saved_steps

from evidence import layout
from evidence.grade import check_run
from evidence.run import read_run
from evidence.scores.recompute import compute_result
from trainer.config.load import load_config
from trainer.loop.compilation import record_program
from trainer.loop.loop import Loop
from trainer.loop.session import StopRequest
from trainer.recorder.recorder import Recorder, RunningResult

SMOKE = "trainer/configs/smoke_tiny.yaml"


@pytest.mark.slow
def test_a_smoke_run_is_valid_evidence(config, train):
    folder = train(with_settings(replace(config, mode="smoke"), evaluation={"eval_set": "eval_v1"}))
    report = check_run(read_run(folder))
    assert errors_of(folder) == []
    assert report.grade.name in ("consistent", "measured")  # measured where the code under test is not committed
    assert [row["step"] for row in rows(folder)] == [1, 2]
    assert (folder / layout.CHECKPOINTS / "2").is_dir()
    roles = "config plan metrics log system chain first_examples predictions baseline_predictions eval_summary"
    # The states that a judge can start from are of the role `other`.
    expected = {*roles.split(), "trained_params", "other"}
    assert {artifact["role"] for artifact in manifest_of(folder)["artifacts"]} == expected


@pytest.mark.parametrize("losses", [[], [None], [4.0, 1.0, None, 1.0, 0.1, 0.1], [0.1] * 3 + [1e16, -1e16, 3e-9]])
def test_the_result_needs_no_rows_in_memory(losses):
    result, rows = RunningResult(), []
    for step, loss in enumerate(losses, 1):
        rows.append({"step": step, "loss": loss, "tokens_seen": 7 * step})
        result.add(rows[-1])
        assert result.document() == compute_result(rows)


@pytest.mark.parametrize("how", ["moved", "removed", "another in its place"])
def test_a_run_folder_that_goes_away_is_named(how, config, order_of, monkeypatch):
    order = order_of(with_settings(config, checkpoint={"save_every_steps": 1}, limits={"steps": 3}))
    place, metric = order.folder.with_name("place"), Recorder.metric

    def goes(recorder: Recorder, row: dict) -> None:
        metric(recorder, row)
        if row["step"] == 2:
            order.folder.rename(place)
            if how == "removed":
                shutil.rmtree(place)
            elif how == "another in its place":
                (order.folder / "mine").mkdir(parents=True)

    monkeypatch.setattr(Recorder, "metric", goes)
    code, text = refusal(order)
    what = "The run folder could not be written: it was moved, renamed or removed while the run was writing to it."
    assert (code, text.splitlines()[0]) == (4, f"error TP722: {order.folder}: {what}")
    if how == "another in its place":
        assert [path.name for path in order.folder.iterdir()] == ["mine"]
    if how != "removed":
        assert saved_steps(place) == ["1"]
        monkeypatch.undo()
        assert carried_out(replace(order, folder=order.folder.with_name("rest"), resume=place)) == 0


def test_without_locks_a_run_is_refused_before_anything_is_read(config, order_of, monkeypatch):
    def refuse(_descriptor: int, _operation: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    order = order_of(config)
    monkeypatch.setattr(fcntl, "flock", refuse)
    monkeypatch.setattr("trainer.run.read_inputs", None)
    assert refusal(order)[1].startswith("error TP724: ")
    assert not order.folder.exists()


def test_the_recorded_configuration_gives_the_same_run(config, finished, train):
    first = finished(config)
    second = train(load_config(first / layout.CONFIG))
    assert [row["loss"] for row in rows(first)] == [row["loss"] for row in rows(second)]


@pytest.mark.slow
def test_the_predecessors_smoke_command_works(tmp_path):
    """Its flags are written with underscores."""
    environment = {**os.environ, "XLA_FLAGS": QUICK}
    command = [
        *(sys.executable, "-m", "trainproof", "train"),
        *("--config", "trainer/configs/submission_tpu.yaml", "--smoke_config", SMOKE),
        *("--output", str(tmp_path / "smoke_run"), "--dataset", "dev-reasoning-v2"),
        *("--device", "auto", "--smoke_steps", "2"),
    ]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    manifest = manifest_of(tmp_path / "smoke_run")
    assert (manifest["mode"], manifest["status"], manifest["training"]["steps_done"]) == ("smoke", "succeeded", 2)
    assert manifest["training"]["optimizer"]["name"] == "adafactor"
    assert manifest["model"]["dtypes"]["compute"] == "bfloat16"


@pytest.mark.slow
@pytest.mark.parametrize(("resumed", "donate"), [(False, True), (True, True), (True, False), (False, False)])
def test_at_most_two_states_exist_at_a_time(donate, resumed, config, train, finished, monkeypatch):
    """As the plan counts them: with donation one, without it the old one and the new one."""
    changed = with_settings(config, memory={"donate": donate}, limits={"steps": 4})
    parent = finished(config) if resumed else None
    first: list[weakref.ref] = []
    left: list[int] = []

    def watched(*given, **named):
        first.extend(weakref.ref(leaf) for leaf in jax.tree.leaves(given[2]))
        record_program(*given, **named)

    def count(self, row):
        arrays = [array for reference in first if (array := reference()) is not None]
        left.append(sum(not array.is_deleted() for array in arrays))

    monkeypatch.setattr("trainer.run.record_program", watched)
    monkeypatch.setattr(Recorder, "metric", count)
    monkeypatch.setattr(Recorder, "record_result", lambda *_, **__: None)
    train(changed, "new", resume=parent)
    assert len(first) > 10
    assert left[1:] == [0] * len(left[1:])


def diverge(monkeypatch: pytest.MonkeyPatch, **fields: float) -> None:
    """Set these fields of the metrics of every step from the third on."""
    real = Loop.run

    def wrapped(step: Callable) -> Callable:
        def run_step(state, frozen, batch):
            state, metrics = step(state, frozen, batch)
            wild = {name: jnp.where(state.step >= 3, value, getattr(metrics, name)) for name, value in fields.items()}
            return state, metrics._replace(**wild)

        return run_step

    monkeypatch.setattr(Loop, "run", lambda self, state: real(replace(self, step=wrapped(self.step)), state))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fields", "kind", "what"),
    [
        ({"loss": float("inf")}, "non_finite_loss", "loss"),
        ({"loss": float("nan"), "grad_norm": float("nan")}, "non_finite_loss", "loss"),
        ({"grad_norm": float("inf")}, "non_finite_gradient", "gradient"),
    ],
)
def test_a_loss_or_gradient_that_is_not_finite_fails_the_run_at_that_step(
    fields, kind, what, config, train, monkeypatch
):
    diverge(monkeypatch, **fields)
    folder = train(with_settings(config, limits={"steps": 400}), ends_with=4)
    manifest = manifest_of(folder)
    assert manifest["status"] == "failed"
    assert manifest["exit"] == {"code": 4, "error": kind, "message": f"the {what} at step 3 is not finite"}
    last = rows(folder)[-1]
    assert last["step"] == 3
    assert [name for name in ("loss", "grad_norm") if last[name] is None] == list(fields)
    assert saved_steps(folder) == []
    [logged_end] = logged(folder, "trained")
    assert (logged_end["level"], logged_end["message"][-23:]) == ("error", "at step 3 is not finite")
    assert errors_of(folder) == []


@pytest.mark.parametrize(
    ("how", "logged_steps", "saved"),
    [("between rows", [1, 4], ["2"]), pytest.param("interrupted", [1, 4], [], marks=pytest.mark.slow)],
)
def test_a_state_that_is_not_finite_is_not_saved(how, logged_steps, saved, config, train, monkeypatch):
    diverge(monkeypatch, loss=float("nan"))
    config = with_settings(config, recording={"log_every_steps": 20}, limits={"steps": 400})
    if how == "interrupted":
        asked = count()
        monkeypatch.setattr(StopRequest, "reason", lambda self, **_: "signal SIGTERM" if next(asked) >= 4 else None)
    else:
        config = with_settings(config, checkpoint={"save_every_steps": 2})
    folder = train(config, ends_with=4)
    assert manifest_of(folder)["exit"]["message"] == "the loss at step 4 is not finite"
    assert [row["step"] for row in rows(folder)] == logged_steps
    assert saved_steps(folder) == saved
    assert errors_of(folder) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("error", "kind", "code", "text"),
    [
        (OSError(28, "No space left on device", "metrics.jsonl"), "disk_full", 4, "The disk is full"),
        (KeyError("loss"), "KeyError", 4, "an error inside trainproof: KeyError"),
        (KeyboardInterrupt(), "cancelled", 5, "stopped by a second signal"),
    ],
)
def test_an_exception_seals_the_run_and_is_explained(error, kind, code, text, config, order_of, monkeypatch):
    def fails(self, state):
        raise error

    monkeypatch.setattr(Loop, "run", fails)
    order = order_of(config)
    exit_code, told = refusal(order)
    assert (exit_code, text in told) == (code, True), told
    manifest = manifest_of(order.folder)
    assert manifest["exit"]["error"] == kind
    assert manifest["status"] == ("cancelled" if kind == "cancelled" else "failed")
    assert not (order.folder / layout.LOCK).exists()
    [said] = [row for row in rows(order.folder, layout.LOG) if row["level"] == "error"]
    assert ("traceback" in said["fields"]) == (kind == "KeyError")

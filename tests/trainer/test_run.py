"""Whole runs in small: what a run leaves behind when it ends well, badly, and early."""

import errno
import fcntl
import json
import os
import shutil
import subprocess
import sys
import weakref
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import jax
import pytest
from compiled import QUICK
from whole_runs import carried_out, errors_of, logged, manifest_of, rows, saved_steps

from evidence import layout
from evidence.grade import check_run
from evidence.run import read_run
from schemas.problems import ProblemError
from schemas.render import as_text
from trainer.config.load import load_config
from trainer.config.tree import CheckpointConfig, Config, LimitsConfig
from trainer.loop.loop import Loop
from trainer.loop.record import record_program
from trainer.loop.session import StopRequest
from trainer.recorder.recorder import Recorder
from trainer.run import RunRequest

SMOKE = "trainer/configs/smoke_tiny.yaml"


@pytest.mark.slow
def test_a_smoke_run_is_valid_evidence(config: Config, order_of: Callable[..., RunRequest]):
    order = order_of(replace(config, mode="smoke", evaluation=replace(config.evaluation, eval_set="eval_v1")))
    assert carried_out(order) == 0
    report = check_run(read_run(order.folder))
    assert errors_of(order.folder) == []
    assert report.grade.name in ("consistent", "measured")  # measured where the code under test is not committed
    assert [row["step"] for row in rows(order.folder)] == [1, 2]
    assert (order.folder / layout.CHECKPOINTS / "2").is_dir()
    assert {artifact["role"] for artifact in manifest_of(order.folder)["artifacts"]} == {
        "config",
        "plan",
        "metrics",
        "log",
        "system",
        "chain",
        "first_examples",
        "predictions",
        "baseline_predictions",
        "eval_summary",
        "trained_params",
        "other",  # the states that a judge can start from
    }


@pytest.mark.parametrize("how", ["moved", "removed", "another in its place"])
def test_a_run_folder_that_goes_away_is_named(
    how: str, config: Config, order_of: Callable[..., RunRequest], monkeypatch: pytest.MonkeyPatch
):
    order = order_of(replace(config, checkpoint=CheckpointConfig(save_every_steps=1), limits=LimitsConfig(steps=3)))
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
    with pytest.raises(ProblemError) as raised:
        carried_out(order)
    [problem] = raised.value.problems
    assert (raised.value.exit_code, problem.code, problem.file) == (4, "TP722", str(order.folder))
    assert problem.what == (
        "The run folder could not be written: it was moved, renamed or removed while the run was writing to it."
    )
    if how == "another in its place":
        assert [path.name for path in order.folder.iterdir()] == ["mine"]
    if how != "removed":
        assert saved_steps(place) == ["1"]
        monkeypatch.undo()
        assert carried_out(replace(order, folder=order.folder.with_name("rest"), resume=place)) == 0


def test_without_locks_a_run_is_refused_before_anything_is_read(
    config: Config, order_of: Callable[..., RunRequest], monkeypatch: pytest.MonkeyPatch
):
    def refuse(_descriptor: int, _operation: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    order = order_of(config)
    monkeypatch.setattr(fcntl, "flock", refuse)
    monkeypatch.setattr("trainer.run.read_inputs", None)
    with pytest.raises(ProblemError) as raised:
        carried_out(order)
    assert [problem.code for problem in raised.value.problems] == ["TP724"]
    assert not order.folder.exists()


def test_the_recorded_configuration_gives_the_same_run(config: Config, order_of: Callable[..., RunRequest]):
    first, second = order_of(config, "first"), order_of(config, "second")
    carried_out(first)
    carried_out(replace(second, config=load_config(first.folder / layout.CONFIG)))
    assert [row["loss"] for row in rows(first.folder)] == [row["loss"] for row in rows(second.folder)]


@pytest.mark.slow
def test_the_first_project_s_command_works_with_the_name_changed(tmp_path: Path):
    """The smoke command of the first project, flags written with underscores."""
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
def test_no_more_than_two_states_are_there_at_a_time(
    donate: bool,
    resumed: bool,
    config: Config,
    order_of: Callable[..., RunRequest],
    finished: Callable[[Config], Path],
    monkeypatch: pytest.MonkeyPatch,
):
    """As the plan counts them: with donation one, without it the old one and the new one."""
    changed = replace(config, memory=replace(config.memory, donate=donate), limits=LimitsConfig(steps=4))
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
    order = order_of(changed, "new", resume=finished(config) if resumed else None)
    carried_out(order)
    assert len(first) > 10
    assert left[1:] == [0] * len(left[1:])


@pytest.mark.slow
def test_an_interrupted_run_says_so(config: Config, order_of: Callable[..., RunRequest]):
    order = order_of(replace(config, limits=LimitsConfig(steps=50, max_minutes=1e-6)))
    assert carried_out(order) == 5
    manifest = manifest_of(order.folder)
    assert manifest["status"] == "interrupted"
    assert manifest["exit"] == {
        "code": 5,
        "error": None,
        "message": "limits.max_minutes=1e-06 reached before the first step",
    }


def run_away(monkeypatch: pytest.MonkeyPatch, **fields: float) -> None:
    """Let the numbers of any model run away: these fields of its steps' metrics hold from the third step on."""
    import jax.numpy as jnp

    real = Loop.run

    def wrapped(step: Callable) -> Callable:
        def run_step(state, frozen, batch):
            state, metrics = step(state, frozen, batch)
            wild = {name: jnp.where(state.step >= 3, value, getattr(metrics, name)) for name, value in fields.items()}
            return state, metrics._replace(**wild)

        return run_step

    monkeypatch.setattr(Loop, "run", lambda self, state: real(replace_program(self, wrapped), state))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fields", "kind", "what"),
    [
        ({"loss": float("inf")}, "non_finite_loss", "loss"),
        ({"loss": float("nan"), "grad_norm": float("nan")}, "non_finite_loss", "loss"),
        ({"grad_norm": float("inf")}, "non_finite_gradient", "gradient"),
    ],
)
def test_numbers_that_are_not_finite_fail_the_run_at_that_step(
    fields: dict,
    kind: str,
    what: str,
    config: Config,
    order_of: Callable[..., RunRequest],
    monkeypatch: pytest.MonkeyPatch,
):
    run_away(monkeypatch, **fields)
    order = order_of(replace(config, limits=LimitsConfig(steps=400)))
    assert carried_out(order) == 4
    manifest = manifest_of(order.folder)
    assert manifest["status"] == "failed"
    assert manifest["exit"] == {"code": 4, "error": kind, "message": f"the {what} at step 3 is not finite"}
    last = rows(order.folder)[-1]
    assert last["step"] == 3
    assert [name for name in ("loss", "grad_norm") if last[name] is None] == list(fields)
    assert saved_steps(order.folder) == []
    assert errors_of(order.folder) == []


@pytest.mark.slow
def test_a_state_that_is_not_finite_is_not_saved_between_rows(
    config: Config, order_of: Callable[..., RunRequest], monkeypatch: pytest.MonkeyPatch
):
    run_away(monkeypatch, loss=float("nan"))
    quiet = replace(config, recording=replace(config.recording, log_every_steps=20), limits=LimitsConfig(steps=400))
    order = order_of(replace(quiet, checkpoint=CheckpointConfig(save_every_steps=2)))
    assert carried_out(order) == 4
    assert manifest_of(order.folder)["exit"]["message"] == "the loss at step 4 is not finite"
    assert [row["step"] for row in rows(order.folder)] == [1, 4]
    assert saved_steps(order.folder) == ["2"]
    assert errors_of(order.folder) == []


@pytest.mark.slow
def test_a_state_that_is_not_finite_is_not_saved_when_the_run_is_interrupted(
    config: Config, order_of: Callable[..., RunRequest], monkeypatch: pytest.MonkeyPatch
):
    run_away(monkeypatch, loss=float("nan"))
    asked = []

    def after_four(self, *, reserve_seconds: float = 0.0) -> str | None:
        asked.append(reserve_seconds)
        return "signal SIGTERM" if len(asked) > 4 else None

    monkeypatch.setattr(StopRequest, "reason", after_four)
    quiet = replace(config, recording=replace(config.recording, log_every_steps=20), limits=LimitsConfig(steps=400))
    order = order_of(quiet)
    assert carried_out(order) == 4
    assert manifest_of(order.folder)["exit"]["message"] == "the loss at step 4 is not finite"
    assert saved_steps(order.folder) == []


def replace_program(loop: Loop, wrap: Callable) -> Loop:
    return replace(loop, step=wrap(loop.step))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("error", "kind", "code", "text"),
    [
        (OSError(28, "No space left on device", "metrics.jsonl"), "disk_full", 4, "The disk is full"),
        (KeyError("loss"), "KeyError", 4, "an error inside trainproof: KeyError"),
        (KeyboardInterrupt(), "cancelled", 5, "stopped by a second signal"),
    ],
)
def test_an_exception_seals_the_run_and_is_explained(
    error: BaseException,
    kind: str,
    code: int,
    text: str,
    config: Config,
    order_of: Callable[..., RunRequest],
    monkeypatch: pytest.MonkeyPatch,
):
    def fails(self, state):
        raise error

    monkeypatch.setattr(Loop, "run", fails)
    order = order_of(config)
    with pytest.raises(ProblemError) as caught:
        carried_out(order)
    assert caught.value.exit_code == code
    assert text in caught.value.problems[0].what
    manifest = manifest_of(order.folder)
    assert manifest["exit"]["error"] == kind
    assert manifest["status"] == ("cancelled" if kind == "cancelled" else "failed")
    assert not (order.folder / layout.LOCK).exists()
    [said] = [row for row in rows(order.folder, layout.LOG) if row["level"] == "error"]
    assert ("traceback" in said["fields"]) == (kind == "KeyError")


@pytest.mark.slow
def test_a_full_disk_keeps_what_was_written(
    config: Config, order_of: Callable[..., RunRequest], monkeypatch: pytest.MonkeyPatch
):
    """The disk fills after the second row: the rows before stay, and the run fails with the reason."""
    real = Recorder.metric

    def until_full(self, row):
        if row["step"] == 3:
            raise OSError(28, "No space left on device", str(self.folder / layout.METRICS))
        real(self, row)

    monkeypatch.setattr(Recorder, "metric", until_full)
    order = order_of(replace(config, limits=LimitsConfig(steps=5)))
    with pytest.raises(ProblemError) as caught:
        carried_out(order)
    assert as_text(caught.value.problems) == (
        f"error TP722: {order.folder / layout.METRICS}: The disk is full; the run cannot be recorded any further.\n"
        "  A run without its evidence cannot be verified, so it stops. Everything written so far is intact.\n"
        "  Next: Free some disk space and start the run again, with --resume if a checkpoint was saved.\n"
    )
    assert [row["step"] for row in rows(order.folder)] == [1, 2]
    assert manifest_of(order.folder)["training"]["steps_done"] == 2


def test_a_failed_run_says_in_its_log_that_it_failed(
    config: Config, order_of: Callable[..., RunRequest], monkeypatch: pytest.MonkeyPatch
):
    run_away(monkeypatch, loss=float("nan"))
    order = order_of(replace(config, limits=LimitsConfig(steps=400)))
    assert carried_out(order) == 4
    [said] = logged(order.folder, "trained")
    assert said["level"] == "error"
    assert said["message"].endswith(": the loss at step 3 is not finite")


def test_a_killed_run_is_shown_as_interrupted(config: Config, order_of: Callable[..., RunRequest]):
    order = order_of(config)
    carried_out(order)
    manifest = manifest_of(order.folder)
    (order.folder / layout.MANIFEST).write_text(json.dumps(manifest | {"status": "running", "exit": None}))
    (order.folder / layout.LOCK).write_text("1\n")
    assert read_run(order.folder).status == "interrupted"

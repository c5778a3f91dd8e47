"""Whole runs in small: what is refused, and what a run leaves behind when it ends well, badly, and early."""

import json
import os
import shutil
import subprocess
import sys
import weakref
from dataclasses import replace
from itertools import count
from typing import Any
from unittest.mock import Mock

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from changed_schema import changed_schema
from compiled import QUICK
from model_folders import row_file
from tasks import inputs_of, task_of, with_settings
from whole_runs import QUIET, carried_out, error_codes, logged, manifest_of, refusal, rows, saved_steps

from evidence import layout
from evidence.grade import check_run
from evidence.run import read_run
from trainer.config.load import load_config
from trainer.config.tree import Config
from trainer.export_run import export_run
from trainer.loop.checkpoints import restored_state
from trainer.loop.compilation import record_program
from trainer.loop.loop import Loop
from trainer.loop.session import StopRequest
from trainer.model.model import METHODS, Method
from trainer.recorder.recorder import Recorder


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


def test_the_recorded_configuration_gives_the_same_run(config, finished, train):
    first = finished(config)
    second = train(load_config(first / layout.CONFIG))
    assert [row["loss"] for row in rows(first)] == [row["loss"] for row in rows(second)]


@pytest.mark.slow
def test_the_predecessors_smoke_command_works(tmp_path):
    """Its flags are written with underscores."""
    environment = {**os.environ, "XLA_FLAGS": QUICK}
    flags = (
        "--config trainer/configs/submission_tpu.yaml --smoke_config trainer/configs/smoke_tiny.yaml "
        "--dataset dev-reasoning-v2 --device auto --smoke-steps 2 --output"
    )
    command = [sys.executable, "-m", "trainproof", "train", *flags.split(), str(tmp_path / "smoke_run")]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    manifest = manifest_of(tmp_path / "smoke_run")
    assert (manifest["mode"], manifest["status"], manifest["training"]["steps_done"]) == ("smoke", "succeeded", 2)
    assert manifest["training"]["optimizer"]["name"] == "adafactor"
    assert manifest["model"]["dtypes"]["compute"] == "bfloat16"


@pytest.mark.slow
@pytest.mark.parametrize(("resumed", "donate"), [(False, True), (True, True), (True, False), (False, False)])
def test_at_most_two_states_exist_at_a_time(donate, resumed, config, train, finished, monkeypatch):
    """As the plan counts them: with donation one, without it the old one and the new one."""
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
    keeping = with_settings(config, memory={"donate": donate}, limits={"steps": 4})
    train(keeping, "new", resume=parent, errors={"TP505", "TP506"})
    assert len(first) > 10
    assert left[1:] == [0] * len(left[1:])


INF, NAN = float("inf"), float("nan")


def diverge(monkeypatch: pytest.MonkeyPatch, **fields: float) -> None:
    """Set these fields of the metrics of every step from the third on."""
    real = Loop.run

    def run(loop: Loop, states):
        def step(*given):
            state, metrics = loop.step(*given)
            wild = {name: jnp.where(state.step >= 3, value, getattr(metrics, name)) for name, value in fields.items()}
            return state, metrics._replace(**wild)

        return real(replace(loop, step=step), states)

    monkeypatch.setattr(Loop, "run", run)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fields", "what"),
    [({"loss": INF}, "loss"), ({"loss": NAN, "grad_norm": NAN}, "loss"), ({"grad_norm": INF}, "gradient")],
)
def test_a_loss_or_gradient_that_is_not_finite_fails_the_run_at_that_step(fields, what, config, train, monkeypatch):
    diverge(monkeypatch, **fields)
    folder = train(with_settings(config, limits={"steps": 400}), ends_with=4)
    manifest, message = manifest_of(folder), f"the {what} at step 3 is not finite"
    assert manifest["exit"] == {"code": 4, "error": f"non_finite_{what}", "message": message}
    last = rows(folder)[-1]
    assert [name for name in ("loss", "grad_norm") if last[name] is None] == list(fields)
    assert (last["step"], saved_steps(folder)) == (3, [])
    [logged_end] = logged(folder, "trained")
    assert (logged_end["level"], logged_end["message"].endswith(message)) == ("error", True)


@pytest.mark.slow(but=("between rows",))
@pytest.mark.parametrize(("save_every", "saved"), [(2, ["2"]), (0, [])], ids=["between rows", "interrupted"])
def test_a_state_that_is_not_finite_is_not_saved(save_every, saved, config, train, monkeypatch):
    diverge(monkeypatch, loss=NAN)
    settings = {"recording": {"log_every_steps": 20}, "checkpoint": {"save_every_steps": save_every}}
    if not save_every:
        asked = count()
        monkeypatch.setattr(StopRequest, "reason", lambda self, **_: "signal SIGTERM" if next(asked) >= 4 else None)
    folder = train(with_settings(config, limits={"steps": 400}, **settings), ends_with=4)
    assert manifest_of(folder)["exit"]["message"] == "the loss at step 4 is not finite"
    assert ([row["step"] for row in rows(folder)], saved_steps(folder)) == ([1, 4], saved)


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
    monkeypatch.setattr(Loop, "run", Mock(side_effect=error))
    order = order_of(config)
    exit_code, told = refusal(order)
    assert (exit_code, text in told) == (code, True), told
    manifest = manifest_of(order.folder)
    assert (manifest["exit"]["error"], manifest["status"]) == (kind, "cancelled" if code == 5 else "failed")
    assert not (order.folder / layout.LOCK).exists()
    [said] = [row for row in rows(order.folder, layout.LOG) if row["level"] == "error"]
    assert ("traceback" in said["fields"]) == (kind == "KeyError")


@pytest.fixture
def unread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trainer.run.read_inputs", lambda *_, **__: pytest.fail("inputs were read first"))


def test_a_folder_with_a_run_is_left_alone(config, order_of, finished):
    order = order_of(config)
    shutil.copytree(finished(config), order.folder)
    before = {path: path.read_bytes() for path in order.folder.iterdir() if path.is_file()}
    code, text = refusal(order)
    assert (code, text.splitlines()[0]) == (2, f"error TP031: {order.folder}: The folder already contains a run.")
    assert f"--resume {order.folder}" in text
    assert {path: path.read_bytes() for path in order.folder.iterdir() if path.is_file()} == before


@pytest.mark.usefixtures("unread")
@pytest.mark.parametrize(("name", "suggested"), [("my run", "my-run"), ("_ä", "run"), ("x" * 129, "x" * 128)])
def test_a_folder_whose_name_is_no_run_id_is_refused(name, suggested, config, order_of, tmp_path):
    copy, order = tmp_path / "other" / name, order_of(config, name)
    (copy / layout.CHECKPOINTS / "1").mkdir(parents=True)
    for refused, flag in ((order, "--output"), (order_of(config, "rest", resume=copy), "--resume")):
        code, text = refusal(refused)
        assert (code, text[:12]) == (2, "error TP032:")
        assert text.endswith(f"  Next: Use {flag} with a valid name, for example {suggested}.\n")
    assert not order.folder.exists()


@pytest.mark.usefixtures("unread")
def test_every_problem_of_a_folder_is_reported_at_once(config, order_of):
    order = order_of(config, "my run")
    order.folder.mkdir()
    (order.folder / "thesis.tex").write_text("mine")
    code, text = refusal(order)
    assert code == 2
    assert [line[:11] for line in text.splitlines() if line.startswith("error")] == ["error TP032", "error TP031"]
    assert f"{order.folder}: The folder is not empty: it contains thesis.tex.\n" in text


def test_an_output_that_cannot_be_made_is_refused(config, order_of, tmp_path):
    (tmp_path / "file").write_text("")
    _, text = refusal(replace(order_of(config), folder=tmp_path / "file" / "run"))
    assert "The run folder cannot be written: Not a directory." in text


@pytest.mark.parametrize(
    ("group", "values", "code", "said"),
    [
        ("mesh", {"device": "tpu"}, 3, "error TP701: --device: No tpu device was found; JAX sees only: cpu."),
        ("mesh", {"devices": 9}, 3, "mesh.devices is 9, but JAX sees 8."),
        ("model", {"name": "tiny-gpt3"}, 2, "Did you mean tiny-gpt2?"),
        ("data", {"dataset": "none.jsonl"}, 2, "error TP010: none.jsonl: There is no dataset"),
        ("data", {"dataset": "dev-reasoning-v1"}, 2, "  Next: Did you mean dev-reasoning-v2?"),
    ],
)
def test_a_name_or_device_that_does_not_exist_is_refused(group, values, code, said, config, order_of):
    order = order_of(with_settings(config, **{group: values}))
    exit_code, text = refusal(order)
    assert (exit_code, said in text) == (code, True), text
    assert not order.folder.exists()


@pytest.fixture
def packed(config) -> Config:
    """Four steps of two microbatches, a row for the first step, every second one and the last."""
    return with_settings(
        config,
        data={"packing": True},
        optimizer={"schedule": "constant"},
        batch={"microbatch_size": 2, "accumulation_steps": 2},
        recording={"log_every_steps": 2},
        limits={"steps": 4},
    )


@pytest.mark.slow
def test_a_packed_run_counts_real_tokens(packed, finished):
    whole = finished(packed)
    _, data = inputs_of(packed)
    encoded, computed = data.encoded.encoded, 4 * packed.data.max_length
    seen = [sum(len(encoded[row]) for row in data.source.rows(step)) for step in range(4)]
    found = rows(whole)
    assert [(row["step"], row["tokens_seen"]) for row in found] == [(step, sum(seen[:step])) for step in (1, 2, 4)]
    assert found[-1]["padding_fraction"] == pytest.approx(1 - (seen[2] + seen[3]) / (2 * computed))
    assert found[-1]["padding_fraction"] < 0.1
    manifest = manifest_of(whole)
    assert manifest["effective"]["data"]["packing"] is True
    assert manifest["dataset"]["tokens"] == sum(map(len, encoded))
    assert manifest["dataset"]["sequences"] == len(data.source.sequences)
    assert manifest["training"]["tokens_per_step"] == computed


@pytest.mark.parametrize(
    ("line", "changes", "code"),
    [
        (1, {"tokens_seen": 500}, "TP312"),
        (0, {"tokens_seen": 513}, "TP312"),
        (1, {"padding_fraction": 0.5}, "TP313"),
        (2, {"tokens_per_second": 1.0}, "TP313"),
    ],
)
def test_tokens_that_the_rows_do_not_take_in_are_found(line, changes, code, packed, finished, tmp_path):
    folder = shutil.copytree(finished(packed), tmp_path / "run")
    found = rows(folder)
    found[line] |= changes
    row_file(folder / layout.METRICS, *found)
    assert code in error_codes(folder)


class LastNorm(Method):
    kind = "last_norm"

    def is_trained(self, name: str) -> bool:
        return name.startswith("final_norm.")


def add_kind(document: dict[str, Any]) -> None:
    document["properties"]["method"]["properties"]["kind"]["enum"].append("last_norm")


@pytest.mark.slow
def test_a_method_of_ten_lines_runs_resumes_and_exports(config, train, monkeypatch):
    monkeypatch.setitem(METHODS, "last_norm", lambda config: LastNorm())
    with changed_schema("train_config", add_kind):
        short = with_settings(config, method={"kind": "last_norm"}, optimizer={"schedule": "constant"})
        longer = with_settings(short, limits={"steps": 4})
        whole, first = train(longer, "whole"), train(short, "first")
        rest = train(longer, "rest", resume=first)
        # Measured where the code under test is not committed.
        assert check_run(read_run(rest)).grade.name in ("consistent", "measured")
        manifest = manifest_of(rest)
        [state], frozen = restored_state(rest, task_of(longer))
        assert list(state.trained) == ["final_norm.bias", "final_norm.scale"]
        assert manifest["training"]["method"] == manifest["effective"]["method"]["kind"] == "last_norm"
        trained, kept = (sum(value.size for value in params.values()) for params in (state.trained, frozen))
        assert manifest["model"]["trainable_parameters"] == trained
        assert manifest["model"]["parameters"] == trained + kept
        assert [row["loss"] for row in rows(first) + rows(rest)] == [row["loss"] for row in rows(whole)]
        assert np.any(state.trained["final_norm.bias"])
        assert (export_run(rest, None, QUIET) / "model.safetensors").is_file()
        plan = json.loads((rest / layout.PLAN).read_text())
        assert {"params", "frozen"} <= {part["name"] for part in plan["parts"]}

"""A run that is continued ends as one that never stopped, and is refused what would make it another."""

import hashlib
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import pytest
from model_folders import row_file
from tasks import first_state_of
from whole_runs import carried_out, errors_of, link_at, logged, manifest_of, refusal, rows, saved_steps

from evidence import layout
from trainer.config.tree import CheckpointConfig, Config, EvaluationConfig, LimitsConfig, OptimizerConfig
from trainer.loop.session import StopRequest
from trainer.model.export import export
from trainer.model.source import resolve
from trainer.objectives.data import Data
from trainer.run import RunRequest


@pytest.mark.slow(but=("float32",))
@pytest.mark.parametrize("state", ["float32", "bfloat16", "int8"])
def test_resuming_gives_what_never_stopping_gives_bit_for_bit(
    state: Any, config: Config, order_of: Callable[..., RunRequest], monkeypatch: pytest.MonkeyPatch
):
    long = replace(config, limits=LimitsConfig(steps=6), checkpoint=CheckpointConfig(save_every_steps=2))
    long = replace(long, optimizer=replace(long.optimizer, state=state))
    whole, part, rest = order_of(long, "whole"), order_of(long, "part"), order_of(long, "rest")
    assert carried_out(whole) == 0

    def after_four(self, *, reserve_seconds: float = 0.0) -> str | None:
        return "signal SIGTERM" if len(rows(part.folder)) >= 4 else None

    with monkeypatch.context() as patch:
        patch.setattr(StopRequest, "reason", after_four)
        assert carried_out(part) == 5
    assert carried_out(replace(rest, resume=part.folder)) == 0
    parent = manifest_of(rest.folder)["parent"]
    assert parent == {"run_id": "part", "step": 4, "link": link_at(part.folder, 4)}
    exact = ("step", "tokens_seen", "loss", "learning_rate", "grad_norm")
    joined = rows(part.folder) + rows(rest.folder)
    assert [[row[key] for key in exact] for row in joined] == [
        [row[key] for key in exact] for row in rows(whole.folder)
    ]
    ends = [rows(order.folder, layout.CHAIN)[-1] for order in (rest, whole)]
    assert ends[0]["state_sha256"] == ends[1]["state_sha256"]
    assert manifest_of(rest.folder)["training"]["optimizer"]["state"] == state
    assert errors_of(rest.folder) == []


@pytest.mark.slow
def test_a_run_of_an_earlier_version_is_continued_although_most_of_its_examples_are_cut(
    config: Config, order_of: Callable[..., RunRequest], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    long = [{"prompt": str(number), "completion": "Once upon a time. " * 30} for number in range(4)]
    data = replace(config.data, dataset=row_file(tmp_path / "rows.jsonl", *long), max_length=64)
    first, rest = (order_of(replace(config, data=data, limits=LimitsConfig(steps=n)), f"until-{n}") for n in (2, 4))
    with monkeypatch.context() as patch:
        patch.setattr(Data, "refused", [])
        assert carried_out(first) == 0
    assert carried_out(replace(rest, resume=first.folder)) == 0
    assert [each["fields"]["code"] for each in logged(rest.folder, "odd_row")] == ["TP026"]


@pytest.mark.slow
def test_a_run_stopped_in_its_baseline_is_continued_with_the_whole_of_it(
    config: Config, order_of: Callable[..., RunRequest]
):
    asked = replace(config, evaluation=replace(config.evaluation, eval_set="eval_v1"))
    first, rest = order_of(asked, "first"), order_of(asked, "rest")
    stopped = replace(first, config=replace(asked, limits=LimitsConfig(steps=2, max_minutes=1e-6)))
    assert carried_out(stopped) == 5
    assert rows(first.folder, layout.BASELINE_PREDICTIONS) == []
    assert saved_steps(first.folder) == ["0"]
    assert carried_out(replace(rest, resume=first.folder)) == 0
    summary = json.loads((rest.folder / layout.EVAL_SUMMARY).read_text())
    assert summary["baseline"]["checkpoint"]["step"] == 0
    assert summary["baseline"]["predictions"]["rows"] == summary["eval_set"]["items"]
    assert errors_of(rest.folder) == []


@pytest.mark.slow
def test_a_run_that_begins_later_says_that_the_untrained_model_is_not_asked(
    config: Config, order_of: Callable[..., RunRequest], finished: Callable[[Config], Path]
):
    more = replace(config, limits=LimitsConfig(steps=4), evaluation=replace(config.evaluation, eval_set="eval_v1"))
    order = order_of(more, "more", resume=finished(config))
    assert carried_out(order) == 0
    [said] = logged(order.folder, "baseline_left_out")
    assert said["message"] == ("baseline evaluation skipped (resumed at step 2); see the run that began at step 0")
    assert errors_of(order.folder) == []


def test_resuming_a_run_without_a_checkpoint_is_refused(
    config: Config, order_of: Callable[..., RunRequest], tmp_path: Path
):
    code, text = refusal(replace(order_of(config), resume=tmp_path))
    assert code == 2
    assert "The run has no complete checkpoint to continue from." in text


def test_a_run_that_has_all_its_steps_is_not_continued_without_one(
    config: Config, order_of: Callable[..., RunRequest], finished: Callable[[Config], Path]
):
    parent = finished(config)
    order = order_of(config, "more", resume=parent)
    said = (
        f"error TP051: {parent}: The newest checkpoint is at step 2 and limits.steps is 2: no step is left.\n"
        "  limits.steps counts all steps, including those before the run was resumed.\n"
        "  Expected: limits.steps above 2.\n"
        "  Next: Raise it, as in --set limits.steps=4."
    )
    assert refusal(order) == (2, f"{said}\n")
    asked = replace(order, config=replace(config, evaluation=EvaluationConfig(eval_set="eval_v1")))
    assert refusal(asked) == (2, f"{said} To answer eval_v1 as it is: trainproof evaluate {parent}.\n")
    assert not order.folder.exists()
    assert carried_out(replace(order, config=replace(config, limits=LimitsConfig(steps=3)))) == 0
    assert manifest_of(order.folder)["training"]["steps_done"] == 3


def test_a_checkpoint_of_another_state_is_refused_with_every_key_that_makes_it_one(
    config: Config,
    order_of: Callable[..., RunRequest],
    finished: Callable[[Config], Path],
    monkeypatch: pytest.MonkeyPatch,
):
    parent = finished(config)
    monkeypatch.setattr("trainer.run.read_inputs", lambda *_, **__: pytest.fail("it was planned first"))
    other = replace(
        config,
        model=replace(config.model, name="demo"),
        optimizer=OptimizerConfig(name="adafactor"),
        precision=replace(config.precision, params="bfloat16"),
        limits=LimitsConfig(steps=4),
    )
    order = order_of(other, resume=parent)
    why = "  A checkpoint only fits the model, optimizer and data types that it was saved with.\n"
    assert refusal(order) == (
        2,
        "".join(
            f"error TP052: {parent / layout.CONFIG} at {key}: "
            f'{key} is "{now}"; the run to continue has "{then}".\n{why}'
            f"  Next: Continue it with --set {key}={then}, or leave --resume out to begin anew.\n"
            for key, now, then in (
                ("model.name", "demo", "tiny-gpt2"),
                ("optimizer.name", "adafactor", "adamw"),
                ("precision.params", "bfloat16", "float32"),
            )
        ),
    )
    assert not order.folder.exists()


def test_a_run_is_not_continued_with_other_rows(
    config: Config, order_of: Callable[..., RunRequest], finished: Callable[[Config], Path]
):
    parent = finished(config)
    other = replace(config, seed=7, data=replace(config.data, shuffle=False), limits=LimitsConfig(steps=4))
    order = order_of(other, resume=parent)
    why = "  These settings determine the rows of every step, including the steps before.\n"
    assert refusal(order) == (
        2,
        "".join(
            f"error TP054: {parent / layout.CONFIG} at {key}: "
            f"{key} is {now}; the run to continue has {then}.\n{why}"
            f"  Next: Continue it with --set {key}={then}, or leave --resume out to begin anew.\n"
            for key, now, then in (("seed", 7, 0), ("data.shuffle", "false", "true"))
        ),
    )
    assert not order.folder.exists()


@pytest.mark.slow
def test_a_run_is_not_continued_with_a_dataset_that_changed_or_another_batch_size(
    config: Config, order_of: Callable[..., RunRequest], finished: Callable[[Config], Path], tmp_path: Path
):
    rows_file = tmp_path / "rows.jsonl"
    lines = [f'{{"prompt": "What is {n} + 1?", "completion": "{n + 1}"}}\n' for n in range(4)]
    rows_file.write_text("".join(lines))
    before = hashlib.sha256(rows_file.read_bytes()).hexdigest()
    mine = replace(config, data=replace(config.data, dataset=str(rows_file)))
    parent = finished(mine)
    rows_file.write_text("".join(reversed(lines)))
    after = hashlib.sha256(rows_file.read_bytes()).hexdigest()
    more = replace(mine, limits=LimitsConfig(steps=4), batch=replace(mine.batch, accumulation_steps=2))
    order = order_of(more, resume=parent)
    assert refusal(order) == (
        2,
        (
            f"error TP054: {parent / layout.MANIFEST} at /dataset/sha256: The dataset rows.jsonl has 4 rows with the "
            f"SHA-256 {after}; the run to continue read rows.jsonl, 4 rows with the SHA-256 {before}.\n"
            "  Which rows a step sees follows from the dataset for every step of the run, those before too.\n"
            "  Next: Name the dataset as it was, or leave --resume out to begin anew.\n"
            f"error TP054: {parent / layout.MANIFEST} at /training/batch_size: A step has 8 sequences over all "
            "devices; the run to continue has 4.\n"
            "  These settings determine the rows of every step, including the steps before.\n"
            "  Next: Set batch.microbatch_size and batch.accumulation_steps so that with the number of devices they "
            "make 4, or leave --resume out to begin anew.\n"
        ),
    )
    assert not order.folder.exists()


@pytest.mark.slow
def test_adafactor_cannot_take_up_decay_where_its_state_has_none(
    config: Config, order_of: Callable[..., RunRequest], finished: Callable[[Config], Path]
):
    plain = replace(config, optimizer=OptimizerConfig(name="adafactor"))
    decaying = replace(plain, optimizer=replace(plain.optimizer, weight_decay=0.1), limits=LimitsConfig(steps=4))
    parent = finished(plain)
    assert refusal(order_of(decaying, resume=parent)) == (
        2,
        (
            f"error TP052: {parent / layout.CONFIG} at optimizer.weight_decay: optimizer.weight_decay is 0.1; the run "
            "to continue has 0.0.\n"
            "  A checkpoint only fits the model, optimizer and data types that it was saved with.\n"
            "  Next: Continue it with --set optimizer.weight_decay=0.0, or leave --resume out to begin anew.\n"
        ),
    )


@pytest.mark.slow
def test_what_does_not_change_the_state_may_change(
    config: Config, order_of: Callable[..., RunRequest], finished: Callable[[Config], Path]
):
    parent = finished(config)
    changed = replace(
        config,
        optimizer=replace(config.optimizer, weight_decay=0.1, schedule="linear", warmup_steps=1),
        precision=replace(config.precision, compute="bfloat16"),
        mesh=replace(config.mesh, devices=2),
        batch=replace(config.batch, microbatch_size=2),
        limits=LimitsConfig(steps=3),
    )
    order = order_of(changed, "changed", resume=parent)
    assert carried_out(order) == 0
    [said] = logged(order.folder, "continued")
    assert (said["level"], said["message"]) == (
        "warning",
        (
            "goes on from step 2 of run, whose steps were computed otherwise: "
            'optimizer.schedule was "cosine", is "linear"; '
            "optimizer.warmup_steps was 0, is 1; optimizer.weight_decay was 0.0, is 0.1; "
            'batch.microbatch_size was 4, is 2; precision.compute was "float32", is "bfloat16"; '
            'limits.steps was 2, is 3; devices was "1 × cpu", is "2 × cpu"'
        ),
    )
    assert said["fields"]["changes"][0] == {"key": "optimizer.schedule", "before": "cosine", "after": "linear"}
    assert errors_of(order.folder) == []


@pytest.mark.slow
def test_a_run_continued_as_it_was_says_so(
    config: Config, order_of: Callable[..., RunRequest], finished: Callable[[Config], Path]
):
    constant = replace(config, optimizer=replace(config.optimizer, schedule="constant"))
    parent = finished(constant)
    order = order_of(replace(constant, limits=LimitsConfig(steps=3)), "more", resume=parent)
    assert carried_out(order) == 0
    [said] = logged(order.folder, "continued")
    assert (said["level"], said["message"]) == ("info", "goes on from step 2 of run")
    assert said["fields"] == {"parent": {"run_id": "run", "step": 2, "link": link_at(parent, 2)}, "changes": []}


@pytest.mark.slow
def test_a_continued_run_makes_no_first_state_and_needs_no_weights(
    config: Config, order_of: Callable[..., RunRequest], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    model = tmp_path / "model"
    export(model, first_state_of(config).trained, resolve("tiny-gpt2"))
    read = replace(config, model=replace(config.model, name=str(model)))
    first, rest = order_of(read, "first"), order_of(replace(read, limits=LimitsConfig(steps=3)), "rest")
    assert carried_out(first) == 0
    (model / "model.safetensors").unlink()
    monkeypatch.setattr("trainer.run.initial_state", lambda _: pytest.fail("a first state was made"))
    assert carried_out(replace(rest, resume=first.folder)) == 0
    assert manifest_of(rest.folder)["model"]["weights"] == "pretrained"
    assert errors_of(rest.folder) == []
    weights = replace(
        rest, resume=first.folder, config=replace(rest.config, model=replace(read.model, weights="random"))
    )
    assert refusal(replace(weights, folder=tmp_path / "drawn")) == (
        2,
        (
            f"error TP052: {first.folder / layout.CONFIG} at model.weights: "
            'model.weights is "random"; the run to continue has null.\n'
            "  A checkpoint only fits the model, optimizer and data types that it was saved with.\n"
            "  Next: Continue it with --set model.weights=null, or leave --resume out to begin anew.\n"
        ),
    )


def test_a_checkpoint_that_the_device_has_no_room_for_claims_no_folder(
    config: Config,
    order_of: Callable[..., RunRequest],
    finished: Callable[[Config], Path],
    monkeypatch: pytest.MonkeyPatch,
):
    parent = finished(config)

    def full(*_):
        message = "RESOURCE_EXHAUSTED: Out of memory allocating 1024 bytes."
        raise jax.errors.JaxRuntimeError(message)

    monkeypatch.setattr("trainer.loop.checkpoints.restore_checkpoint", full)
    order = order_of(replace(config, limits=LimitsConfig(steps=3)), "more", resume=parent)
    assert refusal(order) == (
        4,
        (
            f"error TP723: {parent}: The device ran out of memory: RESOURCE_EXHAUSTED: Out of memory allocating 1024 "
            "bytes.\n"
            "  The plan is an estimate; plan.json in the run folder lists its parts.\n"
            "  Next: Apply one of the changes in plan.json, which are sorted by saving.\n"
        ),
    )
    assert not order.folder.exists()

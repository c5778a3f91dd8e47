"""A run that is continued ends as one that never stopped, and is refused what would make it another."""

import json
from dataclasses import replace
from operator import itemgetter
from pathlib import Path

import jax
import pytest
from model_folders import row_file
from tasks import first_state_of, with_settings
from whole_runs import errors_of, link_at, logged, manifest_of, refusal, rows, saved_steps

from evidence import layout
from evidence.hashes import sha256_file
from trainer.loop.session import StopRequest
from trainer.model.export import export
from trainer.model.source import resolve
from trainer.objectives.data import Data


@pytest.mark.slow(but=("float32",))
@pytest.mark.parametrize("state", ["float32", "bfloat16", "int8"])
def test_resuming_gives_what_never_stopping_gives_bit_for_bit(state, config, order_of, train, monkeypatch):
    every = {"checkpoint": {"save_every_steps": 2}, "limits": {"steps": 6}}
    long = with_settings(config, optimizer={"state": state}, **every)
    whole, part = train(long, "whole"), order_of(long, "part").folder

    def after_four(self: StopRequest, *, reserve_seconds: float = 0.0) -> str | None:
        return "signal SIGTERM" if len(rows(part)) >= 4 else None

    with monkeypatch.context() as patch:
        patch.setattr(StopRequest, "reason", after_four)
        train(long, "part", ends_with=5)
    rest = train(long, "rest", resume=part)
    assert manifest_of(rest)["parent"] == {"run_id": "part", "step": 4, "link": link_at(part, 4)}
    exact = itemgetter("step", "tokens_seen", "loss", "learning_rate", "grad_norm")
    assert list(map(exact, rows(part) + rows(rest))) == list(map(exact, rows(whole)))
    ends = {rows(folder, layout.CHAIN)[-1]["state_sha256"] for folder in (rest, whole)}
    assert len(ends) == 1
    assert manifest_of(rest)["training"]["optimizer"]["state"] == state
    assert errors_of(rest) == []


@pytest.mark.slow
def test_a_run_of_an_earlier_version_is_continued_with_most_examples_cut(config, train, tmp_path, monkeypatch):
    long = [{"prompt": str(number), "completion": "Once upon a time. " * 30} for number in range(4)]
    cut = with_settings(config, data={"dataset": row_file(tmp_path / "r.jsonl", *long), "max_length": 64})
    with monkeypatch.context() as patch:
        patch.setattr(Data, "refused", [])
        first = train(cut, "first")
    rest = train(with_settings(cut, limits={"steps": 4}), "rest", resume=first)
    assert [each["fields"]["code"] for each in logged(rest, "odd_row")] == ["TP026"]


@pytest.mark.slow
def test_a_run_stopped_in_its_baseline_is_continued_with_the_whole_of_it(config, train):
    asked = with_settings(config, evaluation={"eval_set": "eval_v1"})
    first = train(with_settings(asked, limits={"max_minutes": 1e-6}), "first", ends_with=5)
    assert rows(first, layout.BASELINE_PREDICTIONS) == []
    assert saved_steps(first) == ["0"]
    rest = train(asked, "rest", resume=first)
    summary = json.loads((rest / layout.EVAL_SUMMARY).read_text())
    assert summary["baseline"]["checkpoint"]["step"] == 0
    assert summary["baseline"]["predictions"]["rows"] == summary["eval_set"]["items"]
    assert errors_of(rest) == []


@pytest.mark.slow
def test_a_continued_run_has_no_baseline_evaluation(config, train, finished):
    more = with_settings(config, limits={"steps": 4}, evaluation={"eval_set": "eval_v1"})
    folder = train(more, "more", resume=finished(config))
    [skipped] = logged(folder, "baseline_left_out")
    assert skipped["message"].startswith("baseline evaluation skipped (resumed at step 2)")
    assert errors_of(folder) == []


def test_resuming_a_run_without_a_checkpoint_is_refused(config, order_of, tmp_path):
    code, text = refusal(replace(order_of(config), resume=tmp_path))
    assert code == 2
    assert "The run has no complete checkpoint to resume from." in text


def test_a_run_that_has_all_its_steps_is_continued_with_more_alone(config, order_of, train, finished):
    parent = finished(config)
    order = order_of(config, "more", resume=parent)
    said = (
        f"error TP051: {parent}: The newest checkpoint is at step 2 and limits.steps is 2: no step is left.\n"
        "  limits.steps counts all steps, including those before the run was resumed.\n"
        "  Expected: limits.steps above 2.\n"
        "  Next: Raise it, as in --set limits.steps=4."
    )
    assert refusal(order) == (2, f"{said}\n")
    asked = replace(order, config=with_settings(config, evaluation={"eval_set": "eval_v1"}))
    assert refusal(asked) == (2, f"{said} To evaluate it as it is, run trainproof evaluate {parent}.\n")
    assert not order.folder.exists()
    folder = train(with_settings(config, limits={"steps": 3}), "more", resume=parent)
    assert manifest_of(folder)["training"]["steps_done"] == 3


OTHER_STATE = {"model": {"name": "demo"}, "optimizer": {"name": "adafactor"}, "precision": {"params": "bfloat16"}}
ADAFACTOR = {"optimizer": {"name": "adafactor"}}


@pytest.mark.parametrize(
    ("base", "changes", "code", "keys"),
    [
        ({}, OTHER_STATE, "TP052", ["model.name", "optimizer.name", "precision.params"]),
        ({}, {"data": {"shuffle": False, "packing": True}}, "TP054", ["data.shuffle", "data.packing"]),
        # The state of Adafactor has no decay to take up.
        pytest.param(
            *(ADAFACTOR, {"optimizer": {"weight_decay": 0.1}}, "TP052", ["optimizer.weight_decay"]),
            marks=pytest.mark.slow,
        ),
    ],
)
def test_every_change_that_makes_it_another_run_is_refused_by_its_key(
    base, changes, code, keys, config, order_of, finished, monkeypatch
):
    begun = with_settings(config, **base)
    parent = finished(begun)
    monkeypatch.setattr("trainer.run.read_inputs", lambda *_, **__: pytest.fail("inputs were read first"))
    order = order_of(with_settings(begun, **changes, limits={"steps": 4}), resume=parent)
    exit_code, text = refusal(order)
    assert exit_code == 2
    named = [line.partition(": ")[0] for line in text.splitlines() if line.startswith("error ")]
    assert named == [f"error {code}"] * len(keys)
    assert [text.count(f"{parent / layout.CONFIG} at {key}: {key} is ") for key in keys] == [1] * len(keys)
    assert text.count("  Next: Pass --set ") == len(keys)
    assert not order.folder.exists()


@pytest.mark.slow
def test_a_run_is_not_continued_with_a_changed_dataset_or_another_batch_size(config, order_of, finished, tmp_path):
    pairs = [{"prompt": f"What is {n} + 1?", "completion": str(n + 1)} for n in range(4)]
    dataset = Path(row_file(tmp_path / "rows.jsonl", *pairs))
    before = sha256_file(dataset)
    mine = with_settings(config, data={"dataset": str(dataset)})
    parent = finished(mine)
    row_file(dataset, *reversed(pairs))
    at_keys = ("/dataset/sha256", "/training/batch_size")
    order = order_of(with_settings(mine, limits={"steps": 4}, batch={"accumulation_steps": 2}), resume=parent)
    exit_code, text = refusal(order)
    assert exit_code == 2
    after = sha256_file(dataset)
    assert f"SHA-256 {after}; the run was trained on rows.jsonl, 4 rows, {before}." in text
    assert "A step has 8 sequences over all devices; the run had 4." in text
    assert [text.count(f"error TP054: {parent / layout.MANIFEST} at {at}: ") for at in at_keys] == [1, 1]
    assert not order.folder.exists()


@pytest.mark.slow
def test_settings_that_do_not_change_the_state_may_change(config, train, finished):
    parent = finished(config)
    other = with_settings(
        config,
        optimizer={"weight_decay": 0.1, "schedule": "linear", "warmup_steps": 1},
        precision={"compute": "bfloat16"},
        mesh={"devices": 2},
        batch={"microbatch_size": 2},
        limits={"steps": 3},
    )
    folder = train(other, "changed", resume=parent)
    [said] = logged(folder, "continued")
    assert said["level"] == "warning"
    assert said["message"] == (
        'resumed from step 2 of run with changed settings: optimizer.schedule "cosine" → "linear"; '
        "optimizer.warmup_steps 0 → 1; optimizer.weight_decay 0.0 → 0.1; batch.microbatch_size 4 → 2; "
        'precision.compute "float32" → "bfloat16"; limits.steps 2 → 3; devices "1 × cpu" → "2 × cpu"'
    )
    assert said["fields"]["changes"][0] == {"key": "optimizer.schedule", "before": "cosine", "after": "linear"}
    assert errors_of(folder) == []


@pytest.mark.slow
def test_a_continued_run_makes_no_first_state_and_needs_no_weights(config, train, order_of, tmp_path, monkeypatch):
    model = tmp_path / "model"
    export(model, first_state_of(config).trained, resolve("tiny-gpt2"))
    read = with_settings(config, model={"name": str(model)})
    first = train(read, "first")
    (model / "model.safetensors").unlink()
    monkeypatch.setattr("trainer.run.initial_state", lambda _: pytest.fail("a first state was made"))
    longer = with_settings(read, limits={"steps": 3})
    rest = train(longer, "rest", resume=first)
    assert manifest_of(rest)["model"]["weights"] == "pretrained"
    assert errors_of(rest) == []
    drawn = order_of(with_settings(longer, model={"weights": "random"}), "drawn", resume=first)
    assert 'model.weights is "random"; the run to resume has null.' in refusal(drawn)[1]


def test_a_checkpoint_that_the_device_has_no_room_for_claims_no_folder(config, order_of, finished, monkeypatch):
    parent = finished(config)

    def full(*_):
        message = "RESOURCE_EXHAUSTED: Out of memory allocating 1024 bytes."
        raise jax.errors.JaxRuntimeError(message)

    monkeypatch.setattr("trainer.loop.checkpoints.restore_checkpoint", full)
    order = order_of(with_settings(config, limits={"steps": 3}), "more", resume=parent)
    code, text = refusal(order)
    assert code == 4
    assert text.startswith(f"error TP723: {parent}: The device ran out of memory: RESOURCE_EXHAUSTED")
    assert not order.folder.exists()

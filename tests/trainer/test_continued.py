"""The chain of a run; a continued run ends as one that never stopped, and is refused what would make it another."""

import hashlib
import json
import random
import shutil
from dataclasses import replace
from operator import itemgetter
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import jax
import pytest
from forging import seal_manifest
from model_folders import row_file
from tasks import first_state_of, with_settings
from whole_runs import entry_hash, error_codes, errors_of, link_at, logged, manifest_of, refusal, rows, saved_steps

from evidence import layout
from evidence.grade import check_run
from evidence.hashes import sha256_file
from evidence.rules import checker
from evidence.run import ROW_FILES, read_run
from trainer.loop.session import StopRequest
from trainer.model.export import export
from trainer.model.source import resolve
from trainer.objectives.data import Data

RESUMED: dict[str, dict[str, Any]] = {
    "float32": {},
    "bfloat16": {"optimizer": {"state": "bfloat16"}},
    "int8": {"optimizer": {"state": "int8"}},
    "lora": {"method": {"kind": "lora", "dropout": 0.1}, "precision": {"params": "bfloat16", "compute": "bfloat16"}},
    "nf4": {"method": {"kind": "lora", "base": "nf4"}, "precision": {"params": "bfloat16"}},
    "float16": {"precision": {"compute": "float16"}},
    "packed": {"data": {"packing": True}, "batch": {"microbatch_size": 2, "accumulation_steps": 2}},
}


@pytest.mark.slow(but=("float32",))
@pytest.mark.parametrize("name", RESUMED)
def test_resuming_gives_what_never_stopping_gives_bit_for_bit(name, config, order_of, train, monkeypatch):
    every = {"checkpoint": {"save_every_steps": 2}, "limits": {"steps": 6}}
    long = with_settings(config, **RESUMED[name], **every)
    whole, part = train(long, "whole"), order_of(long, "part").folder

    with monkeypatch.context() as patch:
        patch.setattr(StopRequest, "reason", lambda self, **_: "signal SIGTERM" if len(rows(part)) >= 4 else None)
        train(long, "part", ends_with=5)
    rest = train(long, "rest", resume=part)
    assert manifest_of(rest)["parent"] == {"run_id": "part", "step": 4, "link": link_at(part, 4)}
    exact = itemgetter("step", "tokens_seen", "loss", "learning_rate", "grad_norm")
    assert list(map(exact, rows(part) + rows(rest))) == list(map(exact, rows(whole)))
    assert rows(rest, layout.CHAIN)[-1]["state_sha256"] == rows(whole, layout.CHAIN)[-1]["state_sha256"]


@pytest.mark.slow
def test_a_run_of_an_earlier_version_is_continued_with_most_examples_cut(config, train, tmp_path, monkeypatch):
    long = [{"prompt": str(number), "completion": "Once upon a time. " * 30} for number in range(4)]
    cut = with_settings(config, data={"dataset": row_file(tmp_path / "r.jsonl", *long), "max_length": 64})
    with monkeypatch.context() as patch:
        patch.setattr(Data, "refused", [])
        first = train(cut, "first", errors={"TP330", "TP406"})
    rest = train(with_settings(cut, limits={"steps": 4}), "rest", resume=first, errors={"TP330", "TP406"})
    assert [each["fields"]["code"] for each in logged(rest, "odd_row")] == ["TP026"]


@pytest.mark.slow
def test_a_run_stopped_in_its_baseline_is_continued_with_the_whole_of_it(config, train):
    asked = with_settings(config, evaluation={"eval_set": "eval_v1"})
    first = train(with_settings(asked, limits={"max_minutes": 1e-6}), "first", ends_with=5)
    assert rows(first, layout.BASELINE_PREDICTIONS) == []
    assert saved_steps(first) == ["0"]
    message = "limits.max_minutes=1e-06 reached, before the evaluation was complete"
    assert manifest_of(first)["exit"] == {"code": 5, "error": None, "message": message}
    assert len({entry["state_sha256"] for entry in rows(first, layout.CHAIN)}) == 1
    rest = train(asked, "rest", resume=first)
    summary = json.loads((rest / layout.EVAL_SUMMARY).read_text())
    assert summary["baseline"]["checkpoint"]["step"] == 0
    assert summary["baseline"]["predictions"]["rows"] == summary["eval_set"]["items"]


def test_resuming_a_run_without_a_checkpoint_is_refused(config, order_of, tmp_path):
    code, text = refusal(replace(order_of(config), resume=tmp_path))
    assert (code, "The run has no complete checkpoint to resume from." in text) == (2, True)


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


@pytest.mark.slow(but=("state", "rows"))
@pytest.mark.parametrize(
    ("optimizer", "code", "changes", "keys"),
    [
        ("adamw", "TP052", OTHER_STATE, ["model.name", "optimizer.name", "precision.params"]),
        ("adamw", "TP054", {"data": {"shuffle": False, "packing": True}}, ["data.shuffle", "data.packing"]),
        # The state of Adafactor has no decay to take up.
        ("adafactor", "TP052", {"optimizer": {"weight_decay": 0.1}}, ["optimizer.weight_decay"]),
    ],
    ids=["state", "rows", "decay"],
)
def test_every_change_that_makes_it_another_run_is_refused_by_its_key(
    optimizer, code, changes, keys, config, order_of, finished, monkeypatch
):
    begun = with_settings(config, optimizer={"name": optimizer})
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
    first = 'resumed from step 2 of run with changed settings: optimizer.schedule "cosine" → "linear"; '
    assert (said["level"], said["message"].startswith(first)) == ("warning", True)
    assert said["message"].endswith('; limits.steps 2 → 3; devices "1 × cpu" → "2 × cpu"')
    assert said["fields"]["changes"][0] == {"key": "optimizer.schedule", "before": "cosine", "after": "linear"}
    assert len(said["fields"]["changes"]) == 7


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
    drawn = order_of(with_settings(longer, model={"weights": "random"}), "drawn", resume=first)
    assert 'model.weights is "random"; the run to resume has null.' in refusal(drawn)[1]


def test_a_checkpoint_that_the_device_has_no_room_for_claims_no_folder(config, order_of, finished, monkeypatch):
    parent, error = finished(config), jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating.")
    monkeypatch.setattr("trainer.loop.checkpoints.restore_checkpoint", Mock(side_effect=error))
    order = order_of(with_settings(config, limits={"steps": 3}), "more", resume=parent)
    code, text = refusal(order)
    assert code == 4
    assert text.startswith(f"error TP723: {parent}: The device ran out of memory: RESOURCE_EXHAUSTED")
    assert not order.folder.exists()


CHAIN_CODES = {"TP324", "TP325", "TP326", "TP327", "TP328"}


@pytest.fixture
def whole(finished, config) -> Path:
    """A run of six steps with a checkpoint at the third and an entry at every second."""
    saving = {"checkpoint": {"save_every_steps": 3, "keep": 9}, "recording": {"chain_every_steps": 2}}
    return finished(with_settings(config, batch={"microbatch_size": 2}, limits={"steps": 6}, **saving))


@pytest.fixture
def copy(whole: Path, tmp_path: Path) -> Path:
    """A copy of the run without its checkpoints."""
    return shutil.copytree(whole, tmp_path / "run", ignore=shutil.ignore_patterns(layout.CHECKPOINTS))


def entries(folder: Path) -> list[dict]:
    return rows(folder, layout.CHAIN)


@pytest.mark.slow
def test_every_entry_has_the_hashes_of_its_step(whole):
    found = entries(whole)
    assert [entry["step"] for entry in found] == [0, 2, 3, 4, 6]
    assert [entry["rows"] for entry in found] == [0, 2, 3, 4, 6]
    assert [entry["data_position"] for entry in found] == [0, 4, 6, 8, 12]
    lines = (whole / layout.METRICS).read_bytes().splitlines(keepends=True)
    assert [entry["rows_sha256"] for entry in found] == [
        hashlib.sha256(b"".join(lines[: entry["rows"]])).hexdigest() for entry in found
    ]
    assert [entry["previous"] for entry in found] == [None, *map(entry_hash, found[:-1])]
    manifest = manifest_of(whole)
    assert manifest["chain"] == {"entries": 5, "head": entry_hash(found[-1])}
    assert found[0]["params_sha256"] == manifest["model"]["weights_sha256"]
    states = {entry["step"]: entry["state_sha256"] for entry in found}
    for step in (3, 6):
        saved = json.loads((whole / layout.CHECKPOINTS / str(step) / "_CHECKPOINT_METADATA").read_text())
        assert saved["custom_metadata"]["state_sha256"] == states[step]
    assert len(set(states.values())) == 5


def tampered_value(value, draw: random.Random):
    if isinstance(value, str) and len(value) == 64:
        place = draw.randrange(64)
        digit = draw.choice([digit for digit in "0123456789abcdef" if digit != value[place]])
        return value[:place] + digit + value[place + 1 :]
    if isinstance(value, int):
        return value + draw.choice([-1, 1, 7])
    if value is None:
        return "ab" * 32
    return value * draw.choice([0.5, 1.5]) + 1e-3 if isinstance(value, float) else value + "0"


def tamper(folder: Path, draw: random.Random) -> str:
    """Change chain or rows at random and make every hash of the manifest's list fit; return what was done."""
    name = draw.choice([layout.CHAIN, layout.METRICS])
    lines = rows(folder, name)
    index = draw.randrange(len(lines))
    what = draw.choice(["value", "value", "value", "drop", "twice", "swap", "cut"])
    if what == "value":
        key = draw.choice([key for key in lines[index] if key not in ("time", "device_memory_bytes")])
        lines[index][key] = tampered_value(lines[index][key], draw)
        what += f" {key}"
    elif what == "drop":
        del lines[index]
    elif what == "twice":
        lines.insert(index, dict(lines[index]))
    elif what == "swap":
        other = (index + 1) % len(lines)
        lines[index], lines[other] = lines[other], lines[index]
    else:
        del lines[index:]
    row_file(folder / name, *lines)
    return f"{what} in line {index + 1} of {name}"


@pytest.mark.slow
def test_a_thousand_tamperings_are_found_by_the_chain_alone(copy):
    """No hash of a file is compared here, only the chain, the rows and the head in the manifest."""
    kept = {name: (copy / name).read_bytes() for name in (layout.CHAIN, layout.METRICS)}
    draw, codes = random.Random(20), set()
    for _ in range(1000):
        done = tamper(copy, draw)
        read = read_run(copy)
        found = [problem for problem in checker.check(read) if problem.code in CHAIN_CODES]
        found += [problem for name in ROW_FILES for problem in read.rows(name).problems if problem.severity == "error"]
        assert found, done
        codes |= {problem.code for problem in found}
        for name, content in kept.items():
            (copy / name).write_bytes(content)
    assert codes >= CHAIN_CODES - {"TP328"}
    assert CHAIN_CODES.isdisjoint(problem.code for problem in checker.check(read_run(copy)))


def test_a_changed_entry_is_located(copy):
    changed = entries(copy)
    right = entry_hash(changed[2])
    changed[2]["state_sha256"] = "ab" * 32
    row_file(copy / layout.CHAIN, *changed)
    seal_manifest(copy, manifest_of(copy))
    found = entry_hash(changed[2])
    assert errors_of(copy) == [f"previous is {right[:12]}…; the hash of the previous entry gives {found[:12]}…."]
    assert check_run(read_run(copy)).grade.name == "contradictory"


def test_a_removed_chain_is_an_error(copy):
    (copy / layout.CHAIN).unlink()
    manifest = manifest_of(copy)
    del manifest["chain"]
    manifest["artifacts"] = [each for each in manifest["artifacts"] if each["path"] != layout.CHAIN]
    seal_manifest(copy, manifest)
    assert error_codes(copy) == {"TP531"}

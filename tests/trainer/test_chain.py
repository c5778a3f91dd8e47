"""The chain that a run writes: what it states is so, no change stays unseen, and a resumed run goes on with it."""

import hashlib
import json
import random
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from evidence import layout
from evidence.grade import check_run
from evidence.hashes import sha256_file, sha256_manifest
from evidence.rules import checker
from evidence.run import read_run
from trainer.config.tree import (
    BatchConfig,
    CheckpointConfig,
    Config,
    DataConfig,
    EvaluationConfig,
    LimitsConfig,
    MeshConfig,
    ModelConfig,
    OptimizerConfig,
    RecordingConfig,
)
from trainer.recorder.progress import Watch
from trainer.run import RunRequest, run

CHAINED = Config(
    name="chained",
    model=ModelConfig(name="tiny-gpt2"),
    data=DataConfig(max_length=96),
    optimizer=OptimizerConfig(learning_rate=1e-2),
    batch=BatchConfig(microbatch_size=2),
    mesh=MeshConfig(device="cpu", devices=1),
    checkpoint=CheckpointConfig(save_every_steps=3, keep=9),
    recording=RecordingConfig(chain_every_steps=2),
    evaluation=EvaluationConfig(max_new_tokens=4, batch_size=50),
    limits=LimitsConfig(steps=6),
)
CHAIN_CODES = {"TP324", "TP325", "TP326", "TP327", "TP328"}


def carried_out(config: Config, folder: Path, resume: Path | None = None) -> Path:
    with Watch(quiet=True) as watch:
        assert run(RunRequest(config=config, folder=folder, command=["trainproof"], resume=resume), watch) == 0
    return folder


def entries(folder: Path) -> list[dict]:
    return [json.loads(line) for line in (folder / layout.CHAIN).read_text().splitlines()]


def manifest_of(folder: Path) -> dict:
    return json.loads((folder / layout.MANIFEST).read_text())


def errors_of(folder: Path) -> list[str]:
    return [problem.what for problem in check_run(read_run(folder)).findings if problem.severity == "error"]


def codes_of(folder: Path) -> list[str]:
    return [problem.code for problem in check_run(read_run(folder)).findings if problem.severity == "error"]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of six steps with a checkpoint at the third."""
    return carried_out(CHAINED, tmp_path_factory.mktemp("chain") / "whole")


def by_hand(entry: dict) -> str:
    """Return an entry's hash as sha256sum gives it, without the product's own function."""
    return hashlib.sha256(json.dumps(entry, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


@pytest.mark.slow
def test_each_entry_states_what_the_run_was(whole: Path):
    found = entries(whole)
    assert [entry["step"] for entry in found] == [0, 2, 3, 4, 6]
    assert [entry["rows"] for entry in found] == [0, 2, 3, 4, 6]
    assert [entry["data_position"] for entry in found] == [0, 4, 6, 8, 12]
    lines = (whole / layout.METRICS).read_bytes().splitlines(keepends=True)
    assert [entry["rows_sha256"] for entry in found] == [
        hashlib.sha256(b"".join(lines[: entry["rows"]])).hexdigest() for entry in found
    ]
    assert [entry["previous"] for entry in found] == [None, *map(by_hand, found[:-1])]
    manifest = manifest_of(whole)
    assert manifest["chain"] == {"entries": 5, "head": by_hand(found[-1])}
    assert found[0]["params_sha256"] == manifest["model"]["weights_sha256"]
    for step in (3, 6):
        saved = json.loads((whole / layout.CHECKPOINTS / str(step) / "_CHECKPOINT_METADATA").read_text())
        [entry] = [entry for entry in found if entry["step"] == step]
        assert saved["custom_metadata"]["state_sha256"] == entry["state_sha256"]
    assert len({entry["state_sha256"] for entry in found}) == 5
    assert errors_of(whole) == []


@pytest.mark.slow
def test_a_resumed_run_goes_on_with_the_chain_bit_for_bit(whole: Path, tmp_path: Path):
    half = tmp_path / "half"
    shutil.copytree(whole, half)
    shutil.rmtree(half / layout.CHECKPOINTS / "6")
    rest = carried_out(CHAINED, tmp_path / "rest", resume=half)
    at_three = entries(whole)[2]
    assert manifest_of(rest)["parent"] == {"run_id": "half", "step": 3, "link": by_hand(at_three)}
    found = entries(rest)
    assert found[0]["previous"] == by_hand(at_three)
    states = {entry["step"]: entry["state_sha256"] for entry in entries(whole)}
    assert {entry["step"]: entry["state_sha256"] for entry in found} == {
        step: state for step, state in states.items() if step >= 3
    }
    assert found[-1]["params_sha256"] == entries(whole)[-1]["params_sha256"]
    assert errors_of(rest) == []


def test_a_run_that_is_stopped_before_its_first_step_has_a_chain_of_its_start(
    config: Config, order_of: Callable[..., RunRequest]
):
    order = order_of(replace(config, limits=replace(config.limits, max_minutes=1e-6)))
    with Watch(quiet=True) as watch:
        assert run(order, watch) == 5
    first, last = entries(order.folder)
    assert first["state_sha256"] == last["state_sha256"]
    assert errors_of(order.folder) == []


def tampered_value(value, draw: random.Random):
    if isinstance(value, str) and len(value) == 64:
        place = draw.randrange(64)
        return (
            value[:place]
            + draw.choice([digit for digit in "0123456789abcdef" if digit != value[place]])
            + value[place + 1 :]
        )
    if isinstance(value, int):
        return value + draw.choice([-1, 1, 7])
    if value is None:
        return "ab" * 32
    return value * draw.choice([0.5, 1.5]) + 1e-3 if isinstance(value, float) else value + "0"


def tamper(folder: Path, draw: random.Random) -> str:
    """Change chain or rows at random and make every hash of the manifest's list fit; return what was done."""
    name = draw.choice([layout.CHAIN, layout.METRICS])
    lines = [json.loads(line) for line in (folder / name).read_text().splitlines()]
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
    (folder / name).write_text("".join(json.dumps(line) + "\n" for line in lines))
    return f"{what} in line {index + 1} of {name}"


@pytest.mark.slow
def test_a_thousand_tamperings_are_found_by_the_chain_alone(whole: Path, tmp_path: Path):
    """No hash of a file is asked here: the chain, the rows and the manifest's head alone tell."""
    folder = tmp_path / "run"
    shutil.copytree(whole, folder, ignore=shutil.ignore_patterns(layout.CHECKPOINTS))
    kept = {name: (folder / name).read_bytes() for name in (layout.CHAIN, layout.METRICS)}
    draw, codes = random.Random(20), set()
    for _ in range(1000):
        done = tamper(folder, draw)
        read = read_run(folder)
        said = [problem for problem in checker.check(read) if problem.code in CHAIN_CODES]
        said += [problem for problem in read.row_problems() if problem.severity == "error"]
        assert said, done
        codes |= {problem.code for problem in said}
        for name, content in kept.items():
            (folder / name).write_bytes(content)
    assert codes >= CHAIN_CODES - {"TP328"}
    assert CHAIN_CODES.isdisjoint(problem.code for problem in checker.check(read_run(folder)))


def test_an_entry_that_is_changed_is_named(whole: Path, tmp_path: Path):
    folder = tmp_path / "run"
    shutil.copytree(whole, folder, ignore=shutil.ignore_patterns(layout.CHECKPOINTS))
    changed = entries(folder)
    stated = changed[2]["state_sha256"]
    changed[2]["state_sha256"] = "ab" * 32
    (folder / layout.CHAIN).write_text("".join(json.dumps(entry) + "\n" for entry in changed))
    manifest = manifest_of(folder)
    for artifact in manifest["artifacts"]:
        if artifact["path"] == layout.CHAIN:
            artifact |= {
                "sha256": sha256_file(folder / layout.CHAIN),
                "bytes": (folder / layout.CHAIN).stat().st_size,
            }
    (folder / layout.MANIFEST).write_text(json.dumps(manifest, indent=2) + "\n")
    changed[2]["state_sha256"] = stated
    right = by_hand(changed[2])
    changed[2]["state_sha256"] = "ab" * 32
    assert errors_of(folder) == [
        f"previous is {right[:12]}…; the hash of the previous entry gives {by_hand(changed[2])[:12]}…."
    ]
    assert check_run(read_run(folder)).grade.name == "contradictory"


def test_a_chain_that_was_left_out_is_missed(whole: Path, tmp_path: Path):
    folder = tmp_path / "run"
    shutil.copytree(whole, folder, ignore=shutil.ignore_patterns(layout.CHECKPOINTS))
    (folder / layout.CHAIN).unlink()
    manifest = manifest_of(folder)
    del manifest["chain"]
    manifest["artifacts"] = [each for each in manifest["artifacts"] if each["path"] != layout.CHAIN]
    log = [json.loads(line) for line in (folder / layout.LOG).read_text().splitlines()]
    log[-1]["fields"]["manifest_sha256"] = sha256_manifest(manifest)
    (folder / layout.LOG).write_text("".join(json.dumps(record) + "\n" for record in log))
    for artifact in manifest["artifacts"]:
        path = folder / artifact["path"]
        artifact |= {"sha256": sha256_file(path), "bytes": path.stat().st_size}
    (folder / layout.MANIFEST).write_text(json.dumps(manifest, indent=2) + "\n")
    assert errors_of(folder) == ["chain.jsonl is missing, but config.yaml sets recording.chain_every_steps."]
    assert codes_of(folder) == ["TP531"]
    assert check_run(read_run(folder)).grade.name == "measured"

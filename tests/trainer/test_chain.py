"""The chain of a run: its hashes are right, every change is found, and a resumed run continues it."""

import hashlib
import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from forging import seal_manifest
from model_folders import row_file
from tasks import with_settings
from whole_runs import errors_of, manifest_of, rows

from evidence import layout
from evidence.grade import check_run
from evidence.rules import checker
from evidence.run import read_run
from trainer.config.tree import Config

CHAIN_CODES = {"TP324", "TP325", "TP326", "TP327", "TP328"}


@pytest.fixture
def chained(config: Config) -> Config:
    """A run of six steps with a checkpoint at the third and an entry at every second."""
    return with_settings(
        config,
        batch={"microbatch_size": 2},
        checkpoint={"save_every_steps": 3, "keep": 9},
        recording={"chain_every_steps": 2},
        limits={"steps": 6},
    )


@pytest.fixture
def whole(finished: Callable[[Config], Path], chained: Config) -> Path:
    return finished(chained)


@pytest.fixture
def copy(whole: Path, tmp_path: Path) -> Path:
    """A copy of the run without its checkpoints."""
    return shutil.copytree(whole, tmp_path / "run", ignore=shutil.ignore_patterns(layout.CHECKPOINTS))


def entries(folder: Path) -> list[dict]:
    return rows(folder, layout.CHAIN)


def by_hand(entry: dict) -> str:
    """Return an entry's hash as sha256sum gives it, without the product's own function."""
    return hashlib.sha256(json.dumps(entry, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


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
def test_a_resumed_run_goes_on_with_the_chain_bit_for_bit(whole, chained, train, tmp_path):
    half = shutil.copytree(whole, tmp_path / "half")
    shutil.rmtree(half / layout.CHECKPOINTS / "6")
    rest = train(chained, "rest", resume=half)
    at_three = by_hand(entries(whole)[2])
    assert manifest_of(rest)["parent"] == {"run_id": "half", "step": 3, "link": at_three}
    assert entries(rest)[0]["previous"] == at_three
    before, after = ({entry["step"]: entry["state_sha256"] for entry in entries(each)} for each in (whole, rest))
    assert after == {step: state for step, state in before.items() if step >= 3}
    assert entries(rest)[-1]["params_sha256"] == entries(whole)[-1]["params_sha256"]
    assert errors_of(rest) == []


def test_a_run_stopped_before_its_first_step_has_a_chain_of_its_start(config, train):
    folder = train(with_settings(config, limits={"max_minutes": 1e-6}), ends_with=5)
    first, last = entries(folder)
    assert first["state_sha256"] == last["state_sha256"]
    message = "limits.max_minutes=1e-06 reached before the first step"
    assert manifest_of(folder)["exit"] == {"code": 5, "error": None, "message": message}
    assert errors_of(folder) == []


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
        found += [problem for problem in read.row_problems() if problem.severity == "error"]
        assert found, done
        codes |= {problem.code for problem in found}
        for name, content in kept.items():
            (copy / name).write_bytes(content)
    assert codes >= CHAIN_CODES - {"TP328"}
    assert CHAIN_CODES.isdisjoint(problem.code for problem in checker.check(read_run(copy)))


def test_a_changed_entry_is_located(copy):
    changed = entries(copy)
    right = by_hand(changed[2])
    changed[2]["state_sha256"] = "ab" * 32
    row_file(copy / layout.CHAIN, *changed)
    seal_manifest(copy, manifest_of(copy))
    found = by_hand(changed[2])
    assert errors_of(copy) == [f"previous is {right[:12]}…; the hash of the previous entry gives {found[:12]}…."]
    assert check_run(read_run(copy)).grade.name == "contradictory"


def test_a_removed_chain_is_an_error(copy):
    (copy / layout.CHAIN).unlink()
    manifest = manifest_of(copy)
    del manifest["chain"]
    manifest["artifacts"] = [each for each in manifest["artifacts"] if each["path"] != layout.CHAIN]
    seal_manifest(copy, manifest)
    found = check_run(read_run(copy)).findings
    assert [problem.code for problem in found if problem.severity == "error"] == ["TP531"]

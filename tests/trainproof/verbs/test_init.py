"""`trainproof init` as it is typed: what it prints, for people and for programs."""

import json
from pathlib import Path

import pytest
from first_hour import folder_with_weights, sums, write_rows

from trainproof.command import main


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("hour")
    folder_with_weights(folder / "my-model")
    write_rows(folder / "rows.jsonl", [*sums(200), *sums(3)])
    return folder


def test_what_was_found_and_what_to_run_next(folder: Path, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    main_ends("init", "my-model", "rows.jsonl", "--on", "rtx-4090")
    said = capsys.readouterr().out.splitlines()
    assert said[:2] == [
        "model       my-model: gpt2, method full, 170 k of 170 k parameters",
        "rows        203 rows with prompt and completion, 3 questions repeated",
    ]
    assert said[3] == "evaluation  20 items, drawn from 200 questions by the hash of each"
    assert said[4].endswith("by formulas: fits")
    assert said[6] == "Written: train.jsonl, eval.jsonl and config.yaml."
    commands = [line.split("  ")[1] for line in said[9:]]
    assert commands == [
        "trainproof train --config config.yaml --check",
        "trainproof plan --config config.yaml",
        "trainproof train --config config.yaml --smoke_steps 2",
        "trainproof train --config config.yaml --output submission_runs/first",
        "trainproof package submission_runs/first --output first.zip",
        "trainproof verify first.zip",
    ]
    main_ends("init", "my-model", "rows.jsonl", "--on", "rtx-4090", "--force", "--json")
    document = json.loads(capsys.readouterr().out)
    assert document["next"] == commands
    assert document["data"]["duplicates"] == 3
    assert {each["key"] for each in document["settings"]} >= {"model.name", "data.max_length", "limits.steps"}
    assert document["memory"]["verdict"] == "fits"


def main_ends(*arguments: str) -> None:
    with pytest.raises(SystemExit) as ended:
        main(list(arguments))
    assert ended.value.code in (None, 0)

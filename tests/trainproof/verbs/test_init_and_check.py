"""`trainproof init` and `trainproof train --check` as they are typed: what they print, for people and for programs."""

import json

from first_hour import folder_with_weights, sums, write_rows


def test_what_was_found_and_what_to_run_next(tmp_path, monkeypatch, run):
    monkeypatch.chdir(tmp_path)
    folder_with_weights(tmp_path / "my-model")
    write_rows(tmp_path / "rows.jsonl", [*sums(200), *sums(3)])
    code, out, _ = run("init", "my-model", "rows.jsonl", "--on", "rtx-4090")
    printed = out.splitlines()
    assert code == 0
    assert printed[0] == "model       my-model: gpt2, method full, 170 k of 170 k parameters"
    assert printed[1] == "rows        203 rows with prompt and completion, 3 repeated questions"
    assert printed[3] == "evaluation  20 items, drawn from 200 questions by the hash of each"
    assert printed[4].endswith("by formulas: fits")
    assert printed[6] == "Written: train.jsonl, eval.jsonl and config.yaml."
    commands = [line.split("  ")[1] for line in printed[9:]]
    assert commands == [
        "trainproof train --config config.yaml --check",
        "trainproof plan --config config.yaml",
        "trainproof train --config config.yaml --smoke-steps 2",
        "trainproof train --config config.yaml --output submission_runs/first",
        "trainproof package submission_runs/first --output first.zip",
        "trainproof verify first.zip",
    ]
    document = json.loads(run("init", "my-model", "rows.jsonl", "--on", "rtx-4090", "--force", "--json")[1])
    assert document["next"] == commands
    assert document["data"]["duplicates"] == 3
    assert {each["key"] for each in document["settings"]} >= {"model.name", "data.max_length", "limits.steps"}
    assert document["memory"]["verdict"] == "fits"


def test_what_was_read_and_what_is_wrong_are_json(tmp_path, monkeypatch, run):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rows.jsonl").write_text('{"prompt": "1 + 1?", "completion": "2"}\n')
    (tmp_path / "config.yaml").write_text("{model: {name: tiny-gpt2}, data: {dataset: rows.jsonl}}\n")
    (tmp_path / "items.jsonl").write_text('{"id": "a", "prompt": "2 + 2?", "expected": "4"}\n')
    asked = ("train", "--config", "config.yaml", "--set", "evaluation.eval_set=items.jsonl", "--check", "--json")
    code, out, err = run(*asked)
    assert (code, err) == (0, "")
    found = json.loads(out)
    begins = {"can_begin": True, "training_rows": 1, "evaluation_items": 1, "findings": []}
    assert {key: found[key] for key in begins} == begins
    learned = {"parameters": 169_728, "trained_parameters": 169_728}
    assert found["model"] == {"family": "gpt2", "origin": "random", **learned}
    assert found["dataset"]["name"] == "rows.jsonl"
    [example] = found["first_examples"]["examples"]
    assert "".join(token["text"] for token in example["tokens"] if token["supervised"]).startswith("2")
    code, out, err = run(*asked, "--set", "method.base=nf4")
    assert (code, err) == (2, "")
    found = json.loads(out)
    assert (found["can_begin"], found["training_rows"], found["evaluation_items"]) == (False, None, None)
    assert [one["code"] for one in found["findings"]] == ["TP069"]
    assert list(tmp_path.glob("submission_runs")) == []


def test_json_is_for_a_check(run):
    code, out, err = run("train", "--config", "config.yaml", "--json")
    assert (code, out) == (2, "")
    assert "--json needs --check; a run is recorded in its folder." in err

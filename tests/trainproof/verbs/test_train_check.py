"""`trainproof train --check --json` as it is typed."""

import json

import pytest

from trainproof.cli.app import main


def ends(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ended:
        main(["train", *arguments])
    said = capsys.readouterr()
    return ended.value.code or 0, said.out, said.err


def test_what_was_read_and_what_is_wrong_are_json(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rows.jsonl").write_text('{"prompt": "1 + 1?", "completion": "2"}\n')
    (tmp_path / "config.yaml").write_text("{model: {name: tiny-gpt2}, data: {dataset: rows.jsonl}}\n")
    (tmp_path / "items.jsonl").write_text('{"id": "a", "prompt": "2 + 2?", "expected": "4"}\n')
    asked = ("--config", "config.yaml", "--set", "evaluation.eval_set=items.jsonl", "--check", "--json")
    code, out, err = ends(capsys, *asked)
    assert (code, err) == (0, "")
    found = json.loads(out)
    begins = {"can_begin": True, "training_rows": 1, "evaluation_items": 1, "findings": []}
    assert {key: found[key] for key in begins} == begins
    learned = {"parameters": 169_728, "trained_parameters": 169_728}
    assert found["model"] == {"family": "gpt2", "origin": "random", **learned}
    assert found["dataset"]["name"] == "rows.jsonl"
    [example] = found["first_examples"]["examples"]
    assert "".join(token["text"] for token in example["tokens"] if token["supervised"]).startswith("2")
    code, out, err = ends(capsys, *asked, "--set", "method.base=nf4")
    assert (code, err) == (2, "")
    found = json.loads(out)
    assert (found["can_begin"], found["training_rows"], found["evaluation_items"]) == (False, None, None)
    assert [one["code"] for one in found["findings"]] == ["TP069"]
    assert list(tmp_path.glob("submission_runs")) == []


def test_json_is_for_a_check(capsys):
    code, out, err = ends(capsys, "--config", "config.yaml", "--json")
    assert (code, out) == (2, "")
    assert "--json needs --check; a run is recorded in its folder." in err

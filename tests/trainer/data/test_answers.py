"""Readers of answers: inferred from rows, and checked before training."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from model_folders import row_file
from refusals import refusal_text
from tasks import inputs_of

from evidence.scores.reading import Scoring
from trainer.config.tree import Config, DataConfig, EvaluationConfig, ModelConfig
from trainer.data.answers import infer_scoring, none_read

CASES = yaml.safe_load(Path("tests/cases/rows/answers.yaml").read_text("utf-8"))

WORD = {"prompt": "Who?", "completion": "Bob"}


def items(*expected: Any) -> list[dict[str, Any]]:
    return [{"id": f"i{n}", "prompt": f"{n}?", "expected": one} for n, one in enumerate(expected)]


@pytest.mark.parametrize(("rows", "expected", "answer", "compare"), CASES["inferred"])
def test_reader_is_inferred_from_rows(rows: list, expected: list, answer: str, compare: str):
    assert infer_scoring(EvaluationConfig(), rows, items(*expected)) == Scoring(answer=answer, compare=compare)


def build_run(folder: Path, rows: list, expected: list, **settings: Any) -> Config:
    eval_set = row_file(folder / "items.jsonl", *items(*expected))
    return Config(
        model=ModelConfig(name="tiny-gpt2"),
        data=DataConfig(dataset=row_file(folder / "rows.jsonl", *rows), max_length=64),
        evaluation=EvaluationConfig(eval_set=eval_set, max_new_tokens=4, **settings),
    )


@pytest.mark.parametrize(("settings", "expected", "what"), CASES["unreadable"])
def test_unreadable_expected_answers_are_refused(settings: dict, expected: Any, what: str, tmp_path: Path):
    said = refusal_text(inputs_of, build_run(tmp_path, [CASES["rows"]["word"]], [expected], **settings))
    assert f"error TP008: {tmp_path / 'items.jsonl'} at /expected (line 1): i0 expects " in said
    assert f", which {what}.\n" in said


@pytest.mark.parametrize(("settings", "code", "what"), CASES["settings"])
def test_settings_of_the_reader_are_checked(settings: dict, code: str, what: str, tmp_path: Path):
    said = refusal_text(inputs_of, build_run(tmp_path, [WORD], ["Bob"], **settings))
    assert said.startswith(f"error {code}: run at /evaluation/")
    assert what in said


@pytest.mark.parametrize(("rows", "expected", "settings", "what"), CASES["untaught"])
def test_rows_that_do_not_teach_the_form_are_reported(rows, expected, settings, what: str | None, tmp_path: Path):
    _, data = inputs_of(build_run(tmp_path, rows, [expected], **settings))
    found = [each.what for each in data.warnings if each.code == "TP087"]
    assert len(found) == (what is not None)
    assert all(what in each for each in found)


def test_outputs_without_answer_are_reported():
    texts = ["It is 5.", "It is 5.", "word " * 30, "", "Another."]
    rows = [{"output_text": text, "error": None, "extracted_answer": None} for text in texts]
    [problem] = none_read(rows, Scoring(), file="predictions.jsonl")
    assert problem.what == (
        "None of 5 outputs has an answer in the form that is read (tags, exact match), "
        f'for example "It is 5.", "…{("word " * 30).strip()[-39:]}" and "".'
    )
    assert none_read([*rows, rows[0] | {"extracted_answer": "4"}], Scoring(), file="") == []
    assert none_read([rows[0] | {"error": "too long"}], Scoring(), file="") == []

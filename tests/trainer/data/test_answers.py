"""Readers of answers: inferred from rows, and checked before training."""

from pathlib import Path
from typing import Any

import pytest
from model_folders import chat, row_file
from refusals import refusal_text
from tasks import inputs_of

from evidence.scores.reading import Scoring
from trainer.config.tree import Config, DataConfig, EvaluationConfig, ModelConfig
from trainer.data.answers import infer_scoring, none_read

TRACE = {"prompt": "2 + 2?", "steps": [{"i": 0, "type": "compute", "content": "4."}], "final_answer": "4"}
NUMBER = {"prompt": "2 + 3?", "completion": "5"}
WORD = {"prompt": "Who?", "completion": "Bob"}
SOLUTION = {"prompt": "2 + 3?", "completion": "Two and three.\n#### 5"}
BOXED = {"prompt": "1 : 2?", "completion": r"So it is $\boxed{\frac{1}{2}}$."}
LETTER = {"prompt": "Which?", "completion": "It is (B)."}
TALK = chat(("user", "2 + 3?"), ("assistant", "5"))


def items(*expected: Any) -> list[dict[str, Any]]:
    return [{"id": f"i{n}", "prompt": f"{n}?", "expected": one} for n, one in enumerate(expected)]


@pytest.mark.parametrize(
    ("rows", "expected", "answer", "compare"),
    [
        ([TRACE], ["4"], "tags", "exact"),
        ([TRACE, TRACE, WORD], ["4"], "tags", "exact"),
        ([TRACE, WORD, WORD], ["Bob"], "whole", "exact"),
        ([NUMBER], ["5"], "whole", "exact"),
        ([SOLUTION], ["5", ["6", "7"]], "last_number", "numeric"),
        ([SOLUTION], ["five"], "whole", "exact"),
        ([SOLUTION], [], "whole", "exact"),
        ([LETTER], ["B", "(C)"], "choice", "folded"),
        ([TALK], ["5"], "whole", "exact"),
        ([BOXED, BOXED, WORD], ["1/2"], "boxed", "numeric"),
        ([BOXED], ["x + 1"], "boxed", "exact"),
        ([BOXED], [], "boxed", "exact"),
        ([{"chosen": TRACE, "rejected": WORD}], ["4"], "tags", "exact"),
        ([{"text": "A story."}], ["4"], "whole", "exact"),
    ],
)
def test_reader_is_inferred_from_rows(rows: list, expected: list, answer: str, compare: str):
    assert infer_scoring(EvaluationConfig(), rows, items(*expected)) == Scoring(answer=answer, compare=compare)


def build_run(folder: Path, rows: list, expected: list, **settings: Any) -> Config:
    eval_set = row_file(folder / "items.jsonl", *items(*expected))
    return Config(
        model=ModelConfig(name="tiny-gpt2"),
        data=DataConfig(dataset=row_file(folder / "rows.jsonl", *rows), max_length=64),
        evaluation=EvaluationConfig(eval_set=eval_set, max_new_tokens=4, **settings),
    )


@pytest.mark.parametrize(
    ("settings", "expected", "what"),
    [
        ({"answer": "choice"}, "husband", "evaluation.answer choice never reads"),
        ({"answer": "last_number"}, "husband", "is not a number, although answers are compared as numbers"),
        ({"answer": "last_line"}, "two\nlines", "evaluation.answer last_line never reads"),
        ({"answer": "tags"}, "<answer>4</answer>", "contains a tag, although answers are read between tags"),
        ({"answer": "boxed"}, r"\boxed{4}", "contains a box, although answers are read from boxes"),
        ({"answer": "whole"}, " ", "is blank"),
        ({"answer": "choice"}, ["B", "none"], "evaluation.answer choice never reads"),
        ({"answer": "regex", "answer_regex": "# (w.*)"}, "husband", 'evaluation.answer_regex "# (w.*)" never reads'),
    ],
)
def test_unreadable_expected_answers_are_refused(settings: dict, expected: Any, what: str, tmp_path: Path):
    said = refusal_text(inputs_of, build_run(tmp_path, [WORD], [expected], **settings))
    assert f"error TP008: {tmp_path / 'items.jsonl'} at /expected (line 1): i0 expects " in said
    assert f", which {what}.\n" in said


@pytest.mark.parametrize(
    ("settings", "code", "what"),
    [
        ({"answer": "regex"}, "TP007", "but evaluation.answer_regex is not set."),
        ({"answer": "regex", "answer_regex": "(a"}, "TP007", "missing ): (a (RE2 syntax"),
        ({"answer": "regex", "answer_regex": "a*"}, "TP007", "the pattern matches the empty string."),
        ({"answer": "whole", "answer_regex": "a"}, "TP009", 'evaluation.answer is "whole", which does not use it.'),
        ({"answer": "whole", "tolerance": 0.1}, "TP009", "the comparison of answers is exact."),
    ],
)
def test_settings_of_the_reader_are_checked(settings: dict, code: str, what: str, tmp_path: Path):
    said = refusal_text(inputs_of, build_run(tmp_path, [WORD], ["Bob"], **settings))
    assert said.startswith(f"error {code}: run at /evaluation/")
    assert what in said


@pytest.mark.parametrize(
    ("rows", "expected", "settings", "what"),
    [
        ([NUMBER], "5", {"answer": "tags"}, 'none of 1 training rows has one. The first teaches "5".'),
        ([SOLUTION], "5", {"answer": "whole"}, "has one of the type that the items expect."),
        ([WORD, WORD], "Bob", {"answer": "regex", "answer_regex": "#### (.*)"}, "none of 2 training rows has one."),
        ([NUMBER, NUMBER, WORD], "5", {}, None),
        ([TRACE, TRACE, WORD], "4", {}, None),
        ([WORD], "Bob", {}, None),
        ([SOLUTION, SOLUTION, WORD], "5", {}, None),
        ([BOXED, BOXED, WORD], "0.5", {}, None),
    ],
)
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

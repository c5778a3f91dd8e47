"""How the reader of answers is told from rows, and what is said before anything is spent."""

import json
from pathlib import Path
from typing import Any

import pytest
from tasks import inputs_of

from evidence.scores.reading import Scoring
from schemas.problems import ProblemError
from schemas.render import render_text
from trainer.config.tree import Config, DataConfig, EvaluationConfig, ModelConfig, build_config, to_document
from trainer.data.answers import infer_scoring, never_stopped, none_read

TRACE = {"prompt": "2 + 2?", "steps": [{"i": 0, "type": "compute", "content": "4."}], "final_answer": "4"}
NUMBER = {"prompt": "2 + 3?", "completion": "5"}
WORD = {"prompt": "Who?", "completion": "Bob"}
SOLUTION = {"prompt": "2 + 3?", "completion": "Two and three.\n#### 5"}
BOXED = {"prompt": "1 : 2?", "completion": r"So it is $\boxed{\frac{1}{2}}$."}
LETTER = {"prompt": "Which?", "completion": "It is (B)."}
TALK = {"messages": [{"role": "user", "content": "2 + 3?"}, {"role": "assistant", "content": "5"}]}


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
def test_the_reader_is_told_from_the_rows(rows: list, expected: list, answer: str, compare: str):
    assert infer_scoring(EvaluationConfig(), rows, items(*expected)) == Scoring(answer=answer, compare=compare)


def test_what_is_set_is_not_told():
    settings = EvaluationConfig(answer="regex", answer_regex="#### (.*)", compare="numeric", tolerance=0.1)
    scoring = infer_scoring(settings, [TRACE], items("4"))
    assert scoring == Scoring(answer="regex", answer_regex="#### (.*)", compare="numeric", tolerance=0.1)


def test_a_configuration_of_an_earlier_version_reads_tags():
    earlier = to_document(Config(model=ModelConfig(name="tiny-gpt2"))) | {"schema_version": "1.1"}
    for key in ("answer", "answer_regex", "compare", "tolerance"):
        del earlier["evaluation"][key]
    assert infer_scoring(build_config(earlier).evaluation, [NUMBER], items("5")) == Scoring()


def asked(folder: Path, rows: list, expected: list, **settings: Any) -> Config:
    for name, lines in (("rows.jsonl", rows), ("items.jsonl", items(*expected))):
        (folder / name).write_text("".join(json.dumps(line) + "\n" for line in lines))
    return Config(
        model=ModelConfig(name="tiny-gpt2"),
        data=DataConfig(dataset=str(folder / "rows.jsonl"), max_length=64),
        evaluation=EvaluationConfig(eval_set=str(folder / "items.jsonl"), max_new_tokens=4, **settings),
    )


def refusal_of(config: Config) -> str:
    with pytest.raises(ProblemError) as caught:
        inputs_of(config)
    assert caught.value.exit_code == 2
    return render_text(caught.value.problems)


UNREADABLE = (
    "  Every output to this item would count as wrong, whatever it says.\n"
    "  Next: Choose another evaluation.answer or evaluation.compare, or correct the item.\n"
)


@pytest.mark.parametrize(
    ("settings", "expected", "what"),
    [
        ({"answer": "choice"}, "husband", "evaluation.answer choice never reads"),
        ({"answer": "last_number"}, "husband", "is not a number, although answers are compared as numbers"),
        (
            {"answer": "whole", "compare": "numeric"},
            "husband",
            "is not a number, although answers are compared as numbers",
        ),
        ({"answer": "last_line"}, "two\nlines", "evaluation.answer last_line never reads"),
        ({"answer": "tags"}, "<answer>4</answer>", "contains a tag, although answers are read between tags"),
        ({"answer": "boxed"}, r"\boxed{4}", "contains a box, although answers are read from boxes"),
        ({"answer": "whole"}, " ", "is blank"),
        ({"answer": "choice"}, ["B", "none"], "evaluation.answer choice never reads"),
        ({"answer": "regex", "answer_regex": "# (w.*)"}, "husband", 'evaluation.answer_regex "# (w.*)" never reads'),
    ],
)
def test_expected_answers_that_cannot_be_read_are_refused(settings: dict, expected: Any, what: str, tmp_path: Path):
    said = refusal_of(asked(tmp_path, [WORD], [expected], **settings))
    assert f"error TP008: {tmp_path / 'items.jsonl'} at /expected (line 1): i0 expects " in said
    assert f", which {what}.\n{UNREADABLE}" in said


@pytest.mark.parametrize(
    ("settings", "what"),
    [
        ({"answer": "regex"}, "evaluation.answer is regex, but evaluation.answer_regex is not set."),
        (
            {"answer": "regex", "answer_regex": "(a"},
            'evaluation.answer_regex is "(a": missing ): (a (RE2 syntax: no look-around, no back-references).',
        ),
        (
            {"answer": "regex", "answer_regex": "a*"},
            'evaluation.answer_regex is "a*": the pattern matches the empty string.',
        ),
        (
            {"answer": "whole", "answer_regex": "a"},
            'evaluation.answer_regex is set, but evaluation.answer is "whole", which does not use it.',
        ),
        (
            {"answer": "whole", "tolerance": 0.1},
            "evaluation.tolerance is 0.1, but the comparison of answers is exact.",
        ),
    ],
)
def test_settings_of_the_reader_are_held_against_each_other(settings: dict, what: str, tmp_path: Path):
    said = refusal_of(asked(tmp_path, [WORD], ["Bob"], **settings))
    code = "TP009" if "does not use" in what or "tolerance" in what else "TP007"
    assert said.startswith(f"error {code}: run at /evaluation/")
    assert f": {what}\n" in said


@pytest.mark.parametrize(
    ("rows", "expected", "settings", "what"),
    [
        (
            [NUMBER],
            "5",
            {"answer": "tags"},
            'Answers are read as tags, compared exact; none of 1 training rows has one. The first teaches "5".',
        ),
        (
            [SOLUTION],
            "5",
            {"answer": "whole"},
            (
                "Answers are read as whole, compared exact; none of 1 training rows has one of the type that the items "
                'expect. The first teaches "Two and three. #### 5".'
            ),
        ),
        (
            [WORD, WORD],
            "Bob",
            {"answer": "regex", "answer_regex": "#### (.*)"},
            'Answers are read as regex, compared exact; none of 2 training rows has one. The first teaches "Bob".',
        ),
    ],
)
def test_rows_that_do_not_teach_the_form_are_told(rows, expected, settings, what: str, tmp_path: Path):
    _, data = inputs_of(asked(tmp_path, rows, [expected], **settings))
    assert [(each.severity, each.what) for each in data.warnings if each.code == "TP087"] == [("warning", what)]


def test_rows_that_end_with_expected_words_and_are_never_read_as_them_are_told(tmp_path: Path):
    sentence = {"prompt": "Who?", "completion": "It was Bob."}
    _, data = inputs_of(asked(tmp_path, [sentence, sentence | {"prompt": "Who was it?"}], ["Bob", "Ann"]))
    [told] = [each.what for each in data.warnings if each.code == "TP087"]
    assert "none of 2 training rows has one that an item expects, although 2 of the first 2 end with one" in told


def test_the_stop_text_ends_rows_as_it_ends_outputs(tmp_path: Path):
    row = {"prompt": "Q: 2 + 3? A:", "completion": " 5\nQ: next"}
    _, data = inputs_of(asked(tmp_path, [row], ["5"], answer="whole", stop="\nQ:"))
    assert [each.what for each in data.warnings if each.code == "TP087"] == []
    _, data = inputs_of(asked(tmp_path, [row], ["5"], answer="whole", stop="\\nQ:"))
    assert [each.code for each in data.warnings if each.code == "TP087"] == ["TP087"]


def test_a_stop_text_that_no_output_holds_is_named():
    rows = [{"output_text": "3\nQ: next", "error": None}, {"output_text": "", "error": "too long"}]
    assert never_stopped(rows, "\nQ:", file="") == never_stopped(rows, None, file="") == []
    assert never_stopped(rows[1:], "END", file="") == []
    [problem] = never_stopped(rows, "\\nQ:", file="predictions.jsonl")
    assert (problem.code, problem.severity) == ("TP752", "warning")
    assert problem.what == r'evaluation.stop is "\\nQ:", but none of 1 outputs contains it.'


def test_rows_that_teach_the_form_are_not_told(tmp_path: Path):
    for rows, expected in (([NUMBER], "5"), ([TRACE], "4"), ([WORD], "Bob"), ([SOLUTION], "5"), ([BOXED] * 2, "0.5")):
        _, data = inputs_of(asked(tmp_path, [*rows, *rows, WORD], [expected]))
        assert [each.what for each in data.warnings if each.code == "TP087"] == []


def test_outputs_without_the_form_are_shown():
    texts = ["It is 5.", "It is 5.", "word " * 30, "", "Another."]
    rows = [{"output_text": text, "error": None, "extracted_answer": None} for text in texts]
    assert render_text(none_read(rows, Scoring(), file="predictions.jsonl")) == (
        "warning TP088: predictions.jsonl: Answers are read as tags, compared exact; none of 5 outputs has one, "
        f'such as "It is 5.", "…{("word " * 30).strip()[-39:]}" and "".\n'
        "  The score is 0 because of the format alone, whatever the answers are.\n"
        "  Next: Read the outputs. If they contain answers, evaluate another run with another evaluation.answer, or "
        "train on rows with the format.\n"
    )
    assert none_read([*rows, rows[0] | {"extracted_answer": "4"}], Scoring(), file="") == []
    assert none_read([rows[0] | {"error": "too long"}], Scoring(), file="") == []

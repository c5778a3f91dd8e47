"""Which rows have an answer, what a file holds, and which questions are held back."""

import hashlib
import random
import re
from pathlib import Path

import pytest
from first_hour import rows_in, sums, write_rows
from model_folders import chat

from schemas.render import as_text
from trainer.first_config import RowsShape, question_and_answer, read_shapes, split_of


def rows_of(path: Path) -> RowsShape:
    problems: list = []
    rows = read_shapes(str(path), problems)
    assert not problems
    assert rows is not None
    return rows


@pytest.mark.parametrize(
    ("row", "answer"),
    [
        ({"prompt": "2 + 2?", "completion": " 4\n"}, ("2 + 2?", "4")),
        ({"prompt": "2 + 2?", "completion": "Two and two.\n#### 4"}, ("2 + 2?", "4")),
        ({"prompt": "2 + 2?", "completion": "<reasoning>x</reasoning>\n<answer>4</answer>"}, ("2 + 2?", "4")),
        ({"prompt": "2 + 2?", "steps": [{"content": "x"}], "final_answer": "4"}, ("2 + 2?", "4")),
        ({"instruction": "Add.", "input": "2, 2", "output": "4"}, ("Add.\n\n2, 2", "4")),
        (chat(("system", "Be short."), ("user", "2 + 2?"), ("assistant", "4")), ("2 + 2?", "4")),
        ({"conversations": [{"from": "human", "value": "2 + 2?"}, {"from": "gpt", "value": "4"}]}, ("2 + 2?", "4")),
        (chat(("user", "Hi."), ("assistant", "Yes?"), ("user", "2 + 2?"), ("assistant", "4")), None),
        ({"prompt": "Tell a story.", "completion": "Once there was a fox. " * 5}, None),
        ({"prompt": "2 + 2?", "completion": "<answer>4"}, None),
        ({"prompt": "1 : 2?", "completion": r"So\n$\boxed{\frac{1}{2}}$."}, ("1 : 2?", r"\frac{1}{2}")),
        ({"prompt": "2 + 2?", "completion": 4}, None),
        ({"text": "4"}, None),
        ({"prompt": "2 + 2?", "chosen": "4", "rejected": "5"}, None),
    ],
)
def test_the_answer_of_a_row(row, answer):
    assert question_and_answer(row) == answer


def test_a_tenth_of_the_questions_is_held_back_by_their_hash(tmp_path: Path):
    rows = sums(200)
    rows[7] = {**rows[7], "prompt": rows[3]["prompt"].upper()}  # the question of another row, in other letters
    split, because = split_of(rows_of(write_rows(tmp_path / "rows.jsonl", rows)))
    assert split is not None
    assert because == "drawn from 199 questions by the hash of each"
    keys = {words_alone(row["prompt"]) for row in rows}
    expected = sorted(keys, key=lambda key: hashlib.sha256(key.encode()).hexdigest())[:19]
    assert {words_alone(item["prompt"]) for item in split.items} == set(expected)
    lines = {row["prompt"]: number for number, row in enumerate(rows, start=1)}
    assert [item["id"] for item in split.items] == [f"line-{lines[item['prompt']]}" for item in split.items]
    (tmp_path / "train.jsonl").write_text("".join(split.training_lines()))
    left = rows_in(tmp_path / "train.jsonl")
    assert left == [row for row in rows if words_alone(row["prompt"]) not in expected]


def words_alone(text: str) -> str:
    return " ".join(re.findall("[a-z0-9]+", text.lower()))


def test_a_conversation_that_ends_with_a_question_held_back_is_held_back_too(tmp_path: Path):
    asked = [chat(("user", f"What is {number} + 1?"), ("assistant", str(number + 1))) for number in range(40)]
    longer = [
        chat(("user", "Hello."), ("assistant", "Hi."), *((turn["role"], turn["content"]) for turn in row["messages"]))
        for row in asked
    ]
    split, _ = split_of(rows_of(write_rows(tmp_path / "rows.jsonl", [*asked, *longer])))
    assert split is not None
    assert len(list(split.training_lines())) == 2 * (40 - 10)


def test_the_order_of_a_file_decides_nothing(tmp_path: Path):
    rows = sums(120)
    one, _ = split_of(rows_of(write_rows(tmp_path / "one.jsonl", rows)))
    random.Random(3).shuffle(rows)
    two, _ = split_of(rows_of(write_rows(tmp_path / "two.jsonl", rows)))
    assert one is not None
    assert two is not None
    assert one.questions == two.questions


@pytest.mark.parametrize(
    ("rows", "because"),
    [
        (sums(29), "the rows ask 29 different questions, and fewer than 30 are not split"),
        (
            [{"prompt": f"Tale {number}.", "completion": "a long tale " * 9} for number in range(40)],
            "none of the 40 rows have an answer to compare with (tags, ####, or a short line)",
        ),
        ([{"text": "x"}] * 40, "rows with text have no answer that could be right or wrong"),
    ],
)
def test_why_nothing_is_held_back(tmp_path: Path, rows, because):
    assert split_of(rows_of(write_rows(tmp_path / "rows.jsonl", rows))) == (None, because)


def test_rows_of_several_kinds_are_counted_with_their_lines(tmp_path: Path):
    rows = [*sums(2), chat(("user", "Hi."), ("assistant", "Yes?")), {"text": "So."}]
    path, problems = write_rows(tmp_path / "rows.jsonl", rows), []
    assert read_shapes(str(path), problems) is None
    assert as_text(problems) == (
        f"error TP033: {path}: The file holds 2 rows with prompt and completion (first in line 1), 1 row with messages "
        "(first in line 3) and 1 row with text (first in line 4).\n"
        "  The evaluation uses the prompt format of the rows, and rows of several kinds have several formats.\n"
        "  Next: Split the rows into one file per kind, or convert them to one kind.\n"
    )


def test_a_file_that_is_not_rows_says_what_is_wrong_with_each_line(tmp_path: Path):
    path, problems = tmp_path / "rows.jsonl", []
    path.write_text('{"prompt": "a", "completion": "b"}\n{"question": "a"}\n{broken\n')
    assert read_shapes(str(path), problems) is None
    assert [(problem.code, problem.line) for problem in problems] == [("TP018", 2), ("TP107", 3)]

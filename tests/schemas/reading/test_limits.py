"""What is too large to be read: documents, rows, files of rows; and what is said of a large document that is wrong."""

import json
import os
from pathlib import Path

import pytest

from schemas.problems.render import as_text
from schemas.reading.limits import LARGEST_DOCUMENT, LARGEST_ROWS, LONGEST_ROW, MOST_VALUES
from schemas.validate import check_value, read_document, read_rows

pytestmark = pytest.mark.slow

ROW = (Path(__file__).parents[2] / "cases" / "documents" / "valid" / "log_record.plain.jsonl").read_bytes()
LINE = ROW.splitlines(keepends=True)[0]
WHY = "  What is larger than any run writes could take more memory than a machine has.\n"
NEXT = "  Next: Check that this is the right file, and restore it as the run wrote it.\n"


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_of_a_document_that_is_too_large_nothing_is_read():
    with Path("plan.json").open("wb") as file:
        os.truncate(file.fileno(), LARGEST_DOCUMENT + 1)
    read = read_document("plan.json", "plan")
    assert read.value is None
    assert as_text(read.problems) == (
        "error TP133: plan.json: The document has 67,108,865 bytes; it was not read.\n"
        + WHY
        + "  Expected: at most 67,108,864 bytes.\n"
        + NEXT
    )


def test_a_document_of_too_many_values_is_not_parsed():
    Path("plan.json").write_bytes(b"[" + b"0," * MOST_VALUES + b"0]")
    assert as_text(read_document("plan.json", "plan").problems) == (
        "error TP133: plan.json: The document has about 4,000,001 values; it was not read.\n"
        + WHY
        + "  Expected: at most 4,000,000 values.\n"
        + NEXT
    )


@pytest.mark.parametrize("end", [b"\n", b""])
def test_a_row_that_is_too_long_is_left_out_and_those_around_it_are_read(end):
    Path("log.jsonl").write_bytes(
        LINE + b"[" + b"0," * (LONGEST_ROW // 2) + b"0]\n" + LINE + b"x" * LONGEST_ROW + b"x" + end
    )
    rows = read_rows("log.jsonl", "log_record")
    assert (len(rows.values), rows.left_out) == (2, (2, 4))
    assert as_text(rows.problems[:1]) == (
        "error TP133: log.jsonl (line 2): The row has 16,777,220 bytes; it was not read.\n"
        + WHY
        + "  Expected: a row of at most 16,777,216 bytes.\n"
        + NEXT
    )
    assert [problem.line for problem in rows.problems] == [2, 4]


def test_of_a_file_with_more_rows_than_a_run_writes_nothing_is_read():
    with Path("metrics.jsonl").open("wb") as file:
        os.truncate(file.fileno(), LARGEST_ROWS + 1)
    assert as_text(read_rows("metrics.jsonl", "metric_row").problems) == (
        "error TP133: metrics.jsonl: The file has 536,870,913 bytes; it was not read.\n"
        + WHY
        + "  Expected: at most 536,870,912 bytes.\n"
        + NEXT
    )


def first_examples(wrong_at: int, examples: int = 500, tokens: int = 20) -> dict:
    found = json.loads((Path(__file__).parents[2] / "cases/documents/valid/first_examples.plain.json").read_text())
    example = found["examples"][0]
    token = {"id": 1, "text": "a", "supervised": True}
    found["examples"] = [{**example, "tokens": [token] * tokens} for _ in range(examples)]
    found["examples"][wrong_at] = {**example, "tokens": [{**token, "id": -1}]}
    return found


@pytest.mark.parametrize("wrong_at", [0, 99, 100, 357, 499])
def test_the_first_wrong_value_of_a_large_document_is_found_wherever_it_stands(wrong_at):
    problems = check_value("first_examples", first_examples(wrong_at), file="first_examples.json")
    assert [(problem.code, problem.pointer) for problem in problems] == [
        ("TP125", f"/examples/{wrong_at}/tokens/0/id"),
        ("TP134", None),
    ]
    assert as_text(problems[1:]) == (
        "error TP134: first_examples.json: The document is large; what follows its first wrong values was not "
        "looked at.\n"
        "  Next: Correct those first, then check again.\n"
    )


def test_of_a_million_wrong_values_a_few_are_explained():
    value = {**first_examples(0), **{f"key{number}": [0] * 100 for number in range(10_000)}}
    problems = check_value("first_examples", value, file="first_examples.json")
    assert [problem.code for problem in problems].count("TP123") < 110
    assert problems[-1].code == "TP134"


def test_a_long_text_is_shown_with_its_own_length():
    value = {**first_examples(0), "run_id": "a b" * 1_000_000}
    what = [problem.what for problem in check_value("first_examples", value, file="x") if problem.pointer == "/run_id"]
    assert "(3000000 characters)" in what[0]


def test_what_is_wrong_behind_the_beginning_of_a_text_is_found():
    found = first_examples(0)
    found["examples"] = found["examples"][1:]
    found["run_id"] = "a" * 2000 + "\n"
    assert {problem.pointer for problem in check_value("first_examples", found, file="x")} >= {"/run_id"}

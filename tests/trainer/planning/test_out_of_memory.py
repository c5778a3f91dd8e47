"""Real out-of-memory errors: figures, buffers, and other text.

A case is a text of `tests/cases/out_of_memory`; its figures in `cases.json` were worked out by hand.
"""

import json
import string
import time
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from refusals import catch_problem

from schemas.problems import ProblemError
from trainer.planning.out_of_memory import explanation, explanation_text, parse, parse_bytes, read_out_of_memory

CASES = Path(__file__).parents[2] / "cases" / "out_of_memory"
EXPECTED = json.loads((CASES / "cases.json").read_text("utf-8"))


def read_case(name: str) -> str:
    return (CASES / f"{name}.txt").read_text("utf-8")


def explained_or_refused(text: str) -> str:
    try:
        return explanation_text(explanation(read_out_of_memory(text, source="x")))
    except ProblemError as error:
        return error.problems[0].what


@pytest.mark.parametrize("name", EXPECTED)
def test_a_real_text(name: str):
    found = read_out_of_memory(read_case(name), source=name)
    expected = {key: value for key, value in EXPECTED[name].items() if key != "source"}
    assert {key: getattr(found, key) for key in expected} == expected
    assert found.largest == tuple(sorted(found.largest, key=lambda each: -each.bytes))
    page = explanation_text(explanation(found))
    assert "  1. " in page
    assert "None" not in page


@pytest.mark.parametrize("text", yaml.safe_load((CASES / "other_texts.yaml").read_text("utf-8"))["other_texts"])
def test_other_text_is_refused(text: str):
    problem = catch_problem(read_out_of_memory, text, source="pasted.txt", exit_code=1)
    assert (problem.code, problem.file) == ("TP745", "pasted.txt")


@pytest.mark.parametrize("name", ["tpu_v3_gemma_7b_served", "gpu_paligemma_logits"])
@pytest.mark.parametrize("wrapped", ["> {}", "\x1b[31m{}\x1b[0m", "(worker pid=41) {}"])
def test_quotes_colors_and_loggers_change_nothing(name: str, wrapped: str):
    lines = [wrapped.format(line) for line in read_case(name).splitlines()]
    assert parse("\r\n".join(lines)) == parse(read_case(name))


def test_a_log_around_it_changes_nothing():
    alone = parse(read_case("tpu_v4_falcon_scores"))
    inside = parse("step 1 loss 3.2 program 4.0G\n" * 200 + read_case("tpu_v4_falcon_scores"))
    assert (inside.need_bytes, inside.cap_bytes, inside.largest) == (alone.need_bytes, alone.cap_bytes, alone.largest)


def test_donation_is_advised_if_nothing_is_donated():
    donated = read_case("tpu_v6e_qwen3_logits")
    nothing = donated.replace("shares 5.72G", "shares 0B")
    before, after = (explanation(read_out_of_memory(text, source=""))["changes"] for text in (nothing, donated))
    assert (before[0]["set"], before[0]["frees_bytes"]) == ("memory.donate=true", parse_bytes("5.72G"))
    assert "memory.donate=true" not in [each["set"] for each in after]


@given(st.text(alphabet=string.printable, max_size=2000))
def test_no_text_breaks_the_reader(text: str):
    assert explained_or_refused(text)


@given(st.sampled_from(sorted(EXPECTED)), st.data())
def test_no_part_of_a_real_text_breaks_the_reader(name: str, data: st.DataObject):
    text = read_case(name)
    first = data.draw(st.integers(0, len(text)))
    assert explained_or_refused(text[first : data.draw(st.integers(first, len(text)))])


def test_the_time_of_reading_is_linear():
    hostile = "1. Size: 4.00G\n  Shape: " + "Buffer 1:\n Size: 1\n" * 500 + "reserved " * 500 + "Killed process " * 500
    times = []
    for count in (5, 50):
        start = time.process_time()
        assert parse(hostile * count) is None
        times.append(time.process_time() - start)
    assert times[1] < 60 * max(times[0], 0.01)

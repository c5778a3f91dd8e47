"""Comparing one recorded answer: equal bits, differences of other hardware, and forged answers."""

from typing import Any

import numpy as np
import pytest

from evidence.scores.reading import Scoring
from trainer.evaluation.answers import MARGINS, allowed_margin, find_difference, is_same, item_fields

TEXT = "<reasoning>2 + 2 = 4.</reasoning>\n<answer>4</answer>"
ROW: dict[str, Any] = {
    "id": "one",
    "prompt": "What is 2 + 2?",
    "expected": "4",
    **dict.fromkeys(("section", "category", "difficulty", "error")),
    "output_text": TEXT,
    "extracted_answer": "4",
    "correct": True,
    "format_ok": True,
    "output_tokens": 40,
    "finish_reason": "stop",
    "output_token_ids": " ".join(map(str, range(40))),
}


def difference(stated: dict[str, Any], *, margin: float = 0.0, platforms=("cpu",)) -> str:
    """Compare an answer with its item, given the largest logit gap of its tokens."""
    margins = [np.full(40, margin, np.float32)]
    return find_difference(stated, item_fields(ROW), margins, allowed_margin("float32", platforms), Scoring())


@pytest.mark.parametrize("change", [{}, {"fingerprint": "AAAA"}, {"output_token_ids": None}])
def test_equal_answers_are_identical_whatever_fields_other_versions_have(change):
    assert is_same({key: value for key, value in (ROW | change).items() if value is not None or key not in change}, ROW)
    assert not is_same(ROW | change, ROW | {"output_text": "5"})


@pytest.mark.parametrize(
    ("margin", "platforms", "is_accepted"),
    [
        (0.0005, ("cpu",), True),
        (0.05, ("cpu",), False),
        # A TPU multiplies float32 in bfloat16 by default; between CPUs nothing explains such a margin.
        (0.05, ("tpu", "cpu"), True),
        (0.3, ("tpu", "cpu"), False),
    ],
)
def test_margins_depend_on_the_platforms(margin, platforms, is_accepted):
    assert (difference(ROW, margin=margin, platforms=platforms) == "") == is_accepted


@pytest.mark.parametrize(
    ("change", "margin", "why"),
    [
        ({"prompt": "What is 3 + 1?"}, 0, "The set states prompt 'What is 2 + 2?', and the run 'What is 3 + 1?'."),
        ({"expected": "5", "correct": False}, 0, "The set states expected '4', and the run '5'."),
        ({"correct": False}, 0, "By its text, correct is True; the run states False."),
        ({"error": "no room"}, 0, "The run states an error (no room), and the model answers."),
        ({}, 2, "The model does not write this: token 1 of the stated answer has a logit 2 below the largest; other "),
    ],
)
def test_an_edited_field_and_an_improbable_token_are_named(change, margin, why):
    assert difference(ROW | change, margin=margin).startswith(why)


def test_lower_precision_allows_more():
    assert allowed_margin("float32", ("cpu", "gpu")) == MARGINS["float16"]
    assert allowed_margin("bfloat16", ("cpu", "gpu")) == MARGINS["bfloat16"]

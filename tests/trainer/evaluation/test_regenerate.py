"""Comparing one recorded answer: equal bits, differences of other hardware, and forged answers."""

from typing import Any

import numpy as np
import pytest

from evidence.scores.reading import Scoring
from trainer.evaluation.reanswer import MARGINS, AnswerTrace, VerifiedAnswer, allowed_margin, compare_answer

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


def compared(stated: dict[str, Any], *, margin: float = 0.0, platforms=("cpu",)) -> VerifiedAnswer:
    """Compare an answer with another one that was generated now, given the largest logit gap of its tokens."""
    margins = np.full(40, margin, np.float32)
    return judged(stated, ROW | {"output_text": "5"}, [AnswerTrace(margins=margins, losses=margins)], platforms)


def judged(stated: dict[str, Any], generated: dict[str, Any] | None, traces=(), platforms=("cpu",)) -> VerifiedAnswer:
    allowed = allowed_margin("float32", platforms)
    return compare_answer(stated, generated, traces, allowed=allowed, scoring=Scoring())


@pytest.mark.parametrize("change", [{}, {"fingerprint": "AAAA"}, {"output_token_ids": None}])
def test_equal_answers_are_identical_whatever_fields_other_versions_have(change):
    stated = {key: value for key, value in (ROW | change).items() if value is not None or key not in change}
    assert judged(stated, dict(ROW)) == VerifiedAnswer(id="one", verdict="identical")


@pytest.mark.parametrize(
    ("margin", "platforms", "verdict"),
    [
        (0.0005, ("cpu",), "within tolerance"),
        (0.05, ("cpu",), "different"),
        # A TPU multiplies float32 in bfloat16 by default; between CPUs nothing explains such a margin.
        (0.05, ("tpu", "cpu"), "within tolerance"),
        (0.3, ("tpu", "cpu"), "different"),
    ],
)
def test_margins_depend_on_the_platforms(margin, platforms, verdict):
    assert compared(ROW, margin=margin, platforms=platforms).verdict == verdict


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"prompt": "What is 3 + 1?"}, "The set states prompt 'What is 2 + 2?', and the run 'What is 3 + 1?'."),
        ({"expected": "5", "correct": False}, "The set states expected '4', and the run '5'."),
        ({"correct": False}, "By its text, correct is True; the run states False."),
        ({"error": "no room"}, "The run states an error (no room), and the model answers."),
    ],
)
def test_an_edited_field_is_named(change, why):
    assert compared(ROW | change) == VerifiedAnswer(id="one", verdict="different", why=why)


def test_an_improbable_token_and_a_missing_item_are_named():
    why = compared(ROW, margin=2.0).why
    assert why.startswith("The model does not write this: token 1 of the stated answer has a logit 2 below the largest")
    assert judged(ROW, None).why == "The evaluation set lacks an item with this id."


def test_lower_precision_allows_more():
    assert allowed_margin("float32", ("cpu", "gpu")) == MARGINS["float16"]
    assert allowed_margin("bfloat16", ("cpu", "gpu")) == MARGINS["bfloat16"]

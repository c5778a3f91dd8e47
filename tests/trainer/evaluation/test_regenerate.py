"""One answer judged: the same bits, states of other hardware, and all that no hardware explains."""

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
    "section": None,
    "category": None,
    "difficulty": None,
    "output_text": TEXT,
    "extracted_answer": "4",
    "correct": True,
    "format_ok": True,
    "output_tokens": 40,
    "finish_reason": "stop",
    "error": None,
    "output_token_ids": " ".join(map(str, range(40))),
}
ELSEWHERE = ROW | {"output_text": "5"}
"""What the model wrote here."""


def judged(stated: dict[str, Any], found: dict[str, Any] | None, traces=(), platforms=("cpu",)) -> VerifiedAnswer:
    return compare_answer(stated, found, traces, allowed=allowed_margin("float32", platforms), scoring=Scoring())


def verdict(stated: dict[str, Any], *, margin: float = 0.0, platforms=("cpu",)) -> VerifiedAnswer:
    margins = np.full(40, margin, np.float32)
    passed = AnswerTrace(margins=margins, losses=margins)
    return judged(stated, ELSEWHERE, [passed], platforms)


def test_the_same_bits_are_identical():
    found = judged(ROW, dict(ROW))
    assert (found.verdict, found.why) == ("identical", "")
    without = {key: value for key, value in ROW.items() if key != "output_token_ids"}
    assert judged(without, ROW).verdict == "identical"  # an earlier run states less


def test_a_fingerprint_of_an_earlier_version_is_not_compared():
    assert judged(ROW | {"fingerprint": "AAAA"}, dict(ROW)).verdict == "identical"


def test_products_of_fewer_bits_are_expected_of_an_accelerator_alone():
    """A TPU multiplies float32 in bfloat16 by default; between CPUs nothing explains such a margin."""
    assert verdict(ROW, margin=0.05).verdict == "different"
    assert verdict(ROW, margin=0.05, platforms=("tpu", "cpu")).verdict == "within tolerance"
    assert verdict(ROW, margin=0.3, platforms=("tpu", "cpu")).verdict == "different"


def test_a_token_that_the_model_would_not_take_is_named():
    found = verdict(ROW, margin=2.0)
    assert found.why == (
        "The model does not write this: token 1 of the stated answer has a logit 2 below the largest; other hardware "
        "gives at most 0.001."
    )
    assert verdict(ROW, margin=0.0005).verdict == "within tolerance"


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"prompt": "What is 3 + 1?"}, "The set states prompt 'What is 2 + 2?', and the run 'What is 3 + 1?'."),
        ({"expected": "5", "correct": False}, "The set states expected '4', and the run '5'."),
        ({"correct": False}, "By its text, correct is True; the run states False."),
        ({"error": "no room"}, "The run states an error (no room), and the model answers."),
    ],
)
def test_what_was_edited_is_named(change, why):
    found = verdict(ROW | change)
    assert found.verdict == "different"
    assert found.why.startswith(why)


def test_an_item_that_the_set_does_not_have_is_named():
    assert judged(ROW, None).why == "The evaluation set lacks an item with this id."


def test_fewer_bits_allow_more():
    assert allowed_margin("float32", ("cpu", "gpu")) == MARGINS["float16"]
    assert allowed_margin("bfloat16", ("cpu", "gpu")) == MARGINS["bfloat16"]

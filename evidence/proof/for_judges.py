"""A judge's questions about a repetition, answered: what it is worth, which score counts, who saw the device."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from evidence.proof.verification import DEVICE

LAST_BITS = (
    "Within tolerance: numbers differ from the run's in their last digits, as another processor or version makes them "
    "differ; the run is not accused, and a training that differs no more than so is not excluded."
)
WHICH_SCORE = (
    "Write down the stated score with its interval. The one found is on other questions, which may be harder; it says "
    "whether the stated one can be true."
)
NO_TRAINING = "A challenge sees no step of the training: a model bought elsewhere answers as well."


def for_judges(receipt: Mapping[str, Any]) -> Iterator[str]:
    """Yield what a receipt covers, what is lacking for `verified`, and what its result means, as sentences."""
    marks = receipt["marks"]
    yield marks["said"]
    if receipt["result"] == "different":
        yield "The run stays `consistent` at best for you, and this is the first reason."
    elif not marks["lacking"]:
        yield "That is enough for `verified`, if the folder is `consistent`."
    else:
        yield f"That is not enough for `verified`. {' '.join(marks['lacking'])}"
    if receipt["result"] == "within tolerance" and receipt["kind"] == "replay":
        yield LAST_BITS
    if receipt["kind"] == "challenge":
        yield WHICH_SCORE
        yield NO_TRAINING
    yield DEVICE

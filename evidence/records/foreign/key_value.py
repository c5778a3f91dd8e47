"""Lines of the form `key: value`, in logs and model cards: the fact or the score that they state."""

from __future__ import annotations

import re

from evidence.records.foreign.keys import TEXT_FACTS, fact_of, is_score, plain
from evidence.records.foreign.numbers import NUMBER, finite, number_of
from evidence.records.foreign.statement import Scalar

_KEY_VALUE = re.compile(r"^[^A-Za-z]{0,60}([A-Za-z][\w /.-]{1,60}?)\s*(?:\([^)]*\))?\s*[:=]\s+(\S.*)$")
_DEVICES = re.compile(r"\b(?:cpu|gpu|tpu|cuda|rocm|metal|mps|xla)\b", re.IGNORECASE)
_RATIO = re.compile(r"(\d+)\s*(?:/|of|out of)\s*(\d+)\b")


def key_value(text: str) -> tuple[str, Scalar] | None:
    """Return the fact that a line of the form `key: value` states, by our name; None where it states none.

    Example:
        >>> key_value("   Model: gpt2 (revision: main)"), key_value("  Num examples = 1,000"), key_value("Hint: no")
        (('model.name', 'gpt2'), ('dataset.rows', 1000), None)
    """
    match = _KEY_VALUE.match(text)
    if match is None or len(text) > 200:
        return None
    key, value = match.groups()
    name = fact_of(key)
    if plain(key) == "platform" and _DEVICES.search(value):
        name = "device.platform"
    if name is None or name.startswith("run."):
        return None
    word = value.split(" (")[0].strip().strip("`'\"")
    if name in TEXT_FACTS:
        is_one_word = " " not in word or name in ("device.kind", "device.gpu")
        return (name, word) if is_one_word and 0 < len(word) <= 100 and not word.endswith((":", "...")) else None
    number = number_of(word.split()[0].rstrip(",;")) if word.split() else None
    return (name, number) if number is not None and finite(number) is not None else None


def score_of(text: str) -> tuple[str, float, str | None] | None:
    """Return name, value and note of the score that a line states: `Accuracy: 12/50 (24 %)` is 0.24.

    Example:
        >>> score_of("Accuracy: 12/50 (24.00%)"), score_of("Exact match = 41.5%")
        (('accuracy', 0.24, '12 of 50.'), ('exact_match', 0.415, '41.5 % in the source.'))
    """
    match = _KEY_VALUE.match(text)
    if match is None or len(text) > 200 or not is_score(match.group(1)):
        return None
    name, value = plain(match.group(1)), match.group(2)
    if (ratio := _RATIO.match(value)) and int(ratio.group(2)[:15]) > 0 and len(ratio.group()) < 40:
        return name, int(ratio.group(1)) / int(ratio.group(2)), f"{ratio.group(1)} of {ratio.group(2)}."
    number = re.match(rf"({NUMBER})\s*(%?)", value, re.IGNORECASE)
    found = number_of(number.group(1)) if number else None
    if number is None or found is None or finite(found) is None:
        return None
    if number.group(2):
        return name, round(found / 100, 12), f"{number.group(1)} % in the source."
    return name, float(found), None

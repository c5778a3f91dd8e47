"""One sentence for each rule that a value breaks: what the value is, and what it is not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from schemas.explain.expectations import not_of_type_words
from schemas.explain.validators import Path
from schemas.problems.rule import Rule
from schemas.problems.words import quantity, show

WRONG_TYPE = Rule(
    "TP120", "Wrong type", "A value is of another type than its field: text for a number, say.", "Correct it."
)
NOT_ALLOWED = Rule(
    "TP121", "Value not allowed", "A value is not one of the few that its field allows.", "Write one of them."
)
WRONG_FORM = Rule(
    "TP124", "Wrong form", "A text does not have the form of its field: a time, a hash, a path.", "Correct it."
)
OUT_OF_RANGE = Rule(
    "TP125", "Out of range", "A number is below the least or above the largest that its field allows.", "Correct it."
)
TOO_SHORT = Rule(
    "TP126",
    "Too short",
    "A text or list has fewer characters or items than its field needs.",
    "Add what is missing.",
)
TOO_LONG = Rule("TP128", "Too long", "A text has more characters than its field takes.", "Shorten it.")


@dataclass(frozen=True, kw_only=True)
class BrokenRule:
    """Where a rule is broken: a value in a document, and the schema node about it.

    Attributes:
        kind: kind of the document.
        path: the way to the value from the top of the document.
        value: the value.
        node: the schema node that holds the rule.
        document: the schema document of that node, for its references.
        meaning: what the field means; empty if the schema does not state it.
    """

    kind: str
    path: Path
    value: Any
    node: dict[str, Any]
    document: dict[str, Any]
    meaning: str


def _type_sentence(place: BrokenRule) -> tuple[Rule, str]:
    return WRONG_TYPE, f"{_subject(place.value)} {not_of_type_words(place.node)}."


def _const_sentence(place: BrokenRule) -> tuple[Rule, str]:
    return NOT_ALLOWED, f"{_subject(place.value)} is not {show(place.node['const'])}."


def _enum_sentence(place: BrokenRule) -> tuple[Rule, str]:
    return NOT_ALLOWED, f"{_subject(place.value)} is not an allowed value."


def _pattern_sentence(place: BrokenRule) -> tuple[Rule, str]:
    return WRONG_FORM, f"{_subject(place.value)} does not have the required form."


def _length_sentence(place: BrokenRule) -> tuple[Rule, str]:
    noun = "text" if isinstance(place.value, str) else "list"
    return TOO_SHORT, f"The {noun} is {'too short' if place.value else 'empty'}."


def _too_long_sentence(place: BrokenRule) -> tuple[Rule, str]:
    return TOO_LONG, f"The text has {quantity(len(place.value), 'character')}."


def _range_sentence(words: str, keyword: str) -> Callable[[BrokenRule], tuple[Rule, str]]:
    return lambda place: (OUT_OF_RANGE, f"{_subject(place.value)} is {words} {place.node[keyword]}.")


def _subject(value: Any) -> str:
    words = show(value)
    return words[0].upper() + words[1:] if isinstance(value, dict | list) else words


SENTENCES: dict[str, Callable[[BrokenRule], tuple[Rule, str]]] = {
    "type": _type_sentence,
    "const": _const_sentence,
    "enum": _enum_sentence,
    "pattern": _pattern_sentence,
    "minimum": _range_sentence("below", "minimum"),
    "maximum": _range_sentence("above", "maximum"),
    "exclusiveMinimum": _range_sentence("not above", "exclusiveMinimum"),
    "exclusiveMaximum": _range_sentence("not below", "exclusiveMaximum"),
    "minItems": _length_sentence,
    "minLength": _length_sentence,
    "maxLength": _too_long_sentence,
}

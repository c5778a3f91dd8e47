"""One sentence for each rule that a value breaks: what the value is, and what it is not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from schemas.catalog import LARGEST_EXACT, schema, types_of
from schemas.explain.validators import Path
from schemas.problems.words import listed, quantity, show

LARGEST_FLOAT = 1.7976931348623157e308

TYPE_WORDS = {
    "null": "null",
    "boolean": "true or false",
    "integer": "a whole number",
    "number": "a number",
    "string": "text",
    "array": "a list",
    "object": "an object",
}
YAML_KINDS = ("train_config", "target")
"""Kinds of documents that people write as YAML, where an object is called a group of keys."""


def _type_words(kind: str) -> dict[str, str]:
    return TYPE_WORDS | {"object": "a group of keys"} if kind in YAML_KINDS else TYPE_WORDS


def not_of_type_words(node: dict[str, Any], kind: str) -> str:
    """Return that something does not have one of the types of a schema node: `is neither a number nor null`."""
    words = ["a truth value" if name == "boolean" else _type_words(kind)[name] for name in types_of(node)]
    return f"is neither {listed(words, 'nor')}" if len(words) > 1 else f"is not {words[0]}"


def expected_words(node: dict[str, Any], kind: str, *, all_bounds: bool = False) -> str:
    """Return what a schema node (without `$ref`) requests, as a noun phrase without a full stop.

    `all_bounds` also names those that only state how far numbers are exact or finite, for a value that passes them.
    """
    if "const" in node:
        return show(node["const"])
    if "enum" in node:
        return listed(show(value) for value in node["enum"])
    names = types_of(node)
    words = [_one_type(name, node, kind, all_bounds=all_bounds) for name in names if name != "null"]
    if "null" in names:
        words.append("null")
    return ", or ".join(words)


def _one_type(name: str, node: dict[str, Any], kind: str, *, all_bounds: bool) -> str:
    if name in ("integer", "number"):
        return _range_words(TYPE_WORDS[name], node, all_bounds=all_bounds)
    if name == "string" and "pattern" in node:
        return pattern_words(node)
    if name == "string" and "maxLength" in node:
        return f"text of at most {quantity(node['maxLength'], 'character')}"
    if name == "string" and node.get("minLength"):
        return "text that is not empty"
    if name == "array" and node.get("minItems"):
        return f"a list of at least {quantity(node['minItems'], 'item')}"
    return _type_words(kind)[name]


def _range_words(noun: str, node: dict[str, Any], *, all_bounds: bool) -> str:
    low, high = node.get("minimum"), node.get("maximum")
    above, below = node.get("exclusiveMinimum"), node.get("exclusiveMaximum")
    if high == LARGEST_FLOAT:
        return "a finite number"
    if high == LARGEST_EXACT and not all_bounds:
        high = None
    if low is not None and high is not None:
        return f"{noun} from {low} to {high}"
    limits = [f"of {low} or more"] if low is not None else []
    limits += [f"above {above}"] if above is not None else []
    limits += [f"up to {high}"] if high is not None else []
    limits += [f"below {below}"] if below is not None else []
    return f"{noun} {' and '.join(limits)}" if limits else noun


def pattern_words(node: dict[str, Any]) -> str:
    """Return what a pattern requests, from the description of the shared type that has the same pattern, or its own."""
    for shared in schema("types")["$defs"].values():
        if shared.get("pattern") == node["pattern"]:
            node = shared
            break
    words: str = node["description"]
    first = words.rstrip(".")
    return first[0].lower() + first[1:] if first[1].islower() else first


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


def _type_sentence(place: BrokenRule) -> tuple[str, str]:
    return "TP120", f"{_subject(place)} {not_of_type_words(place.node, place.kind)}."


def _const_sentence(place: BrokenRule) -> tuple[str, str]:
    return "TP121", f"{_subject(place)} is not {show(place.node['const'])}."


def _enum_sentence(place: BrokenRule) -> tuple[str, str]:
    return "TP121", f"{_subject(place)} is not an allowed value."


def _pattern_sentence(place: BrokenRule) -> tuple[str, str]:
    return "TP124", f"{_subject(place)} does not have the required form."


def _length_sentence(place: BrokenRule) -> tuple[str, str]:
    noun = "text" if isinstance(place.value, str) else "list"
    return "TP126", f"The {noun} is {'too short' if place.value else 'empty'}."


def _too_long_sentence(place: BrokenRule) -> tuple[str, str]:
    return "TP128", f"The text has {quantity(len(place.value), 'character')}."


def _range_sentence(words: str, keyword: str) -> Callable[[BrokenRule], tuple[str, str]]:
    return lambda place: ("TP125", f"{_subject(place)} is {words} {place.node[keyword]}.")


def _subject(place: BrokenRule) -> str:
    value = place.value
    if isinstance(value, dict) and place.kind in YAML_KINDS:
        return f"A group of {quantity(len(value), 'key')}"
    words = show(value)
    return words[0].upper() + words[1:] if isinstance(value, dict | list) else words


SENTENCES: dict[str, Callable[[BrokenRule], tuple[str, str]]] = {
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

"""What a schema node requests in plain words: `a number from 0 to 1, or null`. The sentences are in `violations`."""

from __future__ import annotations

from typing import Any

from schemas.catalog import LARGEST_EXACT, schema, types_of
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


def not_of_type_words(node: dict[str, Any]) -> str:
    """Return that something does not have one of the types of a schema node: `is neither a number nor null`."""
    words = ["a truth value" if name == "boolean" else TYPE_WORDS[name] for name in types_of(node)]
    return f"is neither {listed(words, 'nor')}" if len(words) > 1 else f"is not {words[0]}"


def expected_words(node: dict[str, Any], *, all_bounds: bool = False) -> str:
    """Return what a schema node (without `$ref`) requests, as a noun phrase without a full stop.

    `all_bounds` also names those that only state how far numbers are exact or finite, for a value that passes them.
    """
    if "const" in node:
        return show(node["const"])
    if "enum" in node:
        return listed(show(value) for value in node["enum"])
    names = types_of(node)
    words = [_one_type(name, node, all_bounds=all_bounds) for name in names if name != "null"]
    if "null" in names:
        words.append("null")
    return ", or ".join(words)


def _one_type(name: str, node: dict[str, Any], *, all_bounds: bool) -> str:
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
    return TYPE_WORDS[name]


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

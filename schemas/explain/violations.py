"""A violation of a schema in plain words: the value, the expectation, the next step.

The validator finds where and which rule; every word comes from the schema's own descriptions and from here, never from
the validator. What concerns a file as a whole (encoding, version) is for `text` and `validate`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from functools import cache
from typing import Any

from schemas.catalog import resolve, schema, schemas_of
from schemas.explain.hints import first_wrong, hint, repair
from schemas.explain.sentences import SENTENCES, BrokenRule, expected_words
from schemas.explain.validators import Path, validator_of
from schemas.problems.problem import Lines, Problem, pointer_to
from schemas.problems.rule import problem_of
from schemas.problems.words import listed, show


def violations(kind: str, value: Any, *, file: str, lines: Lines) -> list[Problem]:
    """Return a problem for each rule that the value breaks, in the order of the schema's rules."""
    validator = validator_of(kind)
    # Most values are right, and saying only that is several times faster.
    if validator.is_valid(value):
        return []
    whole, value = value, first_wrong(value, _known_keys(), validator.is_valid)
    found: dict[tuple[str, str], list[Problem]] = {}
    for broken in validator.violations(value):
        path, evaluation, keyword = broken.path, broken.evaluation, broken.keyword
        # The validator names each missing key on its own; they are one problem here.
        if (key := (pointer_to(path), keyword)) not in found:
            place = place_of(kind, value, path, evaluation)
            if isinstance(place.value, str):  # It may be cut.
                place = place_of(kind, whole, path, evaluation)
            found[key] = list(explain(place, keyword, file=file, lines=lines))
    explained = [problem for problems in found.values() for problem in problems]
    return explained if value is whole else [*explained, _more(file, explained[-1].line)]


@cache
def _known_keys() -> frozenset[str]:
    """Return every key that any schema names at any place."""
    keys: set[str] = set()
    inside: list[Any] = list(schemas_of().values())
    for node in inside:
        if isinstance(node, dict):
            keys |= node.get("properties", {}).keys()
            inside += node.values()
        elif isinstance(node, list):
            inside += node
    return frozenset(keys)


def _more(file: str, line: int | None) -> Problem:
    what = "The document is large; what follows its first wrong values was not looked at."
    return problem_of("TP134", file=file, line=line, what=what, why=None)


def place_of(kind: str, value: Any, path: Path, evaluation: Sequence[str]) -> BrokenRule:
    """Return the place that a path through the document and a path through the schema lead to."""
    for part in path:
        value = value[part]
    document = node = schema(kind)
    meaning = ""
    steps = iter(evaluation)
    for step in steps:
        if step == "$ref":
            document, node = resolve(document, node["$ref"])
        elif step == "properties":
            node, meaning = node["properties"][next(steps)], ""
        elif step in ("items", "additionalProperties"):
            node, meaning = node[step], ""
        else:
            node = node[step]
        # The first description met speaks of this very field; one behind a $ref speaks of its type.
        meaning = meaning or node.get("description", "")
    return BrokenRule(kind=kind, path=path, value=value, node=node, document=document, meaning=meaning)


def explain(place: BrokenRule, keyword: str, *, file: str, lines: Lines) -> Iterator[Problem]:
    """Yield the problems of one broken rule."""
    if keyword == "required":
        yield _missing(place, file=file, lines=lines)
    elif keyword == "unevaluatedProperties":
        known = known_keys(place.node, place.document, place.value)
        for key in place.value:
            if key not in known:
                yield _unknown(place, key, list(known), file=file, lines=lines)
    else:
        rule, what = SENTENCES[keyword](place)
        expected = expected_words(place.node, place.kind, all_bounds=keyword == "maximum")
        yield problem_of(
            rule,
            file=file,
            line=line_at(place.path, lines),
            pointer=pointer_to(place.path),
            what=what,
            why=_meaning(place, expected),
            expected=expected,
            next=hint(place.kind, place.node, place.value),
        )


def _meaning(place: BrokenRule, expected: str) -> str | None:
    """Return what the field means, unless the expectation already states it: both may come from one description."""
    if not place.meaning or place.meaning.rstrip(".").lower() == expected.lower():
        return None
    return f"Meaning of the field: {place.meaning}"


def known_keys(node: dict[str, Any], document: dict[str, Any], value: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the keys that an object may have, with their schema nodes, given the keys that it has.

    Conditions in our schemas check only whether keys are there (a test holds them to that).
    """
    known: dict[str, dict[str, Any]] = dict(node.get("properties", {}))
    if "$ref" in node:
        home, target = resolve(document, node["$ref"])
        known |= known_keys(target, home, value)
    if "if" in node:
        branch = "then" if all(key in value for key in node["if"]["required"]) else "else"
        known |= known_keys(node.get(branch, {}), document, value)
    return known


def line_at(path: Path, lines: Lines) -> int | None:
    """Return the line of a value, or of the nearest thing around it that has one."""
    for length in range(len(path), -1, -1):
        line = lines(pointer_to(path[:length]))
        if line is not None:
            return line
    return None


def _missing(place: BrokenRule, *, file: str, lines: Lines) -> Problem:
    known = known_keys(place.node, place.document, place.value)
    missing = [key for key in place.node["required"] if key not in place.value]
    if len(missing) == 1:
        what = f"The key {show(missing[0])} is missing."
        expected: str | None = _key_words(missing[0], known, place)
    else:
        what = f"The keys {listed(map(show, missing), 'and')} are missing."
        expected = None
    return problem_of(
        "TP122",
        file=file,
        line=line_at(place.path, lines),
        pointer=pointer_to(place.path),
        what=what,
        why=None,
        expected=expected,
        next=repair(place.kind, f"Add {'it' if len(missing) == 1 else 'them'}."),
    )


def _key_words(key: str, known: dict[str, dict[str, Any]], place: BrokenRule) -> str:
    node, document = known[key], place.document
    meaning = node.get("description", "")
    while "$ref" in node:
        document, node = resolve(document, node["$ref"])
        meaning = meaning or node.get("description", "")
    return f"{show(key)}: {expected_words(node, place.kind)}" + (f" ({meaning.rstrip('.')})" if meaning else "")


def _unknown(place: BrokenRule, key: str, known: list[str], *, file: str, lines: Lines) -> Problem:
    near = get_close_matches(key, known, n=1)
    elsewhere = [] if near else _groups_with(key, place.kind)
    if near:
        advice = f"Did you mean {show(near[0])}?"
    elif elsewhere:
        advice = f"Did you mean {listed(elsewhere)}?"
    else:
        advice = repair(place.kind, "Delete it; a key without effect would only mislead.")
    return problem_of(
        "TP123",
        file=file,
        line=line_at((*place.path, key), lines),
        pointer=pointer_to((*place.path, key)),
        what=f"The key {show(key)} is unknown.",
        why=None,
        expected=f"one of the keys {listed(known)}",
        next=advice,
    )


def _groups_with(key: str, kind: str) -> list[str]:
    """Return `group.key` for each group of the document's top level that has a key like this one."""
    groups = schema(kind).get("properties", {})
    return [
        f"{name}.{near}"
        for name, node in groups.items()
        for near in get_close_matches(key, node.get("properties", {}), n=1, cutoff=0.8)
    ]

"""Turn schema errors into problems: one per error, with the value, what is expected, and what to do.

The validator finds place and keyword; the texts are built from the schema's descriptions.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from importlib.util import find_spec
from itertools import islice
from typing import Any

from schemas.catalog import (
    LARGEST_EXACT,
    LARGEST_FLOAT,
    WRITTEN_BY_PEOPLE,
    YAML_KINDS,
    all_schemas,
    node_types,
    resolve,
    resolve_node,
    schema,
)
from schemas.formats import format_value, join_words, quantity
from schemas.problems import Lines, Problem, pointer_to, problem_of

MAX_PROBLEMS = 20  # schema errors of one document that are explained

MAX_VALUES = 20_000
"""Values of a document whose errors are all listed, which takes minutes and gigabytes for a million wrong items. Of a
larger document only the first error is explained."""

Path = tuple[str | int, ...]


Violation = tuple[Path, tuple[str, ...]]
"""A schema error: path to the value, and path through the schema to the keyword, with each `$ref` as a step."""


@cache
def compile_validator(kind: str) -> _RustValidator | _PythonValidator:
    """Compile the schema of a kind with jsonschema-rs, or with jsonschema if that is not installed."""
    return _RustValidator(kind) if find_spec("jsonschema_rs") else _PythonValidator(kind)


class _RustValidator:
    def __init__(self, kind: str) -> None:
        import jsonschema_rs

        documents = {document["$id"]: _drop_float_limits(document) for document in all_schemas().values()}
        name = schema(kind)["$id"]
        registry = jsonschema_rs.Registry(list(documents.items()))
        # Its messages are never shown; without a mask each would contain the whole value.
        self._validator = jsonschema_rs.Draft202012Validator(documents[name], registry=registry, mask="")
        rows = {"type": "array", "items": {"$ref": name}}
        batch = jsonschema_rs.Draft202012Validator(rows, registry=registry, mask="")
        self.are_valid: Callable[[list[Any]], bool] = batch.is_valid
        self.is_valid: Callable[[Any], bool] = self._validator.is_valid
        self._error = jsonschema_rs.ValidationError

    def violations(self, value: Any, *, only_first: bool) -> Iterator[Violation]:
        for error in self._first(value) if only_first else self._validator.iter_errors(value):
            path = restore_empty_keys(value, error.instance_path, error.instance)
            yield path, tuple(map(str, error.evaluation_path))

    def _first(self, value: Any) -> Iterator[Any]:
        try:
            self._validator.validate(value)
        except self._error as error:
            yield error


class _PythonValidator:
    def __init__(self, kind: str) -> None:
        from jsonschema import Draft202012Validator
        from referencing import Registry
        from referencing.jsonschema import DRAFT202012

        resources = [(document["$id"], DRAFT202012.create_resource(document)) for document in all_schemas().values()]
        registry: Registry[Any] = Registry().with_resources(resources)
        self._schema = schema(kind)
        self._validator = Draft202012Validator(self._schema, registry=registry)
        self.is_valid: Callable[[Any], bool] = self._validator.is_valid
        self.are_valid: Callable[[list[Any]], bool] = lambda values: all(map(self.is_valid, values))

    def violations(self, value: Any, *, only_first: bool) -> Iterator[Violation]:
        errors: Iterable[Any] = self._validator.iter_errors(value)
        if not only_first:
            errors = sorted(errors, key=lambda error: error.validator == "unevaluatedProperties")
        for error in islice(errors, 1 if only_first else None):
            steps = list(map(str, error.absolute_schema_path))
            yield tuple(error.absolute_path), tuple(_with_references(self._schema, steps))


def _drop_float_limits(document: dict[str, Any]) -> dict[str, Any]:
    """Drop the bounds ±`LARGEST_FLOAT`, which are slow to compare; the readers already refuse larger numbers."""

    def drop(node: dict[str, Any]) -> dict[str, Any]:
        return {key: item for key, item in node.items() if item not in (LARGEST_FLOAT, -LARGEST_FLOAT)}

    limited: dict[str, Any] = json.loads(json.dumps(document), object_hook=drop)
    return limited


def _with_references(document: dict[str, Any], steps: Sequence[str]) -> Iterator[str]:
    """Yield a schema path with each `$ref` as a step of its own; jsonschema leaves them out."""
    node: Any = document
    for step in steps:
        while step not in node and "$ref" in node:
            yield "$ref"
            document, node = resolve(document, node["$ref"])
        yield step
        node = node[step]


def restore_empty_keys(value: Any, path: Sequence[str | int], instance: Any) -> Path:
    """Return the path to `instance` inside `value`; jsonschema-rs leaves empty keys out of its paths."""
    full: list[str | int] = []
    for part in path:
        while isinstance(value, dict) and part not in value and "" in value:
            full.append("")
            value = value[""]
        full.append(part)
        value = value[part]
    while isinstance(value, dict) and "" in value and value != instance:
        full.append("")
        value = value[""]
    return tuple(full)


def explain_violations(kind: str, value: Any, *, file: str, lines: Lines) -> list[Problem]:
    """Return a problem for each rule that a value breaks, at most `MAX_PROBLEMS`."""
    if compile_validator(kind).is_valid(value):
        return []
    is_large = _count_values(value) > MAX_VALUES
    problems = list(islice(_explain_all(kind, value, file, lines, only_first=is_large), MAX_PROBLEMS + 1))
    if is_large or len(problems) > MAX_PROBLEMS:
        problems = problems[:MAX_PROBLEMS]
        what = "The document has more problems, which are not listed."
        problems.append(problem_of("TP134", file=file, line=problems[-1].line, what=what, why=None))
    return problems


def _count_values(value: Any) -> int:
    count = 0
    containers: list[Any] = [[value]]
    for container in containers:
        items = list(container.values() if isinstance(container, dict) else container)
        count += len(items)
        containers += [item for item in items if isinstance(item, dict | list)]
    return count


def _explain_all(kind: str, value: Any, file: str, lines: Lines, *, only_first: bool) -> Iterator[Problem]:
    seen = set()
    for path, (*steps, keyword) in compile_validator(kind).violations(value, only_first=only_first):
        # The validator reports each missing key on its own; here they are one problem.
        if (path, keyword) not in seen:
            seen.add((path, keyword))
            yield from _explain(_find(kind, value, path, steps), keyword, file, lines)


@dataclass(frozen=True, kw_only=True)
class _Place:
    """A value, the schema node that it violates, the document of that node, and the description of the field."""

    kind: str
    path: Path
    value: Any
    node: dict[str, Any]
    document: dict[str, Any]
    meaning: str

    @property
    def subject(self) -> str:
        """The value as the subject of a sentence."""
        if isinstance(self.value, dict) and self.kind in YAML_KINDS:
            return f"A group of {quantity(len(self.value), 'key')}"
        words = format_value(self.value)
        return words[0].upper() + words[1:] if isinstance(self.value, dict | list) else words


def _find(kind: str, value: Any, path: Path, evaluation: Sequence[str]) -> _Place:
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
        # The first description is that of the field; one behind a $ref describes its type.
        meaning = meaning or node.get("description", "")
    return _Place(kind=kind, path=path, value=value, node=node, document=document, meaning=meaning)


def _explain(place: _Place, keyword: str, file: str, lines: Lines) -> Iterator[Problem]:
    if keyword == "required":
        yield _missing_keys(place, file, lines)
    elif keyword == "unevaluatedProperties":
        known = known_keys(place.node, place.document, place.value)
        yield from (_unknown_key(place, key, list(known), file, lines) for key in place.value if key not in known)
    else:
        code, what = SENTENCES[keyword](place)
        expected = expected_words(place.node, place.kind)
        repeats = place.meaning.rstrip(".").lower() == expected.lower()
        yield problem_of(
            code,
            file=file,
            line=find_line(place.path, lines),
            pointer=pointer_to(place.path),
            what=what,
            why=f"Meaning of the field: {place.meaning}" if place.meaning and not repeats else None,
            expected=expected,
            next=_hint(place) or _repair(place.kind, "Correct the value, then run the same command again."),
        )


SENTENCES: dict[str, Callable[[_Place], tuple[str, str]]] = {
    "type": lambda place: ("TP120", f"{place.subject} {_is_not(place)}."),
    "const": lambda place: ("TP121", f"{place.subject} is not {format_value(place.node['const'])}."),
    "enum": lambda place: ("TP121", f"{place.subject} is not an allowed value."),
    "pattern": lambda place: ("TP124", f"{place.subject} does not have the required form."),
    "minimum": lambda place: ("TP125", f"{place.subject} is below {place.node['minimum']}."),
    "maximum": lambda place: ("TP125", f"{place.subject} is above {place.node['maximum']}."),
    "exclusiveMinimum": lambda place: ("TP125", f"{place.subject} is not above {place.node['exclusiveMinimum']}."),
    "exclusiveMaximum": lambda place: ("TP125", f"{place.subject} is not below {place.node['exclusiveMaximum']}."),
    "minItems": lambda place: ("TP126", f"The list is {'too short' if place.value else 'empty'}."),
    "minLength": lambda place: ("TP126", f"The text is {'too short' if place.value else 'empty'}."),
    "maxLength": lambda place: ("TP128", f"The text has {quantity(len(place.value), 'character')}."),
}
"""Code and sentence for each schema keyword."""

_TYPES = {
    "null": "null",
    "boolean": "true or false",
    "integer": "a whole number",
    "number": "a number",
    "string": "text",
    "array": "a list",
    "object": "an object",
}


def _type_words(name: str, kind: str) -> str:
    return "a group of keys" if name == "object" and kind in YAML_KINDS else _TYPES[name]


def _is_not(place: _Place) -> str:
    words = ["a truth value" if name == "boolean" else _type_words(name, place.kind) for name in node_types(place.node)]
    return f"is neither {join_words(words, 'nor')}" if len(words) > 1 else f"is not {words[0]}"


def expected_words(node: dict[str, Any], kind: str) -> str:
    """Describe what a schema node (without `$ref`) allows, as a noun phrase."""
    if "const" in node:
        return format_value(node["const"])
    if "enum" in node:
        return join_words(map(format_value, node["enum"]))
    types = node_types(node)
    words = [_expected_type(name, node, kind) for name in types if name != "null"]
    return ", or ".join([*words, *(["null"] if "null" in types else [])])


def _expected_type(name: str, node: dict[str, Any], kind: str) -> str:
    if name in ("integer", "number"):
        return _expected_number(_TYPES[name], node)
    if name == "string" and "pattern" in node:
        return _expected_form(node)
    if name == "string" and "maxLength" in node:
        return f"text of at most {quantity(node['maxLength'], 'character')}"
    if name == "string" and node.get("minLength"):
        return "text that is not empty"
    if name == "array" and node.get("minItems"):
        return f"a list of at least {quantity(node['minItems'], 'item')}"
    return _type_words(name, kind)


def _expected_number(noun: str, node: dict[str, Any]) -> str:
    low, high = node.get("minimum"), node.get("maximum")
    if high == LARGEST_FLOAT:
        return "a finite number"
    if high == LARGEST_EXACT:
        high = None
    if low is not None and high is not None:
        return f"{noun} from {low} to {high}"
    bounds = (
        ("of {} or more", low),
        ("above {}", node.get("exclusiveMinimum")),
        ("up to {}", high),
        ("below {}", node.get("exclusiveMaximum")),
    )
    limits = [words.format(bound) for words, bound in bounds if bound is not None]
    return f"{noun} {' and '.join(limits)}" if limits else noun


def _expected_form(node: dict[str, Any]) -> str:
    """Describe a pattern with the description of the shared type that has the same pattern, or its own."""
    shared = (one for one in schema("types")["$defs"].values() if one.get("pattern") == node["pattern"])
    words: str = next(shared, node)["description"].rstrip(".")
    return words[0].lower() + words[1:] if words[1].islower() else words


def known_keys(node: dict[str, Any], document: dict[str, Any], value: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the keys that an object may have, with their schema nodes, given the keys that it has.

    Conditions in our schemas only test which keys there are.
    """
    known: dict[str, dict[str, Any]] = dict(node.get("properties", {}))
    if "$ref" in node:
        home, target = resolve(document, node["$ref"])
        known |= known_keys(target, home, value)
    if "if" in node:
        branch = "then" if all(key in value for key in node["if"]["required"]) else "else"
        known |= known_keys(node.get(branch, {}), document, value)
    return known


def find_line(path: Path, lines: Lines) -> int | None:
    """Return the line of a value, or of its nearest container with a known line."""
    found = (lines(pointer_to(path[:length])) for length in range(len(path), -1, -1))
    return next((line for line in found if line is not None), None)


def _missing_keys(place: _Place, file: str, lines: Lines) -> Problem:
    missing = [key for key in place.node["required"] if key not in place.value]
    is_one = len(missing) == 1
    names = join_words(map(format_value, missing), "and")
    expected = None
    if is_one:
        node, document = known_keys(place.node, place.document, place.value)[missing[0]], place.document
        meaning = (node.get("description") or resolve_node(node, document).get("description", "")).rstrip(".")
        expected = f"{names}: {expected_words(resolve_node(node, document), place.kind)}"
        expected += f" ({meaning})" if meaning else ""
    return problem_of(
        "TP122",
        file=file,
        line=find_line(place.path, lines),
        pointer=pointer_to(place.path),
        what=f"The key {names} is missing." if is_one else f"The keys {names} are missing.",
        why=None,
        expected=expected,
        next=_repair(place.kind, f"Add {'it' if is_one else 'them'}."),
    )


def _unknown_key(place: _Place, key: str, known: list[str], file: str, lines: Lines) -> Problem:
    advice = _repair(place.kind, "Delete it.")
    if near := list(map(format_value, get_close_matches(key, known, n=1))) or _similar_grouped_keys(key, place.kind):
        advice = f"Did you mean {join_words(near)}?"
    path = (*place.path, key)
    return problem_of(
        "TP123",
        file=file,
        line=find_line(path, lines),
        pointer=pointer_to(path),
        what=f"The key {format_value(key)} is unknown.",
        why=None,
        expected=f"one of the keys {join_words(known)}",
        next=advice,
    )


def _similar_grouped_keys(key: str, kind: str) -> list[str]:
    """Return `group.key` for each top-level group with a similar key."""
    return [
        f"{name}.{near}"
        for name, node in schema(kind).get("properties", {}).items()
        for near in get_close_matches(key, node.get("properties", {}), n=1, cutoff=0.8)
    ]


def _repair(kind: str, by_hand: str) -> str:
    """Return `by_hand` for documents written by people, else the advice to restore the file."""
    return by_hand if kind in WRITTEN_BY_PEOPLE else "Restore the file that trainproof wrote; it is not edited by hand."


def _hint(place: _Place) -> str | None:
    """Return the likely correction of a value, or None if it is unknown."""
    node, value = place.node, place.value
    if isinstance(value, str):
        return _hint_for_text(node, value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    if node.get("minimum") == 0 and node.get("maximum") == 1 and 1 < value <= 100:
        return f"If {value} is a percentage, write {value / 100:g}."
    if value == 0 and "exclusiveMinimum" in node and "null" in node_types(node):
        return "Write null to leave it unset."
    return None


def _hint_for_text(node: dict[str, Any], value: str) -> str | None:
    types = node_types(node)
    lower = value.lower()
    if near := get_close_matches(value, [one for one in node.get("enum", []) if isinstance(one, str)], n=1):
        return f"Did you mean {format_value(near[0])}?"
    if pattern := node.get("pattern"):
        if re.search(pattern, value.strip()):
            return f"Delete the white space around {format_value(value.strip())}."
        if re.search(pattern, lower):
            return f"Write it in lower case: {format_value(lower)}."
        if value and re.search(pattern, value + "Z"):
            return f"Add the offset: {format_value(value + 'Z')} if it is UTC."
    elif {"number", "integer"} & set(types) and re.fullmatch(r"[-+]?[0-9]+(\.[0-9]+)?([eE][-+]?[0-9]+)?", value):
        return f"Write {value} without quotation marks."
    elif "boolean" in types and lower in ("yes", "no", "on", "off", "true", "false"):
        return f"Write {'true' if lower in ('yes', 'on', 'true') else 'false'}."
    elif "null" in types and lower in ("null", "none", ""):
        return "Write null, without quotation marks."
    return None

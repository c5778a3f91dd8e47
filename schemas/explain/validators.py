"""A value against the compiled schema of its kind, by whichever validator is installed.

jsonschema-rs is far faster and has wheels for the usual machines; jsonschema validates on any other. They
give the same verdicts and the same messages, which a test holds.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from typing import Any, Protocol

from schemas.catalog import resolve, schema, schemas_of

Path = tuple[str | int, ...]


@dataclass(frozen=True, kw_only=True)
class Violation:
    """One rule that a value breaks.

    Attributes:
        path: the way to the wrong value from the top of the document.
        evaluation: the way through the schema to the node that holds the rule, each `$ref` a step of its own.
        keyword: the rule, `minimum` for example.
    """

    path: Path
    evaluation: tuple[str, ...]
    keyword: str


class Validator(Protocol):
    """What both libraries are used for."""

    def is_valid(self, value: Any) -> bool:
        """Return whether a value breaks no rule."""

    def violations(self, value: Any) -> Iterator[Violation]:
        """Yield each rule that a value breaks, in the order of the schema's rules."""


@cache
def validator_of(kind: str) -> Validator:
    """Return the compiled schema of a kind."""
    return _Fast(kind) if find_spec("jsonschema_rs") else _Slow(kind)


class _Fast:
    def __init__(self, kind: str) -> None:
        import jsonschema_rs

        registry = jsonschema_rs.Registry([(document["$id"], document) for document in schemas_of().values()])
        # Its own message, which no one sees, would hold all of what is wrong.
        self._validator = jsonschema_rs.Draft202012Validator(schema(kind), registry=registry, mask="")
        self.is_valid = self._validator.is_valid

    def violations(self, value: Any) -> Iterator[Violation]:
        for error in self._validator.iter_errors(value):
            *evaluation, keyword = map(str, error.evaluation_path)
            path = whole_path(value, error.instance_path, error.instance)
            yield Violation(path=path, evaluation=tuple(evaluation), keyword=keyword)


class _Slow:
    def __init__(self, kind: str) -> None:
        from jsonschema import Draft202012Validator
        from referencing import Registry
        from referencing.jsonschema import DRAFT202012

        resources = [(document["$id"], DRAFT202012.create_resource(document)) for document in schemas_of().values()]
        registry: Registry[Any] = Registry().with_resources(resources)
        self._document = schema(kind)
        self._validator = Draft202012Validator(self._document, registry=registry)
        self.is_valid = self._validator.is_valid

    def violations(self, value: Any) -> Iterator[Violation]:
        # What a key means is known when all others were looked at; jsonschema-rs names unknown keys last, too.
        errors = sorted(
            self._validator.iter_errors(value), key=lambda error: error.validator == "unevaluatedProperties"
        )
        for error in errors:
            *steps, keyword = map(str, error.absolute_schema_path)
            evaluation = tuple(with_references(self._document, steps, keyword))
            yield Violation(path=tuple(error.absolute_path), evaluation=evaluation, keyword=keyword)


def with_references(document: dict[str, Any], steps: Sequence[str], keyword: str) -> Iterator[str]:
    """Yield a way through a schema with each `$ref` as a step of its own; jsonschema leaves them out."""
    node = document
    for place, step in enumerate((*steps, keyword)):
        while step not in node and "$ref" in node:
            yield "$ref"
            document, node = resolve(document, node["$ref"])
        if place < len(steps):
            yield step
            node = node[step]


def whole_path(value: Any, stated: Sequence[str | int], instance: Any) -> Path:
    """Return the path to `instance` inside `value`; jsonschema-rs leaves empty keys out of the path that it states."""
    path: list[str | int] = []
    for part in stated:
        while isinstance(value, dict) and part not in value and "" in value:
            path.append("")
            value = value[""]
        path.append(part)
        value = value[part]
    while isinstance(value, dict) and "" in value and value != instance:
        path.append("")
        value = value[""]
    return tuple(path)

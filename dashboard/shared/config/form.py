"""The launch form, drawn from the schema of `train_config`: what each field is called, accepts, and starts as.

What lives here: reading the schema, and turning what a form holds into a configuration. What does not: checking the
configuration (`schemas.validate` does, with the same schema) or drawing widgets (`components.config_form`).
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, Literal

from schemas.catalog import VERSION, schema
from schemas.reading import get_path

Kind = Literal["choice", "switch", "integer", "number", "text"]

KIND = "train_config"
ESSENTIAL = (
    ("name",),
    ("mode",),
    ("model", "name"),
    ("data", "dataset"),
    ("limits", "steps"),
    ("optimizer", "learning_rate"),
    ("batch", "microbatch_size"),
    ("evaluation", "eval_set"),
    ("mesh", "device"),
)
"""Fields that most launches change; the page shows them first."""

_LARGEST = 2**53 - 1
"""The largest whole number that a browser distinguishes from its neighbours."""

Path = tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class FormField:
    """One setting as a form shows it.

    Attributes:
        path: keys from the top of the configuration, for example `("optimizer", "learning_rate")`.
        nullable: whether null is a value of its own; the help states what it means.
        low, high: range of a number; whether an end itself is allowed, the schema states when it checks the value.
        default: value when the key is left out; None also where there is no default.
    """

    path: Path
    title: str
    help: str
    kind: Kind
    nullable: bool
    required: bool
    options: tuple[str, ...]
    examples: tuple[str, ...]
    low: float | None
    high: float | None
    default: Any

    @property
    def dotted(self) -> str:
        """The key as `--set` takes it."""
        return ".".join(self.path)


@dataclass(frozen=True, kw_only=True)
class FieldGroup:
    """Fields that belong together: one object of the configuration, or those that stand at its top."""

    title: str
    help: str
    fields: tuple[FormField, ...]


def groups() -> tuple[FieldGroup, ...]:
    """Return every field of the configuration in the order of its schema; the first group is the top level."""
    document = schema(KIND)
    top: list[FormField] = []
    found: list[FieldGroup] = []
    for key, node in document["properties"].items():
        if node.get("type") == "object":
            required = node.get("required", [])
            fields = [
                _field((key, name), child, required=name in required) for name, child in node["properties"].items()
            ]
            found.append(FieldGroup(title=node["title"], help=node["description"], fields=tuple(fields)))
        elif key != "schema_version":
            top.append(_field((key,), node, required=key in document["required"]))
    return (FieldGroup(title="Run", help="What the run is called and what it is for.", fields=tuple(top)), *found)


def fields() -> tuple[FormField, ...]:
    """Return every field, group by group."""
    return tuple(field for group in groups() for field in group.fields)


def states(config: Mapping[str, Any], path: Path) -> bool:
    """Return whether the configuration has the key, be its value null."""
    parent = get_path(config, *path[:-1])
    return isinstance(parent, Mapping) and path[-1] in parent


def with_defaults(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the configuration with every key that has a default stated, in the order of the schema.

    Keys that the schema does not know are kept at the end, and what stands where a group should is kept in its place,
    so that checking can name them.
    """
    full: dict[str, Any] = {"schema_version": config.get("schema_version", VERSION)}
    for field in fields():
        given = states(config, field.path)
        if given or not field.required:
            _put(full, field.path, deepcopy(get_path(config, *field.path) if given else field.default))
    return _with_the_rest(full, config)


def edit(config: Mapping[str, Any], edits: Mapping[Path, Any]) -> dict[str, Any]:
    """Return the configuration with the edited fields put in."""
    result = deepcopy(dict(config))
    for path, value in edits.items():
        _put(result, path, value)
    return result


def differing_fields(config: Mapping[str, Any], other: Mapping[str, Any]) -> list[tuple[FormField, Any, Any]]:
    """Return the fields whose values differ between two complete configurations, with both values."""
    both = [(field, get_path(config, *field.path), get_path(other, *field.path)) for field in fields()]
    return [(field, before, after) for field, before, after in both if before != after]


def can_be(field: FormField, value: Any) -> bool:
    """Return whether a field's widget can hold a value: it has the right type.

    Checking states if it is out of range.
    """
    if value is None:
        # A key that must be stated and is not starts empty.
        return field.nullable or field.required
    match field.kind:
        case "choice":
            return value in field.options
        case "switch":
            return isinstance(value, bool)
        case "text":
            return isinstance(value, str)
    kinds = int if field.kind == "integer" else int | float
    if isinstance(value, bool) or not isinstance(value, kinds):
        return False
    return -_LARGEST <= value <= _LARGEST


def _field(path: Path, node: Mapping[str, Any], *, required: bool) -> FormField:
    whole = _resolve(node)
    types = whole.get("type", [])
    types = [types] if isinstance(types, str) else list(types)
    low = whole.get("minimum", whole.get("exclusiveMinimum"))
    high = whole.get("maximum", whole.get("exclusiveMaximum"))
    return FormField(
        path=path,
        title=whole.get("title", path[-1]),
        help=whole.get("description", ""),
        kind=_kind(whole, types),
        nullable="null" in types or None in whole.get("enum", []),
        required=required,
        options=tuple(option for option in whole.get("enum", []) if option is not None),
        examples=tuple(whole.get("examples", [])),
        low=low,
        high=high,
        default=whole.get("default"),
    )


def _kind(node: Mapping[str, Any], types: list[str]) -> Kind:
    if "enum" in node:
        return "choice"
    for name, kind in _KINDS.items():
        if name in types:
            return kind
    return "text"


_KINDS: Mapping[str, Kind] = {"boolean": "switch", "integer": "integer", "number": "number"}


def _resolve(node: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the node with the shared type that it refers to written out; what the node states itself wins."""
    reference = node.get("$ref")
    if reference is None:
        return node
    shared = schema("types")["$defs"][reference.rpartition("/")[2]]
    return {**shared, **node}


def _put(config: dict[str, Any], path: Path, value: Any) -> None:
    node = config
    for key in path[:-1]:
        child = node.get(key)
        if not isinstance(child, dict):
            child = node[key] = {}
        node = child
    node[path[-1]] = value


def _with_the_rest(full: dict[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    for key, value in given.items():
        if isinstance(value, Mapping) and isinstance(full.get(key), dict):
            full[key] = _with_the_rest(full[key], value)
        elif key not in full or isinstance(full[key], dict):
            full[key] = deepcopy(value)
    return full

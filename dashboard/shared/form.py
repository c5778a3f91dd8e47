"""Settings of a configuration: their fields from the schema of `train_config`, values as text, and problems."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

from evidence.layout import CONFIG
from schemas.catalog import DATASETS, EVAL_SETS, GYM, MODELS, VERSION, schema
from schemas.problems import Problem, pointer_to, problem_of
from schemas.reading import get_path, get_str, os_error_problem
from schemas.validate import check_value

Kind = Literal["choice", "switch", "integer", "number", "text"]
Key = tuple[str, ...]
KIND = "train_config"
ESSENTIAL: tuple[Key, ...] = (
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
"""Settings that have their own widget."""
MODE, STEPS = ("mode",), ("limits", "steps")

BUILT_IN: Mapping[Key, tuple[str, str, tuple[str, ...]]] = {
    ("model", "name"): ("TP040", "model", MODELS),
    ("data", "dataset"): ("TP010", "dataset", DATASETS),
    ("evaluation", "eval_set"): ("TP010", "evaluation set", EVAL_SETS),
}
"""Problem code, noun and built-in names of each setting that names something."""
_REMOTE: Mapping[Key, str] = {
    ("model", "name"): r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?",
    ("data", "dataset"): f"{GYM}.*",
}
"""Names that the trainer downloads or generates."""


_MAX_INTEGER = 2**53 - 1  # the largest integer that a browser represents exactly
_MAX_ASSIGNMENTS = 64
_MAX_LENGTH = 500
_MAX_NUMBER_LENGTH = 64


@dataclass(frozen=True, kw_only=True)
class FormField:
    """A setting.

    Attributes:
        path: Keys from the top of the configuration, for example `("optimizer", "learning_rate")`.
        help: Meaning, and which values are allowed.
        nullable: Whether null is allowed.
        default: Value if the key is missing; None if there is no default.
    """

    path: Key
    title: str
    help: str
    kind: Kind
    nullable: bool
    required: bool
    options: tuple[str, ...]
    default: Any

    @property
    def dotted(self) -> str:
        """The key as `--set` takes it."""
        return ".".join(self.path)

    def has_type(self, value: Any) -> bool:
        """Return whether the type of a value fits; the range is not checked."""
        if value is None:
            return self.nullable or self.required  # a required key starts empty
        if self.kind == "choice":
            return value in self.options
        if isinstance(value, bool) or self.kind == "switch":
            return self.kind == "switch" and isinstance(value, bool)
        if self.kind == "text":
            return isinstance(value, str)
        return isinstance(value, int if self.kind == "integer" else int | float) and abs(value) <= _MAX_INTEGER

    def parse(self, text: str | None) -> Any:
        """Return the value of a text as YAML has it; a text of the wrong type is returned as it is.

        Example:
            >>> field("optimizer.learning_rate").parse("2e-3")
            0.002
        """
        text = (text or "").strip()
        if self.nullable and text in {"", "null"}:
            return None
        if self.kind == "text" or len(text) > _MAX_NUMBER_LENGTH:
            return text
        try:
            return json.loads(text)
        except ValueError:
            return text


@cache
def fields() -> tuple[FormField, ...]:
    """Return every setting in the order of the schema."""
    document = schema(KIND)
    found = []
    for key, node in document["properties"].items():
        if node.get("type") == "object":
            needed = node.get("required", [])
            found += [_field((key, name), child, required=name in needed) for name, child in node["properties"].items()]
        elif key != "schema_version":
            found.append(_field((key,), node, required=key in document["required"]))
    return tuple(found)


def _field(path: Key, node: Mapping[str, Any], *, required: bool) -> FormField:
    if "$ref" in node:
        node = {**schema("types")["$defs"][node["$ref"].rpartition("/")[2]], **node}
    types = [node["type"]] if isinstance(node.get("type"), str) else node.get("type", [])
    kinds: Mapping[str, Kind] = {"boolean": "switch", "integer": "integer", "number": "number"}
    options = tuple(option for option in node.get("enum", []) if option is not None)
    low, high = (node.get(end, node.get(f"exclusive{end.capitalize()}")) for end in ("minimum", "maximum"))
    allowed = f" One of: {', '.join(options)}." if options else ""
    if low is not None and high is not None:
        allowed = f" From {low:,g} to {high:,g}."
    return FormField(
        path=path,
        title=node.get("title", path[-1]),
        help=node.get("description", "") + allowed,
        kind="choice" if options else next((kinds[name] for name in types if name in kinds), "text"),
        nullable="null" in types or None in node.get("enum", []),
        required=required,
        options=options,
        default=node.get("default"),
    )


def field(dotted: str) -> FormField:
    """Return the setting of a dotted key."""
    return next(each for each in fields() if each.dotted == dotted)


def has_key(config: Mapping[str, Any] | None, path: Key) -> bool:
    """Return whether the configuration has the key, also with the value null."""
    parent = get_path(config, *path[:-1])
    return isinstance(parent, Mapping) and path[-1] in parent


def get_value(config: Mapping[str, Any], setting: FormField) -> Any:
    """Return the value of a setting, or its default if the key is missing."""
    return get_path(config, *setting.path) if has_key(config, setting.path) else setting.default


def fill_defaults(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the configuration with every default, in the order of the schema.

    Unknown keys, and values where the schema has an object, are kept so that validation reports them.
    """
    full: dict[str, Any] = {"schema_version": VERSION}
    for setting in fields():
        if not setting.required or has_key(config, setting.path):
            _put(full, setting.path, setting.default)
    return _merge(full, config)


def edit(config: Mapping[str, Any], edits: Mapping[Key, Any]) -> dict[str, Any]:
    """Return a copy of the configuration with edited settings."""
    result = deepcopy(dict(config))
    for path, value in edits.items():
        _put(result, path, value)
    return result


def format_yaml(value: Any) -> str:
    """Format a value as YAML with every digit: `null`, `true`, `0.001`, `1.0e-06`."""
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    if isinstance(value, float) and math.isfinite(value):
        digits, exponent, power = repr(value).partition("e")
        # YAML reads 1e-06, without a point, as a string.
        return f"{digits}{'.0' if exponent and '.' not in digits else ''}{exponent}{power}"
    return str(value)


def _put(config: dict[str, Any], path: Key, value: Any) -> None:
    for key in path[:-1]:
        if not isinstance(config.get(key), dict):
            config[key] = {}
        config = config[key]
    config[path[-1]] = value


def _merge(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    result = dict(base)
    for key, value in over.items():
        both = isinstance(value, Mapping) and isinstance(result.get(key), dict)
        result[key] = _merge(result[key], value) if both else deepcopy(value)
    return result


def assignments(start: Mapping[str, Any], edited: Mapping[str, Any]) -> list[str]:
    """Return the assignments that turn one configuration into another, in the order of the schema."""
    before, after = fill_defaults(start), fill_defaults(edited)
    both = [(each.dotted, get_path(before, *each.path), get_path(after, *each.path)) for each in fields()]
    return [f"{key}={new if isinstance(new, str) else json.dumps(new)}" for key, old, new in both if new != old]


def parse_assignments(texts: Iterable[str]) -> dict[Key, Any]:
    """Parse assignments; unknown keys and values of the wrong type are skipped."""
    known = {each.dotted: each for each in fields()}
    found = {}
    for text in list(texts)[:_MAX_ASSIGNMENTS]:
        name, equals, written = text[:_MAX_LENGTH].partition("=")
        setting = known.get(name.strip()) if equals else None
        value = setting.parse(written) if setting else None
        if setting and setting.has_type(value):
            found[setting.path] = value
    return found


def problems(config: Mapping[str, Any]) -> list[Problem]:
    """Check a complete configuration against the schema, and look for the files it names."""
    return [*check_value(KIND, config, file=CONFIG), *absent(config, file=CONFIG)]


def absent(config: Mapping[str, Any], *, file: str) -> Iterator[Problem]:
    """Yield a problem for each name that is not built in, not a path, and not remote."""
    for path, (code, noun, built_in) in BUILT_IN.items():
        name = get_str(config, *path)
        if not name or name in built_in or re.fullmatch(_REMOTE.get(path, ""), name):
            continue
        try:
            if Path(name).exists():
                continue
        except OSError as error:
            problem = os_error_problem(error)
            yield problem_of(problem.code, file=file, pointer=pointer_to(path), what=problem.what, next=problem.next)
            continue
        is_relative = not Path(name).is_absolute()
        yield problem_of(
            code,
            file=file,
            pointer=pointer_to(path),
            what=f"There is no {noun} {name}: it is not built in, and no such file exists.",
            why=f"Relative paths start at {Path.cwd()}, where the dashboard was started." if is_relative else None,
            expected=f"a built-in name ({', '.join(built_in)}) or a path",
        )

"""A typed decoder for each kind of row, made from its schema, so that a million rows are read and checked in seconds.

The decoder is a fast yes: what it accepts, the schema accepts (a test holds the two together). What it refuses may
still be right (`5.0` for a whole number, say); `rows` then applies the schema itself, which is slower and can explain.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from functools import cache
from typing import Annotated, Any, Literal, NotRequired, TypedDict, Union

import msgspec

from schemas.catalog import LARGEST_EXACT, resolve_node, schema, types_of
from schemas.reading.fast_json import quotation_marks
from schemas.reading.limits import MOST_DIGITS, MOST_LEVELS

Decode = Callable[[bytes], dict[str, Any] | None]

CONDITIONS = {"if", "then", "else", "oneOf", "anyOf", "allOf", "not"}
BOUNDS = {"minimum": "ge", "maximum": "le", "exclusiveMinimum": "gt", "exclusiveMaximum": "lt"}
LENGTHS = {"minLength": "min_length", "maxLength": "max_length", "pattern": "pattern"}
TOO_MANY_DIGITS = re.compile(rb"[0-9]{%d}" % (MOST_DIGITS + 1))
PLAIN_TYPES = {"null": None, "boolean": bool, "object": dict[str, Any]}


@cache
def decoder_of(kind: str) -> Decode | None:
    """Return a function from a line to its row, or to None where it is not sure; None for kinds too free for types."""
    document = schema(kind)
    if CONDITIONS & document.keys():
        return None
    required = document["required"]
    fields = {}
    for name, node in document["properties"].items():
        type_ = _type_of(node, document)
        fields[name] = type_ if name in required else NotRequired[type_]
    # TypedDict's functional form wants literals; these come from a document.
    make: Any = TypedDict
    decode = msgspec.json.Decoder(make(kind, fields)).decode
    fixed = fixed_quotation_marks(document)
    return _flat(decode, fixed) if fixed else _general(decode)


@cache
def struct_of(kind: str, *, as_text: tuple[str, ...] = ()) -> type[msgspec.Struct]:
    """Return a type for rows; an optional key that a row lacks is UNSET.

    Args:
        kind: A kind of row.
        as_text: Keys whose value may be any text, for the caller to judge.
    """
    document = schema(kind)
    fields: list[tuple[str, Any] | tuple[str, Any, Any]] = []
    for name, node in document["properties"].items():
        type_ = str if name in as_text else _type_of(node, document)
        is_required = name in document["required"]
        fields.append((name, type_) if is_required else (name, Union[type_, msgspec.UnsetType], msgspec.UNSET))  # noqa: UP007 - made of a value
    return msgspec.defstruct(kind, fields, forbid_unknown_fields=True, gc=False, kw_only=True)


def _flat(decode: Callable[[bytes], dict[str, Any]], marks: int) -> Decode:
    def row_of(line: bytes) -> dict[str, Any] | None:
        try:
            row = decode(line)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            return None
        return row if line.count(b'"') == marks else None

    return row_of


def _general(decode: Callable[[bytes], dict[str, Any]]) -> Decode:
    def row_of(line: bytes) -> dict[str, Any] | None:
        if _hides_something(line):
            return None
        try:
            row = decode(line)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            return None
        return row if line.count(b'"') == quotation_marks(row) else None

    return row_of


def _hides_something(line: bytes) -> bool:
    """Return whether only the strict reader can judge a line: by an escape that the count misses, depth, or size."""
    if b"\\u0022" in line or line.count(b"{") + line.count(b"[") > MOST_LEVELS:
        return True
    return len(line) > MOST_DIGITS and TOO_MANY_DIGITS.search(line) is not None


def fixed_quotation_marks(document: dict[str, Any]) -> int | None:
    """Return how many quotation marks every valid row has, or None if that differs from row to row.

    It is the same for rows that need all their keys and whose only strings are times: these hold no quotation mark.
    """
    nodes = [resolve_node(node, document) for node in document["properties"].values()]
    strings = [node for node in nodes if "string" in node.get("type", ()) or "enum" in node or "const" in node]
    all_needed = len(document["required"]) == len(nodes)
    if not all_needed or any(node is not schema("types")["$defs"]["time"] for node in strings):
        return None
    return 2 * len(nodes) + 2 * len(strings)


def _type_of(node: dict[str, Any], document: dict[str, Any]) -> Any:
    node = resolve_node(node, document)
    if "const" in node or "enum" in node:
        return Literal[tuple(node.get("enum", [node.get("const")]))]
    names = types_of(node)
    return Union[tuple(_one_type(name, node, document) for name in names)]  # noqa: UP007 - made of a list


def _one_type(name: str, node: dict[str, Any], document: dict[str, Any]) -> Any:
    if name == "array":
        items: Any = list[_type_of(node["items"], document)]  # type: ignore[misc]  # made of a schema
        return _limit(items, {"min_length": node["minItems"]} if "minItems" in node else {})
    if name == "string":
        return _limit(str, {ours: node[theirs] for theirs, ours in LENGTHS.items() if theirs in node})
    if "properties" in node:
        # A key that the schema does not know is left out here, and shows in the count of quotation marks.
        members = {key: _type_of(member, document) for key, member in node["properties"].items()}
        needed = node.get("required", ())
        return TypedDict(  # type: ignore[operator]  # made of a schema
            "Members", {key: type_ if key in needed else NotRequired[type_] for key, type_ in members.items()}
        )
    if isinstance(node.get("additionalProperties"), dict):
        values: Any = dict[str, _type_of(node["additionalProperties"], document)]  # type: ignore[misc]  # of a schema
        return values
    bounds = {ours: node[theirs] for theirs, ours in BOUNDS.items() if theirs in node}
    whole = _limit(int, {ours: _as_int(bound, ours) for ours, bound in bounds.items()})
    if name == "integer":
        return whole
    if name == "number":
        return Union[whole, _limit(float, bounds)]  # noqa: UP007 - made of values
    return PLAIN_TYPES[name]


def _as_int(bound: float, name: str) -> int:
    """Return a bound for whole numbers, never wider; the decoder accepts at most 64 bits."""
    inner = math.ceil(bound) if name in ("ge", "lt") else math.floor(bound)
    return max(-LARGEST_EXACT, min(LARGEST_EXACT, inner))


def _limit(type_: Any, limits: dict[str, Any]) -> Any:
    return Annotated[type_, msgspec.Meta(**limits)] if limits else type_

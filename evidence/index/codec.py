"""Write dataclasses as JSON and read them back by their type hints."""

from __future__ import annotations

import dataclasses
import json
import os
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

Decode = Callable[[Any], Any]


def encode(value: Any) -> bytes | None:
    """Return a dataclass as JSON, or None if it holds half a surrogate pair."""
    try:
        return json.dumps(_plain(value), ensure_ascii=False, separators=(",", ":")).encode()
    except UnicodeEncodeError:
        return None


def decode(kind: Any, data: bytes) -> Any:
    """Return the dataclass that `encode` wrote.

    Raises:
        ValueError: The data is not one.
    """
    try:
        return _decoder(kind)(json.loads(data))
    except (KeyError, TypeError, AttributeError, IndexError, RecursionError) as error:
        what = f"not a {kind.__name__}"
        raise ValueError(what) from error


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value):
        return [_plain(getattr(value, field.name)) for field in dataclasses.fields(value)]
    if isinstance(value, Path):
        return os.fsencode(value).hex()
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list | tuple | frozenset | set) else value


@lru_cache(maxsize=1)
def _path(name: str) -> Path:
    """Return a path; an entry contains the same one many times."""
    return Path(os.fsdecode(bytes.fromhex(name)))


@cache
def _decoder(kind: Any) -> Decode:
    """Return what turns the JSON form of a type into its value."""
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if dataclasses.is_dataclass(kind):
        hints = typing.get_type_hints(kind)
        fields = [(field.name, _decoder(hints[field.name])) for field in dataclasses.fields(kind)]
        make = typing.cast("Callable[..., Any]", kind)
        return lambda value: make(**{name: read(item) for (name, read), item in zip(fields, value, strict=True)})
    if kind is Path:
        return _path
    if origin in (typing.Union, types.UnionType):
        others = [_decoder(one) for one in args if one is not type(None)]
        if len(others) > 1:  # scalars, as in `str | float | None`
            return lambda value: value
        return lambda value: None if value is None else others[0](value)
    if isinstance(origin, type) and issubclass(origin, tuple) and args[-1:] != (...,):
        readers = [_decoder(one) for one in args]
        return lambda value: tuple(read(item) for read, item in zip(readers, value, strict=True))
    if isinstance(origin, type) and issubclass(origin, Mapping):
        read_value = _decoder(args[1])
        return lambda value: {key: read_value(item) for key, item in value.items()}
    if isinstance(origin, type) and issubclass(origin, Sequence | frozenset | set):
        read_item, collect = _decoder(args[0]), origin if origin in (list, frozenset, set) else tuple
        return lambda value: collect(map(read_item, value))
    return lambda value: value

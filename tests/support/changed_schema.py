"""A schema as another version might state it, for the length of a `with` block."""

import copy
import functools
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from schemas.catalog import schema

PACKAGES = ("schemas", "evidence", "trainer", "launch", "dashboard")


@contextmanager
def changed_schema(kind: str, change: Callable[[dict[str, Any]], None]) -> Iterator[None]:
    """Let every reader, validator and page see a schema after `change` was applied to it."""
    document = schema(kind)
    before = copy.deepcopy(document)
    change(document)
    _forget()
    try:
        yield
    finally:
        document.clear()
        document.update(before)
        _forget()


def with_row_field(name: str, node: dict[str, Any]) -> Callable[[dict[str, Any]], None]:
    """Return a change that gives metric rows an optional field."""

    def change(document: dict[str, Any]) -> None:
        document["properties"][name] = node

    return change


def _forget() -> None:
    """Clear what was made from schemas: every cache of our modules but that of the schemas themselves."""
    for module in [one for name, one in sys.modules.items() if name.partition(".")[0] in PACKAGES]:
        for value in vars(module).values():
            if isinstance(value, functools._lru_cache_wrapper) and value is not schema:
                value.cache_clear()

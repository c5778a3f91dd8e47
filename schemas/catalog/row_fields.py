"""The fields of a row of metrics.jsonl as its schema states them: unit, panel, axis, required or optional.

The schema is the one place that lists them. Columns, curves, CSV files and the recorder read it here, so that a field
which an objective adds to the schema is recorded, read and drawn.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

from schemas.catalog import resolve_node, schema, types_of

ROW_KIND = "metric_row"
"""The kind of document that a line of metrics.jsonl is."""

TIME = "time"
"""The one field that is not a number."""


@dataclass(frozen=True, kw_only=True)
class PanelStyle:
    """How a field is drawn over the steps.

    Attributes:
        is_large: whether it is the first thing to look at.
        is_log: whether a logarithmic scale makes sense: its values are positive and span orders of magnitude.
        exactly: what is measured beyond title and unit, as a part of a heading; empty if nothing.
    """

    is_large: bool
    is_log: bool
    exactly: str


@dataclass(frozen=True, kw_only=True)
class RowField:
    """One field.

    Attributes:
        name: key in the row, `tokens_seen`.
        title: heading, `Tokens seen`.
        meaning: what is measured, as sentences.
        unit: unit of the value, `tokens`; empty for a bare number and for the time.
        is_required: whether each row has it. Rows written before an optional field existed are valid without it.
        is_axis: whether it may run along the x axis.
        panel: how it is drawn. None: it is not.
    """

    name: str
    title: str
    meaning: str
    unit: str
    is_required: bool
    is_axis: bool
    panel: PanelStyle | None


@cache
def row_fields() -> tuple[RowField, ...]:
    """Return the fields of a metric row in the order of the schema; the time is one of them."""
    document = schema(ROW_KIND)
    return tuple(_field(name, node, required=document["required"]) for name, node in document["properties"].items())


@cache
def number_names() -> tuple[str, ...]:
    """Return the names of the fields that are numbers, in the order of the schema."""
    document = schema(ROW_KIND)
    nodes = {name: resolve_node(node, document) for name, node in document["properties"].items()}
    others = [name for name, node in nodes.items() if set(types_of(node)) - {"integer", "number", "null"}]
    if others != [TIME]:
        what = f"a metric row holds numbers and its time; the schema has {others}"
        raise AssertionError(what)
    return tuple(name for name in nodes if name != TIME)


def _field(name: str, node: dict[str, Any], *, required: list[str]) -> RowField:
    panel = node.get("x-panel")
    return RowField(
        name=name,
        title=node["title"],
        meaning=node["description"],
        unit=node.get("x-unit", ""),
        is_required=name in required,
        is_axis=node.get("x-axis", False),
        panel=None if panel is None else _panel(panel),
    )


def _panel(stated: dict[str, Any]) -> PanelStyle:
    return PanelStyle(
        is_large=stated.get("large", False), is_log=stated.get("log", False), exactly=stated.get("exactly", "")
    )

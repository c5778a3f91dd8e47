"""The launch form: a widget for each field of the configuration's schema, with its range, help and default."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import streamlit as st

from dashboard.logic import form
from dashboard.logic.form import Field

_IN_A_ROW = 3
_UNSET = "as the program decides"

Number = TypeVar("Number", int, float)


def show(source: str, config: Mapping[str, Any]) -> dict[str, Any]:
    """Draw the form over a configuration and return it with what the reader changed.

    Args:
        source: Name of what the form starts from; another name starts the widgets afresh.
        config: Values to start from; a key that it lacks starts at its default.
    """
    fields = {field.path: field for field in form.fields()}
    with st.container(border=True):
        edits = _widgets(source, [fields[path] for path in form.ESSENTIAL], config)
    with st.container(border=True, gap="small"):
        for group in form.groups():
            rest = [field for field in group.fields if field.path not in form.ESSENTIAL]
            if not rest:
                continue
            with st.expander(f"{group.title}: {', '.join(field.title.lower() for field in rest)}", type="compact"):
                st.caption(group.help)
                edits |= _widgets(source, rest, config)
    return form.changed(config, edits)


def _widgets(source: str, fields: Sequence[Field], config: Mapping[str, Any]) -> dict[form.Path, Any]:
    """Draw fields row by row, so that they keep their order where the width allows only one in a row."""
    edits = {}
    for start in range(0, len(fields), _IN_A_ROW):
        columns = st.columns(_IN_A_ROW)
        for column, field in zip(columns, fields[start : start + _IN_A_ROW], strict=False):
            with column:
                edits[field.path] = _widget(source, field, config)
    return edits


def _widget(source: str, field: Field, config: Mapping[str, Any]) -> Any:
    """Draw one field and return its value; what the configuration holds is shown even where it is not allowed."""
    value = form.value_at(config, field.path) if form.states(config, field.path) else field.default
    key = f"form {source} {field.dotted}"
    draw = {"choice": _choice, "switch": _switch, "integer": _integer, "number": _number, "text": _text}[field.kind]
    return draw(field, value, key)


def _help(field: Field) -> str:
    ends = f" From {field.low:,g} to {field.high:,g}." if field.low is not None and field.high is not None else ""
    return f"{field.help}{ends} Key: `{field.dotted}`"


def _choice(field: Field, value: Any, key: str) -> Any:
    options: list[Any] = [*([None] if field.nullable else []), *field.options]
    return st.selectbox(
        field.title,
        options,
        index=options.index(value) if value in options else 0,
        format_func=lambda option: _UNSET if option is None else str(option),
        key=key,
        help=_help(field),
    )


def _switch(field: Field, value: Any, key: str) -> bool:
    return st.toggle(field.title, value=value is True, key=key, help=_help(field))


def _integer(field: Field, value: Any, key: str) -> int | None:
    number = int(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
    low, high = int(field.low or 0), int(field.high) if field.high is not None else None
    return st.number_input(
        field.title,
        min_value=low,
        max_value=high,
        value=_within(number, low, high),
        step=1,
        key=key,
        help=_help(field),
        placeholder=_UNSET if field.nullable else None,
    )


def _number(field: Field, value: Any, key: str) -> float | None:
    number = float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
    low, high = float(field.low or 0), float(field.high) if field.high is not None else None
    return st.number_input(
        field.title,
        min_value=low,
        max_value=high,
        value=_within(number, low, high),
        step=_step(number),
        format="%g",
        key=key,
        help=_help(field),
        placeholder=_UNSET if field.nullable else None,
    )


def _text(field: Field, value: Any, key: str) -> str | None:
    shown = value if isinstance(value, str) else ""
    hint = ", ".join(field.examples)
    given = st.text_input(field.title, value=shown, key=key, help=_help(field), placeholder=hint or None)
    return None if field.nullable and not given else given or ""


def _within(value: Number | None, low: Number, high: Number | None) -> Number | None:
    """Return the value inside the widget's range: a widget refuses to start outside it."""
    if value is None:
        return None
    return max(low, value if high is None else min(high, value))


def _step(value: float | None) -> float:
    """Return a tenth of the value's power of ten, by which the arrows change it: 0.0001 for 0.001."""
    if not value:
        return 0.1
    return float(f"1e{int(f'{abs(value):e}'.partition('e')[2]) - 1}")

"""The launch form: a widget for each field of the configuration's schema, with its range, help and default.

What the reader changes is kept while other pages are looked at. A group that is folded has no widgets, so that the page
opens sooner; what was changed in it stays changed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import streamlit as st

from dashboard.logic import form
from dashboard.logic.form import Field, Group

_IN_A_ROW = 3
_UNSET = "as the program decides"


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
            edits |= _group(source, group, rest, config)
    edited = form.changed(config, edits)
    if form.with_defaults(edited) != form.with_defaults(config):
        st.button("Undo all changes", type="tertiary", icon=":material/undo:", on_click=_undo, args=(source, config))
    return edited


def _group(source: str, group: Group, fields: Sequence[Field], config: Mapping[str, Any]) -> dict[form.Path, Any]:
    title = f"{group.title}: {', '.join(field.title.lower() for field in fields)}"
    unfolded = st.expander(title, type="compact", key=f"group {source} {group.title}", on_change="rerun")
    if not unfolded.open:
        kept = {field: st.session_state[key] for field in fields if (key := _key(source, field)) in st.session_state}
        return {field.path: _meant(field, value) for field, value in kept.items()}
    with unfolded:
        st.caption(group.help)
        return _widgets(source, fields, config)


def _undo(source: str, config: Mapping[str, Any]) -> None:
    for field in form.fields():
        if (key := _key(source, field)) in st.session_state:
            st.session_state[key] = _first_value(field, config)


def _widgets(source: str, fields: Sequence[Field], config: Mapping[str, Any]) -> dict[form.Path, Any]:
    """Draw fields row by row, so that they keep their order where the width allows only one in a row."""
    edits = {}
    for start in range(0, len(fields), _IN_A_ROW):
        columns = st.columns(_IN_A_ROW)
        for column, field in zip(columns, fields[start : start + _IN_A_ROW], strict=False):
            with column:
                edits[field.path] = _meant(field, _widget(source, field, config))
    return edits


def _key(source: str, field: Field) -> str:
    return f"form {source} {field.dotted}"


def _widget(source: str, field: Field, config: Mapping[str, Any]) -> Any:
    """Draw one field and return what its widget holds."""
    value, key = _first_value(field, config), _key(source, field)
    shared: dict[str, Any] = {"key": key, "help": _help(field), "persist_state": "session"}
    match field.kind:
        case "choice":
            options = _options(field)
            said = lambda option: _UNSET if option is None else str(option)  # noqa: E731
            return st.selectbox(field.title, options, index=options.index(value), format_func=said, **shared)
        case "switch":
            return st.toggle(field.title, value=value, **shared)
        case "integer" | "number":
            low, high = _range(field)
            step, shape = (1, None) if field.kind == "integer" else (_step(value), "%g")
            hint = _UNSET if field.nullable else None
            return st.number_input(
                field.title, low, high, value=value, step=step, format=shape, placeholder=hint, **shared
            )
        case "text":
            return st.text_input(field.title, value=value, placeholder=", ".join(field.examples) or None, **shared)


def _first_value(field: Field, config: Mapping[str, Any]) -> Any:
    """Return what a widget starts with: the configuration's value, as near as the widget can hold it."""
    value = form.value_at(config, field.path) if form.states(config, field.path) else field.default
    match field.kind:
        case "choice":
            options = _options(field)
            return value if value in options else options[0]
        case "switch":
            return value is True
        case "integer" | "number":
            if isinstance(value, bool) or not isinstance(value, int | float):
                return None
            low, high = _range(field)
            number = type(low)(value)
            return max(low, number if high is None else min(high, number))
        case "text":
            return value if isinstance(value, str) else ""


def _meant(field: Field, held: Any) -> Any:
    """Return what a widget's value means in the configuration."""
    if field.kind == "text":
        return None if field.nullable and not held else held or ""
    return held


def _options(field: Field) -> list[Any]:
    return [*([None] if field.nullable else []), *field.options]


def _range(field: Field) -> tuple[int, int | None] | tuple[float, float | None]:
    kind = int if field.kind == "integer" else float
    return kind(field.low or 0), None if field.high is None else kind(field.high)


def _help(field: Field) -> str:
    ends = f" From {field.low:,g} to {field.high:,g}." if field.low is not None and field.high is not None else ""
    return f"{field.help}{ends} Key: `{field.dotted}`"


def _step(value: float | None) -> float:
    """Return a tenth of the value's power of ten, by which the arrows change it: 0.0001 for 0.001."""
    if not value:
        return 0.1
    return float(f"1e{int(f'{abs(value):e}'.partition('e')[2]) - 1}")

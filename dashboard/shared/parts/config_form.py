"""The form of a configuration: a widget for each field of the configuration's schema, with its range, help and default.

What the reader changes is kept while other pages are looked at, and what they do not change stays as it was stated, so
that checking names what is wrong with it. A group that is folded has no widgets, so that the page opens sooner; what
was changed in it stays changed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import streamlit as st

from dashboard.shared.config import assignments, form
from dashboard.shared.config.form import FieldGroup, FormField
from dashboard.shared.config.missing_names import NAMES
from dashboard.shared.config.settings import as_yaml
from dashboard.shared.session import state
from dashboard.shared.words.text import plain, shorten
from schemas.reading import get_path

SET = "set"
"""Parameter of the address: one for each changed setting, as `--set` takes it."""

_IN_A_ROW = 3
_LONGEST = 60
_UNSET = "not set"
"""Null; what it means (no limit, no clipping, the newest revision) the help of the field states."""


def show(source: str, config: Mapping[str, Any]) -> dict[str, Any]:
    """Draw the form over a configuration and return it with what the reader changed.

    Another `source` starts the widgets afresh; a key that `config` lacks starts at its default.
    """
    fields = {field.path: field for field in form.fields()}
    with st.container(border=True):
        edits = _widgets(source, [fields[path] for path in form.ESSENTIAL], config)
    rest = {group: [field for field in group.fields if field.path not in form.ESSENTIAL] for group in form.groups()}
    more = st.expander(f"More settings: {sum(map(len, rest.values()))}", key=f"more {source}", on_change="rerun")
    with more:
        for group in filter(rest.get, rest):
            edits |= (
                _group(source, group, rest[group], config) if more.open else _values_of(source, rest[group], config)
            )
    edited = form.edit(config, edits)
    if form.with_defaults(edited) != form.with_defaults(config):
        st.button("Undo all changes", type="tertiary", icon=":material/undo:", on_click=_undo, args=(source, config))
    return edited


def read_address(source: str) -> None:
    """Put the changes that the address names into the form of a source, when the reader has just come by it."""
    if state.has_arrived() and (stated := st.query_params.get_all(SET)):
        put(source, assignments.edits(stated))


def write_address(config: Mapping[str, Any], edited: Mapping[str, Any]) -> None:
    """Have the address name what the reader changed, so that a link shows the same form."""
    stated = assignments.assignments(config, edited)
    if stated != st.query_params.get_all(SET):
        st.query_params[SET] = stated


def put(source: str, edits: Mapping[form.Path, Any]) -> None:
    """Put values into the form before it is drawn, as if the reader had typed them."""
    for field in form.fields():
        if field.path in edits:
            value = edits[field.path]
            is_number = field.kind == "number" and value is not None
            st.session_state[_key(source, field)] = (
                "" if field.kind == "text" and value is None else float(value) if is_number else value
            )


def _group(
    source: str, group: FieldGroup, fields: Sequence[FormField], config: Mapping[str, Any]
) -> dict[form.Path, Any]:
    title = f"{group.title}: {', '.join(field.title.lower() for field in fields)}"
    unfolded = st.expander(title, type="compact", key=f"group {source} {group.title}", on_change="rerun")
    if not unfolded.open:
        return _values_of(source, fields, config)
    with unfolded:
        st.caption(group.help)
        return _widgets(source, fields, config)


def _values_of(source: str, fields: Sequence[FormField], config: Mapping[str, Any]) -> dict[form.Path, Any]:
    """Return what the reader changed in fields that are not drawn now."""
    kept = {field: st.session_state[key] for field in fields if (key := _key(source, field)) in st.session_state}
    return _changed_values(kept, config)


def _undo(source: str, config: Mapping[str, Any]) -> None:
    for field in form.fields():
        if (key := _key(source, field)) in st.session_state:
            st.session_state[key] = _first_value(field, config)


def _widgets(source: str, fields: Sequence[FormField], config: Mapping[str, Any]) -> dict[form.Path, Any]:
    """Draw fields row by row, so that they keep their order where the width allows only one in a row."""
    held = {}
    for start in range(0, len(fields), _IN_A_ROW):
        columns = st.columns(_IN_A_ROW)
        for column, field in zip(columns, fields[start : start + _IN_A_ROW], strict=False):
            with column:
                held[field] = _widget(source, field, config)
    return _changed_values(held, config)


def _changed_values(held: Mapping[FormField, Any], config: Mapping[str, Any]) -> dict[form.Path, Any]:
    """Return what the reader changed, by the path of its key."""
    changed = {field: value for field, value in held.items() if value != _first_value(field, config)}
    return {field.path: _value_of(field, value) for field, value in changed.items()}


def _key(source: str, field: FormField) -> str:
    return f"form {source} {field.dotted}"


def _widget(source: str, field: FormField, config: Mapping[str, Any]) -> Any:
    """Draw one field and return what its widget holds."""
    value, key = _first_value(field, config), _key(source, field)
    shared: dict[str, Any] = {"key": key, "help": _help(field), "persist_state": "session"}
    stated = _stated_value(field, config)
    strange = None if form.can_be(field, stated) else _strange(stated)
    match field.kind:
        case "choice":
            return _choice(field, [*([None] if field.nullable else []), *field.options], value, shared)
        case "switch" if strange:
            return _choice(field, [True, False], value, shared)
        case "switch":
            return st.toggle(field.title, value=value, **shared)
        case "integer" | "number":
            step, shape = (1, None) if field.kind == "integer" else (_step(value), "%g")
            hint = strange or (_UNSET if field.nullable else None)
            # With ends, the browser would keep what is out of range to itself, and nothing would state what is allowed.
            return st.number_input(field.title, value=value, step=step, format=shape, placeholder=hint, **shared)
        case "text":
            hint = strange or ", ".join(field.examples) or None
            return st.text_input(field.title, value=value, placeholder=hint, **shared)


def _choice(field: FormField, options: Sequence[Any], value: Any, shared: Mapping[str, Any]) -> Any:
    """Draw a box of options, first what is stated if it is not one of them."""
    offered = list(options) if value in options else [value, *options]
    return st.selectbox(field.title, offered, index=offered.index(value), format_func=_describe, **shared)


def _describe(option: Any) -> str:
    return _UNSET if option is None else option if isinstance(option, str) else as_yaml(option)


def _stated_value(field: FormField, config: Mapping[str, Any]) -> Any:
    return get_path(config, *field.path) if form.states(config, field.path) else field.default


def _first_value(field: FormField, config: Mapping[str, Any]) -> Any:
    """Return what a widget starts with: the configuration's value, or what shows that it can hold no such value."""
    value = _stated_value(field, config)
    can_hold = form.can_be(field, value)
    match field.kind:
        case "choice" | "switch":
            return value if can_hold else _strange(value)
        case "integer" | "number":
            kind = int if field.kind == "integer" else float
            return kind(value) if can_hold and value is not None else None
        case "text":
            return value if can_hold and value is not None else ""


def _strange(value: Any) -> str:
    """Return how a value is shown that its field cannot have."""
    return f"{shorten(as_yaml(value), _LONGEST)} (not allowed)"


def _value_of(field: FormField, held: Any) -> Any:
    """Return what a widget's value means in the configuration."""
    if field.kind == "text":
        return None if field.nullable and not held else held or ""
    return held


def _help(field: FormField) -> str:
    ends = f" From {field.low:,g} to {field.high:,g}." if field.low is not None and field.high is not None else ""
    start = f" A relative path starts at {plain(str(Path.cwd()))}." if field.path in NAMES else ""
    return f"{field.help}{ends}{start} Key: `{field.dotted}`"


def _step(value: float | None) -> float:
    """Return a tenth of the value's power of ten, by which the arrows change it: 0.0001 for 0.001."""
    if not value:
        return 0.1
    return float(f"1e{int(f'{abs(value):e}'.partition('e')[2]) - 1}")

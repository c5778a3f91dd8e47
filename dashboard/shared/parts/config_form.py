"""The configuration editor: a widget for each essential setting, and a table of all others.

Changes are kept in the session, by source, while other pages are shown. What is not changed stays as the source has it,
so that validation reports what is wrong with it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import streamlit as st

from dashboard.shared import configs, form, state
from dashboard.shared.form import FormField, format_yaml
from dashboard.shared.parts import markup
from dashboard.shared.words import plain
from evidence.bundle.secrets import strip_invisible
from launch.jobs import launch_folder

SET = "set"  # query parameter: one for each changed setting, as `--set` takes it

UPLOADS = "rows"  # folder of uploaded datasets among the jobs of a root

_PER_ROW = 3
_VALUE = "Value"
_NOT_SET = "not set"
_MODES = {"full": "Full run", "smoke": "Smoke run (2 steps)"}

Edits = dict[form.Key, Any]


def draw_form(source: str, config: Mapping[str, Any]) -> dict[str, Any]:
    """Draw the editor of a configuration and return it with the user's changes, which are also in the URL.

    If the user chooses a smoke run, it is returned with two steps and everything else that a smoke run needs.
    """
    if state.has_arrived() and (assignments := st.query_params.get_all(SET)):
        _replace(source, form.parse_assignments(assignments))
    edits = _edits(source)
    others = [setting for setting in form.fields() if setting.path not in form.ESSENTIAL]
    rows = st.session_state.get(_table_key(source), {}).get("edited_rows", {})
    edits |= {others[row].path: others[row].parse(cells[_VALUE]) for row, cells in rows.items() if _VALUE in cells}
    edited = form.edit(config, edits)
    assignments = form.assignments(config, edited)
    if assignments != st.query_params.get_all(SET):
        st.query_params[SET] = assignments
    is_smoke = form.get_value(edited, form.field("mode")) == "smoke" and config.get("mode") != "smoke"
    result = configs.make_smoke_config(edited) if is_smoke else edited
    complaints = {
        problem.key_path: f"{problem.what}{f' Expected: {problem.expected}.' if problem.expected else ''}"
        for problem in form.problems(form.fill_defaults(edited))
        if problem.severity == "error"
    }
    essential = {setting.path: setting for setting in form.fields() if setting.path in form.ESSENTIAL}
    with st.container(border=True):
        for start in range(0, len(form.ESSENTIAL), _PER_ROW):
            # Row by row: they keep their order in a narrow window.
            for column, path in zip(st.columns(_PER_ROW), form.ESSENTIAL[start : start + _PER_ROW], strict=True):
                with column:
                    fixed = is_smoke and path == form.STEPS
                    shown = result if fixed else edited
                    _draw_widget(source, essential[path], shown, complaints.get(essential[path].dotted), fixed=fixed)
    wrong = sum(setting.dotted in complaints for setting in others)
    title = f"All other settings ({len(others)})" + (f": ✕ {wrong} not valid" if wrong else "")
    more = st.expander(title, key=f"more {source}", on_change="rerun")
    if more.open:
        with more:
            _draw_table(source, others, edited, complaints)
    if assignments:
        st.button("Undo all changes", type="tertiary", icon=":material/undo:", on_click=_replace, args=(source, {}))
    return result


def put(source: str, edits: Mapping[form.Key, Any]) -> None:
    """Change settings before the editor is drawn, as if the user had typed them."""
    _replace(source, {**_edits(source), **edits})


def _edits(source: str) -> Edits:
    edits: Edits = st.session_state.setdefault(f"edits {source}", {})
    return edits


def _replace(source: str, edits: Mapping[form.Key, Any]) -> None:
    st.session_state[f"edits {source}"] = dict(edits)
    # A table remembers what was typed into it, so another one takes its place.
    st.session_state[f"tables {source}"] = st.session_state.get(f"tables {source}", 0) + 1


def _draw_widget(
    source: str, setting: FormField, config: Mapping[str, Any], complaint: str | None, *, fixed: bool
) -> None:
    value = form.get_value(config, setting)
    fits, is_number = setting.has_type(value), setting.kind in {"integer", "number"}
    key = f"form {source} {setting.dotted}"
    held = value if fits else None
    if held is not None and is_number:
        held = float(held) if setting.kind == "number" else int(held)
    if st.session_state.get(key) != held or key not in st.session_state:
        st.session_state[key] = held
    is_file = setting.path in form.BUILT_IN
    paths = f" Relative paths start at {plain(str(Path.cwd()))}." if is_file else ""
    plain_box: dict[str, Any] = {
        "key": key,
        "help": f"{setting.help}{paths} Key: `{setting.dotted}`",
        "disabled": fixed,
        "on_change": _take,
        "args": (source, setting, key),
    }
    shared = plain_box | {"placeholder": _NOT_SET if fits else strip_invisible(format_yaml(value))}
    if setting.path == form.MODE:
        st.segmented_control(
            setting.title, _MODES, format_func=_MODES.__getitem__, required=held is not None, **plain_box
        )
    elif is_number:
        # The arrows change a number by a tenth of its power of ten: 0.001 by 0.0001. Without limits, which a browser
        # would enforce without saying what is allowed.
        tenth = float(f"1e{int(f'{abs(held):e}'.partition('e')[2]) - 1}") if held else 0.1
        step, shape = (1, None) if setting.kind == "integer" else (tenth, "%g")
        st.number_input(setting.title, value=None, step=step, format=shape, **shared)
    elif setting.kind == "choice" or is_file:
        options = _options(setting)
        if isinstance(held, str) and held not in options:
            options = [held, *options]
        # Only null can be cleared.
        index = None if setting.nullable else 0
        st.selectbox(setting.title, options, index=index, accept_new_options=is_file, **shared)
    else:
        st.text_input(setting.title, value=None, **shared)
    if complaint:
        st.html(f'<div class="tp-problem tp-edge-bad"><p>✕ {markup.words(complaint)}</p></div>')


def _take(source: str, setting: FormField, key: str) -> None:
    value = st.session_state[key]
    _edits(source)[setting.path] = "" if value is None and setting.kind == "text" and not setting.nullable else value


def _options(setting: FormField) -> list[str]:
    """Return the values to choose from; of models and datasets also those on this machine."""
    if setting.path not in form.BUILT_IN:
        return list(setting.options)
    options = [*form.BUILT_IN[setting.path][2]]
    if setting.path == ("model", "name"):
        options += configs.local_models(Path.cwd())
    if setting.path == ("data", "dataset"):
        options += configs.local_datasets(Path.cwd(), launch_folder(state.root()) / UPLOADS)
    return options


def _draw_table(
    source: str, settings: Sequence[FormField], config: Mapping[str, Any], complaints: Mapping[str, str]
) -> None:
    rows = [
        (
            setting.dotted,
            strip_invisible(format_yaml(form.get_value(config, setting))),
            format_yaml(setting.default),
            (f"✕ {complaints[setting.dotted]} " if setting.dotted in complaints else "") + setting.help,
        )
        for setting in settings
    ]
    st.data_editor(
        pd.DataFrame(rows, columns=["Key", _VALUE, "Default", "Meaning"]),
        key=_table_key(source),
        hide_index=True,
        disabled=["Key", "Default", "Meaning"],
        column_config={
            "Key": st.column_config.TextColumn(pinned=True),
            _VALUE: st.column_config.TextColumn(help="Double-click to change it. Values are YAML."),
            "Meaning": st.column_config.TextColumn(width="large"),
        },
        alt="Settings with key, value, default and meaning",
    )


def _table_key(source: str) -> str:
    return f"table {st.session_state.get(f'tables {source}', 0)} {source}"

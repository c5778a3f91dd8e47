"""The first question of the page: what is trained, and on which rows. A card for each, with what was read of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import streamlit as st

from dashboard.shared.config import form
from dashboard.shared.parts import config_form, gate, markup, token_rows
from dashboard.shared.parts.launching import trying
from dashboard.shared.session import state
from dashboard.views.launch.logic import here
from dashboard.views.launch.logic.here import Offer
from schemas.problems.formats import count, short_count
from schemas.reading.values import number_at, objects_at, text_at

_MODEL, _ROWS = ("model", "name"), ("data", "dataset")


def show(source: str, edited: Mapping[str, Any], read: Mapping[str, Any] | None) -> None:
    """Draw the model and the rows.

    Args:
        source: The source of the form, by its key.
        edited: What the form holds, complete.
        read: The answer of `trainproof train --check`. None: it is not known yet.
    """
    folder, found = Path.cwd(), read if read is not None and read.get("can_begin") is True else {}
    model_side, rows_side = st.columns(2)
    with model_side, st.container(border=True, height="stretch"):
        _card("Model", text_at(edited, *_MODEL), _model_lines(found))
        _others(source, _MODEL, here.models(folder), "Another model that is here")
    with rows_side, st.container(border=True, height="stretch"):
        _card("Rows", text_at(edited, *_ROWS), _rows_lines(found))
        _others(source, _ROWS, here.datasets(folder, state.root()), "Other rows that are here")
        if gate.may_operate():
            key = f"drop {source}"
            st.file_uploader("Or drop a file of rows", type=here.ROWS, key=key, on_change=_drop, args=(source, key))
    if examples := objects_at(found, "first_examples", "examples"):
        rows = st.expander("Three rows as the model sees them", key="rows", on_change="rerun", bind="query-params")
        if rows.open:
            with rows:
                token_rows.show(examples)


def _card(kind: str, name: str | None, lines: Sequence[str]) -> None:
    inside = "".join(f"<p>{markup.safe(line)}</p>" for line in lines)
    st.html(f'<div class="tp-card"><h2>{markup.safe(name or "none")}<small>{kind}</small></h2>{inside}</div>')


def _model_lines(found: Mapping[str, Any]) -> list[str]:
    whole, learn = number_at(found, "model", "parameters"), number_at(found, "model", "trained_parameters")
    if whole is None or learn is None:
        return []
    trained = "all of them learn" if learn == whole else f"{short_count(learn)} learn"
    origin = "trained before" if text_at(found, "model", "origin") == "pretrained" else "random weights"
    return [f"{short_count(whole)} parameters, {trained}", f"{text_at(found, 'model', 'family')}, {origin}"]


def _rows_lines(found: Mapping[str, Any]) -> list[str]:
    rows, tokens = number_at(found, "training_rows"), number_at(found, "dataset", "tokens")
    if rows is None or tokens is None:
        return []
    made = number_at(found, "dataset", "generated_rows") or 0
    items = number_at(found, "evaluation_items")
    return [
        f"{count(rows)} rows, {short_count(tokens)} tokens" + (f", {count(made)} rows generated" if made else ""),
        "Nothing is evaluated" if items is None else f"{count(items)} items are evaluated",
    ]


def _others(source: str, path: form.Path, offers: Sequence[Offer], label: str) -> None:
    """Draw a box of what else is here; what is chosen goes into the form."""
    key = f"others {source} {path[0]}"
    labels = {offer.name: offer.label for offer in offers}
    st.selectbox(
        label,
        list(labels),
        index=None,
        key=key,
        format_func=lambda name: labels.get(name, name),
        placeholder=f"{len(labels)} here",
        on_change=_take,
        args=(source, path, key),
    )


def _take(source: str, path: form.Path, key: str) -> None:
    if (name := st.session_state.get(key)) is not None:
        config_form.put(source, {path: name})
        st.session_state[key] = None


def _drop(source: str, key: str) -> None:
    given = st.session_state.get(key)
    if given is None or not gate.may_operate():
        return
    with trying("The file could not be kept"):
        path = here.keep_rows(state.root(), given.name, given.getvalue())
        config_form.put(source, {_ROWS: str(path)})

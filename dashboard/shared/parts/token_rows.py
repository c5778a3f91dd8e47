"""Training examples token by token: supervised tokens are colored and underlined."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import streamlit as st

from dashboard.shared.parts.markup import safe
from schemas.formats import count
from schemas.reading import get_number, get_objects

_SHOWN_TOKENS = 1000
"""Tokens shown at each end of a long example; the answer is often at its end."""


def show_examples(examples: Iterable[Mapping[str, Any]]) -> None:
    """Draw examples of a `first_examples.json` below a legend."""
    st.html(
        '<p class="tp-sub tp-tokens-key"><span class="tp-on tp-key">underlined</span> '
        "Supervised: the model is trained to predict this token. "
        '<span class="tp-key">plain</span> Context only. Line breaks are shown as ↵.</p>'
    )
    for example in examples:
        _example(example)


def _example(example: Mapping[str, Any]) -> None:
    tokens = get_objects(example, "tokens")
    supervised = sum(token.get("supervised") is True for token in tokens)
    cut = ", truncated to the sequence length" if example.get("truncated") is True else ""
    row = get_number(example, "row")
    shown = "".join(map(_token, tokens))
    more = ""
    if (left_out := len(tokens) - 2 * _SHOWN_TOKENS) > 0:
        more = f"; the first and last {_SHOWN_TOKENS:,} are shown"
        first, last = ("".join(map(_token, some)) for some in (tokens[:_SHOWN_TOKENS], tokens[-_SHOWN_TOKENS:]))
        shown = f"{first}\n<i>… {left_out:,} tokens omitted …</i>\n{last}"
    title = f"Row {count(row)}: {len(tokens):,} tokens, {supervised:,} supervised{cut}{more}"
    st.html(f'<p class="tp-sub">{safe(title)}</p><p class="tp-tokens">{shown}</p>')


def _token(token: Mapping[str, Any]) -> str:
    text = safe(token.get("text", "")).replace("\n", "<i>↵</i>\n")
    on = token.get("supervised") is True
    kind = "supervised" if on else "context"
    return f'<span class="{"tp-on" if on else ""}" title="id {safe(token.get("id", "?"))}, {kind}">{text}</span>'

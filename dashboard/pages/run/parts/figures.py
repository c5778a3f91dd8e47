"""The headline figures: label, value, detail, side by side as far as the width allows."""

from __future__ import annotations

from collections.abc import Iterable

import streamlit as st

from dashboard.shared.parts.markup import safe
from dashboard.shared.tables.headline import Figure


def show(figures: Iterable[Figure]) -> None:
    """Draw the figures."""
    cells = "".join(
        f"<div><dt>{safe(figure.label)}</dt><dd>{safe(figure.value)}<small>{safe(figure.detail)}</small></dd></div>"
        for figure in figures
    )
    st.html(f'<dl class="tp-figures">{cells}</dl>')

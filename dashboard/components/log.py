"""Log records as lines: time, level, message; levels are words, colour only repeats them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import tzinfo
from typing import Any

import streamlit as st

from dashboard.components.markup import safe
from dashboard.logic.documents import text_at
from dashboard.logic.numbers import clock, moment
from dashboard.logic.text import masked, shortened

LEVELS = ("debug", "info", "warning", "error")
_LONGEST = 2000


def show(records: Iterable[Mapping[str, Any]], zone: tzinfo) -> None:
    """Draw the records in the order given, times in the reader's zone."""
    st.html(f'<div class="tp-log" tabindex="0" role="log">{"".join(_line(record, zone) for record in records)}</div>')


def _line(record: Mapping[str, Any], zone: tzinfo) -> str:
    level = text_at(record, "level") or "?"
    time = text_at(record, "time")
    message = shortened(masked(text_at(record, "message") or ""), _LONGEST)
    tone = f"tp-{level}" if level in LEVELS else ""
    return (
        f'<div class="{tone}"><span class="tp-when" title="{safe(moment(time, zone))} ({safe(time or "no time")})">'
        f"{safe(clock(time, zone))}</span><span>{safe(level)}</span><span>{safe(message)}</span></div>"
    )

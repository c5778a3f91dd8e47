"""The log: records as lines of time, level and message. Levels are words, colour only repeats them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import tzinfo
from pathlib import Path
from typing import Any

import streamlit as st

from dashboard.shared.parts import markup
from dashboard.shared.parts.markup import safe
from dashboard.shared.reading.log_tail import LEVELS, OTHER
from dashboard.shared.session import reading
from dashboard.shared.words.text import glimpse
from dashboard.shared.words.times import clock, date_and_time
from schemas import formats
from schemas.formats import quantity
from schemas.reading import get_str

_LONGEST = 2000


def section(folder: Path, *, following: bool) -> None:
    """Draw the log, newest last; while the run is at work the newest come first, where the eye is."""
    place = st.container(horizontal=True, vertical_alignment="bottom")
    with place:
        levels = st.multiselect(
            "Levels",
            [*LEVELS, OTHER],
            default=["info", "warning", "error", OTHER],
            key="levels",
            bind="query-params",
            help="Other: a missing or unknown level.",
        )
        words = st.text_input("Search", key="in_log", bind="query-params", icon=":material/search:")
    log = reading.log_of(folder, levels, words or "")
    if not log.total:
        markup.empty("No log", "This run has no log.jsonl that can be read.")
        return
    said = f"{formats.count(log.found)} of {formats.count(log.total)} records"
    if len(log.records) < log.found:
        said += f", the newest {formats.count(len(log.records))} of them below"
    said += "; newest first while the run is running." if following else "."
    if log.unread:
        said += f" {quantity(log.unread, 'line')} could not be read."
    markup.note(said)
    show(reversed(log.records) if following else log.records, reading.reader_zone())


def show(records: Iterable[Mapping[str, Any]], zone: tzinfo) -> None:
    """Draw the records in the order given, times in the reader's zone."""
    lines = "".join(_line(record, zone) for record in records)
    st.html(f'<div class="tp-log" tabindex="0" role="log" aria-label="Log">{lines}</div>')


def _line(record: Mapping[str, Any], zone: tzinfo) -> str:
    level = get_str(record, "level") or "?"
    time = get_str(record, "time")
    message = glimpse(get_str(record, "message") or "", _LONGEST)
    tone = f"tp-{level}" if level in LEVELS else ""
    whole = f"{date_and_time(time, zone)} ({time or 'no time'})"
    return (
        f'<div class="{tone}"><span class="tp-when" title="{safe(whole)}">'
        f"{safe(clock(time, zone))}</span><span>{safe(level)}</span><span>{safe(message)}</span></div>"
    )

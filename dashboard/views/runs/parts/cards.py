"""The runs as cards, which stand in place of the table in a narrow window (static/style.css)."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import urlencode

import streamlit as st

from dashboard.shared.parts import markup
from dashboard.shared.session.reading import reader_zone
from dashboard.shared.session.state import RUN
from dashboard.shared.tables.run_rows import Row
from dashboard.shared.tables.runs_table import mark_of
from dashboard.shared.words.grades import GRADES, STATUSES
from schemas.problems import formats

MOST = 40


def show(rows: Sequence[Row]) -> None:
    """Draw the first runs as cards, each of which opens its run."""
    more = f'<p class="tp-sub">{len(rows) - MOST:,} more: search, or a wider window.</p>' if len(rows) > MOST else ""
    with st.container(key="runs_cards"):
        st.html(f'<ul aria-label="Runs">{"".join(map(_card, rows[:MOST]))}</ul>{more}')


def _card(row: Row) -> str:
    summary, word = row.summary, mark_of(row)
    scored, changed = row.get("interval"), row.get("changed")
    facts = [
        summary.model,
        f"loss {formats.number(summary.last_loss)}" if summary.last_loss is not None else None,
        formats.duration(summary.duration_seconds) if summary.duration_seconds is not None else None,
        *summary.tags,
    ]
    lines = [" · ".join(markup.safe(fact) for fact in facts if fact), markup.safe(changed) if changed else ""]
    if summary.started_at:
        lines.append(markup.when(summary.started_at, reader_zone()))
    body = "".join(f"<small>{line}</small>" for line in lines if line)
    score = "" if scored is None else f"<b>{markup.safe(scored)}</b>"
    address = f"{RUN.url_path}?{urlencode({'run': row.name})}"
    sign = markup.sign({**STATUSES, **GRADES}, word)
    link = f'<a href="{markup.safe(address)}" target="_self">{markup.safe(row.shown_name)}</a>'
    return f"<li>{link} {sign}{score}{body}</li>"

"""The runs as cards, which stand in place of the table in a narrow window (static/style.css).

The server knows of a narrow window only when the browser has told so; until then cards have no boxes to tick.
"""

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
from dashboard.shared.words.text import plain
from dashboard.views.runs.parts.grid import box_key, chosen_runs, toggle
from schemas import formats

MOST = 40
_SCRIPT = """export default function ({ setStateValue }) {
  const narrow = matchMedia("(max-width: 640px)");
  const tell = () => setStateValue("narrow", narrow.matches);
  if (narrow.matches) tell();
  narrow.addEventListener("change", tell);
  return () => narrow.removeEventListener("change", tell);
}"""
_component = st.components.v2.component("runs_narrow", js=_SCRIPT)


def are_alone() -> bool:
    """Return whether the window is narrow, so that cards stand there without the table."""
    return bool(_component(key="runs_narrow", on_narrow_change=lambda: None).narrow)


def show(rows: Sequence[Row], *, have_boxes: bool) -> None:
    """Draw the first runs as cards, each of which opens its run; with boxes, by which runs are chosen."""
    more = f'<p class="tp-sub">{len(rows) - MOST:,} more: search, or a wider window.</p>' if len(rows) > MOST else ""
    with st.container(key="runs_cards"):
        if not have_boxes:
            st.html(f'<ul aria-label="Runs">{"".join(map(_card, rows[:MOST]))}</ul>{more}')
            return
        chosen = set(chosen_runs())
        for row in rows[:MOST]:
            with st.container(horizontal=True, gap="small"):
                label, key = f"Choose {plain(row.shown_name)}", box_key(row.name)
                st.checkbox(
                    label, row.name in chosen, key=key, label_visibility="collapsed", on_change=toggle, args=[row.name]
                )
                st.html(f"<ul>{_card(row)}</ul>")
        st.html(more or "<p></p>")


def _card(row: Row) -> str:
    summary, word = row.summary, mark_of(row)
    scored, changed = row.get("interval"), row.get("changed")
    facts = [
        summary.model,
        f"loss {formats.number(summary.last_loss)}" if summary.last_loss is not None else None,
        formats.duration(summary.duration_seconds) if summary.duration_seconds is not None else None,
        *summary.tags,
    ]
    lines = [
        " · ".join(markup.safe(fact) for fact in facts if fact),
        markup.safe(f"changed: {changed}") if changed else "",
    ]
    if summary.started_at:
        lines.append(markup.when(summary.started_at, reader_zone()))
    body = "".join(f"<small>{line}</small>" for line in lines if line)
    score = "" if scored is None else f"<b>{markup.safe(scored)}</b>"
    address = f"{RUN.url_path}?{urlencode({'run': row.name})}"
    sign = markup.sign({**STATUSES, **GRADES}, word)
    link = f'<a href="{markup.safe(address)}" target="_self">{markup.safe(row.shown_name)}</a>'
    return f"<li>{link} {sign}{score}{body}</li>"

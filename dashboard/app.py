"""The entry point of the dashboard: the login, the pages, and the frame around them.

Start it with `trainproof dashboard --root DIR`, or with `streamlit run dashboard/app.py -- --root DIR`.
"""

from __future__ import annotations

from pathlib import Path

import streamlit as st

from dashboard.shared import reading
from dashboard.shared.parts.gate import close_if_refused, draw_account
from dashboard.shared.state import PAGES, RUNS, SWEEP, arrive, go, sweep_names

HERE = Path(__file__).parent


def main() -> None:
    """Draw the page of the URL."""
    st.set_page_config(page_title="trainproof", page_icon=HERE / "static" / "icon.svg", layout="wide")
    st.html(HERE / "static" / "style.css")
    if close_if_refused():
        return
    st.logo(HERE / "static" / "logo.svg", size="medium")
    has_sweeps = bool(sweep_names())
    pages = [
        st.Page(
            HERE / page.file,
            title=page.title,
            icon=page.icon,
            url_path=page.url_path,
            default=page.is_first,
            visibility="hidden" if page is SWEEP and not has_sweeps else "visible",
        )
        for page in PAGES
    ]
    named = st.Page(_runs_by_name, title=RUNS.title, url_path="runs", visibility="hidden")
    chosen = st.navigation([*pages, named], position="top")
    arrive(chosen.url_path)
    chosen.run()
    st.html(HERE / "static" / "opened.html", unsafe_allow_javascript=True)
    draw_account()
    reading.watch()


def _runs_by_name() -> None:
    """Redirect /runs to the first page, whose URL is / in Streamlit."""
    go(RUNS, **{key: st.query_params.get_all(key) for key in st.query_params})


main()

"""The root of runs, the pages, and their query parameters.

The root comes from the command line (`-- --root DIR`), the same for every user. Everything else that matters (page,
runs, filters, axes) is in the URL, so that a view can be shared; widgets bind their parameters by key.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, NoReturn

import streamlit as st
from streamlit.runtime.scriptrunner import get_script_run_ctx

from evidence import layout

DEFAULT_ROOT = "submission_runs"
_PAGE, _ARRIVED = "current page", "page was just opened"
DIALOG = "a dialog is open"  # set in the session by the function that opens the dialog


class Page(NamedTuple):
    """A page: its file, title, icon and URL path, and whether it is the first."""

    file: str
    title: str
    icon: str
    url_path: str
    is_first: bool = False


RUNS = Page("views/runs.py", "Runs", ":material/table_rows:", "", is_first=True)
RUN = Page("views/run/view.py", "Run", ":material/show_chart:", "run")
COMPARE = Page("views/compare/view.py", "Compare", ":material/compare_arrows:", "compare")
LAUNCH = Page("views/launch.py", "Launch", ":material/play_circle:", "launch")
PLAN = Page("views/plan.py", "Plan", ":material/calculate:", "plan")
PACKAGE = Page("views/package.py", "Package", ":material/inventory_2:", "package")
SWEEP = Page("views/sweep.py", "Sweeps", ":material/tune:", "sweep")
PAGES = (RUNS, RUN, COMPARE, SWEEP, PLAN, LAUNCH, PACKAGE)


def root() -> Path:
    """Return the folder of runs that the dashboard was started with; it need not exist."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--root", default=DEFAULT_ROOT)
    known, _ = parser.parse_known_args(sys.argv[1:])
    return Path(known.root)


def sweep_names() -> list[str]:
    """Return the names of the sweeps of the root, newest first. Folders outside of the root are left out."""
    found = (path for path in (root() / layout.SWEEPS).glob(f"*/{layout.SWEEP}") if path.is_file())
    inside = [path for path in found if path.resolve().is_relative_to(root().resolve())]
    return [path.parent.name for path in sorted(inside, key=lambda path: path.stat().st_mtime, reverse=True)]


def arrive(url_path: str) -> None:
    """Note which page a script run draws, before it draws it."""
    st.session_state[_ARRIVED] = st.session_state.get(_PAGE) != url_path
    st.session_state[_PAGE] = url_path
    st.session_state.pop(DIALOG, None)


def has_arrived() -> bool:
    """Return whether the page was not the current one before this script run."""
    return bool(st.session_state.get(_ARRIVED))


def go(page: Page, /, **parameters: str | Sequence[str]) -> NoReturn:
    """Open a page with these query parameters."""
    # A fragment of this page with a timer may rerun before the browser has the new page, and would then clear that.
    context = get_script_run_ctx()
    if context is not None:
        context.fragment_storage.clear()
    st.switch_page(page.file, query_params=parameters)

"""What the whole window knows: the root of runs, the pages, and what the address states.

The root comes from the command line (`-- --root DIR`), the same for every visitor. All else that matters (page, runs,
filters, axes) stands in the address, so that a view can be sent to someone; widgets bind their own parameters by key.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import streamlit as st
from streamlit.runtime.scriptrunner import get_script_run_ctx

DEFAULT_ROOT = "submission_runs"
_HERE, _ARRIVED = "page that is drawn", "page was just come to"


@dataclass(frozen=True, kw_only=True)
class Page:
    """One page: its file, and how the navigation and the address name it."""

    file: str
    title: str
    icon: str
    url_path: str
    is_first: bool = False


RUNS = Page(file="views/runs.py", title="Runs", icon=":material/table_rows:", url_path="", is_first=True)
RUN = Page(file="views/run/view.py", title="Run", icon=":material/show_chart:", url_path="run")
COMPARE = Page(file="views/compare/view.py", title="Compare", icon=":material/compare_arrows:", url_path="compare")
LAUNCH = Page(file="views/launch/view.py", title="Launch", icon=":material/play_circle:", url_path="launch")
PLAN = Page(file="views/plan.py", title="Plan", icon=":material/calculate:", url_path="plan")
PACKAGE = Page(file="views/package.py", title="Package", icon=":material/inventory_2:", url_path="package")
PAGES = (RUNS, RUN, COMPARE, PLAN, LAUNCH, PACKAGE)


def root() -> Path:
    """Return the root of runs that the dashboard was started with; it need not exist."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--root", default=DEFAULT_ROOT)
    known, _ = parser.parse_known_args(sys.argv[1:])
    return Path(known.root)


def asked_for(key: str, known: Iterable[str]) -> list[str]:
    """Return the values of a parameter of the address that are among `known`, in their order there.

    A name that is not one of the folders found under the root never becomes a path.
    """
    allowed = set(known)
    return [value for value in st.query_params.get_all(key) if value in allowed]


def arrive(url_path: str) -> None:
    """Note the page that is drawn, so that it can know whether the reader has just come to it."""
    st.session_state[_ARRIVED] = st.session_state.get(_HERE) != url_path
    st.session_state[_HERE] = url_path


def has_arrived() -> bool:
    """Return whether the reader has just come to the page that is drawn."""
    return bool(st.session_state.get(_ARRIVED))


def as_left(name: str) -> None:
    """Give the address its parameters of the reader's last visit, who comes back by a link without parameters."""
    if st.session_state.get(_ARRIVED) and not st.query_params:
        st.query_params.from_dict(st.session_state.get(name, {}))


def leave(name: str) -> None:
    """Note the parameters of the address for the next visit."""
    st.session_state[name] = {key: st.query_params.get_all(key) for key in st.query_params}


def go(page: Page, /, **parameters: str | Sequence[str]) -> NoReturn:
    """Open a page with these parameters in its address."""
    # A part of this page that draws itself again by the clock may request that until the browser knows of the new page.
    # Answered after the new page, it would clear that; parts that are not kept are not answered.
    context = get_script_run_ctx()
    if context is not None:
        context.fragment_storage.clear()
    st.switch_page(page.file, query_params=parameters)

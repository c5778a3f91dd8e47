"""What is got ready behind the first page, so that no other page waits for it."""

from __future__ import annotations

import gc
import importlib
import pkgutil
import sys
import threading
from pathlib import Path

import streamlit as st

_HOME = str(Path(__file__).resolve().parents[2])
_SCRIPTS = (".app", ".view")
"""What draws when it is loaded, which Streamlit does."""


@st.cache_resource(show_spinner=False)
def getting_ready() -> threading.Thread:
    """Begin to get ready for the other pages, once, after the first page."""
    thread = threading.Thread(target=_get_ready, args=(threading.current_thread(),), name="get ready", daemon=True)
    thread.start()
    return thread


def _get_ready(script: threading.Thread) -> None:
    """Load what the other pages need, and keep the garbage collector from what was read.

    Streamlit has the collector go through everything at each click, which the reader waits for. It also looks whether
    what a chart shows is pandas', which loads pandas.

    Args:
        script: The thread of the script that began it.
    """
    # The end of a script takes the folder of app.py out of sys.path if that was not there before, and an import at that
    # moment can miss a module that is installed.
    script.join()
    if _HOME not in sys.path:
        sys.path.append(_HOME)
    importlib.import_module("pandas")
    for module in pkgutil.walk_packages([_HOME], "dashboard."):
        if not module.name.endswith(_SCRIPTS):
            importlib.import_module(module.name)
    # Plotly loads what checks a figure when the first one is built.
    figure = importlib.import_module("plotly.graph_objects").Figure(layout_title_text=" ")
    figure.add_scatter(x=[0], y=[0], error_x={"array": [0]}).add_bar(x=[0], y=[0]).add_shape(type="line")
    figure.add_annotation(text=" ").update_xaxes(title_text=" ").to_json()
    gc.collect()
    gc.freeze()

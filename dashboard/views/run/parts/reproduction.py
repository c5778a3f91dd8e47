"""How to make a run again: what stands in the way, the commands, what must be the same."""

from __future__ import annotations

from typing import Any

import streamlit as st

from dashboard.shared.parts import markup
from dashboard.views.run.logic.reproduce import REQUIREMENTS, recipe
from evidence.records.ours import Run
from evidence.run.layout import CONFIG


def section(run: Run) -> None:
    """Draw the recipe of a run."""
    if run.manifest is None:
        markup.empty("Nothing to go by", "This run has no run_manifest.json that can be read.")
        return
    found = recipe(run.manifest, run.config, run.plan, name=run.path.name)
    if found.gaps:
        markup.bullets("What prevents an exact reproduction:", found.gaps)
    else:
        markup.note("Ready to reproduce: commit, packages, settings and data are recorded.")
    with st.container(horizontal=True):
        _download(REQUIREMENTS, found.requirements)
        if CONFIG in run.files:
            _download(CONFIG, (run.path / CONFIG).read_bytes)
    left, right = st.columns(2, gap="large")
    with left:
        st.header("To make it again", anchor=False)
        st.code("\n".join(found.steps), language=None, wrap_lines=True)
        st.caption(f"In a checkout of the code that also holds {REQUIREMENTS}, {CONFIG} and the run's folder.")
        if found.typed:
            st.header("Command that ran", anchor=False)
            st.code(found.typed, language=None, wrap_lines=True)
    with right:
        st.header("What must be the same", anchor=False)
        markup.table(["What", "Value", "Stated in run_manifest.json at"], found.facts)


def _download(name: str, data: Any) -> None:
    if data:
        st.download_button(name, data=data, file_name=name, icon=":material/download:", on_click="ignore")

"""The launch page: choose a configuration, change it, see what will run, start it; and the queue."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import streamlit as st

from dashboard.shared.config import configs, form
from dashboard.shared.config.configs import Source
from dashboard.shared.config.settings import shown
from dashboard.shared.parts import gate, launching, markup, problems
from dashboard.shared.session import reading, state
from dashboard.shared.words.text import plain
from dashboard.views.launch.logic.missing_names import absent
from dashboard.views.launch.parts import config_form, jobs, plan_answer
from evidence.bundle.secrets.masking import visible
from launch.jobs import program
from launch.jobs.folder import CONFIG
from schemas.reading.yaml_text import write_yaml
from schemas.validate import check_value

_EARLIER = 100
"""Newest runs whose configurations are offered."""


def page() -> None:
    """Draw the page."""
    root = state.root()
    markup.heading("Launch", lines=["Runs keep going if you close this page."])
    gate.viewer_note()
    if reading.jobs():
        jobs.show(root)
        st.header("Start another run", anchor=False)
    source = _source(root)
    if source is None:
        markup.empty("No configuration found", f"None in {configs.SHIPPED}, and no run has one.")
        return
    start = configs.read(source)
    form_side, result_side = st.columns([3, 2], gap="large")
    with form_side:
        edited = config_form.show(source.key, start)
    with result_side:
        _result(edited)


def _source(root: Path) -> Source | None:
    folders = [summary.path for summary in reading.summaries()]
    asked = st.query_params.get("source")
    # A box of thousands of runs helps nobody; the one that a link asks for is always among them.
    near = [folder for at, folder in enumerate(folders) if at < _EARLIER or configs.same_as(folder.name) == asked]
    known = {source.key: source for source in configs.sources(near)}
    if not known:
        return None
    with st.container(horizontal=True, vertical_alignment="bottom"):
        key = st.selectbox(
            "Start from",
            list(known),
            key="source",
            bind="query-params",
            width=420,
            help="A configuration that ships with the program, or that of an earlier run.",
        )
        unused = not reading.jobs() and gate.may_operate()
        if unused and st.button("Just start a smoke run", icon=":material/play_arrow:"):
            launching.start(configs.quick_smoke())
    return known[key]


def _result(edited: Mapping[str, Any]) -> None:
    """Draw what would run, what is wrong with it, and the button that starts it."""
    rehearse = st.segmented_control(
        "Run it",
        ["as configured", "as a smoke run"],
        default="as configured",
        required=True,
        key="as",
        bind="query-params",
        help="A smoke run lays the smallest settings over this configuration: seconds, to prove the pipeline.",
    )
    config = configs.smoke_of(edited) if rehearse == "as a smoke run" else dict(edited)
    resolved = form.with_defaults(config)
    if rehearse == "as a smoke run":
        _replaced(form.with_defaults(edited), resolved)
    found = [*check_value(form.KIND, resolved, file=CONFIG), *absent(resolved, file=CONFIG)]
    sound = not any(problem.severity == "error" for problem in found)
    force = gate.may_operate() and _start(resolved, sound=sound)
    problems.show(found)
    name = f"{config.get('name', 'run')}.yaml"
    text = write_yaml(dict(resolved))
    st.caption(
        f"The same as Start, in a terminal in {plain(str(Path.cwd()))}, with the configuration below saved there"
    )
    st.code(visible(_command(name, force=force)), language=None, wrap_lines=True)
    st.download_button("Configuration", data=text, file_name=name, icon=":material/download:", on_click="ignore")
    st.code(visible(text), language="yaml")


def _command(config: str, *, force: bool) -> str:
    """Return the command that Start stands for; both give the run's folder the time of the start as its ending."""
    forced = ["--force"] if force else []
    return program.shown(["queue", "add", "--config", config, "--root", str(state.root()), *forced])


def _replaced(edited: Mapping[str, Any], resolved: Mapping[str, Any]) -> None:
    """Draw which values of the form a smoke run replaces, so that nobody takes those of the form for what runs."""
    rows = [(field.title, shown(before), shown(after)) for field, before, after in form.replaced(edited, resolved)]
    if rows:
        markup.table(["Setting", "In the form", "In the smoke run"], rows)


def _start(resolved: Mapping[str, Any], *, sound: bool) -> bool:
    """Draw planning and starting; return whether the reader wants to start what may not fit."""
    plan_answer.show(state.root(), resolved, allowed=sound)
    force = st.toggle("Start even if it may run out of memory", help="The run records that it was forced.")
    if st.button(
        "Start",
        type="primary",
        icon=":material/play_arrow:",
        disabled=not sound,
        help=None if sound else "Fix the problems below first.",
        width="stretch",
    ):
        launching.start(resolved, force=force)
    return force


page()

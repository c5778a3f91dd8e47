"""Draw pages of the dashboard with AppTest, read and press them; and queue jobs without a worker."""

import json
import shutil
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from streamlit import config
from streamlit.testing.v1 import AppTest

import dashboard
from launch.jobs import OUTPUT, Job, enqueue, mark_ended

APP = Path(dashboard.__file__).parent / "app.py"
Open = Callable[..., AppTest]
SECTIONS = ("Curves", "Plan", "Configuration", "Examples", "Predictions", "Log", "Reproduce", "Files", "Problems")
"""Tabs of a run."""


def show(root: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Prepare AppTest to draw pages of a root from a folder, with the settings that a server reads beside app.py."""
    monkeypatch.setattr(sys, "argv", ["app.py", "--root", str(root)])
    shutil.copytree(APP.parent / ".streamlit", folder / ".streamlit")
    monkeypatch.chdir(folder)
    config.get_config_options(force_reparse=True)


def said(app: AppTest) -> str:
    """Return all visible HTML and text of the page."""
    html = [element.proto.body for element in app.get("html") if not element.proto.unsafe_allow_javascript]
    figures = [f"{metric.label} {metric.value}" for metric in app.metric]
    return "\n".join(
        [*html, *figures, *(element.value for element in [*app.markdown, *app.caption, *app.header, *app.warning])]
    )


def press(app: AppTest, name: str) -> AppTest:
    """Press the button of this label or key, and have the page drawn."""
    app = next(button for button in app.button if name in {button.label, button.key}).click().run()
    assert not app.exception, app.exception
    return app


def labels(app: AppTest) -> list[str]:
    """Return the labels of the buttons that can be pressed."""
    return [button.label for button in app.button if not button.disabled]


def select(app: AppTest, key: str, *rows: int) -> AppTest:
    """Select rows of the table with this key, as clicks on their boxes do."""
    app.session_state[key] = {"selection": {"rows": list(rows), "columns": [], "cells": []}}
    app.run()
    assert not app.exception, app.exception
    return app


def figure(app: AppTest) -> dict[str, Any]:
    """Return the first Plotly figure of the page."""
    drawn: dict[str, Any] = json.loads(app.get("plotly_chart")[0].proto.spec)
    return drawn


def job_in(root: Path, run: str = "a-run", exit_code: int | None = None, output: str = "") -> Job:
    """Queue a job of this run without a worker; it has ended if it has an exit code."""
    job = enqueue(root, run=run, working_folder=root, now=datetime.now(UTC), device="gpu")
    (job.folder / OUTPUT).write_text(output)
    if exit_code is not None:
        mark_ended(job.folder, exit_code)
    return job

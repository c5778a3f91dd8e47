"""Pages without a browser: each opens on the root `tmp_path / "runs"`."""

from __future__ import annotations

from pathlib import Path

import pytest
from pages import APP, Open, show
from streamlit.testing.v1 import AppTest

from dashboard.shared import state


@pytest.fixture
def opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Open:
    """Open a page of the root `tmp_path / "runs"`, with these parameters in its address."""
    show(tmp_path / "runs", tmp_path, monkeypatch)
    # What takes long to read may rest for some seconds, and beside other tests a small run can take long.
    monkeypatch.setattr("evidence.index.index.LONG_SECONDS", 60.0)
    monkeypatch.setattr("dashboard.shared.reading.WAIT_SECONDS", 30.0)

    def open_page(page: state.Page, /, **parameters: str | list[str]) -> AppTest:
        app = AppTest.from_file(APP, default_timeout=60)
        if not page.is_first:
            app.run()
            app.switch_page(str(APP.parent / page.file))
        for key, value in parameters.items():
            app.query_params[key] = value
        app.run()
        assert not app.exception, app.exception
        return app

    return open_page


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "runs"

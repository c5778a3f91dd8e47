"""Every page for everyone: axe-core finds nothing serious in either theme, and no page is too wide for a phone."""

from __future__ import annotations

import shutil
from datetime import timedelta
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from browser import settled
from pages import job_in
from playwright.sync_api import Page
from synthetic import STARTED, write_run
from synthetic_documents import stored_sweep, write_sweep

from evidence.layout import MANIFEST

pytestmark = [pytest.mark.browser, pytest.mark.slow]

CASES = Path(__file__).parents[2] / "cases" / "foreign"
WIDTHS = (400, 1400, 2560)
PAGES = {
    "runs": "/",
    "run": "/run?run=beta",
    "examples": "/run?run=beta&view=Examples",
    "predictions": "/run?run=beta&view=Predictions",
    "play": "/run?run=beta&view=Play",
    "log": "/run?run=beta&view=Log",
    "reproduce": "/run?run=beta&view=Reproduce",
    "problems": "/run?run=torn&view=Problems",
    "sources": "/run?run=other-tool&view=Sources",
    "compare": "/compare?runs=alpha&runs=beta",
    "smoke": "/compare?part=Smoke+%E2%86%92+TPU&full=beta&smoke=small",
    "scatter": "/compare?part=Scatter",
    "sweep": "/sweep?sweep=learning-rate",
    "plan": "/plan?source=tiny.yaml",
    "launch": "/launch",
    "package": "/package?runs=beta&runs=alpha",
    "verify": "/package?part=Verify",
}
FITS = """() => {
    const main = document.querySelector("[data-testid=stMain]");
    return main.scrollWidth <= main.clientWidth && document.documentElement.scrollWidth <= innerWidth;
}"""

COLOURS_CHANGED = """document.getAnimations().every(
    one => one.playState !== "running" || one.effect.getTiming().iterations === Infinity
)"""


def corpus(root: Path) -> None:
    """Write a run of every kind: whole, smoke, resumed with unsaved code, broken, of another tool; and a failed job."""
    write_run(root, "alpha", steps=60, items=20, correct=0.4, seed=2, started=STARTED - timedelta(days=1))
    write_run(root, "stopped", steps=60, status="interrupted", started=STARTED - timedelta(days=2))
    write_run(root, "small", steps=2, mode="smoke", items=0, started=STARTED - timedelta(days=3))
    resumed = {"parent": {"run_id": "stopped", "step": 20}, "code": {"dirty": True, "diff_sha256": "d" * 64}}
    write_run(root, "beta", steps=60, items=20, correct=0.7, seed=1, started=STARTED, manifest=resumed)
    (root / "torn").mkdir()
    (root / "torn" / MANIFEST).write_text('{"run_id": ')
    shutil.copytree(CASES / "hf_trainer" / "folder", root / "other-tool")
    write_sweep(root, stored_sweep())
    job_in(root, run="beta", exit_code=4, output="error TP301: The loss is not finite.\n")


def serious(page: Page, theme: str) -> list[str]:
    """Return the serious violations that axe-core finds; the dark theme is checked for contrast only."""
    rules = {} if theme == "light" else {"runOnly": ["color-contrast"]}
    found = Axe().run(page, options={"resultTypes": ["violations"], **rules}).response["violations"]
    return [
        f"{rule['id']}: {node['html'][:160]}"
        for rule in found
        if rule["impact"] in {"serious", "critical"}
        for node in rule["nodes"]
    ]


def test_every_page_is_for_everyone(address: str, root: Path, page: Page) -> None:
    corpus(root)
    for name, path in PAGES.items():
        page.set_viewport_size({"width": WIDTHS[1], "height": 900})
        tab = page.get_by_role("tab", name=name.capitalize(), exact=True)
        if "run=beta&view" in path and tab.count():
            tab.click()  # As fast as a reader, and faster than a new page.
        else:
            page.goto(f"{address}{path}")
        settled(page)
        for theme in ("light", "dark"):
            page.emulate_media(color_scheme=theme)
            page.wait_for_timeout(100)
            page.wait_for_function(COLOURS_CHANGED)
            assert serious(page, theme) == [], (name, theme)
        for width in (WIDTHS[0], WIDTHS[2]):
            page.set_viewport_size({"width": width, "height": 900})
            # Pictures are drawn anew for the new width, which takes a moment.
            page.wait_for_function(FITS)

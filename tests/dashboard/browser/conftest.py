"""Every test here gets a page in a real Chromium, and fails if the page asked any other host for anything."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from browser import FLAGS, chromium
from playwright.sync_api import Browser, Page, expect, sync_playwright

from launch import queue
from launch.jobs.folder import jobs

PATIENCE_MS = 40_000
"""A shared machine of two cores may be busy; waiting costs nothing where it is not."""

SCREENSHOTS = Path(__file__).parents[3] / "screenshots"


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    program = chromium()
    if program is None:
        reason = "Chromium is not installed; `apt-get install chromium` makes this test run."
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    expect.set_options(timeout=PATIENCE_MS)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=list(FLAGS))
        yield browser
        browser.close()


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    context = browser.new_context(viewport={"width": 1400, "height": 900}, accept_downloads=True, color_scheme="light")
    page = context.new_page()
    page.set_default_timeout(PATIENCE_MS)
    outside: list[str] = []
    page.on("request", lambda request: outside.append(request.url) if not is_local(request.url) else None)
    yield page
    context.close()
    assert outside == []


def is_local(url: str) -> bool:
    parts = urlsplit(url)
    return parts.scheme in {"data", "blob"} or parts.hostname in {"127.0.0.1", "localhost"}


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Path]:
    """A root of runs whose jobs end with the test, as they would outlive it otherwise."""
    root = tmp_path / "runs"
    yield root
    for job in jobs(root):
        queue.kill(job)


@pytest.fixture
def keep():
    """Keep what a page looks like, for people and for the README."""

    def keep(page: Page, name: str) -> None:
        SCREENSHOTS.mkdir(exist_ok=True)
        page.wait_for_timeout(500)
        page.screenshot(path=SCREENSHOTS / f"{name}.png")

    return keep

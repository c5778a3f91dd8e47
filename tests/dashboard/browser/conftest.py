"""Every test here gets a page in a real Chromium, and fails if the page requests another host."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from browser import FLAGS, chromium, serving
from playwright.sync_api import Browser, Page, expect, sync_playwright

from launch import queue
from launch.jobs import jobs

PATIENCE_MS = 40_000
"""A shared machine of two cores may be busy; waiting costs nothing where it is not."""


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
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    yield page
    context.close()
    here = re.compile(r"(https?|ws)://(127\.0\.0\.1|localhost)[:/]|data:|blob:")
    assert [url for url in asked if not here.match(url)] == []


@pytest.fixture(scope="session")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """Serve one root for all tests of a worker."""
    folder = tmp_path_factory.mktemp("served")
    with serving(folder / "runs", folder) as address:
        yield address, folder / "runs"


@pytest.fixture
def root(served: tuple[str, Path]) -> Iterator[Path]:
    """Return the served root, empty; its jobs end with the test, as they would outlive it otherwise."""
    _, root = served
    yield root
    for job in jobs(root):
        queue.kill(job)
    for folder in (root, root.parent / "bundles"):
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def address(served: tuple[str, Path]) -> str:
    """Return the address at which `root` is served."""
    return served[0]

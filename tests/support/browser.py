"""A served dashboard and a real browser, for the tests that look at pages as a user does."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Locator, Page, expect

SCREENSHOTS = Path(__file__).parents[2] / "screenshots"
FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update")
NAMES = ("chromium", "chromium-browser", "google-chrome")


def chromium() -> str | None:
    """Return the system's Chromium, or None."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


@contextmanager
def serving(root: Path, folder: Path) -> Iterator[str]:
    """Serve the dashboard of a root, started in `folder`, as `trainproof dashboard` does; yield its address."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    with (folder / "dashboard.log").open("ab") as output:
        server = subprocess.Popen(
            [sys.executable, "-m", "trainproof", "dashboard", f"--root={root}", f"--port={port}", "--no-browser"],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            # The jobs that it starts must outlive it, so it gets a group of its own to be stopped with.
            start_new_session=True,
            env={**os.environ, "HOME": str(folder)},
        )
    address = f"http://127.0.0.1:{port}"
    try:
        _wait_until_ready(address, server)
        yield address
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait(timeout=20)


def settled(page: Page) -> None:
    """Wait until a page is drawn, no script of it runs, and nothing is a placeholder or left over from before."""
    expect(page.locator("[data-testid=stMainBlockContainer] h1").first).to_be_visible()
    expect(page.locator("[data-testid=stApp]")).to_have_attribute("data-test-script-state", "notRunning")
    expect(page.locator("[data-testid=stSkeleton]")).to_have_count(0)


def keep(page: Page, name: str) -> None:
    """Keep what a page looks like in screenshots/, for people and for the README."""
    SCREENSHOTS.mkdir(exist_ok=True)
    page.wait_for_timeout(500)
    page.screenshot(path=SCREENSHOTS / f"{name}.png")


def choose(page: Page, box: Locator, name: str) -> None:
    """Choose an option of a combobox by its name; scrolling would close the list, so there must be room for it."""
    box.evaluate("box => box.scrollIntoView({block: 'center'})")
    box.fill(name)
    page.get_by_role("option", name=name).click()
    expect(page.get_by_role("option")).to_have_count(0)
    settled(page)
    expect(box).to_have_value(name)


def _wait_until_ready(address: str, server: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + 60
    while time.monotonic() < end:
        assert server.poll() is None, "the dashboard exited; see dashboard.log"
        try:
            urllib.request.urlopen(f"{address}/_stcore/health", timeout=2).close()
        except (urllib.error.URLError, TimeoutError, ConnectionError):
            time.sleep(0.1)
        else:
            return
    raise AssertionError("the dashboard did not get ready within a minute")

"""A browser that measures: how long until something is on the page, and how many bytes came for it."""

from __future__ import annotations

import os
import signal
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import psutil
from browser import FLAGS, chromium, free_port
from playwright.sync_api import Browser, Page, WebSocket

__all__ = ["FLAGS", "Visit", "chromium", "free_port", "fresh", "memory_mb", "served"]

PATIENCE_SECONDS = 100

ROWS_PAINTED = """
(() => {
  const canvas = document.querySelector('[data-testid="stDataFrame"] canvas');
  const titles = Math.ceil(36 * devicePixelRatio);
  if (!canvas || canvas.height <= titles) return false;
  const rows = canvas.getContext('2d').getImageData(0, titles, canvas.width, canvas.height - titles).data;
  let dark = 0;
  for (let i = 0; i < rows.length; i += 4) dark += rows[i + 3] > 200 && rows[i] + rows[i + 1] + rows[i + 2] < 330;
  return dark > 300;
})()
"""
"""Text stands below the titles of the grid, which is one canvas; elements for its cells come 0.2 s later."""
CHART_PAINTED = """
[...document.querySelectorAll('[data-testid="stEChartsChart"] canvas')].some(canvas => {
  const side = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;
  for (let i = 3; i < side.length; i += 4) if (side[i]) return true;
  return false;
})
"""
"""Something is drawn on a chart's canvas; a chart is drawn with all its curves at once."""


@contextmanager
def served(command: Sequence[str], ready: str, *, env: Mapping[str, str] | None = None) -> Iterator[tuple[int, float]]:
    """Start a server and yield its process and the seconds until the address `ready` answers; stop it at the end."""
    began = time.perf_counter()
    server = subprocess.Popen(
        list(command),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        env={**os.environ, **(env or {})},
    )
    try:
        while True:
            try:
                with urllib.request.urlopen(ready, timeout=5):
                    break
            except (urllib.error.URLError, TimeoutError, ConnectionError):
                if server.poll() is not None or time.perf_counter() - began > PATIENCE_SECONDS:
                    message = f"{command[0]} did not get ready"
                    raise RuntimeError(message) from None
                time.sleep(0.02)
        yield server.pid, time.perf_counter() - began
    finally:
        os.killpg(server.pid, signal.SIGKILL)
        server.wait()


def memory_mb(pid: int) -> float:
    """Return the resident memory of a process and all it started, in MB (10⁶ bytes)."""
    family = [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]
    return sum(one.memory_info().rss for one in family) / 1e6


class Visit:
    """One page of one browser profile."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.socket_bytes = 0
        page.set_default_timeout(PATIENCE_SECONDS * 1000)
        page.on("websocket", self._listen)

    def _listen(self, connection: WebSocket) -> None:
        connection.on("framereceived", self._count)

    def _count(self, payload: str | bytes) -> None:
        self.socket_bytes += len(payload)

    def open(self, address: str, until: str) -> float:
        """Return the seconds from asking for an address until a condition holds in the page."""
        return self.act(lambda: self.page.goto(address, wait_until="commit"), until)

    def act(self, act: Callable[[], object], until: str) -> float:
        """Return the seconds from an act until a condition holds in the page."""
        began = time.perf_counter()
        act()
        self.page.wait_for_function(until, polling=20)
        return time.perf_counter() - began

    def rest(self, seconds: float = 1.0) -> None:
        """Let the page and the server come to rest."""
        self.page.wait_for_timeout(seconds * 1000)


@contextmanager
def fresh(browser: Browser) -> Iterator[Visit]:
    """Yield a visit in a profile that has never seen anything."""
    context = browser.new_context(viewport={"width": 1400, "height": 900})
    try:
        yield Visit(context.new_page())
    finally:
        context.close()

"""What is done with each dashboard: the same acts, each until the reader sees the result."""

from __future__ import annotations

import re
import sys
import tempfile
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from statistics import median
from urllib.parse import quote

from playwright.sync_api import Browser

from dashboard_parts.browse import CHART_PAINTED, ROWS_PAINTED, Visit, free_port, fresh, memory_mb, served

Figures = dict[str, float]

_SETTLING_SECONDS = 4
"""After its first visit a new server loads what other pages need; the visits after it are of a server that runs."""
_FIRST_READING_SECONDS = 600
"""More than anybody waits; it is measured apart, as the first index."""
_RELOADS = 5
"""Loads of one page differ by a third, more than the bare page and ours do; the peers differ by more and load once."""
_ALL_READ = "!document.querySelector('[data-testid=\"stProgress\"]')"

FLOOR = Path(__file__).parent / "floor.py"


def floor(browser: Browser) -> Figures:
    """Measure the least that Streamlit can do: until its rows are painted, its curves, and all of it."""
    port = free_port()
    command = [sys.executable, "-m", "streamlit", "run", str(FLOOR), f"--server.port={port}", "--server.headless=true"]
    command += ["--server.fileWatcherType=none", "--browser.gatherUsageStats=false"]
    with served(command, f"http://127.0.0.1:{port}/_stcore/health") as (pid, ready):
        address = f"http://127.0.0.1:{port}/"
        figures = {"start": ready}
        with fresh(browser) as visit:
            figures["first_visit"] = visit.open(address, ROWS_PAINTED)
            visit.rest(_SETTLING_SECONDS)
        with fresh(browser) as visit:
            figures["list_cold"] = visit.open(address, ROWS_PAINTED)
            visit.rest()
            figures["list_warm"] = _reloaded(visit, address, ROWS_PAINTED)
            figures["compare_warm"] = _reloaded(visit, address, CHART_PAINTED)
        whole = f"({ROWS_PAINTED.strip()}) && ({CHART_PAINTED.strip()})"
        with fresh(browser) as visit:
            figures["page_cold"] = visit.open(address, whole)
            visit.rest()
            figures["page_warm"] = visit.open(address, whole)
        return figures | {"memory_mb": memory_mb(pid)}


def ours(browser: Browser, root: Path) -> Figures:
    """Measure trainproof on a root of run folders that holds one run of a million rows, `long`."""
    port = free_port()
    command = [sys.executable, "-m", "trainproof", "dashboard", f"--root={root}", f"--port={port}", "--no-browser"]
    address = f"http://127.0.0.1:{port}"
    with tempfile.TemporaryDirectory() as cache:
        server = partial(served, command, f"{address}/_stcore/health", env={"XDG_CACHE_HOME": cache})
        figures = {}
        with server(), fresh(browser) as visit:
            figures["first_visit_unread"] = visit.open(address, ROWS_PAINTED)
            visit.page.wait_for_function(_ALL_READ, timeout=1000 * _FIRST_READING_SECONDS)
        return figures | _read_once(browser, server, address)


def _read_once(
    browser: Browser, server: Callable[[], AbstractContextManager[tuple[int, float]]], address: str
) -> Figures:
    """Measure a server that finds what an earlier one read of the runs."""
    with server() as (pid, ready):
        figures = {"start": ready}
        with fresh(browser) as visit:
            figures["first_visit"] = visit.open(address, ROWS_PAINTED)
            visit.rest(_SETTLING_SECONDS)
        with fresh(browser) as visit:
            figures["list_cold"] = visit.open(address, ROWS_PAINTED)
            visit.rest()
            figures["list_warm"] = _reloaded(visit, address, ROWS_PAINTED)
            figures |= _inside(visit) | _comparison(visit, address) | _long_run(visit, address)
        return figures | {"memory_mb": memory_mb(pid)}


def _reloaded(visit: Visit, address: str, until: str) -> float:
    """Return the middle of some loads of a page that this browser has seen."""
    loads = []
    for _ in range(_RELOADS):
        visit.page.goto("about:blank")
        visit.rest()
        loads.append(visit.open(address, until))
        visit.rest()
    return median(loads)


def _heading(text: str) -> str:
    return f"[...document.querySelectorAll('h1')].some(one => one.innerText.startsWith('{text}'))"


def _inside(visit: Visit) -> Figures:
    """Go from page to page, search, and change a tab."""
    page = visit.page
    pages = []
    for name, seen in (
        ("Launch", "[...document.querySelectorAll('button')].some(one => one.innerText.includes('Start'))"),
        ("Package", _heading("Package")),
        ("Compare", _heading("Compare")),
        ("Runs", ROWS_PAINTED),
    ):
        link = page.get_by_test_id("stTopNavLink").filter(has_text=re.compile(name))
        pages.append(visit.act(link.click, f"{_heading(name)} && {seen}"))
        visit.rest()
    return {"page_to_page": max(pages), "filter": _search(visit, "loss<1.4")}


def _search(visit: Visit, text: str) -> float:
    """Type a search; until the line above or below the table says how many runs are shown of all."""
    box = visit.page.get_by_role("textbox", name="Search")
    before = visit.page.evaluate("document.body.innerText.match(/([\\d,]+) of [\\d,]+ shown/)?.[0] ?? ''")
    box.fill(text)
    seconds = visit.act(
        lambda: box.press("Enter"),
        f"(document.body.innerText.match(/([\\d,]+) of [\\d,]+ shown/)?.[0] ?? '') !== '{before}'",
    )
    visit.rest()
    return seconds


def _click_grid(visit: Visit, x: int, y: int) -> None:
    """Click a place in the table of runs, in pixels from its corner: the grid is one canvas."""
    box = visit.page.locator('[data-testid="stDataFrame"] canvas').first.bounding_box()
    assert box is not None
    visit.page.mouse.click(box["x"] + x, box["y"] + y)


def _comparison(visit: Visit, address: str) -> Figures:
    """Tick ten runs and compare them; then open the same by its link."""
    page = visit.page
    visit.open(f"{address}/?q=run-0000", ROWS_PAINTED)
    visit.rest(2)
    _click_grid(visit, 18, 18)
    page.get_by_role("button", name="Compare", exact=False).last.wait_for()
    visit.rest(2)
    button = page.get_by_test_id("stMain").get_by_role("button", name=re.compile("Compare"))
    figures = {"compare_click": visit.act(button.click, CHART_PAINTED)}
    visit.rest()
    return figures | {"compare_warm": _reloaded(visit, page.url, CHART_PAINTED)}


def _long_run(visit: Visit, address: str) -> Figures:
    """Click the name of the run of a million rows; how long until its curves, and how many bytes they take."""
    page = visit.page
    visit.open(f"{address}/?q=long", ROWS_PAINTED)
    visit.rest(2)
    before = visit.socket_bytes
    figures = {"long_click": visit.act(lambda: _click_grid(visit, 62, 54), CHART_PAINTED)}
    visit.rest()
    figures["long_kb"] = (visit.socket_bytes - before) / 1000
    tab = page.get_by_test_id("stTab").filter(has_text="Configuration")
    shown = "document.body.innerText.includes('optimizer.learning_rate')"
    return figures | {"tab": visit.act(tab.click, shown)}


def tensorboard(browser: Browser, python: Path, logs: Path) -> Figures:
    """Measure TensorBoard on event files."""
    port = free_port()
    command = [str(python.parent / "tensorboard"), f"--logdir={logs}", f"--port={port}", "--host=127.0.0.1"]
    address = f"http://127.0.0.1:{port}/"
    rows = "document.querySelectorAll('tb-data-table-content-row').length >= 10"
    drawn = "document.querySelector('card-view line-chart canvas') && !document.querySelector('card-view mat-spinner')"
    with served(command, address) as (pid, ready), fresh(browser) as visit:
        figures = {"start": ready, "list_cold": visit.open(f"{address}#timeseries", rows)}
        visit.rest(2)
        figures["list_warm"] = visit.open(f"{address}?again#timeseries", rows)
        link = f"{address}?runFilter=run-0000%5Cd&tagFilter=%5Eloss%24#timeseries"
        figures["compare_cold"] = visit.open(link, drawn)
        visit.rest(2)
        visit.page.goto("about:blank")
        figures["compare_warm"] = visit.open(link, drawn)
        return figures | {"memory_mb": memory_mb(pid)}


def mlflow(browser: Browser, python: Path, folder: Path) -> Figures:
    """Measure MLflow on its SQLite database."""
    port = free_port()
    address = f"http://127.0.0.1:{port}/"
    command = [str(python.parent / "mlflow"), "server", "--backend-store-uri", f"sqlite:///{folder / 'mlflow.db'}"]
    command += ["--host", "127.0.0.1", "--port", str(port), "--workers", "1"]
    rows = r"[...document.querySelectorAll('a')].filter(one => /run-\d+/.test(one.innerText)).length >= 10"
    drawn = "document.querySelectorAll('.scatterlayer .trace path.js-line').length >= {}"
    with served(command, address) as (pid, ready), fresh(browser) as visit:
        figures = {"start": ready, "list_cold": visit.open(f"{address}#/experiments/1/runs", rows)}
        visit.rest(2)
        visit.page.goto("about:blank")
        figures["list_warm"] = visit.open(f"{address}#/experiments/1/runs", rows)
        ids = [f"{number:032x}" for number in range(10)]
        visit.page.goto("about:blank")
        figures["compare_cold"] = visit.open(_mlflow_chart(address, ids, "1"), drawn.format(10))
        visit.rest(2)
        visit.page.goto("about:blank")
        figures["compare_warm"] = visit.open(_mlflow_chart(address, ids, "1"), drawn.format(10))
        visit.page.goto("about:blank")
        figures["long_click"] = visit.open(_mlflow_chart(address, [f"{10**6:032x}"], "2"), drawn.format(1))
        return figures | {"memory_mb": memory_mb(pid)}


def _mlflow_chart(address: str, runs: list[str], experiment: str) -> str:
    listed = "[" + ",".join(f'"{run}"' for run in runs) + "]"
    asked = {"runs": listed, "metric": '"loss"', "experiments": f'["{experiment}"]', "plot_metric_keys": '["loss"]'}
    return f"{address}#/metric?" + "&".join(f"{key}={quote(value)}" for key, value in asked.items())

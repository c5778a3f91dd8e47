"""Measure the dashboard in a headless Chromium, and the index and checks behind it, on synthetic runs.

    python benchmarks/dashboard.py --corpus FOLDER [--runs 200 2000] [--repeat 3]

Page times are the seconds from an action until its result is painted; reloads are the median of five. The corpus of
2,000 runs takes about 1.2 GB and is written once. Writes benchmarks/results/dashboard.json and runs.json. Targets on
two cores: check 2,000 runs in 20 s and 1,000,000 metric rows in 3 s; list 2,000 runs in 6 s, and in 0.3 s after one
changed.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from importlib.metadata import version
from pathlib import Path
from statistics import median

import psutil
from harness import RESULTS, spread, write_json
from playwright.sync_api import Browser, Page, WebSocket, sync_playwright

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))

from browser import FLAGS, chromium, serving
from synthetic import STARTED, write_run

from evidence.grade import find_problems
from evidence.index.index import check_paths
from evidence.run import read_run

ROWS, LONG_ROWS = 1000, 1_000_000
RUNS_WITH_PREDICTIONS = 10
TIMEOUT_SECONDS = 100
INDEXING_TIMEOUT_SECONDS = 600
SETTLING_SECONDS = 4
"""After its first visit a new server loads what other pages need."""
RELOADS = 5

GRID_PAINTED = """
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
"""The grid is one canvas: text is painted below its column titles."""
CHART_PAINTED = """
document.querySelector('[data-testid="stPlotlyChart"] path.js-line') !== null ||
[...document.querySelectorAll('[data-testid="stEChartsChart"] canvas')].some(canvas => {
  const side = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;
  for (let i = 3; i < side.length; i += 4) if (side[i]) return true;
  return false;
})
"""
SHOWN = r"(document.body.innerText.match(/([\d,]+) of [\d,]+ shown/)?.[0] ?? '')"
INDEX = """
import sys, time
from pathlib import Path
from evidence.index.index import RunIndex
root, cache = map(Path, sys.argv[1:])
index = RunIndex(root, entries_in=cache)
def measure():
    began = time.perf_counter(); index.refresh(); return time.perf_counter() - began
first = measure()
(root / "run-00007" / "config.yaml").touch()
print(first, measure(), measure())
"""

Figures = dict[str, float]


def write_one(root: Path, number: int) -> None:
    """Write a run of the corpus."""
    items = 100 if number < RUNS_WITH_PREDICTIONS else 0
    started = STARTED + timedelta(minutes=number)
    write_run(root, f"run-{number:05d}", seed=number, steps=ROWS, items=items, started=started)


def write_corpus(root: Path, runs: int) -> None:
    """Write `runs` runs of 1,000 metric rows, and `long` with a million rows, unless the folder exists."""
    if not root.is_dir():
        root.mkdir(parents=True)
        with ProcessPoolExecutor() as processes:
            list(processes.map(partial(write_one, root), range(runs), chunksize=20))
        write_run(root, "long", steps=LONG_ROWS)


class Visit:
    """A page in a fresh browser profile."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.socket_bytes = 0
        page.set_default_timeout(TIMEOUT_SECONDS * 1000)
        page.on("websocket", self._listen)

    def _listen(self, socket: WebSocket) -> None:
        socket.on("framereceived", self._count)

    def _count(self, payload: str | bytes) -> None:
        self.socket_bytes += len(payload)

    def time(self, action: Callable[[], object], until: str) -> float:
        """Return the seconds from an action until a JavaScript condition holds."""
        began = time.perf_counter()
        action()
        self.page.wait_for_function(until, polling=20)
        return time.perf_counter() - began

    def open(self, address: str, until: str) -> float:
        """Time a page load."""
        return self.time(lambda: self.page.goto(address, wait_until="commit"), until)

    def rest(self, seconds: float = 1.0) -> None:
        """Wait until page and server are idle."""
        self.page.wait_for_timeout(seconds * 1000)

    def reload(self, address: str, until: str) -> float:
        """Return the median time of repeated loads."""
        times = []
        for _ in range(RELOADS):
            self.page.goto("about:blank")
            self.rest()
            times.append(self.open(address, until))
            self.rest()
        return median(times)

    def click_grid(self, x: int, y: int) -> None:
        """Click into the grid, in pixels from its corner."""
        box = self.page.locator('[data-testid="stDataFrame"] canvas').first.bounding_box()
        assert box is not None
        self.page.mouse.click(box["x"] + x, box["y"] + y)


@contextmanager
def fresh_visit(browser: Browser) -> Iterator[Visit]:
    """Yield a visit in a profile without cache."""
    context = browser.new_context(viewport={"width": 1400, "height": 900})
    try:
        yield Visit(context.new_page())
    finally:
        context.close()


@contextmanager
def serve(root: Path, home: str) -> Iterator[tuple[str, float]]:
    """Start the dashboard; yield its address and the seconds until it answered."""
    began = time.perf_counter()
    with serving(root, Path(home)) as address:
        yield address, time.perf_counter() - began


def memory_mb() -> float:
    """Return the resident memory of the dashboard and its processes in MB (10⁶ bytes)."""
    server = next(child for child in psutil.Process().children() if "dashboard" in child.cmdline())
    return sum(process.memory_info().rss for process in (server, *server.children(recursive=True))) / 1e6


def measure_pages(browser: Browser, root: Path) -> Figures:
    """Measure the pages: first with an empty cache, then after a restart with the cache."""
    figures: Figures = {}
    with tempfile.TemporaryDirectory() as home:
        with serve(root, home) as (address, _), fresh_visit(browser) as visit:
            figures["first_visit_unread"] = visit.open(address, GRID_PAINTED)
            done = "!document.querySelector('[data-testid=\"stProgress\"]')"
            visit.page.wait_for_function(done, timeout=1000 * INDEXING_TIMEOUT_SECONDS)
        with serve(root, home) as (address, figures["start"]):
            with fresh_visit(browser) as visit:
                figures["first_visit"] = visit.open(address, GRID_PAINTED)
                visit.rest(SETTLING_SECONDS)
            with fresh_visit(browser) as visit:
                figures["list_cold"] = visit.open(address, GRID_PAINTED)
                visit.rest()
                figures["list_warm"] = visit.reload(address, GRID_PAINTED)
                figures |= measure_navigation(visit) | measure_comparison(visit, address)
                figures |= measure_long_run(visit, address)
            figures["memory_mb"] = memory_mb()
    return figures


def measure_navigation(visit: Visit) -> Figures:
    """Go through the pages, then search."""
    started = "[...document.querySelectorAll('button')].some(one => one.innerText.includes('Start'))"
    times = []
    for name, condition in (("Launch", started), ("Package", "true"), ("Compare", "true"), ("Runs", GRID_PAINTED)):
        heading = f"[...document.querySelectorAll('h1')].some(one => one.innerText.startsWith('{name}'))"
        link = visit.page.get_by_test_id("stTopNavLink").filter(has_text=re.compile(name))
        times.append(visit.time(link.click, f"{heading} && {condition}"))
        visit.rest()
    box = visit.page.get_by_role("textbox", name="Search")
    before = visit.page.evaluate(SHOWN)
    box.fill("loss<1.4")
    seconds = visit.time(lambda: box.press("Enter"), f"{SHOWN} !== '{before}'")
    visit.rest()
    return {"page_to_page": max(times), "filter": seconds}


def measure_comparison(visit: Visit, address: str) -> Figures:
    """Select ten runs and compare them, then open the same comparison by its link."""
    visit.open(f"{address}/?q=run-0000", GRID_PAINTED)
    visit.rest(2)
    visit.click_grid(18, 18)
    visit.page.get_by_role("button", name="Compare", exact=False).last.wait_for()
    visit.rest(2)
    button = visit.page.get_by_test_id("stMain").get_by_role("button", name=re.compile("Compare"))
    click = visit.time(button.click, CHART_PAINTED)
    visit.rest()
    return {"compare_click": click, "compare_warm": visit.reload(visit.page.url, CHART_PAINTED)}


def measure_long_run(visit: Visit, address: str) -> Figures:
    """Open the run of a million rows, and change a tab."""
    visit.open(f"{address}/?q=long", GRID_PAINTED)
    visit.rest(2)
    before = visit.socket_bytes
    click = visit.time(lambda: visit.click_grid(62, 54), CHART_PAINTED)
    visit.rest()
    received = visit.socket_bytes - before
    tab = visit.page.get_by_test_id("stTab").filter(has_text="Configuration")
    seconds = visit.time(tab.click, "document.body.innerText.includes('optimizer.learning_rate')")
    return {"long_click": click, "long_kb": received / 1000, "tab": seconds}


def measure_index(root: Path) -> Figures:
    """Time the first index, after one run changed, unchanged, and in a new process."""

    def refresh(cache: str) -> list[float]:
        printed = subprocess.check_output([sys.executable, "-c", INDEX, str(root), cache], text=True)
        return [float(seconds) for seconds in printed.split()]

    with tempfile.TemporaryDirectory() as cache:
        figures = dict(zip(("index_first", "index_one_changed", "index_unchanged"), refresh(cache), strict=True))
        return figures | {"index_restarted": refresh(cache)[0]}


def measure_checks(root: Path) -> Figures:
    """Time the check of all runs but the long one, and of the long one."""
    began = time.perf_counter()
    check_paths([path for path in root.iterdir() if path.name != "long"])
    middle = time.perf_counter()
    find_problems(read_run(root / "long"))
    return {"check_all": middle - began, "check_a_million_rows": time.perf_counter() - middle}


def repeat(measure: Callable[[], Figures], times: int) -> dict[str, dict[str, float]]:
    """Return minimum, median and maximum of each figure, and print them."""
    rounds = [measure() for _ in range(times)]
    figures = {name: spread([one[name] for one in rounds], 3) for name in rounds[0]}
    for name, figure in figures.items():
        print(f"  {name:<24}{figure['median']:>9.2f}   ({figure['min']:.2f} to {figure['max']:.2f})", flush=True)
    return figures


def main() -> None:
    """Write what is missing of the corpus, measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", type=Path, required=True, help="folder of the corpus")
    parser.add_argument("--runs", type=int, nargs="+", default=[200, 2000], help="sizes of the run list")
    parser.add_argument("--repeat", type=int, default=3)
    args = parser.parse_args()
    about = {
        "date": time.strftime("%Y-%m-%d"),
        "processors": os.cpu_count(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30),
        "load_before": round(os.getloadavg()[0], 1),
        "repeat": args.repeat,
    }
    packages = ("trainproof", "streamlit", "pandas", "numpy", "jsonschema-rs")
    versions = {name: version(name) for name in packages} | {"python": platform.python_version()}
    pages, checks = {}, {}
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=list(FLAGS))
        versions["chromium"] = browser.version
        for runs in args.runs:
            root = args.corpus / str(runs)
            write_corpus(root, runs)
            print(f"{runs} runs")
            pages[f"trainproof_{runs}"] = repeat(partial(measure_pages, browser, root), args.repeat)
            pages[f"trainproof_{runs}"] |= repeat(partial(measure_index, root), args.repeat)
            checks = repeat(partial(measure_checks, root), args.repeat)
        browser.close()
    about["versions"] = versions
    write_json(RESULTS / "dashboard.json", {"about": about, "seconds": pages})
    corpus = {"corpus": f"{args.runs[-1]} runs of {ROWS} rows"}
    write_json(RESULTS / "runs.json", {"about": about | corpus, "seconds": checks})


if __name__ == "__main__":
    main()

"""Measure the run list of the dashboard in a headless Chromium, on synthetic runs.

    python benchmarks/dashboard.py --corpus FOLDER [--runs 2000] [--repeat 3]

Page times are the seconds from an action until its result is painted; reloads are the median of five. The corpus of
2,000 runs takes about 1.2 GB and is written once. Writes benchmarks/results/dashboard.json.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from importlib.metadata import version
from pathlib import Path
from statistics import median

from harness import REPOSITORY, build_parser, spread, write_json
from playwright.sync_api import Browser, Page, sync_playwright

sys.path.insert(0, str(REPOSITORY / "tests" / "support"))

from browser import FLAGS, chromium, serving
from synthetic import STARTED, write_run

from trainer.recorder.environment import environment

RUNS_WITH_PREDICTIONS = 10
TIMEOUT_SECONDS = 100
INDEXING_TIMEOUT_SECONDS = 600
SETTLING_SECONDS = 4
"""Time in which a new server loads other pages after its first visit."""
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


def write_one(root: Path, number: int) -> None:
    """Write a run of 1,000 metric rows."""
    items = 100 if number < RUNS_WITH_PREDICTIONS else 0
    started = STARTED + timedelta(minutes=number)
    write_run(root, f"run-{number:05d}", seed=number, steps=1000, items=items, started=started)


@contextmanager
def fresh_page(browser: Browser) -> Iterator[Page]:
    """Yield a page in a profile without cache."""
    context = browser.new_context(viewport={"width": 1400, "height": 900})
    context.set_default_timeout(TIMEOUT_SECONDS * 1000)
    try:
        yield context.new_page()
    finally:
        context.close()


def time_load(page: Page, address: str) -> float:
    """Return the seconds until the run list is painted, then wait until page and server are idle."""
    page.goto("about:blank")
    page.wait_for_timeout(1000)
    began = time.perf_counter()
    page.goto(address, wait_until="commit")
    page.wait_for_function(GRID_PAINTED, polling=20)
    seconds = time.perf_counter() - began
    page.wait_for_timeout(1000)
    return seconds


def measure_pages(browser: Browser, root: Path) -> dict[str, float]:
    """Return the seconds to load the run list: with an empty cache, and after a restart with the cache."""
    figures = {}
    with tempfile.TemporaryDirectory() as home:
        with serving(root, Path(home)) as address, fresh_page(browser) as page:
            figures["first_visit_unread"] = time_load(page, address)
            page.wait_for_selector(
                "[data-testid=stProgress]", state="detached", timeout=1000 * INDEXING_TIMEOUT_SECONDS
            )
        began = time.perf_counter()
        with serving(root, Path(home)) as address:
            figures["start"] = time.perf_counter() - began
            with fresh_page(browser) as page:
                figures["first_visit"] = time_load(page, address)
                page.wait_for_timeout(SETTLING_SECONDS * 1000)
            with fresh_page(browser) as page:
                figures["list_cold"] = time_load(page, address)
                figures["list_warm"] = median(time_load(page, address) for _ in range(RELOADS))
    return figures


def main() -> None:
    """Write the corpus unless it exists, measure, print and write the result."""
    parser = build_parser(__doc__)
    parser.add_argument("--corpus", type=Path, required=True, help="folder of the corpus")
    parser.add_argument("--runs", type=int, default=2000, help="size of the run list")
    parser.add_argument("--repeat", type=int, default=3)
    args = parser.parse_args()
    about = environment() | {"streamlit": version("streamlit"), "date": time.strftime("%Y-%m-%d")}
    about["load_before"] = round(os.getloadavg()[0], 1)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=list(FLAGS))
        about |= {"chromium": browser.version, "repeat": args.repeat}
        root = args.corpus / str(args.runs)
        if not root.is_dir():
            root.mkdir(parents=True)
            with ProcessPoolExecutor() as processes:
                list(processes.map(partial(write_one, root), range(args.runs), chunksize=20))
        rounds = [measure_pages(browser, root) for _ in range(args.repeat)]
        browser.close()
    seconds = {name: spread([one[name] for one in rounds], 3) for name in rounds[0]}
    print(json.dumps(seconds, indent=1))
    write_json("dashboard.json", {"about": about, "seconds": {f"trainproof_{args.runs}": seconds}})


if __name__ == "__main__":
    main()

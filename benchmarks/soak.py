"""Half an hour of use: three browsers follow a run under way, a fourth hops through all pages.

    python benchmarks/soak.py --minutes 30

Goals: memory of the server grows by less than 10 % after the first minutes, no row is missed, and a page that nobody
touches costs less than 3 % of a core. Writes benchmarks/results/soak.json.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psutil
from dashboard_parts.browse import FLAGS, ROWS_PAINTED, chromium, free_port, memory_mb, served
from playwright.sync_api import Page, sync_playwright
from synthetic import write_run

RESULT = Path(__file__).parent / "results" / "soak.json"
WARM_UP = 0.15
"""Part of the time after which memory is expected to stay as it is."""
LIVE = "live"
HOPS = ("", "run?run=run-3", f"compare?runs=run-1&runs={LIVE}", "launch", "package", f"run?run={LIVE}")

WRITER = """
import json, sys, time
from datetime import UTC, datetime
from pathlib import Path
from evidence.lock import RunLock
from evidence.writing import RowWriter

folder, end = Path(sys.argv[1]), time.monotonic() + float(sys.argv[2])
row = json.loads((folder / "metrics.jsonl").read_text().splitlines()[-1])
with RunLock(folder):
    rows = RowWriter(folder / "metrics.jsonl")
    while time.monotonic() < end:
        row["step"] += 1
        row["tokens_seen"] = row["step"] * 2048
        row["time"] = datetime.now(UTC).isoformat(timespec="milliseconds")
        rows.append(row)
        rows.sync()
        time.sleep(0.5)
    rows.close()
    time.sleep(120)
"""


def main() -> None:
    """Follow, hop, watch."""
    minutes = _minutes()
    with tempfile.TemporaryDirectory() as name, sync_playwright() as playwright:
        folder = Path(name)
        root = folder / "runs"
        started = datetime.now(UTC)
        for number in range(20):
            write_run(root, f"run-{number}", seed=number, steps=200, started=started - timedelta(days=number + 1))
        live = write_run(root, LIVE, steps=10**6, status="running", started=started - timedelta(days=7), items=0)
        lines = (live / "metrics.jsonl").read_text("utf-8").splitlines(keepends=True)[:100]
        (live / "metrics.jsonl").write_text("".join(lines), "utf-8")
        port = free_port()
        address = f"http://127.0.0.1:{port}"
        command = [sys.executable, "-m", "trainproof", "dashboard", f"--root={root}", f"--port={port}", "--no-browser"]
        env = {"XDG_CACHE_HOME": str(folder / "cache")}
        browser = playwright.chromium.launch(executable_path=chromium(), args=list(FLAGS))
        with served(command, f"{address}/_stcore/health", env=env) as (pid, _):
            idle = _idle_cost(browser.new_page(), address, pid)
            writer = subprocess.Popen([sys.executable, "-c", WRITER, str(live), str(60 * minutes)])
            followers = [browser.new_context().new_page() for _ in range(3)]
            for page in followers:
                page.goto(f"{address}/run?run={LIVE}")
            watched = _watch(browser.new_context().new_page(), address, pid, minutes)
            writer_ended = time.monotonic()
            if writer.poll() is not None:
                message = "the writer of the run died, so nothing was followed"
                raise RuntimeError(message)
            missed = [_steps_missed(page, live) for page in followers]
            watched |= {"seconds_until_the_last_row_shows": round(time.monotonic() - writer_ended, 1)}
        writer.terminate()
        browser.close()
        rows = len((live / "metrics.jsonl").read_text("utf-8").splitlines()) - len(lines)
    result = {
        "minutes": minutes,
        "rows_written": rows,
        "idle_page_core_percent": idle,
        "steps_missed_by_each_follower": missed,
        **watched,
    }
    RESULT.write_text(json.dumps(result, indent=1) + "\n", "utf-8")
    print(json.dumps({key: value for key, value in result.items() if key != "memory_mb"}, indent=1))


def _idle_cost(page: Page, address: str, pid: int) -> float:
    """Return the percent of a core that the server uses while a list of runs is open and nobody touches it."""
    page.goto(f"{address}/run?run=run-1")
    page.goto(f"{address}/runs")
    page.wait_for_function(ROWS_PAINTED, timeout=60_000)
    page.wait_for_timeout(5_000)
    before, began = _processor_seconds(pid), time.monotonic()
    page.wait_for_timeout(60_000)
    used = 100 * (_processor_seconds(pid) - before) / (time.monotonic() - began)
    page.close()
    return round(used, 2)


def _watch(page: Page, address: str, pid: int, minutes: float) -> dict[str, object]:
    """Hop from page to page and note the server's memory."""
    began, before = time.monotonic(), _processor_seconds(pid)
    memory, hops = [], 0
    while (now := time.monotonic() - began) < 60 * minutes:
        page.goto(f"{address}/{HOPS[hops % len(HOPS)]}")
        page.wait_for_timeout(5_000)
        hops += 1
        memory.append((round(now), round(memory_mb(pid), 1)))
    warm = [size for at, size in memory if at > 60 * minutes * WARM_UP]
    first, last = sum(warm[:6]) / len(warm[:6]), sum(warm[-6:]) / len(warm[-6:])
    return {
        "hops": hops,
        "memory_growth_percent": round(100 * (last / first - 1), 2),
        "memory_mb_after_warm_up": round(first, 1),
        "memory_mb_at_the_end": round(last, 1),
        "core_percent_with_four_browsers": round(100 * (_processor_seconds(pid) - before) / (60 * minutes), 1),
        "memory_mb": memory,
    }


def _steps_missed(page: Page, live: Path) -> int:
    """Return how many steps the page is behind the file, once the writer has stopped and the page had its time."""
    rows = (live / "metrics.jsonl").read_text("utf-8").splitlines()
    last = json.loads(rows[-1])["step"]
    shown = 0
    for _ in range(60):
        text = page.evaluate("document.body.innerText")
        digits = "".join(sign for sign in text.partition("Steps")[2].lstrip().split("\n")[0] if sign.isdigit())
        shown = int(digits or 0)
        if shown == last:
            break
        page.wait_for_timeout(500)
    return int(last - shown)


def _processor_seconds(pid: int) -> float:
    times = psutil.Process(pid).cpu_times()
    return times.user + times.system + times.children_user + times.children_system


def _minutes() -> float:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--minutes", type=float, default=30.0)
    minutes: float = parser.parse_args().minutes
    return minutes


if __name__ == "__main__":
    main()

"""Charts in a browser: saved files, hover, zoom, selection of points; and the message that a run has ended."""

from __future__ import annotations

import json
import re
from pathlib import Path
from xml.etree.ElementTree import fromstring

import pytest
from browser import settled
from playwright.sync_api import Page, expect
from stand_ins import put, stand_in
from synthetic import write_run

from evidence.layout import METRICS
from evidence.lock import RunLock
from launch.queue import start_worker

pytestmark = [pytest.mark.browser, pytest.mark.slow]

CHART = "[data-testid=stPlotlyChart]"


def taken(page: Page, label: str) -> bytes:
    with page.expect_download() as waiting:
        page.get_by_role("button", name=label).click()
    return waiting.value.path().read_bytes()


def saved(page: Page, name: str) -> bytes:
    """Press the chart's camera and return the file of this name."""
    page.locator(CHART).first.hover()
    with page.expect_download() as waiting:
        page.locator(CHART).first.locator(".modebar-btn").last.click()
    assert waiting.value.suggested_filename == name
    return waiting.value.path().read_bytes()


def waits_for(root: Path, file: Path) -> None:
    """Start a job that ends when a file is there."""
    put(root, f"import pathlib, time\nwhile not pathlib.Path({str(file)!r}).exists(): time.sleep(0.1)", run="long-run")
    start_worker(root)


def test_curves_are_taken_as_png_svg_and_csv_and_any_page_says_that_a_run_has_ended(
    address: str, root: Path, tmp_path: Path, page: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in(monkeypatch)
    write_run(root, "alpha", steps=120, items=10)
    waits_for(root, tmp_path / "go")
    page.goto(f"{address}/run?run=alpha&loss=log&smooth=0.9")
    expect(page.locator(CHART).first).to_be_visible()
    assert saved(page, "alpha-curves.png").startswith(b"\x89PNG")
    page.get_by_role("button", name="Export").click()
    page.get_by_text("For print").click()
    settled(page)
    rows = taken(page, "CSV, every row").decode().splitlines()
    page.keyboard.press("Escape")
    drawn = fromstring(saved(page, "alpha-curves.svg"))
    words = "".join(drawn.itertext())
    assert "alpha" in words
    assert "Gradient norm (before clipping)" in words
    assert any("255, 255, 255" in one.get("style", "") for one in drawn.iter())
    assert rows[0].startswith("run,part,step,tokens_seen,seconds,loss")
    assert len(rows) == 121
    (tmp_path / "go").touch()
    expect(page.get_by_text("long-run: succeeded. All steps were done and the run was sealed.")).to_be_visible()


def test_one_hover_label_lists_all_panels_and_a_zoom_survives_new_rows(address: str, root: Path, page: Page) -> None:
    folder = write_run(root, "alpha", steps=400, status="running")
    page.set_viewport_size({"width": 1280, "height": 1600})  # A pointer below the window is not seen.
    with RunLock(folder):
        page.goto(f"{address}/run?run=alpha")
        settled(page)
        box = page.locator(CHART).first.bounding_box()
        assert box is not None
        across, down = box["x"] + 400, box["y"] + 150
        for aside in (0, 6):  # A pointer that comes from nowhere is not seen.
            page.mouse.move(across + aside, down)
            page.wait_for_timeout(300)
        hover = page.locator(".hoverlayer .legend")
        for title in ("Loss", "Learning rate", "Gradient norm", "Tokens per second"):
            expect(hover).to_contain_text(title)
        page.mouse.down()
        page.mouse.move(across + 300, down, steps=8)
        page.mouse.up()
        expect(page.get_by_role("button", name="Reset zoom")).to_be_visible()
        ticks = page.locator(".xaxislayer-above .xtick").filter(has_text=re.compile("^(0|200)$"))
        expect(ticks).to_have_count(0)
        rows = (folder / METRICS).read_text().splitlines()
        with (folder / METRICS).open("a") as file:
            for step in range(201, 211):
                file.write(json.dumps(json.loads(rows[-1]) | {"step": step}) + "\n")
        expect(page.get_by_text("210 of 400 steps")).to_be_visible()
        settled(page)
        expect(ticks).to_have_count(0)

"""Charts in a browser: saved files, hover, zoom, selection of points; and the message that a run has ended."""

from __future__ import annotations

import json
import re
from pathlib import Path
from xml.etree.ElementTree import fromstring

import pytest
from browser import settled
from playwright.sync_api import FloatRect, Locator, Page, expect
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


def test_a_point_of_the_scatter_leads_to_its_run(address: str, root: Path, page: Page) -> None:
    for number, decay in enumerate((0.001, 0.002, 0.004)):
        name = f"decay-{number}"
        config = {"optimizer": {"weight_decay": decay}}
        write_run(root, name, items=20, correct=0.3 * number, seed=number, config=config)
    _, middle, last = points_of_scatter(page, address)
    click(page, middle, "1 of 3 runs selected.")
    page.keyboard.down("Shift")
    click(page, last, "2 of 3 runs selected.")
    page.keyboard.up("Shift")
    _, _, last = points_of_scatter(page, address)
    click(page, last, "1 of 3 runs selected.")
    page.get_by_test_id("stBaseButton-primary").click()
    expect(page).to_have_url(re.compile(r"/run\?run=decay-2"))


def points_of_scatter(page: Page, address: str) -> list[tuple[float, float]]:
    """Open the scatter of three runs and return where its points are, from left to right."""
    page.goto(f"{address}/compare?part=Scatter")
    expect(page.get_by_text("0 of 3 runs selected.")).to_be_visible()
    points = page.locator(".scatterlayer .point")
    expect(points).to_have_count(3)
    settled(page)
    boxes = map(box_of, points.all())
    return sorted((box["x"] + box["width"] / 2, box["y"] + box["height"] / 2) for box in boxes)


def click(page: Page, at: tuple[float, float], then: str) -> None:
    """Click a point of a Plotly chart until the page shows a text, as a user would.

    Plotly takes a click for one on the point whose label it shows. It forgets that point when Streamlit draws the chart
    again, which on a busy machine can happen between the label and the click. Two clicks within 0.3 s are a
    double-click, wherever they fall, and that clears the selection.
    """
    for attempt in range(3):
        page.wait_for_timeout(350)
        page.mouse.move(at[0] - 60, at[1] - 60)
        try:
            expect(page.locator(".hoverlayer .hovertext")).to_have_count(0)
            page.mouse.move(*at)
            expect(page.locator(".hoverlayer .hovertext")).to_have_count(1, timeout=10_000)
            page.mouse.click(*at)
            expect(page.get_by_text(then)).to_be_visible(timeout=10_000)
        except AssertionError:
            if attempt == 2:
                raise
        else:
            return


def box_of(point: Locator) -> FloatRect:
    box = point.bounding_box()
    assert box is not None
    return box

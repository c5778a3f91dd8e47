"""The main story of each page, as a user lives it: look, sort, open, compare, plan, launch, stop, pack, verify."""

from __future__ import annotations

import json
import re
from datetime import timedelta
from pathlib import Path

import pytest
from browser import choose, serving, settled
from playwright.sync_api import Page, WebSocketRoute, expect
from streamlit.proto.BackMsg_pb2 import BackMsg
from synthetic import STARTED, write_run

from evidence.bundle.verify import verify_bundle
from evidence.layout import MANIFEST, METRICS, PREDICTIONS
from evidence.lock import RunLock

pytestmark = pytest.mark.browser

ROW_PIXELS = 36
TICK, NAME, TITLE, VALUE = 17, 60, 120, 190
"""Pixels from the left edge of the table: the box of a row, its name, the title of the first column."""


def three_runs(root: Path) -> None:
    write_run(root, "beta", steps=300, items=60, correct=0.7, seed=1, started=STARTED)
    write_run(root, "alpha", steps=200, items=60, correct=0.4, seed=2, started=STARTED - timedelta(days=1))
    write_run(root, "gamma-smoke", steps=2, mode="smoke", items=0, started=STARTED - timedelta(days=2))


def names_in_order(page: Page) -> list[str]:
    """Return the first cell of each row of the table, as a screen reader finds it."""
    cells = page.locator("[data-testid=stDataFrame] table tbody tr td[aria-colindex='1']")
    expect(cells.first).to_be_attached()
    return [text.strip() for text in cells.all_text_contents()]


def click_grid(page: Page, *, x: int, row: int, number: int = 0) -> None:
    """Click into a table of the page, whose cells are drawn on a canvas. Row 0 has the titles."""
    table = page.locator("[data-testid=stDataFrame]").nth(number)
    table.locator("tr").nth(row).wait_for(state="attached")
    table.scroll_into_view_if_needed()
    box = table.bounding_box()
    assert box is not None
    page.mouse.click(box["x"] + x, box["y"] + ROW_PIXELS * row + ROW_PIXELS // 2)


@pytest.fixture
def three(address: str, root: Path) -> str:
    """Return the address of a dashboard with three runs."""
    three_runs(root)
    return address


def test_look_sort_open_compare_and_package(three: str, tmp_path: Path, page: Page, keep) -> None:
    page.goto(three)
    settled(page)
    assert names_in_order(page) == ["beta", "alpha", "gamma-smoke"]
    keep(page, "runs")
    click_grid(page, x=TITLE, row=0)
    page.wait_for_function(
        "document.querySelector(\"[data-testid=stDataFrame] table tbody tr td[aria-colindex='1']\")"
        ".textContent.trim() === 'alpha'"
    )
    assert names_in_order(page) == ["alpha", "beta", "gamma-smoke"]
    click_grid(page, x=NAME, row=1)
    expect(page).to_have_url(re.compile(r"/run\?run=alpha"))
    page.get_by_role("link", name="Runs").click()
    expect(page.get_by_text("3 of 3 runs")).to_be_visible()

    search = page.get_by_role("textbox", name="Search")
    search.fill("loss<100 -mode:smoke steps>250")
    search.press("Enter")
    expect(page.get_by_text("1 of 3 runs")).to_be_visible()
    assert "q=" in page.url

    click_grid(page, x=NAME, row=1)
    expect(page).to_have_url(re.compile(r"/run\?run=beta"))
    expect(page.get_by_role("heading", name="beta")).to_be_visible()
    expect(page.get_by_text("of 300 planned")).to_be_visible()
    expect(page.locator("[data-testid=stPlotlyChart] .main-svg").first).to_be_visible()
    keep(page, "run")
    for tab in ("Plan", "Configuration", "Examples", "Predictions", "Log", "Reproduce", "Files", "Problems"):
        page.get_by_role("tab", name=tab).click()
        expect(page).to_have_url(re.compile(f"view={tab}"))
        settled(page)
        expect(page.locator("[data-testid=stException]")).to_have_count(0)

    page.get_by_role("link", name="Runs").click()
    # Coming back, the reader finds the search as it was left.
    expect(page.get_by_text("1 of 3 runs")).to_be_visible()
    search.fill("")
    search.press("Enter")
    expect(page.get_by_text("3 of 3 runs")).to_be_visible()
    settled(page)
    click_grid(page, x=TICK, row=1)
    expect(page.get_by_text("1 selected")).to_be_visible()
    click_grid(page, x=TICK, row=2)
    expect(page.get_by_text("2 selected")).to_be_visible()
    page.get_by_role("button", name="Compare").click()
    expect(page.get_by_role("heading", name="Compare")).to_be_visible()
    expect(page.get_by_text("Figures and settings")).to_be_visible()
    expect(page.get_by_text("exact McNemar, p")).to_be_visible()
    assert sorted(re.findall(r"runs=(\w+)", page.url)) == ["alpha", "beta"]
    settled(page)
    keep(page, "compare")

    page.get_by_role("link", name="Runs").click()
    expect(page.get_by_text("2 selected")).to_be_visible()
    page.get_by_test_id("stMain").get_by_role("button", name="Package").click()
    expect(page).to_have_url(re.compile("/package"))
    page.get_by_role("button", name="Build", exact=True).click()
    expect(page.locator(".tp-sign", has_text="valid")).to_be_visible()
    with page.expect_download() as waiting:
        page.get_by_role("button", name=re.compile(r"^Download \d")).click()
    waiting.value.save_as(tmp_path / "handed-in.zip")
    verdict = verify_bundle(tmp_path / "handed-in.zip")
    assert verdict.ok
    assert {run.name for run in verdict.runs} == {"alpha", "beta"}


@pytest.mark.slow
def test_what_is_compared_is_chosen_by_keyboard(three: str, page: Page) -> None:
    page.goto(f"{three}/compare")
    settled(page)
    page.get_by_role("button", name="Choose runs").focus()
    page.keyboard.press("Enter")
    box = page.get_by_role("combobox", name="Runs")
    for name in ("alpha", "beta"):
        expect(box).to_be_focused()
        page.keyboard.type(name)
        expect(page.get_by_role("option")).to_have_text([name])
        page.keyboard.press("Enter")
        expect(page).to_have_url(re.compile(f"runs={name}"))
    page.keyboard.press("Escape")
    page.keyboard.press("Escape")  # The list of the box, then all of it.
    chosen = page.get_by_role("button", name="Runs: 2")
    expect(chosen).to_be_focused()
    # With names in the box the first thing in it is a cross that no key leads to.
    page.keyboard.press("Enter")
    expect(box).to_be_focused()
    page.keyboard.press("Escape")

    # While the one is still closing, the other opens.
    page.get_by_role("button", name="Export").focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("button", name="CSV, every row")).to_be_focused()


@pytest.mark.slow
def test_a_button_of_the_comparison_puts_runs_side_by_side(three: str, page: Page) -> None:
    page.goto(f"{three}/compare")
    page.get_by_role("tab", name="Smoke → TPU").click()
    expect(page.get_by_text("The smoke run passed 5 of 8 stages of beta")).to_be_visible()
    expect(page).to_have_url(re.compile("full=beta&smoke=gamma-smoke"))
    page.goto(f"{three}/compare?part=Scatter")
    settled(page)
    for row in (1, 2):
        click_grid(page, x=TICK, row=row)
        expect(page.get_by_text(f"{row} of 3 runs selected.")).to_be_visible()
    page.get_by_role("button", name="Side by side").click()
    expect(page).to_have_url(re.compile(r"/compare\?.*runs=beta&runs=alpha"))
    expect(page.get_by_role("tab", name="Side by side")).to_have_attribute("aria-selected", "true")
    expect(page.get_by_text("Choose two or more runs")).to_have_count(0)
    page.reload()
    expect(page.get_by_role("button", name="Runs: 2")).to_be_visible()
    expect(page.locator("[data-testid=stException]")).to_have_count(0)


@pytest.mark.slow
def test_one_back_leads_to_the_tab_one_came_from(three: str, page: Page) -> None:
    page.goto(three)
    settled(page)
    page.get_by_role("link", name="Launch").click()
    expect(page).to_have_url(re.compile("/launch"))
    settled(page)
    page.goto(f"{three}/run?run=alpha")
    settled(page)
    page.get_by_role("tab", name="Predictions").click()
    expect(page).to_have_url(f"{three}/run?run=alpha&view=Predictions")
    for role, name, there in (("link", "Compare", "compare"), ("button", "Package", "package")):
        settled(page)
        page.get_by_role(role, name=name, exact=True).first.click()
        expect(page).to_have_url(re.compile(f"/{there}"))
        settled(page)
        page.go_back()
        expect(page).to_have_url(f"{three}/run?run=alpha&view=Predictions")
        expect(page.get_by_role("tab", name="Predictions")).to_have_attribute("aria-selected", "true")
    settled(page)
    page.go_back()
    expect(page).to_have_url(re.compile("/launch"))


@pytest.mark.slow
def test_the_answer_that_was_chosen_stays_and_has_a_link(address: str, root: Path, page: Page) -> None:
    three_runs(root)
    rows = [json.loads(line) for line in (root / "alpha" / PREDICTIONS).read_text("utf-8").splitlines()]
    # The wrong ones stand first.
    place, wrong = 1, [row for row in rows if not row["correct"]][1]
    item = wrong["id"]
    output = page.get_by_text(wrong["output_text"], exact=True)
    page.goto(f"{address}/run?run=alpha&view=Predictions")
    settled(page)
    click_grid(page, x=TICK, row=place + 1, number=1)
    expect(output).to_be_visible()
    expect(page).to_have_url(re.compile(f"item={item}(&|$)"))
    page.get_by_role("radio", name="wrong", exact=True).click()
    expect(page.get_by_text(re.compile(r"^\d+ of 60 items"))).not_to_have_text(re.compile("^60 of"))
    settled(page)
    expect(output).to_be_visible()
    page.get_by_role("radio", name="right", exact=True).click()
    expect(output).to_have_count(0)
    page.goto(f"{address}/run?run=alpha&view=Predictions&item={item}")
    expect(output).to_be_visible()
    settled(page)
    click_grid(page, x=TICK, row=place + 1, number=1)
    expect(output).to_have_count(0)
    expect(page).not_to_have_url(re.compile("item="))


@pytest.mark.slow
def test_a_page_follows_a_run_at_work_and_notices_its_end(address: str, root: Path, tmp_path: Path, page: Page) -> None:
    folder = write_run(root, "alpha", steps=40, status="running")
    (folder / "checkpoints" / "20").mkdir(parents=True)
    rows = (write_run(tmp_path, "whole", steps=40) / METRICS).read_text("utf-8").splitlines(keepends=True)
    with RunLock(folder):
        page.goto(f"{address}/run?run=alpha")
        expect(page.get_by_text("20 of 40 steps, loss")).to_be_visible()
        for done in (25, 31):
            with (folder / METRICS).open("a") as file:
                file.writelines(rows[len((folder / METRICS).read_text("utf-8").splitlines()) : done])
            expect(page.get_by_text(f"{done} of 40 steps, loss")).to_be_visible()
        expect(page.locator(".tp-sign", has_text="running")).to_be_visible()
    # A killed run changes no file of its own; only its lock is free now.
    expect(page.locator(".tp-head .tp-sign", has_text="interrupted")).to_be_visible()
    expect(page.get_by_role("button", name="Resume")).to_be_visible()


@pytest.mark.slow
def test_a_part_that_asks_late_does_not_clear_the_next_page(address: str, root: Path, page: Page) -> None:
    folder = write_run(root, "alpha", steps=40, status="running")
    by_the_clock: list[bytes] = []
    sockets: list[WebSocketRoute] = []

    def relay(socket: WebSocketRoute) -> None:
        server = socket.connect_to_server()
        sockets.append(server)

        def to_server(message: str | bytes) -> None:
            assert isinstance(message, bytes)
            if BackMsg.FromString(message).rerun_script.is_auto_rerun:
                by_the_clock.append(message)
            server.send(message)

        socket.on_message(to_server)

    page.route_web_socket("**/_stcore/stream", relay)
    with RunLock(folder):
        page.goto(f"{address}/run?run=alpha")
        expect(page.get_by_text("20 of 40 steps, loss")).to_be_visible()
        for _ in range(600):
            if by_the_clock:
                break
            page.wait_for_timeout(50)
        page.get_by_role("button", name="Compare with …").click()
        page.get_by_text("another run", exact=True).click()
        for _ in range(60):
            sockets[-1].send(by_the_clock[-1])
            page.wait_for_timeout(10)
        expect(page.locator("h1", has_text="Compare")).to_be_visible()
        settled(page)
        expect(page.locator("h1", has_text="Compare")).to_be_visible()


@pytest.mark.slow
def test_settings_are_typed_into_the_table_and_the_form(address: str, root: Path, page: Page) -> None:
    page.set_viewport_size({"width": 1280, "height": 1400})  # Start stays at the lower edge, over the table.
    page.goto(f"{address}/launch?source=tiny.yaml")
    settled(page)
    page.get_by_text(re.compile("^All other settings")).click()
    settled(page)
    for row, text, assignment in ((1, "41", "seed%3D41"), (4, "small", "shape%3Dsmall"), (1, "x", "seed%3Dx")):
        click_grid(page, x=VALUE, row=row)
        page.keyboard.press("Enter")
        page.locator("#portal textarea").fill(text)
        page.keyboard.press("Enter")
        expect(page).to_have_url(re.compile(assignment))
        settled(page)
    assert "shape%3Dsmall" in page.url
    expect(page.get_by_text("✕ 1 not valid")).to_be_visible()
    expect(page.get_by_text(re.compile("^config.yaml at seed"))).to_be_visible()
    page.get_by_role("button", name="Undo all changes").click()
    expect(page).not_to_have_url(re.compile("set="))
    dataset = page.get_by_role("combobox", name="Dataset")
    dataset.fill("nowhere.jsonl")
    dataset.press("Enter")
    expect(page.get_by_text("There is no dataset nowhere.jsonl").first).to_be_visible()
    expect(page).to_have_url(re.compile("dataset%3Dnowhere.jsonl"))


@pytest.mark.slow
def test_one_click_in_an_empty_folder_starts_a_smoke_run_and_it_finishes(
    address: str, root: Path, page: Page, keep
) -> None:
    page.goto(address)
    expect(page.get_by_text("No runs in")).to_be_visible()
    keep(page, "runs-empty")
    page.get_by_role("button", name="Start a smoke run").click()
    expect(page).to_have_url(re.compile("/run\\?run=smoke-"))
    # Nothing is pressed: the page follows the run from its job to its folder to its end.
    for reached in ("Loading model and data", "Compiling", "succeeded"):
        expect(page.get_by_text(reached).first).to_be_visible(timeout=180_000)
    expect(page.get_by_role("button", name="Set up the full run")).to_be_visible()
    keep(page, "run-finished")
    settled(page)
    run = next(path for path in root.iterdir() if path.name.startswith("smoke-"))
    assert (run / "metrics.jsonl").read_text("utf-8").count("\n") == 2


@pytest.mark.slow
def test_a_run_survives_the_dashboard_and_the_next_one_stops_and_resumes_it(
    tmp_path: Path, root: Path, page: Page
) -> None:
    with serving(root, tmp_path) as address:
        page.goto(f"{address}/launch?source=tiny.yaml")
        settled(page)
        steps = page.get_by_label("Steps", exact=True)
        steps.fill("100000")
        steps.press("Enter")
        settled(page)
        # However far the page is scrolled, Start is there, and the keys press it from within a field too.
        page.mouse.wheel(0, -10_000)
        expect(page.get_by_role("button", name="Start Shortcut")).to_be_in_viewport()
        steps.focus()
        page.keyboard.press("Control+Enter")
        expect(page.get_by_text(re.compile(r"\d of 100.000 steps")).first).to_be_visible(timeout=120_000)
    with serving(root, tmp_path) as address:
        page.goto(f"{address}/launch")
        expect(page.locator(".tp-sign", has_text="running")).to_be_visible()
        page.get_by_role("button", name="Stop").click()
        expect(page.locator(".tp-sign", has_text="interrupted")).to_be_visible(timeout=120_000)
        run = next(path for path in root.iterdir() if not path.name.startswith("."))
        page.get_by_role("button", name="Resume").click()
        expect(page).to_have_url(re.compile(r"/run\?run="))
        expect(page.get_by_text(re.compile("^Training, "))).to_be_visible(timeout=120_000)
        expect(page.get_by_text(re.compile(r"\d of 100.000 steps")).first).to_be_visible(timeout=120_000)
        page.goto(f"{address}/launch")
        page.get_by_role("button", name="Stop").click()
        page.get_by_text("Recent jobs: 1").click(timeout=120_000)
        expect(page.locator(".tp-sign", has_text="interrupted")).to_have_count(2)
        continued = next(path for path in root.iterdir() if not path.name.startswith(".") and path != run)
        manifest = json.loads((continued / MANIFEST).read_text("utf-8"))
        assert manifest["parent"]["run_id"] == run.name
        page.get_by_role("button", name="Open run").first.click()
        expect(page).to_have_url(re.compile(r"/run\?run="))
        expect(page.locator(".tp-sign", has_text="interrupted")).to_be_visible()


LONGEST_MS = 240_000
"""The program loads JAX and counts the rows; a busy machine takes minutes for what takes seconds."""


@pytest.mark.slow
def test_a_plan_starts_by_itself_and_for_each_machine_that_is_chosen(
    address: str, root: Path, page: Page, keep
) -> None:
    page.goto(f"{address}/plan?source=tiny.yaml&on=t4")
    page.get_by_role("button", name="Cancel").click()
    page.get_by_role("button", name="Estimate").first.click()
    answer = page.locator(".tp-answer")
    expect(answer).to_contain_text("Fits on one T4", timeout=LONGEST_MS)
    expect(page.locator(".js-plotly-plot").first).to_be_visible()
    expect(page.get_by_role("button", name="Compile for t4")).to_be_visible(timeout=LONGEST_MS)
    choose(page, page.get_by_role("combobox", name="Machine"), "a100-40")
    expect(answer).not_to_contain_text("one T4", timeout=LONGEST_MS)
    settled(page)
    keep(page, "plan")

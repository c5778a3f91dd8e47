"""The main story of each page, as a user lives it: look, sort, open, compare, plan, launch, stop, pack, verify, ask."""

from __future__ import annotations

import json
import re
import shutil
from datetime import timedelta
from pathlib import Path
from xml.etree.ElementTree import fromstring

import pytest
from browser import choose, keep, serving, settled
from pages import SECTIONS
from playwright.sync_api import Page, WebSocketRoute, expect
from streamlit.proto.BackMsg_pb2 import BackMsg
from synthetic import STARTED, read_rows, write_rows, write_run

from dashboard.shared.reading import POLL_SECONDS
from evidence.bundle.verify import verify_bundle
from evidence.hashes import sha256_file
from evidence.layout import MANIFEST, METRICS
from evidence.lock import RunLock
from evidence.notes import read_notes

pytestmark = pytest.mark.browser

ROW_PIXELS = 36
TICK, NAME, TITLE, VALUE = 17, 60, 120, 190
"""Pixels from the left edge of the table: the box of a row, its name, the title of the first column."""


def lists(page: Page, *names: str) -> None:
    """Wait until the first cells of the table, as a screen reader finds them, are these."""
    expect(page.locator("[data-testid=stDataFrame] table tbody tr td[aria-colindex='1']")).to_have_text(names)


def click_grid(page: Page, *, x: int, row: int) -> None:
    """Click into the table of the page, whose cells are drawn on a canvas. Row 0 has the titles."""
    table = page.locator("[data-testid=stDataFrame]").first
    table.locator("tr").nth(row).wait_for(state="attached")
    table.scroll_into_view_if_needed()
    box = table.bounding_box()
    assert box is not None
    page.mouse.click(box["x"] + x, box["y"] + ROW_PIXELS * row + ROW_PIXELS // 2)


def ready(page: Page) -> None:
    """Wait until the table is drawn."""
    settled(page)
    expect(page.locator(".st-key-runs_actions")).to_be_visible()


def search(page: Page, text: str) -> None:
    field = page.get_by_role("textbox", name="Search")
    field.fill(text)
    field.press("Enter")


@pytest.fixture
def three(address: str, root: Path) -> str:
    """Return the address of a dashboard with three runs."""
    write_run(root, "beta", steps=300, items=60, correct=0.7, seed=1, started=STARTED)
    write_run(root, "alpha", steps=200, items=60, correct=0.4, seed=2, started=STARTED - timedelta(days=1))
    write_run(root, "gamma-smoke", steps=2, mode="smoke", items=0, started=STARTED - timedelta(days=2))
    return address


def test_look_sort_open_compare_and_package(three: str, tmp_path: Path, page: Page) -> None:
    page.goto(three)
    settled(page)
    lists(page, "beta", "alpha", "gamma-smoke")
    keep(page, "runs")
    click_grid(page, x=TITLE, row=0)
    lists(page, "alpha", "beta", "gamma-smoke")
    click_grid(page, x=NAME, row=1)
    expect(page).to_have_url(re.compile(r"/run\?run=alpha"))
    page.get_by_role("link", name="Runs").click()
    expect(page.get_by_text("3 of 3 runs")).to_be_visible()

    search(page, "loss<100 -mode:smoke steps>250")
    expect(page.get_by_text("1 of 3 runs")).to_be_visible()
    assert "q=" in page.url

    click_grid(page, x=NAME, row=1)
    expect(page).to_have_url(re.compile(r"/run\?run=beta"))
    expect(page.get_by_role("heading", name="beta")).to_be_visible()
    expect(page.get_by_text("of 300 planned")).to_be_visible()
    expect(page.locator("[data-testid=stPlotlyChart] .main-svg").first).to_be_visible()
    keep(page, "run")
    for tab in SECTIONS[1:]:
        page.get_by_role("tab", name=tab).click()
        expect(page).to_have_url(re.compile(f"view={tab}"))
        settled(page)
        expect(page.locator("[data-testid=stException]")).to_have_count(0)

    page.get_by_role("link", name="Runs").click()
    # Coming back, the reader finds the search as it was left.
    expect(page.get_by_text("1 of 3 runs")).to_be_visible()
    search(page, "")
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
def test_a_page_follows_a_run_at_work_and_notices_its_end(address: str, root: Path, tmp_path: Path, page: Page) -> None:
    folder = write_run(root, "alpha", steps=40, status="running")
    (folder / "checkpoints" / "20").mkdir(parents=True)
    rows = read_rows(write_run(tmp_path, "whole", steps=40) / METRICS)
    with RunLock(folder):
        page.goto(f"{address}/run?run=alpha")
        expect(page.get_by_text("20 of 40 steps, loss")).to_be_visible()
        for done in (25, 31):
            write_rows(folder / METRICS, rows[:done])
            expect(page.get_by_text(f"{done} of 40 steps, loss")).to_be_visible()
        expect(page.locator(".tp-sign", has_text="running")).to_be_visible()
    # A killed run changes no file of its own; only its lock is free now.
    expect(page.locator(".tp-head .tp-sign", has_text="interrupted")).to_be_visible()
    expect(page.get_by_role("button", name="Resume")).to_be_visible()
    (folder / MANIFEST).write_text("{")
    expect(page.locator(".tp-head .tp-sign", has_text="interrupted")).to_have_count(0)


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
def test_one_click_starts_a_smoke_run_that_finishes(address: str, root: Path, page: Page) -> None:
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
def test_a_run_survives_the_dashboard_and_is_stopped_and_resumed(tmp_path: Path, root: Path, page: Page) -> None:
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
        settled(page)
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
"""Plans and questions load JAX and models; a busy machine takes minutes for what takes seconds."""


@pytest.mark.slow
def test_a_plan_for_each_machine_that_is_chosen(address: str, root: Path, page: Page) -> None:
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


CHART = "[data-testid=stPlotlyChart]"


def saved(page: Page, name: str) -> bytes:
    """Press the chart's camera and return the file of this name."""
    page.locator(CHART).first.hover()
    with page.expect_download() as waiting:
        page.locator(CHART).first.locator(".modebar-btn").last.click()
    assert waiting.value.suggested_filename == name
    return waiting.value.path().read_bytes()


@pytest.mark.slow
def test_curves_are_taken_as_png_svg_and_csv(address: str, root: Path, page: Page) -> None:
    write_run(root, "alpha", steps=120, items=10)
    page.goto(f"{address}/run?run=alpha&loss=log&smooth=0.9")
    expect(page.locator(CHART).first).to_be_visible()
    assert saved(page, "alpha-curves.png").startswith(b"\x89PNG")
    page.get_by_role("button", name="Export").click()
    page.get_by_text("For print").click()
    settled(page)
    with page.expect_download() as waiting:
        page.get_by_role("button", name="CSV, every row").click()
    assert len(waiting.value.path().read_bytes().splitlines()) == 121
    page.keyboard.press("Escape")
    drawn = fromstring(saved(page, "alpha-curves.svg"))
    words = "".join(drawn.itertext())
    assert "alpha" in words
    assert "Gradient norm (before clipping)" in words
    assert any("255, 255, 255" in one.get("style", "") for one in drawn.iter())


@pytest.mark.slow
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
        rows = read_rows(folder / METRICS)
        write_rows(folder / METRICS, [*rows, *(rows[-1] | {"step": step} for step in range(201, 211))])
        expect(page.get_by_text("210 of 400 steps")).to_be_visible()
        settled(page)
        expect(ticks).to_have_count(0)
        page.get_by_role("button", name="Reset zoom").click()
        expect(ticks.first).to_be_visible()


RUNS = Path(__file__).parents[3] / "submission_runs"


@pytest.mark.slow
def test_three_models_answer_and_leave_the_runs_unchanged(address: str, root: Path, page: Page) -> None:
    shutil.copytree(RUNS, root, dirs_exist_ok=True)
    before = {path: sha256_file(path) for path in root.rglob("*") if path.is_file() and ".launch" not in path.parts}
    row = json.loads((root / "demo-full" / "predictions.jsonl").read_text().splitlines()[0])
    # The options change when the server finds the copied runs, which would discard a choice.
    page.goto(address)
    settled(page)
    runs = sum(path.is_dir() and not path.name.startswith(".") for path in root.iterdir())
    expect(page.get_by_text(f"{runs} runs in")).to_be_visible()
    page.goto(f"{address}/run?run=demo-full&view=Play")
    settled(page)
    choose(page, page.get_by_role("combobox", name="Compare with"), "demo-smoke")
    page.get_by_text("Compare with the untrained model").click()
    page.get_by_role("textbox", name="Prompt").fill("Subtract 18 from 65.")
    page.get_by_role("button", name="Ask").click()
    expect(page.get_by_text("<answer>47</answer>")).to_be_visible(timeout=LONGEST_MS)
    for name in ("demo-full", "demo-full, untrained", "demo-smoke"):
        expect(page.locator("[data-testid=stColumn]").get_by_text(name, exact=True)).to_be_visible()
    expect(page.get_by_text("64 tokens, cut off")).to_have_count(2)
    page.get_by_text("Evaluation item").click()
    expect(page.get_by_text(f"Expected: {row['expected']}")).to_be_visible()
    page.get_by_role("button", name="Ask").click()
    expect(page.get_by_text("complete, ✓ correct")).to_be_visible(timeout=LONGEST_MS)
    assert {path: sha256_file(path) for path in before} == before


HOSTILE = "<img src=x onerror=window.pwned=1> **a** :red[b] [c](javascript:alert(1))"


# The Runs page: its address, keyboard, selection, new runs, tags and notes


@pytest.fixture
def four(address: str, root: Path) -> str:
    """Return the address of a dashboard with four runs."""
    for number, name in enumerate(("delta", "alpha", "gamma", "beta")):
        write_run(root, name, steps=10 * (number + 1), seed=number, started=STARTED - timedelta(days=number))
    return address


@pytest.mark.slow
def test_the_list_has_an_address_by_its_name_too(four: str, page: Page) -> None:
    page.goto(f"{four}/runs?q=steps%3C25&columns=Steps&columns=Mode&page=1")
    expect(page).to_have_url(re.compile(rf"{four}/\?q=steps%3C25&columns=Steps&columns=Mode"))
    lists(page, "delta", "alpha")
    expect(page.get_by_text("Page not found")).to_have_count(0)
    expect(page.get_by_test_id("stTopNavLink")).to_have_count(6)


@pytest.mark.slow
def test_an_open_list_shows_new_runs_and_keeps_what_is_typed(four: str, root: Path, page: Page) -> None:
    page.goto(four)
    lists(page, "delta", "alpha", "gamma", "beta")
    click_grid(page, x=TICK, row=2)
    expect(page.get_by_text("1 selected; 4 of 4 runs")).to_be_visible()
    write_run(root, "newest", seed=9, started=STARTED + timedelta(days=1))
    expect(page.get_by_test_id("stToast")).to_have_text(re.compile("newest: succeeded."))
    lists(page, "newest", "delta", "alpha", "gamma", "beta")
    expect(page.get_by_text("1 selected; 5 of 5 runs")).to_be_visible()
    page.get_by_role("button", name="Tags and note").click()
    note = page.get_by_role("dialog").get_by_role("textbox", name="Note", exact=True)
    note.fill("half a thought")
    write_run(root, "later", seed=10, started=STARTED + timedelta(days=2))
    page.wait_for_timeout(1000 * (2 * POLL_SECONDS + 1))
    expect(note).to_have_value("half a thought")
    page.get_by_role("dialog").get_by_role("button", name="Close").click()
    lists(page, "later", "newest", "delta", "alpha", "gamma", "beta")
    shutil.rmtree(root / "gamma")
    lists(page, "later", "newest", "delta", "alpha", "beta")
    page.get_by_role("button", name="Open").click()
    expect(page.get_by_role("heading", name="alpha")).to_be_visible()


@pytest.mark.slow
def test_the_filters_are_set_by_keyboard(four: str, page: Page) -> None:
    page.goto(four)
    ready(page)
    filters = page.get_by_role("button", name="Filters")
    filters.focus()
    page.keyboard.press("Enter")
    page.get_by_role("combobox", name="Mode").focus()
    page.keyboard.press("ArrowDown")
    expect(page.get_by_role("option", name="full")).to_be_visible()
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile(r"\?mode=full"))
    page.keyboard.press("Escape")  # The list of the box, then all of it.
    expect(page.get_by_role("option")).to_have_count(0)
    page.keyboard.press("Escape")
    expect(filters).to_be_focused()
    expect(filters).to_contain_text("Filters: 1")

    # A mouse leaves the focus where it was pressed.
    filters.click()
    expect(page.get_by_role("combobox", name="Grade")).to_be_visible()
    expect(filters).to_be_focused()


@pytest.mark.slow
def test_ticks_stay_with_their_runs_and_notes_go_where_they_should(four: str, root: Path, page: Page) -> None:
    page.goto(four)
    lists(page, "delta", "alpha", "gamma", "beta")
    ready(page)
    click_grid(page, x=TICK, row=1)
    expect(page.get_by_text("1 selected; 4 of 4 runs")).to_be_visible()
    search(page, "-run:delta")
    expect(page.get_by_text("1 selected (1 not listed); 3 of 4 runs")).to_be_visible()
    ready(page)
    click_grid(page, x=TICK, row=3)
    expect(page.get_by_text("2 selected (1 not listed)")).to_be_visible()
    search(page, "")
    expect(page.get_by_text("2 selected; 4 of 4 runs")).to_be_visible()

    page.get_by_role("button", name="Tags and note").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_text("2 runs: delta, beta.")).to_be_visible()
    tags, note = dialog.get_by_role("textbox", name="Add tags"), f"{HOSTILE}\n=1+1"
    tags.fill("two <b>words</b>")
    dialog.get_by_role("textbox", name="Note", exact=True).fill(note)
    dialog.get_by_role("button", name="Save").click()
    expect(dialog.get_by_text("is not a valid tag")).to_be_visible()
    assert not (root / "delta" / "notes.json").exists()
    tags.fill("baseline, seed-3")
    dialog.get_by_role("button", name="Save").click()
    expect(dialog).to_have_count(0)
    expect(page.get_by_role("button", name="Tags and note")).to_be_focused()
    for name in ("delta", "beta"):
        notes = read_notes(root / name)
        assert (notes.tags, notes.note) == (("baseline", "seed-3"), note)
    assert not (root / "alpha" / "notes.json").exists()
    page.goto(f"{four}/?tag=baseline&columns=Tags&columns=Note&columns=Grade")
    ready(page)
    expect(page.get_by_text("2 of 4 runs")).to_be_visible()
    keep(page, "runs-notes")
    assert page.evaluate("window.pwned") is None

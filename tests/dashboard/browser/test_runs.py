"""The Runs page in a browser: keyboard, selection, tags, archive, hostile names."""

from __future__ import annotations

import re
from datetime import timedelta
from pathlib import Path

import pytest
from browser import settled
from playwright.sync_api import Page, expect
from synthetic import STARTED, write_run

from dashboard.shared.shared_index import POLL_SECONDS
from evidence.notes import read_notes

pytestmark = [pytest.mark.browser, pytest.mark.slow]

ROW_PIXELS = 36
HOSTILE = "<img src=x onerror=window.pwned=1> **a** :red[b] [c](javascript:alert(1))"


def ready(page: Page) -> None:
    """Wait until the table is drawn."""
    settled(page)
    expect(page.locator(".st-key-runs_actions")).to_be_visible()


def lists(page: Page, names: list[str]) -> None:
    """Wait until the table lists these runs in this order."""
    expect(page.locator(".st-key-runs_table tbody tr td[aria-colindex='1']")).to_have_text(names)


def click_row(page: Page, row: int, *, x: int = 17) -> None:
    """Click into a row of the table, counted from 1; by default on its box."""
    page.locator(".st-key-runs_table tbody tr").nth(row - 1).wait_for(state="attached")
    box = page.locator(".st-key-runs_table [data-testid=stDataFrame]").bounding_box()
    assert box is not None
    page.mouse.click(box["x"] + x, box["y"] + ROW_PIXELS * row + ROW_PIXELS // 2)


def search(page: Page, text: str) -> None:
    field = page.get_by_role("textbox", name="Search")
    field.fill(text)
    field.press("Enter")


def four_runs(root: Path) -> None:
    for number, name in enumerate(("delta", "alpha", "gamma", "beta")):
        write_run(root, name, steps=10 * (number + 1), seed=number, started=STARTED - timedelta(days=number))


@pytest.fixture
def four(address: str, root: Path) -> str:
    """Return the address of a dashboard with four runs."""
    four_runs(root)
    return address


def test_the_list_has_an_address_by_its_name_too(four: str, page: Page) -> None:
    page.goto(f"{four}/runs?q=steps%3C25&columns=steps&columns=mode&page=1")
    expect(page).to_have_url(re.compile(rf"{four}/\?q=steps%3C25&columns=steps&columns=mode"))
    lists(page, ["delta", "alpha"])
    expect(page.get_by_text("Page not found")).to_have_count(0)
    expect(page.get_by_test_id("stTopNavLink")).to_have_count(6)


def test_an_open_list_shows_a_new_run_and_keeps_its_place(address: str, root: Path, page: Page) -> None:
    four_runs(root)
    page.goto(address)
    lists(page, ["delta", "alpha", "gamma", "beta"])
    click_row(page, 2)
    expect(page.get_by_text("1 selected; 4 of 4 runs")).to_be_visible()
    write_run(root, "newest", seed=9, started=STARTED + timedelta(days=1))
    expect(page.get_by_test_id("stToast")).to_have_text(re.compile("newest: succeeded."))
    lists(page, ["newest", "delta", "alpha", "gamma", "beta"])
    expect(page.get_by_text("1 selected; 5 of 5 runs")).to_be_visible()
    page.get_by_role("button", name="Open").click()
    expect(page.get_by_role("heading", name="alpha")).to_be_visible()


def test_a_note_that_is_typed_outlives_a_new_run(address: str, root: Path, page: Page) -> None:
    four_runs(root)
    page.goto(address)
    lists(page, ["delta", "alpha", "gamma", "beta"])
    ready(page)
    click_row(page, 1)
    page.get_by_role("button", name="Tags and note").click()
    note = page.get_by_role("dialog").get_by_role("textbox", name="Note", exact=True)
    note.fill("half a thought")
    write_run(root, "newest", seed=9, started=STARTED + timedelta(days=1))
    page.wait_for_timeout(1000 * (2 * POLL_SECONDS + 1))
    expect(note).to_have_value("half a thought")
    page.get_by_role("dialog").get_by_role("button", name="Close").click()
    lists(page, ["newest", "delta", "alpha", "gamma", "beta"])


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


def test_ticks_stay_with_their_runs_and_notes_go_where_they_should(address: str, root: Path, page: Page, keep) -> None:
    four_runs(root)
    page.goto(address)
    lists(page, ["delta", "alpha", "gamma", "beta"])
    ready(page)
    click_row(page, 1)
    expect(page.get_by_text("1 selected; 4 of 4 runs")).to_be_visible()
    search(page, "-run:delta")
    expect(page.get_by_text("1 selected (1 not listed); 3 of 4 runs")).to_be_visible()
    ready(page)
    click_row(page, 3)
    expect(page.get_by_text("2 selected (1 not listed)")).to_be_visible()
    search(page, "")
    expect(page.get_by_text("2 selected; 4 of 4 runs")).to_be_visible()

    page.get_by_role("button", name="Tags and note").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_text("2 runs: delta, beta.")).to_be_visible()
    dialog.get_by_role("textbox", name="Add tags").fill("two <b>words</b>")
    dialog.get_by_role("textbox", name="Note", exact=True).fill(f"{HOSTILE}\n=1+1")
    dialog.get_by_role("button", name="Save").click()
    expect(dialog.get_by_text("is not a valid tag")).to_be_visible()
    assert not (root / "delta" / "notes.json").exists()
    dialog.get_by_role("textbox", name="Add tags").fill("baseline, seed-3")
    dialog.get_by_role("button", name="Save").click()
    expect(dialog).to_have_count(0)
    expect(page.get_by_text("2 selected; 4 of 4 runs")).to_be_visible()
    expect(page.get_by_role("button", name="Tags and note")).to_be_focused()
    for name in ("delta", "beta"):
        assert (read_notes(root / name).tags, read_notes(root / name).note) == (
            ("baseline", "seed-3"),
            f"{HOSTILE}\n=1+1",
        )
    assert not (root / "alpha" / "notes.json").exists()

    page.goto(f"{address}/?tag=baseline&columns=tag&columns=note&columns=grade")
    ready(page)
    expect(page.get_by_text("2 of 4 runs")).to_be_visible()
    keep(page, "runs-notes")
    assert page.evaluate("window.pwned") is None
    click_row(page, 1)
    expect(page.get_by_text("1 selected")).to_be_visible()
    page.get_by_role("button", name="Archive", exact=True).click()
    expect(page.get_by_text("1 archived run not listed")).to_be_visible()
    expect(page.get_by_text("1 of 4 runs")).to_be_visible()
    assert read_notes(root / "delta").archived_at is not None
    page.goto(f"{address}/?archived=true&q=archived:yes")
    ready(page)
    click_row(page, 1)
    page.get_by_role("button", name="Restore", exact=True).click()
    expect(page.get_by_text("No run matches")).to_be_visible()
    assert read_notes(root / "delta").archived_at is None


def test_hostile_names_and_settings_are_text(address: str, root: Path, page: Page) -> None:
    write_run(root, "x").rename(root / HOSTILE)
    (root / HOSTILE / "config.yaml").write_text(f'{{"{HOSTILE}": 1, "name": "{HOSTILE}"}}')
    page.goto(f"{address}/?group=model&archived=true")
    ready(page)
    assert page.evaluate("window.pwned") is None
    assert page.locator("[data-testid=stMain] img[src=x]").count() == 0

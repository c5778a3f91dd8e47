"""A plan in a real browser: started by itself, cancelled, estimated by the real program, chosen in the table."""

from __future__ import annotations

from pathlib import Path

import pytest
from browser import settled
from playwright.sync_api import Page, expect

pytestmark = [pytest.mark.browser, pytest.mark.slow]

LONGEST_MS = 240_000
"""The program loads JAX and counts the rows; a busy machine takes minutes for what takes seconds."""


def test_a_plan_starts_by_itself_and_a_row_of_the_table_chooses_the_machine(
    address: str, root: Path, page: Page, keep
) -> None:
    page.goto(f"{address}/plan?source=tiny.yaml&on=t4")
    page.get_by_role("button", name="Cancel").click()
    page.get_by_role("button", name="Estimate").first.click()
    answer = page.locator(".tp-answer")
    expect(answer).to_contain_text("Fits on one T4", timeout=LONGEST_MS)
    expect(page.locator(".js-plotly-plot").first).to_be_visible()
    expect(page.get_by_role("button", name="Compile for t4")).to_be_visible(timeout=LONGEST_MS)
    table = page.get_by_test_id("stDataFrame").first
    table.click(position={"x": 16, "y": 52})
    expect(page).not_to_have_url(f"{address}/plan?source=tiny.yaml&on=t4")
    expect(answer).not_to_contain_text("one T4", timeout=LONGEST_MS)
    settled(page)
    keep(page, "plan")

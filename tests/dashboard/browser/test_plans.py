"""A plan in a real browser: started by itself, cancelled, estimated by the real program."""

from __future__ import annotations

from pathlib import Path

import pytest
from browser import choose, settled
from playwright.sync_api import Page, expect

pytestmark = [pytest.mark.browser, pytest.mark.slow]

LONGEST_MS = 240_000
"""The program loads JAX and counts the rows; a busy machine takes minutes for what takes seconds."""


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

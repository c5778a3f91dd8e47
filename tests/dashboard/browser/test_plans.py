"""A plan in a real browser: asked by itself, cancelled, asked again, answered by the real program."""

from __future__ import annotations

from pathlib import Path

import pytest
from browser import settled
from playwright.sync_api import Page, expect

pytestmark = [pytest.mark.browser, pytest.mark.slow]

LONGEST_MS = 240_000
"""The program loads JAX and counts the rows; a busy machine takes minutes for what takes seconds."""


def test_a_plan_is_asked_by_itself_cancelled_and_answered(address: str, root: Path, page: Page, keep) -> None:
    page.goto(f"{address}/plan?source=tiny.yaml&on=t4")
    cancel = page.get_by_role("button", name="Cancel")
    expect(cancel).to_be_visible()
    cancel.click()
    expect(page.get_by_text("Cancelled. Change the form or check again.")).to_be_visible()
    again = page.get_by_role("button", name="Check again")
    # What was cancelled takes a moment to end; until then it is not asked again.
    again.click()
    answer = page.locator(".tp-answer")
    expect(answer).to_contain_text("Yes, it fits on one T4", timeout=LONGEST_MS)
    expect(page.locator(".js-plotly-plot").first).to_be_visible()
    # The next question is asked by itself; nobody waits for it here.
    cancel.click(timeout=LONGEST_MS)
    expect(page.get_by_text("Cancelled. Change the form or check again.")).to_be_visible()
    settled(page)
    keep(page, "plan")

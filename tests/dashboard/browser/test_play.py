"""The tab Play with the real command: three models side by side, then an evaluation item."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from browser import choose, settled
from playwright.sync_api import Page, expect

from evidence.hashes import sha256_file

pytestmark = [pytest.mark.browser, pytest.mark.slow]

RUNS = Path(__file__).parents[3] / "submission_runs"

ANSWER_MILLISECONDS = 240_000
"""Each question loads the models. An item is answered in its whole batch, and other tests may be running."""


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
    expect(page.get_by_text("<answer>47</answer>")).to_be_visible(timeout=ANSWER_MILLISECONDS)
    for name in ("demo-full", "demo-full, untrained", "demo-smoke"):
        expect(page.locator("[data-testid=stColumn]").get_by_text(name, exact=True)).to_be_visible()
    expect(page.get_by_text("64 tokens, cut off")).to_have_count(2)
    page.get_by_text("Evaluation item").click()
    expect(page.get_by_text(f"Expected: {row['expected']}")).to_be_visible()
    page.get_by_role("button", name="Ask").click()
    expect(page.get_by_text("complete, ✓ correct")).to_be_visible(timeout=ANSWER_MILLISECONDS)
    assert {path: sha256_file(path) for path in before} == before

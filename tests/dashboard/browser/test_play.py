"""The tab Play with the real command: three models side by side, an item with its answer, and an end of the process."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import psutil
import pytest
from browser import choose, settled
from playwright.sync_api import Page, expect
from stand_ins import wait_for

from evidence.hashes import sha256_file

pytestmark = [pytest.mark.browser, pytest.mark.slow]

RUNS = Path(__file__).parents[3] / "submission_runs"

ANSWER_MILLISECONDS = 240_000
"""Three models are compiled and answer a whole set, beside other tests."""


def players(root: Path) -> list[int]:
    """Return the processes that play runs of a root."""
    found = []
    for process in psutil.process_iter(["cmdline"]):
        line = process.info["cmdline"] or []
        if "play" in line and any(str(root) in word for word in line):
            found.append(process.pid)
    return found


def test_three_models_answer_side_by_side_and_end_with_the_page(address: str, root: Path, page: Page) -> None:
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
    expect(page.get_by_text("Play is never evidence")).to_be_visible()
    beside = page.get_by_role("combobox", name="Beside it")
    choose(page, beside, "demo-smoke")
    page.get_by_text("The untrained model too").click()
    page.get_by_role("textbox", name="Prompt").fill("Subtract 18 from 65.")
    page.get_by_role("button", name="Ask").click()
    for name in ("demo-full", "demo-full, untrained", "demo-smoke"):
        expect(page.locator(".tp-sub b", has_text=name).first).to_be_visible()
    expect(page.get_by_text("<answer>47</answer>")).to_be_visible()
    expect(page.get_by_text("64 tokens, cut off.")).to_have_count(2)
    [process] = players(root)
    page.get_by_text("An item of its evaluation").click()
    expect(page.locator(".tp-sub", has_text=f"Expected {row['expected']}")).to_be_visible()
    page.get_by_role("button", name="Ask").click()
    expect(page.get_by_text(f"ended by itself; right, expected {row['expected']}.")).to_be_visible(
        timeout=ANSWER_MILLISECONDS
    )
    assert players(root) == [process], "the models stayed loaded"
    page.get_by_test_id("stTopNavLink").filter(has_text="Plan").click()
    wait_for(lambda: players(root) == [])
    now = {path: sha256_file(path) for path in before}
    assert now == before

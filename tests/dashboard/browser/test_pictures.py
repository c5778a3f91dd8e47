"""Screenshots: `make pictures` takes those of the README and of every page at three widths in both themes.

They show the committed runs and are written to screenshots/. Copy those of the README to docs/images if they change.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from browser import serving, settled
from playwright.sync_api import Page, expect

from evidence.index.index import index_runs

pytestmark = [pytest.mark.browser]

REPOSITORY = Path(__file__).parents[3]
ROOT = "submission_runs"
SCREENSHOTS = REPOSITORY / "screenshots"
MOST_BYTES = 300_000


def committed(mode: str) -> str:
    """Return the name of the newest committed run of the demo in a mode."""
    runs = [summary for summary in index_runs(REPOSITORY / ROOT) if summary.mode == mode]
    found = [summary.path.name for summary in runs if summary.path.name.startswith("demo")]
    if not found:
        pytest.skip(f"No {mode} run is committed under {ROOT} yet; `make demo` makes them.")
    return found[0]


@pytest.mark.pictures
def test_the_pictures_of_the_readme(tmp_path: Path, page: Page, keep) -> None:
    full, smoke = committed("full"), committed("smoke")
    # Started in a folder with the runs under their usual name, so that the pictures show no path of this machine.
    (tmp_path / ROOT).symlink_to(REPOSITORY / ROOT, target_is_directory=True)
    with serving(Path(ROOT), tmp_path) as address:
        page.set_viewport_size({"width": 1360, "height": 980})
        page.goto(f"{address}/run?run={full}")
        expect(page.locator("[data-testid=stPlotlyChart] .main-svg").first).to_be_visible()
        keep(page, "readme-run")
        page.goto(f"{address}/compare?part=Smoke+%E2%86%92+TPU&full={full}&smoke={smoke}")
        expect(page.get_by_text("It does not show")).to_be_visible()
        keep(page, "readme-compare")
        page.goto(address)
        expect(page.locator("[data-testid=stDataFrame]")).to_be_visible()
        keep(page, "readme-runs")


@pytest.mark.pictures
@pytest.mark.skipif("REAL_MODEL" not in os.environ, reason="REAL_MODEL=RUN is a run that benchmarks/real_model.py left")
def test_the_picture_of_a_real_model(tmp_path: Path, page: Page, keep) -> None:
    run = Path(os.environ["REAL_MODEL"]).resolve()
    shutil.copytree(run, tmp_path / ROOT / run.name, ignore=shutil.ignore_patterns("checkpoints"))
    with serving(Path(ROOT), tmp_path) as address:
        page.set_viewport_size({"width": 1360, "height": 980})
        page.goto(f"{address}/run?run={run.name}")
        expect(page.locator("[data-testid=stPlotlyChart] .main-svg").first).to_be_visible()
        keep(page, "readme-real-model")


@pytest.mark.pictures
def test_every_page_at_three_widths_in_both_themes(tmp_path: Path, page: Page) -> None:
    (tmp_path / ROOT).symlink_to(REPOSITORY / ROOT, target_is_directory=True)
    full, smoke = committed("full"), committed("smoke")
    pages = {
        "runs": "/",
        "run": f"/run?run={full}",
        "compare": f"/compare?runs={smoke}&runs={full}",
        "smoke": f"/compare?part=Smoke+%E2%86%92+TPU&full={full}&smoke={smoke}",
        "launch": "/launch",
        "package": f"/package?runs={full}",
    }
    SCREENSHOTS.mkdir(exist_ok=True)
    with serving(Path(ROOT), tmp_path) as address:
        for name, path in pages.items():
            for theme in ("light", "dark"):
                page.emulate_media(color_scheme=theme)
                page.goto(f"{address}{path}")  # Charts take their colours when they are drawn.
                settled(page)
                for width in (400, 1400, 2560):
                    page.set_viewport_size({"width": width, "height": 900})
                    page.wait_for_timeout(500)  # Nothing tells when the last animation is over.
                    page.screenshot(path=SCREENSHOTS / f"{name}-{theme}-{width}.png")


@pytest.mark.parametrize("picture", sorted((REPOSITORY / "docs" / "images").glob("*.png")), ids=lambda path: path.name)
def test_pictures_are_small(picture: Path) -> None:
    assert picture.stat().st_size < MOST_BYTES

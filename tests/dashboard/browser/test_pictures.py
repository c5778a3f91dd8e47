"""Screenshots: `make pictures` takes those of the README and of every page at three widths in both themes.

They show the committed runs and are written to screenshots/. Copy those of the README to docs/images if they change.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from browser import keep, serving, settled
from playwright.sync_api import Page, expect

from evidence.index.index import index_runs

pytestmark = [pytest.mark.browser]

REPOSITORY = Path(__file__).parents[3]
ROOT = "submission_runs"
MOST_BYTES = 300_000
SMOKE = "/compare?part=Smoke+%E2%86%92+TPU&full={full}&smoke={smoke}"
README = {"readme-run": "/run?run={full}", "readme-compare": SMOKE, "readme-runs": "/"}
PAGES = {
    "runs": "/",
    "run": "/run?run={full}",
    "compare": "/compare?runs={smoke}&runs={full}",
    "smoke": SMOKE,
    "launch": "/launch",
    "package": "/package?runs={full}",
}


@pytest.fixture
def show(tmp_path: Path, page: Page) -> Iterator[Callable[[str], None]]:
    """Serve the committed runs and yield a function that opens a page of the newest demo, by mode."""
    demo = [run for run in index_runs(REPOSITORY / ROOT) if run.path.name.startswith("demo")]
    names = {str(run.mode): run.path.name for run in reversed(demo)}
    # Started in a folder with the runs under their usual name, so that the pictures show no path of this machine.
    (tmp_path / ROOT).symlink_to(REPOSITORY / ROOT, target_is_directory=True)
    with serving(Path(ROOT), tmp_path) as address:
        yield lambda path: drawn(page, address + path.format_map(names))


def drawn(page: Page, address: str) -> None:
    page.goto(address)
    settled(page)
    for chart in page.locator("[data-testid=stPlotlyChart]").all():
        expect(chart.locator(".main-svg").first).to_be_visible()


@pytest.mark.pictures
def test_the_pictures_of_the_readme(show: Callable[[str], None], page: Page) -> None:
    page.set_viewport_size({"width": 1360, "height": 980})
    for name, path in README.items():
        show(path)
        keep(page, name)


@pytest.mark.pictures
@pytest.mark.skipif("REAL_MODEL" not in os.environ, reason="REAL_MODEL=RUN is a run that benchmarks/real_model.py left")
def test_the_picture_of_a_real_model(tmp_path: Path, page: Page) -> None:
    run = Path(os.environ["REAL_MODEL"]).resolve()
    shutil.copytree(run, tmp_path / ROOT / run.name, ignore=shutil.ignore_patterns("checkpoints"))
    with serving(Path(ROOT), tmp_path) as address:
        page.set_viewport_size({"width": 1360, "height": 980})
        drawn(page, f"{address}/run?run={run.name}")
        keep(page, "readme-real-model")


@pytest.mark.pictures
def test_every_page_at_three_widths_in_both_themes(show: Callable[[str], None], page: Page) -> None:
    for name, path in PAGES.items():
        for theme in ("light", "dark"):
            page.emulate_media(color_scheme=theme)
            show(path)  # Charts take their colours when they are drawn.
            for width in (400, 1400, 2560):
                page.set_viewport_size({"width": width, "height": 900})
                keep(page, f"{name}-{theme}-{width}")


@pytest.mark.parametrize("picture", sorted((REPOSITORY / "docs" / "images").glob("*.png")), ids=lambda path: path.name)
def test_pictures_are_small(picture: Path) -> None:
    assert picture.stat().st_size < MOST_BYTES

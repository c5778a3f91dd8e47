"""Import contracts cover every page."""

from __future__ import annotations

import tomllib
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]


def test_every_page_is_in_the_contract_of_pages() -> None:
    settings = tomllib.loads((REPOSITORY / "pyproject.toml").read_text("utf-8"))
    contracts = {one["name"]: one for one in settings["tool"]["importlinter"]["contracts"]}
    pages = {f"dashboard.views.{path.parent.name}" for path in REPOSITORY.glob("dashboard/views/*/view.py")}
    assert set(contracts["Dashboard pages: view, parts, logic"]["containers"]) == pages

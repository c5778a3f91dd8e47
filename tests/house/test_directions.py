"""Folders of one package import one way, and no files import each other in a circle."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]


def test_no_folders_and_no_files_import_each_other() -> None:
    command = [sys.executable, "benchmarks/house.py"]
    figures = json.loads(subprocess.run(command, capture_output=True, check=True, cwd=REPOSITORY).stdout)
    assert (figures["folder_pairs_both_ways"], figures["file_circles"]) == ([], [])


def test_every_page_is_in_the_contract_of_pages() -> None:
    settings = tomllib.loads((REPOSITORY / "pyproject.toml").read_text("utf-8"))
    contracts = {one["name"]: one for one in settings["tool"]["importlinter"]["contracts"]}
    pages = {f"dashboard.views.{path.parent.name}" for path in REPOSITORY.glob("dashboard/views/*/view.py")}
    assert set(contracts["A page is seen, drawn, computed: in that order"]["containers"]) == pages

"""Folders of one package import one way, and no files import each other in a circle."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]


def test_no_folders_and_no_files_import_each_other() -> None:
    command = [sys.executable, "benchmarks/house.py"]
    figures = json.loads(subprocess.run(command, capture_output=True, check=True, cwd=REPOSITORY).stdout)
    assert (figures["folder_pairs_both_ways"], figures["file_circles"]) == ([], [])

"""Runs that several tests of the Compare page draw."""

from __future__ import annotations

from pathlib import Path

import pytest
from synthetic import write_run


@pytest.fixture
def sweep(root: Path) -> list[str]:
    names = [f"run-{number:02}" for number in range(23)]
    for number, name in enumerate(names):
        decay = 0.001 * (1 + number)
        write_run(root, name, steps=4, items=6, seed=number, config={"optimizer": {"weight_decay": decay}})
    return names

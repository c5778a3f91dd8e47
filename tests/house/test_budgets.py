"""Lines per room stay within docs/decisions/house.md: a feature that needs more names there what it replaces."""

import re
from pathlib import Path

import pytest

TABLE = re.compile(r"^\| `([\w/, ]+)` \| ([\d,]+) \| ([\d,]+) \|$", re.MULTILINE)
BUDGETS = TABLE.findall(Path("docs/decisions/house.md").read_text("utf-8"))
PRODUCT = ("schemas", "foreign", "evidence", "trainer", "launch", "dashboard", "trainproof")


def lines_of(room: str) -> int:
    folders = PRODUCT if room == "product" else (room,)
    return sum(len(path.read_bytes().splitlines()) for folder in folders for path in Path(folder).rglob("*.py"))


def test_every_room_of_the_plan_has_a_budget():
    assert {room for room, *_ in BUDGETS} == {"trainer/planning", "foreign", "evidence", "dashboard", "product"}


@pytest.mark.parametrize(("room", "aim", "ceiling"), BUDGETS, ids=[room for room, *_ in BUDGETS])
def test_a_room_is_within_its_budget(room: str, aim: str, ceiling: str):
    most = int(ceiling.replace(",", ""))
    assert most >= int(aim.replace(",", "")), "at the aim, the ceiling stays there"
    assert lines_of(room) <= most, f"{room} grew: say in docs/decisions/house.md what the new lines replace"

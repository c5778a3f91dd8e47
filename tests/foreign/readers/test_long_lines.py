"""Lines of any length and content are read in time that grows with them, not with their square."""

from __future__ import annotations

import time

import pytest

from foreign.readers.console.log import read_log
from foreign.readers.text import read_text

LONG = {
    "signs beyond ASCII": "€ " * 200_000 + "é" * 300_000,
    "open braces": "{'" * 100_000,
    "open brackets": "[1/" * 100_000,
    "losses": "Loss " * 50_000,
    "bars": "".join(f"\r {number}%|##  | {number}/9 [00:01<00:01" for number in range(20_000)),
    "bars without CR": " 1%|##  | 1/9 [00:01<00:01" * 20_000,
    "white space": " " * 500_000 + "x",
    "numbers of more digits than Python reads": "step " + "9" * 5_000 + "/" + "9" * 5_000 + " loss: 1.0\n"
    "step 3 of " + "9" * 5_000 + " loss: 1.0\n[1/" + "9" * 5_000 + "] loss: 1.0",
    "digits": "step " + "9" * 300_000 + " loss " + "9" * 300_000,
}


@pytest.mark.parametrize("name", LONG)
def test_long_line(name: str) -> None:
    started = time.process_time()
    read_log(read_text(LONG[name].encode(), file="x.log"), "x.log", "x.log")
    assert time.process_time() - started < 20  # they take less than 1 s; squares would take hours

"""A plan in the terminal, letter for letter."""

from __future__ import annotations

from typing import Any

from trainproof.terminal.plans import grid_lines

GIB = 2**30


def cell(size: int, need: float, verdict: str, method: str = "closed_form") -> dict[str, Any]:
    return {
        "microbatch_size": size,
        "max_length": 128,
        "need_bytes": round(need * GIB),
        "verdict": verdict,
        "method": method,
    }


def test_a_size_that_was_compiled_has_a_star() -> None:
    cells = [cell(1, 9.5, "fits"), cell(2, 15, "fits", "compiler"), cell(4, 30.25, "does_not_fit")]
    table = {"microbatch_sizes": [1, 2, 4], "max_lengths": [128], "cells": cells}
    assert grid_lines(table) == [
        (
            "Need in GiB by microbatch (across) and length (down): + fits, ~ tight, - does not fit; "
            "* compiled, the others added up"
        ),
        "                 1         2         4",
        "     128   9.50  +  15.00* +  30.25  -",
    ]
    cells[1] = cell(2, 15, "fits")
    assert grid_lines(table)[0].endswith("- does not fit")

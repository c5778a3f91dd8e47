"""A plan in the terminal, letter for letter."""

from __future__ import annotations

import doctest
from typing import Any

from trainproof.cli import plan
from trainproof.cli.plan import grid_lines, target_title, where_text, wrap_line

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
        "Need in GiB by microbatch (across) and length (down):",
        "+ fits, ~ tight, - does not fit; * compiled, others estimated",
        "             1       2       4",
        "   128  9.50+   15.0+*  30.2-",
    ]
    cells[1] = cell(2, 15, "fits")
    assert grid_lines(table)[1].endswith("- does not fit")


def row(target: str, tokens: int, devices: int = 1) -> dict[str, Any]:
    band = {"low": 0.25, "likely": 0.5, "high": 1.1}
    return {
        "target": target,
        "devices": devices,
        "verdict": "fits",
        "need_bytes": 12 * GIB,
        "available_bytes": 16 * GIB,
        "hours": band,
        "session_fraction": band,
        "tokens": tokens,
    }


def test_hours_of_more_devices_are_of_more_tokens() -> None:
    text = where_text([row("kaggle-tpu-v5e-8", 52_428_800, 8), row("l4", 6_553_600)])
    assert text == (
        "target            ×  verdict    GiB     of     hours  session  tokens\n"
        "kaggle-tpu-v5e-8  8  fits     12.00  16.00  0.25–1.1      50%  52.4 M\n"
        "l4                1  fits     12.00  16.00  0.25–1.1      50%  6.55 M\n"
        "Hours are of all steps; a machine with more devices (×) trains on more tokens in each.\n"
    )
    assert "Hours" not in where_text([row("l4", 800), row("t4", 800)])


def test_a_line_is_folded_under_its_last_column_and_a_short_one_is_left() -> None:
    assert doctest.testmod(plan).failed == 0
    assert wrap_line("  start   1.0 GiB  fits", 40) == ["  start   1.0 GiB  fits"]
    assert wrap_line("Time: " + "many words " * 4, 30) == ["Time: many words many words", "  many words many words"]


def test_this_machine_is_named_once() -> None:
    assert target_title({"title": "this machine, 1 × cpu", "name": "cpu", "devices": 1}) == "this machine, 1 × cpu"
    assert target_title({"title": "one T4", "name": "Tesla T4", "devices": 1}) == "one T4 (1 × Tesla T4)"

"""What a terminal is shown of text that nobody vouches for."""

from __future__ import annotations

import pytest

from schemas.problems.visible import as_lines, visible


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("naïve 模型 🙂", "naïve 模型 🙂"),
        ("0.5\u202fs, 1\u00a0000", "0.5\u202fs, 1\u00a0000"),
        ("a\x1b[2Jb", r"a\x1b[2Jb"),
        ("one\ntwo\r\tthree", r"one\ntwo\r\tthree"),
        ("\x00\x7f\x9b", r"\x00\x7f\x9b"),
        ("safe\u202etxt.exe", r"safe\u202etxt.exe"),
        ("a\u200bb\ufeff\u2028", r"a\u200bb\ufeff\u2028"),
        ("half \ud800", r"half \ud800"),
        ("tag \U000e0041", r"tag \U000e0041"),
    ],
)
def test_what_cannot_be_seen_is_written_out(text: str, shown: str) -> None:
    assert visible(text) == shown
    visible(text).encode()


def test_a_value_makes_no_line() -> None:
    assert as_lines(["run-1", "run-2\nrun-3  verified", 4]) == "run-1\nrun-2\\nrun-3  verified\n4\n"

from __future__ import annotations

from zoneinfo import ZoneInfo

import pytest
from secret_samples import HEX, LETTERS, SECRETS

from dashboard.shared.words import csv_cell, date_and_time, glimpse, plain
from evidence.bundle.secrets import hide_secrets, strip_invisible
from schemas.formats import NOTHING


def test_markdown_is_shown_as_it_stands() -> None:
    assert plain("*a* [b](http://c) :red[d] $e$ `f` <g>") == (r"\*a\* \[b\]\(http\://c\) \:red\[d\] \$e\$ \`f\` \<g\>")
    assert plain("two\nlines") == "two lines"


def test_letters_that_hide_or_turn_text_round_are_left_out() -> None:
    assert strip_invisible("a\u202eb\u200bc\x00d\x1b[31me\ud800") == "abcd[31me"
    assert strip_invisible("line\nbreak\ttab") == "line\nbreak\ttab"


@pytest.mark.parametrize("kind", sorted(SECRETS))
def test_what_is_never_packed_is_never_shown(kind: str) -> None:
    sample = SECRETS[kind]
    text = sample.decode("utf-16") if isinstance(sample, bytes) else sample
    shown = hide_secrets(f"before {text} after")
    assert shown.startswith("before ")
    passwords = ("correct-horse", "s3cretpw", "hunter2", "bWU6c2Vjcm", "MIIE", "T00000000/B", "123456789012")
    assert [part for part in (LETTERS, HEX, *passwords) if part in shown] == []


def test_of_a_long_text_no_part_of_a_key_is_left_at_the_cut() -> None:
    text = "x" * 90 + " " + SECRETS["hugging face token"] + " " + "y" * 10**6
    assert glimpse(text, 105) == "x" * 90 + " HF_TOKEN=[hid…"
    assert glimpse("a" * 50_000_000, 5) == "aaaa…"


def test_a_spreadsheet_takes_no_cell_for_a_formula() -> None:
    cells = ("=1+1", "+1", "-1", "@a", "\tx", "run", -1.5, None)
    assert [csv_cell(cell) for cell in cells] == ["'=1+1", "'+1", "'-1", "'@a", "'\tx", "run", -1.5, None]


def test_times_are_shown_in_the_zone_of_the_browser_and_no_moment_is_a_dash() -> None:
    assert date_and_time("2026-11-20T23:30:12+00:00", ZoneInfo("Asia/Tokyo")) == "2026-11-21 08:30:12"
    assert [date_and_time(text) for text in (None, "", "yesterday", "2026-11-20T23:30:12")] == [NOTHING] * 4

from __future__ import annotations

from dashboard.logic.text import csv_cell, masked, plain, shortened, visible


def test_markdown_is_shown_as_it_stands() -> None:
    assert plain("*a* [b](http://c) :red[d] $e$ `f` <g>") == (r"\*a\* \[b\]\(http\://c\) \:red\[d\] \$e\$ \`f\` \<g\>")
    assert plain("two\nlines") == "two lines"


def test_letters_that_hide_or_turn_text_round_are_left_out() -> None:
    assert visible("a\u202eb\u200bc\x00d\x1b[31me\ud800") == "abcd[31me"
    assert visible("line\nbreak\ttab") == "line\nbreak\ttab"


def test_keys_and_passwords_are_masked_wherever_they_stand() -> None:
    assert masked("login with hf_abcdefghijklmnopqrstuvwx now") == "login with [hidden] now"
    assert masked("API_KEY=abcdefgh12345") == "API_KEY=[hidden]"
    assert masked('{"password": "correcthorse"}') == '{"password": "[hidden]"}'
    assert masked("tokens=12345") == "tokens=12345"
    assert masked("sha256 " + "a" * 64) == "sha256 " + "a" * 64


def test_a_spreadsheet_takes_no_cell_for_a_formula() -> None:
    assert [csv_cell(cell) for cell in ("=1+1", "+1", "-1", "@a", "\tx", "run", -1.5, None)] == [
        "'=1+1",
        "'+1",
        "'-1",
        "'@a",
        "'\tx",
        "run",
        -1.5,
        None,
    ]


def test_long_text_is_cut_where_it_can_be_seen() -> None:
    assert shortened("abcdef", 4) == "abc…"
    assert shortened("abcd", 4) == "abcd"

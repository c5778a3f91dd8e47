"""The strip of a repeated training: every step is in one part, and each verdict has a symbol and words."""

from __future__ import annotations

from dashboard.shared.charts.repeat_strip import VERDICTS, StripPart, describe, parts_of, parts_so_far, strip

PLANNED = {
    "event": "planned",
    "segments": [
        {"first_step": 0, "last_step": 0},
        {"first_step": 0, "last_step": 5},
        {"first_step": 20, "last_step": 30},
    ],
}


def widths(parts: list[StripPart]) -> list[tuple[int, int, str]]:
    return [(part.first_step, part.last_step, part.verdict) for part in parts]


def test_what_nobody_tries_fills_the_gaps() -> None:
    assert widths(parts_so_far([PLANNED], steps=40)) == [
        (0, 0, "planned"),
        (0, 5, "planned"),
        (5, 20, "not tried"),
        (20, 30, "planned"),
        (30, 40, "not tried"),
    ]


def test_a_part_is_under_way_and_then_ends() -> None:
    events = [
        PLANNED,
        {"event": "segment", "first_step": 0, "last_step": 0, "verdict": "identical"},
        {"event": "step", "step": 3, "of": 15},
    ]
    assert [part.verdict for part in parts_so_far(events, steps=30)][:2] == ["identical", "under way"]
    events.append(
        {"event": "segment", "first_step": 0, "last_step": 5, "verdict": "different", "difference": "Step 4."}
    )
    assert parts_so_far(events, steps=30)[1] == StripPart(
        first_step=0, last_step=5, verdict="different", difference="Step 4."
    )


def test_a_receipt_gives_the_same_parts_and_anything_else_none() -> None:
    segment = {"first_step": 0, "last_step": 40, "verdict": "within tolerance", "seconds": 3.0}
    assert widths(parts_of({"covered": {"segments": [segment]}}, steps=40)) == [(0, 40, "within tolerance")]
    for odd in (None, 3, [7], [{"first_step": "0", "last_step": 2}], [{**segment, "last_step": -1}]):
        assert widths(parts_of({"covered": {"segments": odd}}, steps=10)) == [(0, 10, "not tried")]


def test_the_strip_says_in_words_what_it_shows_and_no_text_of_a_run_is_html() -> None:
    parts = [
        StripPart(first_step=0, last_step=0, verdict="identical"),
        StripPart(first_step=0, last_step=1200, verdict="different", difference="<b>Step 3"),
    ]
    html = strip(parts)
    assert 'aria-label="start weights: identical; steps 1 to 1,200: different. &lt;b&gt;Step 3"' in html
    assert "<b>" not in html
    assert "flex-grow:1200" in html
    assert describe(StripPart(first_step=7, last_step=7, verdict="identical")) == "state after step 7: identical"


def test_no_two_verdicts_share_a_symbol() -> None:
    symbols = [sign.symbol for sign in VERDICTS.values()]
    assert len(set(symbols)) == len(symbols)

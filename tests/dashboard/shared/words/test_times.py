from __future__ import annotations

from zoneinfo import ZoneInfo

import pytest

from dashboard.shared import words
from schemas.formats import NOTHING


@pytest.mark.parametrize("text", [None, "", "yesterday", "2026-11-20T23:30:12"])
def test_what_states_no_moment_is_a_dash(text: str | None) -> None:
    assert words.date_and_time(text) == words.clock(text) == NOTHING


def test_times_are_shown_in_the_readers_zone() -> None:
    assert words.date_and_time("2026-11-20T23:30:12+00:00", ZoneInfo("Asia/Tokyo")) == "2026-11-21 08:30:12"
    assert words.clock("2026-11-20T23:30:12.5Z", ZoneInfo("Asia/Tokyo")) == "08:30:12"

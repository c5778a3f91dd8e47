"""Figures as they are written everywhere: on the terminal, on pages and in reports."""

import math

import pytest

from schemas.problems import formats


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (None, "–"),
        (0, "0 B"),
        (999, "999 B"),
        (1_000, "1.0 KiB"),
        (12_595, "12.3 KiB"),
        (999.94 * 1024, "999.9 KiB"),
        (999.96 * 1024, "1.0 MiB"),  # not 1000.0 KiB
        (512 * 2**20, "512.0 MiB"),
        (1_059_061_760, "0.99 GiB"),  # not 1010 MiB
        (15.75 * 2**30, "15.75 GiB"),
        (1_234.5 * 2**30, "1,234.50 GiB"),
        (-3 * 2**30, "-3.00 GiB"),
    ],
)
def test_bytes(count, text):
    assert formats.size(count) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "–"),
        (0, "0.0 s"),
        (0.0042, "4.2 ms"),
        (0.0999, "99.9 ms"),
        (0.09999, "0.1 s"),
        (42.3, "42.3 s"),
        (59.7, "59.7 s"),
        (59.97, "1 min 00 s"),
        (185, "3 min 05 s"),
        (3_599.7, "1 h 00 min"),
        (7_800, "2 h 10 min"),
        (3_600_000, "1,000 h 00 min"),
    ],
)
def test_durations(seconds, text):
    assert formats.duration(seconds) == text


def test_counts_and_rates():
    assert [formats.count(value) for value in (None, 0, 1234567)] == ["–", "0", "1,234,567"]
    values = (None, 0, 0.25, 950, 999.9, 12_345, 999_999, 4_100_000, 2e9, 3e12)
    texts = ["–", "0", "0.250", "950", "1.00 k", "12.3 k", "1.00 M", "4.10 M", "2.00 G", "3.00 T"]
    assert [formats.short_count(value) for value in values] == texts
    assert formats.rate(12_345, "tokens") == "12.3 k tokens/s"
    assert formats.rate(None, "tokens") == "–"


def test_numbers():
    values = (None, 0, 2.3126, 9.99996, 0.001, 1.2e-8, 12_345.6, 1.5e9, math.nan, math.inf)
    texts = ["–", "0", "2.313", "10.00", "0.001000", "1.200e-08", "12346", "1.500e+09", "not finite", "not finite"]
    assert [formats.number(value) for value in values] == texts


def test_shares():
    assert [formats.percent(value) for value in (None, 0, 0.625, 1)] == ["–", "0.0 %", "62.5 %", "100.0 %"]
    assert formats.percent_range(0.521, 0.709) == "52.1–70.9 %"
    assert formats.percent_range(None, 0.7) == "–"
    assert [formats.points(value) for value in (None, 0.125, -0.03)] == ["–", "+12.5 points", "−3.0 points"]

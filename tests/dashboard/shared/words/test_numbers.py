from __future__ import annotations

from zoneinfo import ZoneInfo

import pytest

from dashboard.shared.words import numbers

T = numbers.THIN


@pytest.mark.parametrize(
    ("function", "value", "text"),
    [
        (numbers.count, 1234567, "1,234,567"),
        (numbers.count, 0, "0"),
        (numbers.short_count, 950, "950"),
        (numbers.short_count, 12345, f"12.3{T}k"),
        (numbers.short_count, 4_100_000, f"4.10{T}M"),
        (numbers.short_count, 1000, f"1.00{T}k"),
        (numbers.short_count, 999_600, f"1.00{T}M"),
        (numbers.digits, 2.313456, "2.313"),
        (numbers.digits, 9.99996, "10.00"),
        (numbers.digits, -9_999_999.6, "-1.000e+07"),
        (numbers.digits, 0.001, "0.001000"),
        (numbers.digits, 1.2e-8, "1.200e-08"),
        (numbers.digits, 123456.0, "123456"),
        (numbers.digits, 0.0, "0"),
        (numbers.digits, float("nan"), "not finite"),
        (numbers.memory, 512, f"512{T}B"),
        (numbers.memory, 512 * 2**20, f"512{T}MiB"),
        (numbers.memory, 14.38 * 2**30, f"14.4{T}GiB"),
        (numbers.duration, 0.42, f"0.4{T}s"),
        (numbers.duration, 9.96, f"10.0{T}s"),
        (numbers.duration, 10, f"10{T}s"),
        (numbers.duration, 59.7, f"1{T}min 00{T}s"),
        (numbers.duration, 185, f"3{T}min 05{T}s"),
        (numbers.duration, 7620, f"2{T}h 07{T}min"),
        (numbers.percent, 0.625, f"62.5{T}%"),
        (numbers.points, -0.125, f"−12.5{T}points"),
        (numbers.points, 0.125, f"+12.5{T}points"),
    ],
)
def test_numbers_read_well(function, value, text) -> None:
    assert function(value) == text


@pytest.mark.parametrize(
    "function",
    [
        numbers.count,
        numbers.short_count,
        numbers.digits,
        numbers.memory,
        numbers.duration,
        numbers.percent,
        numbers.points,
        numbers.moment,
        numbers.clock,
        numbers.parse_time,
    ],
)
def test_what_was_not_measured_is_never_a_zero(function) -> None:
    assert function(None) in (numbers.NOTHING, None)


def test_rates_and_intervals() -> None:
    assert numbers.rate(12345, "tokens") == f"12.3{T}k{T}tokens/s"
    assert numbers.interval(0.5213, 0.7091) == f"52.1–70.9{T}%"
    assert numbers.interval(0.5, None) == numbers.NOTHING


def test_times_are_shown_in_the_readers_zone() -> None:
    assert numbers.moment("2026-11-20T23:30:12+00:00", ZoneInfo("Asia/Tokyo")) == "2026-11-21 08:30:12"
    assert numbers.clock("2026-11-20T23:30:12.5Z", ZoneInfo("Asia/Tokyo")) == "08:30:12"


def test_a_time_without_an_offset_is_no_time() -> None:
    assert numbers.parse_time("2026-11-20T23:30:12") is None
    assert numbers.parse_time("yesterday") is None


def test_seconds_between_two_times() -> None:
    assert numbers.seconds_between("2026-11-20T23:30:12Z", "2026-11-21T00:30:12+00:00") == 3600
    assert numbers.seconds_between("2026-11-21T00:30:12Z", "2026-11-20T23:30:12Z") is None
    assert numbers.seconds_between("2026-11-21T00:30:12Z", None) is None

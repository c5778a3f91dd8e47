"""What ran where: the devices requested, those used, and what the compiler did with the state on them."""

from __future__ import annotations

from collections.abc import Iterator

from evidence.records.facts import Facts, finding
from evidence.run import layout
from schemas.formats import format_value
from schemas.problems import Problem

_DONATED_FRACTION = 0.99
_FLOAT32 = 1e-6


def devices_agree(facts: Facts) -> Iterator[Problem]:
    """Yield problems for a platform that was not requested and for a device list that cannot be."""
    if facts.manifest is None:
        return
    devices = facts.manifest["devices"]
    requested, platform = devices["requested"], devices["platform"]
    if requested not in ("auto", platform):
        what = f"{requested} was asked for and {platform} was used."
        yield _manifest(facts, "TP362", what, "/devices/platform", requested)
    kinds = {device["kind"] for device in devices["list"]}
    if kinds != {devices["kind"]}:
        what = (
            f"The kind is {format_value(devices['kind'])}; the list has "
            f"{', '.join(format_value(kind) for kind in sorted(kinds))}."
        )
        yield _manifest(facts, "TP362", what, "/devices/list")
    numbers = [device["id"] for device in devices["list"]]
    if len(set(numbers)) != len(numbers):
        yield _manifest(facts, "TP362", "A device is listed twice.", "/devices/list")


def donation_follows_from_bytes(facts: Facts) -> Iterator[Problem]:
    """Yield a problem where donation is reported to work and the bytes show otherwise, or the reverse."""
    if facts.training is None:
        return
    donation = facts.training["donation"]
    aliased = donation["aliased_bytes"]
    right = None if aliased is None else aliased >= _DONATED_FRACTION * donation["state_bytes"]
    if donation["effective"] != right:
        stated = format_value(donation["effective"])
        what = f"effective is {stated}; {format_value(aliased)} of {donation['state_bytes']} bytes are reused."
        yield _manifest(facts, "TP363", what, "/training/donation/effective", format_value(right))


def schedule_has_a_shape(facts: Facts) -> Iterator[Problem]:
    """Yield a problem where the final learning rate is above the peak, or a constant one is not constant."""
    if facts.training is None:
        return
    schedule = facts.training["schedule"]
    peak, final = schedule["peak_learning_rate"], schedule["final_learning_rate"]
    warmed_up = schedule["warmup_steps"] <= facts.training["steps_planned"]
    above = final > peak * (1 + _FLOAT32)
    if above or (schedule["name"] == "constant" and warmed_up and final < peak * (1 - _FLOAT32)):
        what = f"The {schedule['name']} schedule has a peak of {peak:g} and ends at {final:g}."
        yield _manifest(facts, "TP364", what, "/training/schedule/final_learning_rate")


def _manifest(facts: Facts, code: str, what: str, pointer: str, expected: str | None = None) -> Problem:
    return finding(facts.folder, code, layout.MANIFEST, what, expected=expected, pointer=pointer)


CHECKS = (devices_agree, donation_follows_from_bytes, schedule_has_a_shape)

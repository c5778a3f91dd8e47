"""What ran where: the devices requested, those used, and what the compiler did with the state on them."""

from __future__ import annotations

from collections.abc import Iterator

from evidence.records.facts import Facts, finding
from evidence.run import layout
from schemas.problems.problem import Problem
from schemas.problems.rule import Rule
from schemas.problems.words import show

OTHER_DEVICE = Rule(
    "TP362",
    "Devices that contradict each other",
    "A platform that is asked for is used or the run is refused, and every device used is listed once.",
    "Restore the manifest as the run wrote it.",
)
ODD_DONATION = Rule(
    "TP363",
    "Donation that does not follow from its bytes",
    "The state is updated in place if the compiled program reuses all of its bytes, within 1 %.",
    "Restore the manifest as the run wrote it.",
)
ODD_SCHEDULE = Rule(
    "TP364",
    "Schedule that no shape has",
    "No learning rate is above the peak, and a constant schedule ends at its peak.",
    "Restore the manifest as the run wrote it.",
)

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
        yield _manifest(facts, OTHER_DEVICE, what, "/devices/platform", requested)
    kinds = {device["kind"] for device in devices["list"]}
    if kinds != {devices["kind"]}:
        what = f"The kind is {show(devices['kind'])}; the list has {', '.join(show(kind) for kind in sorted(kinds))}."
        yield _manifest(facts, OTHER_DEVICE, what, "/devices/list")
    numbers = [device["id"] for device in devices["list"]]
    if len(set(numbers)) != len(numbers):
        yield _manifest(facts, OTHER_DEVICE, "A device is listed twice.", "/devices/list")


def donation_follows_from_bytes(facts: Facts) -> Iterator[Problem]:
    """Yield a problem where donation is reported to work and the bytes show otherwise, or the reverse."""
    if facts.training is None:
        return
    donation = facts.training["donation"]
    aliased = donation["aliased_bytes"]
    right = None if aliased is None else aliased >= _DONATED_FRACTION * donation["state_bytes"]
    if donation["effective"] != right:
        stated = show(donation["effective"])
        what = f"effective is {stated}; {show(aliased)} of {donation['state_bytes']} bytes are reused."
        yield _manifest(facts, ODD_DONATION, what, "/training/donation/effective", show(right))


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
        yield _manifest(facts, ODD_SCHEDULE, what, "/training/schedule/final_learning_rate")


def _manifest(facts: Facts, rule: Rule, what: str, pointer: str, expected: str | None = None) -> Problem:
    return finding(facts.folder, rule, layout.MANIFEST, what, expected=expected, pointer=pointer)


CHECKS = (devices_agree, donation_follows_from_bytes, schedule_has_a_shape)

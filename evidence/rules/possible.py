"""Check that a run is possible: speed, memory and element type of the stated device, and dates."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

from evidence.records.facts import Facts, finding
from evidence.run import layout
from evidence.targets.target import Target, target_of_kind
from schemas.formats import join_words, size
from schemas.problems import Problem
from schemas.reading import parse_time

FIRST_DAY = datetime(2025, 10, 1, tzinfo=UTC)
"""No commit of trainproof, and no version of jax that it supports, is older."""
CLOCK_DAYS = 1.0

OPERATIONS = 2
"""For each parameter and token at least: a token table may be half of all parameters and is only looked up; the other
half takes two operations forward and two backward."""
MEMORY_WITHIN = 0.1
"""What a driver or a runtime keeps for itself differs between their versions."""


def speed_is_within_the_device(facts: Facts) -> Iterator[Problem]:
    """Yield a problem where a run did more operations a second than its devices can.

    A model of 2.5e9 parameters on one TPU v5e chip (197e12 a second) cannot see more than 39,400 tokens a second.
    """
    target = target_of(facts)
    if target is None or facts.manifest is None or facts.training is None or facts.model is None:
        return
    result = facts.manifest["result"]
    seconds, tokens = result["train_seconds"] if result else None, _tokens(facts)
    if not seconds or not tokens:
        return
    needed = OPERATIONS * facts.model["parameters"] * tokens / seconds
    peak = max(target.peak_flops.values(), default=0.0) * facts.manifest["devices"]["count"]
    if peak and needed > peak:
        yield finding(
            facts.folder,
            "TP416",
            layout.MANIFEST,
            f"{tokens:,} tokens in {seconds:,.1f} s through {facts.model['parameters']:,} parameters are at least "
            f"{needed:.3g} operations a second; {facts.manifest['devices']['count']} × {target.kind} do {peak:.3g}.",
            pointer="/result/train_seconds",
        )


def memory_is_within_the_device(facts: Facts) -> Iterator[Problem]:
    """Yield a problem where a run's peak is more than one of its devices has."""
    target = target_of(facts)
    if target is None or target.memory_bytes is None or facts.manifest is None or facts.manifest["result"] is None:
        return
    peak = facts.manifest["result"]["peak_memory_bytes"]
    if peak is not None and peak > target.memory_bytes * (1 + MEMORY_WITHIN):
        yield finding(
            facts.folder,
            "TP417",
            layout.MANIFEST,
            f"The peak is {size(peak)}; {target.kind} has {size(target.memory_bytes)} for programs.",
            pointer="/result/peak_memory_bytes",
        )


def compute_type_is_one_of_the_device(facts: Facts) -> Iterator[Problem]:
    """Yield a warning where a run computed in a type that its device only imitates, as bfloat16 on a T4."""
    target = target_of(facts)
    if target is None or facts.model is None:
        return
    kind = facts.model["dtypes"]["compute"]
    if kind not in target.element_types:
        yield finding(
            facts.folder,
            "TP730",
            layout.MANIFEST,
            f"The compute type is {kind}; {target.kind} multiplies {join_words(target.element_types)}.",
            severity="warning",
            pointer="/model/dtypes/compute",
        )


def days_are_those_of_runs(facts: Facts) -> Iterator[Problem]:
    """Yield a warning if the run starts before its software was written, or ends after today."""
    if facts.manifest is None:
        return
    for key in ("started_at", "finished_at"):
        at = parse_time(facts.manifest[key] or "")
        if at is None:
            continue
        ahead = (at - datetime.now(UTC)).total_seconds() / 86400
        if ahead > CLOCK_DAYS or at < FIRST_DAY:
            days = f"{ahead:,.0f} days from now" if ahead > 0 else f"before {FIRST_DAY:%B %Y}, when its software began"
            what = f"{key} is {facts.manifest[key]}, {days}."
            yield finding(facts.folder, "TP442", layout.MANIFEST, what, pointer=f"/{key}")
            return


def target_of(facts: Facts) -> Target | None:
    """Return the machine of the table whose devices the run states, or None if it is missing, as for a CPU."""
    if facts.manifest is None:
        return None
    devices = facts.manifest["devices"]
    return target_of_kind(devices["kind"], devices["count"])


def _tokens(facts: Facts) -> int:
    """Return the tokens that went through the model in this run, padding included."""
    assert facts.manifest is not None, "asked only where it is there"
    assert facts.training is not None, "as above"
    parent = facts.manifest["parent"]
    steps = facts.training["steps_done"] - (parent["step"] if parent else 0)
    return int(steps * facts.training["tokens_per_step"])


CHECKS = (
    speed_is_within_the_device,
    memory_is_within_the_device,
    compute_type_is_one_of_the_device,
    days_are_those_of_runs,
)

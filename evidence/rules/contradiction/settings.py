"""What was declared against what ran: config.yaml and plan.json against the manifest's effective values."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from evidence.records.effective import PLACES, agreements, effective_of, pointer_of, stated_elsewhere
from evidence.records.facts import Document, Facts, finding, same, where
from evidence.run import layout
from evidence.run.hashes import sha256_json
from schemas.formats import format_value
from schemas.problems import Problem

_HELD_ELSEWHERE = frozenset({"memory.donate", "mesh.shard_params", "mesh.device"})
"""Keys with a check of their own: a compiler may decline the first two, the platform is compared with the request."""


def declared_is_effective(facts: Facts) -> Iterator[Problem]:
    """Yield a problem for each setting of config.yaml that the manifest states otherwise."""
    if facts.config is not None and facts.manifest is not None:
        for key, agreement in agreements(facts.config, facts.manifest).items():
            if agreement.state == "differs" and key not in _HELD_ELSEWHERE:
                yield _not_what_ran(facts, key, agreement.declared, agreement.effective, agreement.pointer)
        device, requested = facts.config.get("mesh", {}).get("device"), facts.manifest["devices"]["requested"]
        if device is not None and device != requested:
            yield _not_what_ran(facts, "mesh.device", device, requested, "/devices/requested")


def _not_what_ran(facts: Facts, key: str, declared: Any, effective: Any, pointer: str) -> Problem:
    what = f"The manifest states {format_value(effective)}; config.yaml states {format_value(declared)} at {key}."
    return finding(facts.folder, "TP303", layout.MANIFEST, what, expected=format_value(declared), pointer=pointer)


def effective_group_follows(facts: Facts) -> Iterator[Problem]:
    """Yield a problem for each value of the group `effective` that another group of the manifest states otherwise."""
    if facts.manifest is None or facts.manifest.get("effective") is None:
        return
    group = effective_of(facts.manifest)
    for key, stated in stated_elsewhere(facts.manifest).items():
        if key in group and not same(group[key], stated):
            what = (
                f"The group states {format_value(group[key])}; /{PLACES[key].replace('.', '/')} "
                f"states {format_value(stated)}."
            )
            pointer = pointer_of(facts.manifest, key)
            yield finding(facts.folder, "TP377", layout.MANIFEST, what, expected=format_value(stated), pointer=pointer)


def donation_is_effective(facts: Facts) -> Iterator[Problem]:
    """Yield a warning where donation was requested and the compiled program does not do it."""
    if facts.config is None or facts.training is None:
        return
    donation = facts.training["donation"]
    if facts.config.get("memory", {}).get("donate") and donation["effective"] is False:
        yield finding(
            facts.folder,
            "TP304",
            layout.MANIFEST,
            f"The compiled step reuses {donation['aliased_bytes']} of {donation['state_bytes']} bytes of the state.",
            pointer="/training/donation/effective",
        )


def what_was_switched_off_stays_off(facts: Facts) -> Iterator[Problem]:
    """Yield problems for donation or sharding that happened although config.yaml requests none."""
    if facts.config is None or facts.training is None:
        return
    switches = (
        ("memory", "donate", facts.training["donation"]["effective"], "/training/donation/effective"),
        ("mesh", "shard_params", facts.training["mesh"]["shard_params"], "/training/mesh/shard_params"),
    )
    for group, key, effective, pointer in switches:
        if facts.config.get(group, {}).get(key) is False and effective:
            what = f"The manifest states true; config.yaml states false at {group}.{key}."
            yield finding(facts.folder, "TP303", layout.MANIFEST, what, expected="false", pointer=pointer)


def recording_is_as_declared(facts: Facts) -> Iterator[Problem]:
    """Yield problems for rows at steps that are not logged, and for more examples than were requested."""
    recording = (facts.config or {}).get("recording", {})
    every, examples = recording.get("log_every_steps"), recording.get("first_examples")
    if every and facts.training is not None and facts.manifest is not None:
        first = facts.manifest["parent"]["step"] + 1 if facts.manifest["parent"] else 1
        kept = (first, facts.training["steps_planned"], facts.training["steps_done"])  # the last, and one stopped at
        steps, asked = facts.columns["step"], (facts.config or {}).get("evaluation", {}).get("every_steps") or every
        for index in where((steps % every != 0) & (steps % asked != 0) & ~np.isin(steps, kept))[:1]:
            what = f"Step {steps[index]:.0f} has a row; config.yaml asks for one every {every} steps."
            yield finding(facts.folder, "TP303", layout.METRICS, what, line=index + 1, pointer="/step")
    if examples and facts.first_examples is not None:
        yield from _other_number_of_examples(facts, facts.first_examples, examples)


def _other_number_of_examples(facts: Facts, document: Document, asked: int) -> Iterator[Problem]:
    """Yield a problem where not as many examples are shown as were requested, or as the first step has.

    A step of more examples than there are rows has some of them several times; each is shown once. Where rows share
    sequences, a step has more rows than sequences, as many as fit.
    """
    shown_ones = len(document["examples"])
    if facts.training is None:
        return  # Before the step is compiled no one knows how many sequences it has.
    group = ((facts.config or {}).get("objective") or {}).get("group_size", 1) if facts.draws_completions else 1
    there = min(facts.training["batch_size"] // group, document["counts"]["rows"])
    packed = bool((facts.config or {}).get("data", {}).get("packing"))
    if shown_ones != min(asked, there) and not (packed and min(asked, there) < shown_ones <= asked):
        seen = "1 example is shown" if shown_ones == 1 else f"{shown_ones} examples are shown"
        what = f"{seen}; config.yaml asks for {asked}."
        if there < asked:
            what = f"{seen}; config.yaml asks for {asked}, and the first step has {there}."
        yield finding(facts.folder, "TP303", layout.FIRST_EXAMPLES, what, pointer="/examples")


def plan_is_of_this_run(facts: Facts) -> Iterator[Problem]:
    """Yield a problem for a plan that was made for another configuration."""
    if facts.plan is None:
        return
    if facts.config is not None and facts.plan["config_sha256"] != sha256_json(facts.config):
        yield finding(
            facts.folder,
            "TP305",
            layout.PLAN,
            "The plan was made for another configuration than config.yaml: its hash differs.",
            expected=sha256_json(facts.config),
            pointer="/config_sha256",
        )


CHECKS = (
    declared_is_effective,
    effective_group_follows,
    donation_is_effective,
    what_was_switched_off_stays_off,
    recording_is_as_declared,
    plan_is_of_this_run,
)

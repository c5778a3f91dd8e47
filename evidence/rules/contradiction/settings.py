"""What was declared against what ran: config.yaml and plan.json against the manifest's effective values."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

import numpy as np

from evidence.records.facts import Document, Facts
from evidence.records.values import found, same, value_at, where
from evidence.run import layout
from evidence.run.hashes import sha256_json
from schemas.problems.problem import Problem
from schemas.problems.rule import Rule
from schemas.problems.words import shown

NOT_WHAT_RAN = Rule(
    code="TP303",
    severity="error",
    title="Declared and effective differ",
    meaning="config.yaml says what was asked for and the manifest what ran; a run must be what was asked for.",
    fix="Restore both files as the run wrote them; if it wrote them like this, report it as a mistake of trainproof.",
)
NOT_DONATED = Rule(
    code="TP304",
    severity="warning",
    title="State not updated in place",
    meaning="memory.donate asks the compiler to reuse the memory of the state, and the compiled program does not.",
    fix="Nothing to repair in the evidence; expect the run to need up to twice the memory for its state.",
)
OTHER_PLAN = Rule(
    code="TP305",
    severity="error",
    title="Plan of another run",
    meaning="plan.json is made for the run's own configuration and devices before it starts.",
    fix="Restore the plan that the run wrote.",
)

_FLOAT32 = 1e-6
"""Relative error of a learning rate that went through float32."""


@dataclass(frozen=True, kw_only=True)
class Pair:
    """One fact that two documents state.

    Attributes:
        declared: Pointer in the document that declares it.
        effective: Pointer in the manifest.
        by_name: Compare only the last part of paths: the manifest names a file, the configuration how to reach it.
        if_stated: Compare only where both state a value; null leaves the choice to the program.
    """

    declared: str
    effective: str
    by_name: bool = False
    if_stated: bool = False


CONFIG_PAIRS = (
    Pair(declared="/mode", effective="/mode"),
    Pair(declared="/seed", effective="/training/seed"),
    Pair(declared="/model/name", effective="/model/name"),
    Pair(declared="/model/revision", effective="/model/revision", if_stated=True),
    Pair(declared="/model/weights", effective="/model/weights", if_stated=True),
    Pair(declared="/data/dataset", effective="/dataset/name", by_name=True),
    Pair(declared="/data/generated_rows", effective="/dataset/generated_rows"),
    Pair(declared="/data/max_length", effective="/training/sequence_length"),
    Pair(declared="/method/kind", effective="/training/method"),
    Pair(declared="/optimizer/name", effective="/training/optimizer/name"),
    Pair(declared="/optimizer/schedule", effective="/training/schedule/name"),
    Pair(declared="/optimizer/warmup_steps", effective="/training/schedule/warmup_steps"),
    Pair(declared="/batch/microbatch_size", effective="/training/microbatch_size"),
    Pair(declared="/batch/accumulation_steps", effective="/training/accumulation_steps"),
    Pair(declared="/precision/params", effective="/model/dtypes/params"),
    Pair(declared="/precision/compute", effective="/model/dtypes/compute"),
    Pair(declared="/memory/remat", effective="/training/remat"),
    Pair(declared="/memory/loss_chunk_tokens", effective="/training/loss_chunk_tokens"),
    Pair(declared="/mesh/device", effective="/devices/requested"),
    Pair(declared="/mesh/devices", effective="/devices/count", if_stated=True),
    Pair(declared="/limits/steps", effective="/training/steps_planned"),
)
PLAN_PAIRS = (
    Pair(declared="/target/platform", effective="/devices/platform"),
    Pair(declared="/target/name", effective="/devices/kind"),
    Pair(declared="/target/memory_bytes", effective="/devices/memory_bytes", if_stated=True),
    Pair(declared="/target/devices", effective="/devices/count"),
    Pair(declared="/forced", effective="/training/forced"),
)


def declared_is_effective(facts: Facts) -> Iterator[Problem]:
    """Yield a problem for each setting of config.yaml that the manifest states otherwise."""
    if facts.config is not None and facts.manifest is not None:
        yield from _differences(facts, NOT_WHAT_RAN, layout.CONFIG, facts.config, CONFIG_PAIRS)


def learning_rate_is_effective(facts: Facts) -> Iterator[Problem]:
    """Yield a problem where the schedule's peak is not the learning rate that was asked for.

    A warm-up longer than the run never reaches it; then the peak may only not be above it.
    """
    asked = (facts.config or {}).get("optimizer", {}).get("learning_rate")
    if asked is None or facts.training is None:
        return
    schedule = facts.training["schedule"]
    peak = schedule["peak_learning_rate"]
    reached = schedule["warmup_steps"] <= facts.training["steps_planned"]
    if peak > asked * (1 + _FLOAT32) or (reached and peak < asked * (1 - _FLOAT32)):
        yield found(
            facts.folder,
            NOT_WHAT_RAN,
            layout.MANIFEST,
            f"The manifest states a peak learning rate of {peak}; config.yaml asks for {asked}.",
            expected=shown(asked),
            pointer="/training/schedule/peak_learning_rate",
        )


def donation_is_effective(facts: Facts) -> Iterator[Problem]:
    """Yield a warning where donation was asked for and the compiled program does not do it."""
    if facts.config is None or facts.training is None:
        return
    donation = facts.training["donation"]
    if facts.config.get("memory", {}).get("donate") and donation["effective"] is False:
        yield found(
            facts.folder,
            NOT_DONATED,
            layout.MANIFEST,
            f"The compiled step reuses {donation['aliased_bytes']} of {donation['state_bytes']} bytes of the state.",
            pointer="/training/donation/effective",
        )


def what_was_switched_off_stays_off(facts: Facts) -> Iterator[Problem]:
    """Yield problems for donation or sharding that happened although config.yaml asks for none."""
    if facts.config is None or facts.training is None:
        return
    switches = (
        ("memory", "donate", facts.training["donation"]["effective"], "/training/donation/effective"),
        ("mesh", "shard_params", facts.training["mesh"]["shard_params"], "/training/mesh/shard_params"),
    )
    for group, key, effective, pointer in switches:
        if facts.config.get(group, {}).get(key) is False and effective:
            what = f"The manifest states true; config.yaml states false at /{group}/{key}."
            yield found(facts.folder, NOT_WHAT_RAN, layout.MANIFEST, what, expected="false", pointer=pointer)


def recording_is_as_declared(facts: Facts) -> Iterator[Problem]:
    """Yield problems for rows at steps that are not logged, and for more examples than were asked for."""
    recording = (facts.config or {}).get("recording", {})
    every, examples = recording.get("log_every_steps"), recording.get("first_examples")
    if every and facts.training is not None and facts.manifest is not None:
        first = facts.manifest["parent"]["step"] + 1 if facts.manifest["parent"] else 1
        kept = (first, facts.training["steps_planned"], facts.training["steps_done"])  # the last, and one stopped at
        steps = facts.columns["step"]
        for index in where((steps % every != 0) & ~np.isin(steps, kept))[:1]:
            what = f"Step {steps[index]:.0f} has a row; config.yaml asks for one every {every} steps."
            yield found(facts.folder, NOT_WHAT_RAN, layout.METRICS, what, line=index + 1, pointer="/step")
    if examples and facts.first_examples is not None:
        yield from _other_number_of_examples(facts, facts.first_examples, examples)


def _other_number_of_examples(facts: Facts, document: Document, asked: int) -> Iterator[Problem]:
    """Yield a problem where not as many examples are shown as were asked for, or as the first step has.

    A step of more examples than there are rows has some of them several times; each is shown once.
    """
    shown_ones = len(document["examples"])
    there = min(facts.training["batch_size"] if facts.training else asked, document["counts"]["rows"])
    if shown_ones != min(asked, there):
        seen = "1 example is shown" if shown_ones == 1 else f"{shown_ones} examples are shown"
        what = f"{seen}; config.yaml asks for {asked}."
        if there < asked:
            what = f"{seen}; config.yaml asks for {asked}, and the first step has {there}."
        yield found(facts.folder, NOT_WHAT_RAN, layout.FIRST_EXAMPLES, what, pointer="/examples")


def plan_is_of_this_run(facts: Facts) -> Iterator[Problem]:
    """Yield a problem for each fact of plan.json that the manifest or config.yaml states otherwise."""
    if facts.plan is None:
        return
    if facts.manifest is not None:
        yield from _differences(facts, OTHER_PLAN, layout.PLAN, facts.plan, PLAN_PAIRS)
    if facts.config is not None and facts.plan["config_sha256"] != sha256_json(facts.config):
        yield found(
            facts.folder,
            OTHER_PLAN,
            layout.PLAN,
            "The plan was made for another configuration than config.yaml: its hash differs.",
            expected=sha256_json(facts.config),
            pointer="/config_sha256",
        )


def _differences(
    facts: Facts, rule: Rule, name: str, declaring: Document, pairs: tuple[Pair, ...]
) -> Iterator[Problem]:
    for pair in pairs:
        try:
            declared, effective = value_at(declaring, pair.declared), value_at(facts.manifest, pair.effective)
        except KeyError:
            continue  # A configuration may leave keys out, and a manifest groups that were never built.
        if pair.if_stated and (declared is None or effective is None):
            continue
        if not same(_compared(declared, pair), _compared(effective, pair)):
            yield found(
                facts.folder,
                rule,
                layout.MANIFEST,
                f"The manifest states {shown(effective)}; {name} states {shown(declared)} at {pair.declared}.",
                expected=shown(declared),
                pointer=pair.effective,
            )


def _compared(value: Any, pair: Pair) -> Any:
    return PurePosixPath(value).name if pair.by_name and isinstance(value, str) else value


RULES = (NOT_WHAT_RAN, NOT_DONATED, OTHER_PLAN)
CHECKS = (
    declared_is_effective,
    learning_rate_is_effective,
    donation_is_effective,
    what_was_switched_off_stays_off,
    recording_is_as_declared,
    plan_is_of_this_run,
)

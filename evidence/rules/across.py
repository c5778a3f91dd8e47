"""What must differ between runs of one root: their ids, and what they measured."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from evidence.records.facts import Facts, finding
from evidence.run import layout
from evidence.run.hashes import sha256_file
from schemas.formats import join_words
from schemas.problems import Problem

CONTRADICTS_COPY = frozenset({"TP421", "TP309"})
"""Codes of errors between two folders, of which one is a copy that states something else."""

_NAMED = 3
"""Folders that one finding names: a run that was copied a thousand times would have a million names to list."""


@dataclass(frozen=True, kw_only=True)
class Fingerprint:
    """What distinguishes one run from another."""

    folder: Path
    run_id: str | None
    metrics: str | None
    """Hash over time and loss of every row. None: there are not rows."""
    measured: str | None = None
    """Hash over seconds of a step and loss of every row. None: the seconds are all alike, so they were not measured."""
    state: str | None = None
    """Hash of the last state of the chain, which holds parameters and optimizer. None: it is missing."""
    content: str | None = None
    """Hash of the manifest, which holds the hashes of the other files, and of what the check found. None: no manifest.

    Folders that share it are unchanged copies of each other.
    """


def fingerprint_of(facts: Facts, findings: Sequence[Problem] = ()) -> Fingerprint:
    """Return the fingerprint of a run, of which the check by itself found `findings`."""
    columns, chain = facts.columns, facts.chain or ()
    seconds, losses = columns["step_seconds"], columns["loss"].tobytes()
    is_measured = len(seconds) > 1 and seconds.min() < seconds.max()
    metrics = hashlib.sha256(columns["seconds"].tobytes() + losses).hexdigest() if facts.metrics else None
    found = sorted(f"{one.code} {one.line} {one.pointer} {one.what}" for one in findings if one.code != "TP302")
    content = f"{sha256_file(facts.folder / layout.MANIFEST)} {metrics} {found}" if facts.manifest else None
    return Fingerprint(
        folder=facts.folder,
        run_id=facts.manifest["run_id"] if facts.manifest else None,
        metrics=metrics,
        measured=hashlib.sha256(seconds.tobytes() + losses).hexdigest() if is_measured else None,
        state=chain[-1]["state_sha256"] if chain and chain[-1]["step"] > 0 else None,
        content=content and hashlib.sha256(content.encode("utf-8", "surrogatepass")).hexdigest(),
    )


def copies(fingerprints: Sequence[Fingerprint]) -> dict[Path, list[Problem]]:
    """Return, by folder, what is wrong with each run that shares its rows or its id with another.

    Which of them is the copy is not visible, unless every document is equal: then nothing is wrong with either.
    """
    same_content = _sharing(fingerprints, lambda one: one.content)
    same_rows = _sharing(fingerprints, lambda one: one.metrics)
    same_seconds = _sharing(fingerprints, lambda one: one.measured)
    same_state = _sharing(fingerprints, lambda one: one.state)
    same_id = _sharing(fingerprints, lambda one: one.run_id)
    problems: dict[Path, list[Problem]] = defaultdict(list)
    for one in fingerprints:
        name = one.folder.name or one.folder.resolve().name
        if others := _others(one, same_content.get(one.content, {}), unchanged=True):
            are = "are unchanged copies" if " and " in others else "is an unchanged copy"
            is_original = name == one.run_id
            what = f"{others} {are} of {name}." if is_original else f"{name} is an unchanged copy of {others}."
            problems[one.folder].append(finding(one.folder, "TP423", layout.MANIFEST, what))
        if others := _others(one, same_rows.get(one.metrics, {})):
            what = f"Every row of {name} has the time and the loss of the same row in {others}."
            problems[one.folder].append(finding(one.folder, "TP421", layout.METRICS, what))
        elif others := _others(one, same_seconds.get(one.measured, {})):
            what = f"Every row of {name} has the seconds and the loss of the same row in {others}."
            problems[one.folder].append(finding(one.folder, "TP421", layout.METRICS, what))
        elif others := _others(one, same_state.get(one.state, {})):
            what = f"{name} ended in the same state as {others}, bit for bit."
            problems[one.folder].append(finding(one.folder, "TP422", layout.CHAIN, what))
        if others := _others(one, same_id.get(one.run_id, {})):
            what = f"{name} states the run id {one.run_id}, which is also that of {others}."
            problems[one.folder].append(finding(one.folder, "TP309", layout.MANIFEST, what, pointer="/run_id"))
    return problems


_Group = dict[str | None, dict[Path, Fingerprint]]
"""Runs that share a value, by their content and by where they lie."""


def _sharing(
    fingerprints: Sequence[Fingerprint], value_of: Callable[[Fingerprint], str | None]
) -> dict[str | None, _Group]:
    """Return the runs that share a value with another.

    Two ways to one folder, such as a link `latest`, are one run.
    """
    groups: dict[str | None, list[Fingerprint]] = defaultdict(list)
    for one in fingerprints:
        groups[value_of(one)].append(one)
    shared: dict[str | None, _Group] = defaultdict(lambda: defaultdict(dict))
    for value, group in groups.items():
        for one in group if value and len(group) > 1 else ():
            place = one.folder.resolve()
            shared[value][one.content or str(place)][place] = one
    return shared


def _others(one: Fingerprint, group: _Group, *, unchanged: bool = False) -> str:
    """Return the other folders of a group, a few of many by name, either unchanged copies of a run or all others."""
    if not group:
        return ""
    here = one.folder.resolve()
    own = one.content or str(here)
    chosen = [group[own]] if unchanged else [some for content, some in group.items() if content != own]
    count = sum(map(len, chosen)) - unchanged
    others = (other for some in chosen for place, other in some.items() if place != here)
    named = [_name(other.folder, one.folder) for other in islice(others, _NAMED)]
    more = count - len(named)
    return join_words([*named, f"{more:,} more"] if more > 0 else named, last="and") if named else ""


def _name(folder: Path, beside: Path) -> str:
    """Return a folder's name where it lies beside the other, its path where it does not."""
    return folder.name if folder.parent == beside.parent else str(folder)

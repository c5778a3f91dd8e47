"""Find runs of one root that share their id or their measurements: copies."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from evidence import layout
from evidence.hashes import sha256_file
from evidence.run import Run, finding
from schemas.formats import join_words
from schemas.problems import Problem

CONTRADICTS_COPY = frozenset({"TP421", "TP309"})  # codes of errors that a run and its changed copy get

_SHARED = (
    ("metrics", "TP421", layout.METRICS, "Every row of {} has the time and the loss of the same row in {}."),
    ("measured", "TP421", layout.METRICS, "Every row of {} has the seconds and the loss of the same row in {}."),
    ("state", "TP422", layout.CHAIN, "{} ended in the same state as {}, bit for bit."),
)


@dataclass(frozen=True, kw_only=True)
class Fingerprint:
    """Values that differ between any two runs, or None where a run lacks one.

    `metrics` and `measured` are hashes of the loss of every row with its time or, if they are not all equal, its step
    seconds; `state` is the last one of the chain. Unchanged copies have the same `content`.
    """

    folder: Path
    run_id: str | None
    metrics: str | None
    measured: str | None = None
    state: str | None = None
    content: str | None = None


def compute_fingerprint(run: Run, findings: Sequence[Problem] = ()) -> Fingerprint:
    """Compute the fingerprint of a run with these problems."""
    columns, chain = run.columns, run.chain or ()
    seconds, losses = columns["step_seconds"], columns["loss"].tobytes()
    is_measured = len(seconds) > 1 and seconds.min() < seconds.max()
    metrics = hashlib.sha256(columns["seconds"].tobytes() + losses).hexdigest() if run.metrics else None
    found = sorted(f"{each.code} {each.line} {each.pointer} {each.what}" for each in findings if each.code != "TP302")
    content = f"{sha256_file(run.folder / layout.MANIFEST)} {metrics} {found}" if run.manifest else None
    return Fingerprint(
        folder=run.folder,
        run_id=run.manifest["run_id"] if run.manifest else None,
        metrics=metrics,
        measured=hashlib.sha256(seconds.tobytes() + losses).hexdigest() if is_measured else None,
        state=chain[-1]["state_sha256"] if chain and chain[-1]["step"] > 0 else None,
        content=content and hashlib.sha256(content.encode("utf-8", "surrogatepass")).hexdigest(),
    )


def find_copies(fingerprints: Sequence[Fingerprint]) -> dict[Path, list[Problem]]:
    """Return the problems of runs that share rows, seconds, an end state or an id with another, by folder.

    Which one is the copy is unknown. Unchanged copies are only noted; two paths to one folder are one run.
    """
    places = {each.folder: each.folder.resolve() for each in fingerprints}
    groups: dict[tuple[str, str], dict[Path, Fingerprint]] = defaultdict(dict)
    for each in fingerprints:
        for key in ("content", "metrics", "measured", "state", "run_id"):
            if value := getattr(each, key):
                groups[key, value][places[each.folder]] = each

    def others(run: Fingerprint, key: str, *, unchanged: bool = False) -> str:
        """Name the first three of the others that share a value; a thousand copies would have a million names."""
        group = groups.get((key, getattr(run, key)), {})
        found = [
            other.folder.name if other.folder.parent == run.folder.parent else str(other.folder)
            for place, other in (group.items() if len(group) > 1 else ())
            if place != places[run.folder] and (run.content is not None and other.content == run.content) == unchanged
        ]
        more = [f"{len(found) - 3:,} more"] if len(found) > 3 else []
        return join_words([*found[:3], *more], last="and") if found else ""

    problems: dict[Path, list[Problem]] = defaultdict(list)
    for run in fingerprints:
        name = run.folder.name or places[run.folder].name
        if same := others(run, "content", unchanged=True):
            are = "are unchanged copies" if " and " in same else "is an unchanged copy"
            what = f"{same} {are} of {name}." if name == run.run_id else f"{name} is an unchanged copy of {same}."
            problems[run.folder].append(finding(run.folder, "TP423", layout.MANIFEST, what))
        for key, code, file, what in _SHARED:
            if same := others(run, key):
                problems[run.folder].append(finding(run.folder, code, file, what.format(name, same)))
                break
        if same := others(run, "run_id"):
            what = f"{name} has the same run id as {same}: {run.run_id}."
            problems[run.folder].append(finding(run.folder, "TP309", layout.MANIFEST, what, pointer="/run_id"))
    return problems

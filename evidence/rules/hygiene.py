"""TP6xx: what does no harm to the numbers and does not belong in a run folder."""

from __future__ import annotations

from collections.abc import Iterator

from evidence.records.facts import Facts, finding
from evidence.run import layout
from schemas.problems import Problem, truncate_problems

_BESIDE = frozenset({layout.MANIFEST, layout.NOTES, layout.STAMPS, layout.LOCK, *layout.ROLES})
"""What a run's list need not name: itself, what is added later under known names; evidence has a rule of its own."""


def unlisted_files(facts: Facts) -> tuple[str, ...]:
    """Return the files of a sealed run, weights left out, that its artifact list does not name."""
    if facts.manifest is None or not facts.is_sealed:
        return ()
    listed = {artifact["path"] for artifact in facts.manifest["artifacts"]}
    return tuple(
        name
        for name in facts.files
        if name not in listed
        and name not in _BESIDE
        and not name.startswith(f"{layout.RECEIPTS}/")
        and not layout.in_weight_folder(name)
        and not name.endswith(".tmp")
    )


def no_file_rides_along(facts: Facts) -> Iterator[Problem]:
    """Yield a warning for each file that a sealed run does not list."""
    yield from truncate_problems(
        finding(facts.folder, "TP602", name, f"{name} is in the folder and in no list of the run.")
        for name in unlisted_files(facts)
    )


def temporary_files(facts: Facts) -> Iterator[Problem]:
    """Yield a note for each temporary file of a write that was cut short."""
    yield from truncate_problems(
        finding(facts.folder, "TP601", name, "A temporary file was left over.")
        for name in facts.files
        if name.endswith(".tmp") and facts.status != "running"
    )


CHECKS = (temporary_files, no_file_rides_along)

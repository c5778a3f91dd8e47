"""TP6xx: what does no harm to the numbers and does not belong in a run folder."""

from __future__ import annotations

from collections.abc import Iterator

from evidence.records.facts import Facts, finding
from evidence.run import layout
from schemas.problems.problem import Problem
from schemas.problems.rule import Rule, first_few

LEFT_OVER = Rule(
    "TP601",
    "Temporary file left over",
    "A document was being replaced when the process was killed; the document itself is the old one, and whole.",
    "Delete the temporary file.",
    "note",
)


UNLISTED = Rule(
    "TP602",
    "File that no list names",
    "The run did not write it, or wrote it after its end: no hash vouches for it, and nothing in it is evidence.",
    "Remove it, or keep it elsewhere. A bundle leaves it out unless `--with-unlisted` is given.",
    "warning",
)

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
    yield from first_few(
        finding(facts.folder, UNLISTED, name, f"{name} is in the folder and in no list of the run.")
        for name in unlisted_files(facts)
    )


def temporary_files(facts: Facts) -> Iterator[Problem]:
    """Yield a note for each temporary file of a write that was cut short."""
    yield from first_few(
        finding(facts.folder, LEFT_OVER, name, "A temporary file was left over.")
        for name in facts.files
        if name.endswith(".tmp") and facts.status != "running"
    )


CHECKS = (temporary_files, no_file_rides_along)

"""TP231 to TP233, TP375, TP376: whether an import is what was read from its originals, and nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from evidence.records.facts import Facts, finding
from evidence.records.importing import READERS, contents
from evidence.records.ours import Run
from evidence.run import layout
from evidence.run.hashes import sha256_file
from foreign.checks.judgement import findings_of
from foreign.readers.view import ForeignRun, absent_shards
from schemas.formats import join_words, quantity
from schemas.problems import Problem, problem_of, truncate_problems

NOT_INTACT = (
    "TP231",
    "TP232",
    "TP233",
    "TP375",
    "TP376",
)
"""Findings after which an import proves nothing."""

_MOST_FILES_NAMED = 3


def foreign_findings(run: Run, view: ForeignRun) -> Iterator[Problem]:
    """Yield every finding of a folder of another tool, or of an import of one."""
    if run.is_import:
        ours = {layout.IMPORT, layout.NOTES}
        yield from (problem for problem in run.problems if Path(problem.file).name in ours)
        yield from _intact(run, view)
    else:
        yield _unimported_problem(run, view)
        yield from absent_shards(view.path, view.files.keys())  # An import leaves weights where they were.
    yield from findings_of(view)


def imports_stand_alone(facts: Facts) -> Iterator[Problem]:
    """Yield a problem for an import.json in a folder that has a manifest."""
    if layout.IMPORT in facts.files and layout.MANIFEST in facts.files:
        what = "The folder holds import.json and run_manifest.json."
        yield finding(facts.folder, "TP376", layout.IMPORT, what)


def _unimported_problem(run: Run, view: ForeignRun) -> Problem:
    """Return the problem that names what a folder that was not imported holds."""
    parts = []
    for tool, files in view.tools.items():
        more = f" and {len(files) - _MOST_FILES_NAMED} more" if len(files) > _MOST_FILES_NAMED else ""
        parts.append(f"{tool} ({', '.join(files[:_MOST_FILES_NAMED])}{more})")
    counts = [
        quantity(len(items), noun)
        for items, noun in ((view.metrics, "metric row"), (view.predictions, "answer"), (view.scores, "score"))
        if items
    ]
    held = f" with {join_words(counts, last='and')}" if counts else ""
    what = f"trainproof did not write this folder; it holds {join_words(parts, last='and')}{held}."
    then = f"Import it, which keeps the files with their hashes: `trainproof import {run.path} --name NAME`."
    return problem_of("TP517", file=str(run.path), what=what, next=then)


def _intact(run: Run, view: ForeignRun) -> Iterator[Problem]:
    """Yield what of an import does not follow from its originals."""
    document = run.imported
    if document is None or any(problem.severity == "error" for problem in run.problems):
        return
    changed = list(_changed_originals(run, document, view))
    yield from truncate_problems(problem for _, problem in changed)
    yield from _following(run, document, view, {name for name, _ in changed})


def _changed_originals(run: Run, document: dict[str, Any], view: ForeignRun) -> Iterator[tuple[str, Problem]]:
    """Yield each original that is not the one that was imported, with its problem."""
    folder, listed_names = run.path / layout.ORIGINAL, set()
    for index, original in enumerate(document["originals"]):
        name, place = original["path"], f"{layout.ORIGINAL}/{original['path']}"
        listed_names.add(name)
        if not original["kept"]:
            continue
        try:
            actual = sha256_file(folder / name) if name in view.files else None
        except OSError:
            actual = None
        if actual is None:
            what = f"{place} is listed and missing from the folder."
            pointer = f"/originals/{index}"
            yield name, finding(run.path, "TP232", layout.IMPORT, what, pointer=pointer)
        elif actual != original["sha256"]:
            what = f"{place} has the hash {actual[:12]}…; import.json states {original['sha256'][:12]}…."
            yield name, finding(run.path, "TP231", place, what, expected=original["sha256"])
    for name in sorted(view.files.keys() - listed_names):
        place = f"{layout.ORIGINAL}/{name}"
        yield name, finding(run.path, "TP233", place, f"{place} is not in import.json's list.")


def _following(run: Run, document: dict[str, Any], view: ForeignRun, altered: set[str]) -> Iterator[Problem]:
    """Yield what in import.json the originals do not give; of altered ones that is not known and not compared."""
    if document["run_id"] != run.path.resolve().name:
        what = f"import.json is of {document['run_id']}; the folder is {run.path.resolve().name}."
        yield finding(run.path, "TP375", layout.IMPORT, what, pointer="/run_id")
    if document["readers"] == READERS:
        for part, given in contents(view).items():
            stated, read = _of_others(document[part], altered), _of_others(given, altered)
            if stated != read:
                what = f"{part} in import.json differs from what the originals give ({_difference(stated, read)})."
                yield finding(run.path, "TP375", layout.IMPORT, what, pointer=f"/{part}")
    hashes = {original["sha256"] for original in document["originals"]}
    for name in (*layout.ROLES, layout.MANIFEST):
        if name in run.files and sha256_file(run.path / name) not in hashes:
            what = f"{name} is not one of the originals."
            yield finding(run.path, "TP375", name, what)


def _of_others(items: list[Any], altered: set[str]) -> list[Any]:
    """Return what was read from originals that are as they were imported."""
    kept: list[Any] = []
    for item in items:
        if isinstance(item, str):
            kept += [item] if item not in altered else []
        elif "files" in item:
            files = [name for name in item["files"] if name not in altered]
            kept += [{**item, "files": files}] if files else []
        elif item["source"]["file"] not in altered:
            kept.append(item)
    return kept


def _difference(stated: Any, read: Any) -> str:
    if len(stated) != len(read):
        return f"{len(stated)} instead of {len(read)}"
    first = next(index for index, (one, two) in enumerate(zip(stated, read, strict=True)) if one != two)
    return f"first in number {first + 1} of {len(read)}"


CHECKS = (imports_stand_alone,)

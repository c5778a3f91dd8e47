"""TP231 to TP233, TP375, TP376: check that an import states what its originals give, and nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from evidence import layout
from evidence.hashes import sha256_file
from evidence.imports.grade import tool_findings
from evidence.imports.importing import READERS, contents
from evidence.imports.run import ImportedRun
from evidence.run import Run, finding
from schemas.formats import join_words, quantity
from schemas.problems import Problem, problem_of, truncate_problems

TAMPERED = ("TP231", "TP232", "TP233", "TP375", "TP376")
"""Findings after which an import proves nothing."""


def import_findings(run: Run, view: ImportedRun) -> Iterator[Problem]:
    """Yield every finding about a folder of another tool, or an import of one."""
    if run.is_import:
        ours = {layout.IMPORT, layout.NOTES}
        yield from (problem for problem in run.problems if Path(problem.file).name in ours)
        if run.imported is not None and not any(problem.severity == "error" for problem in run.problems):
            changed = list(_changed_originals(run, run.imported, view))
            yield from truncate_problems(problem for _, problem in changed)
            yield from _check_contents(run, run.imported, view, {name for name, _ in changed})
    else:
        yield _not_imported(run, view)
    yield from tool_findings(view)


def _not_imported(run: Run, view: ImportedRun) -> Problem:
    """Return the problem that names what a folder holds that was not imported."""
    tools = [
        f"{tool} ({', '.join(files[:3])}{f' and {len(files) - 3} more' if len(files) > 3 else ''})"
        for tool, files in view.tools.items()
    ]
    counted = ((view.metrics, "metric row"), (view.predictions, "answer"), (view.scores, "score"))
    counts = [quantity(len(items), noun) for items, noun in counted if items]
    held = f" with {join_words(counts, last='and')}" if counts else ""
    what = f"trainproof did not write this folder; it holds {join_words(tools, last='and')}{held}."
    then = f"Run `trainproof import {run.path} --name NAME` to keep the files with their hashes."
    return problem_of("TP517", file=str(run.path), what=what, next=then)


def _changed_originals(run: Run, document: dict[str, Any], view: ImportedRun) -> Iterator[tuple[str, Problem]]:
    """Yield each original that is not the one that was imported, with its problem."""
    listed_names = set()
    for index, original in enumerate(document["originals"]):
        name, place = original["path"], f"{layout.ORIGINAL}/{original['path']}"
        listed_names.add(name)
        if not original["kept"]:
            continue
        try:
            actual = sha256_file(run.path / place) if name in view.files else None
        except OSError:
            actual = None
        if actual is None:
            what = f"{place} is listed in import.json but missing."
            yield name, finding(run.path, "TP232", layout.IMPORT, what, pointer=f"/originals/{index}")
        elif actual != original["sha256"]:
            what = f"{place} has the hash {actual[:12]}…; import.json states {original['sha256'][:12]}…."
            yield name, finding(run.path, "TP231", place, what, expected=original["sha256"])
    for name in sorted(view.files.keys() - listed_names):
        place = f"{layout.ORIGINAL}/{name}"
        yield name, finding(run.path, "TP233", place, f"{place} is not listed in import.json.")


def _check_contents(run: Run, document: dict[str, Any], view: ImportedRun, changed: set[str]) -> Iterator[Problem]:
    """Yield what import.json states differently from the originals; changed and unreadable ones are not compared."""
    if document["run_id"] != run.path.resolve().name:
        what = f"import.json is of {document['run_id']}; the folder is {run.path.resolve().name}."
        yield finding(run.path, "TP375", layout.IMPORT, what, pointer="/run_id")
    skipped = changed | {name for name, reading in view.files.items() if reading.needs_package}
    for part, given in contents(view).items() if document["readers"] == READERS else ():
        stated, read = (_without_files(items, skipped) for items in (document[part], given))
        if stated != read:
            pairs = enumerate(zip(stated, read, strict=False), start=1)
            first = next((number for number, (one, two) in pairs if one != two), None)
            where = f"{len(stated)} instead of {len(read)}" if len(stated) != len(read) else f"first in number {first}"
            what = f"{part} in import.json differs from what the originals give ({where})."
            yield finding(run.path, "TP375", layout.IMPORT, what, pointer=f"/{part}")
    hashes = {original["sha256"] for original in document["originals"]}
    for name in (*layout.ROLES, layout.MANIFEST):
        if name in run.files and sha256_file(run.path / name) not in hashes:
            yield finding(run.path, "TP375", name, f"{name} is not one of the originals.")


def _without_files(items: list[Any], names: set[str]) -> list[Any]:
    """Return the part of import.json that was read from other files than these."""
    kept: list[Any] = []
    for item in items:
        if isinstance(item, str):
            kept += [item] if item not in names else []
        elif "files" in item:
            files = [name for name in item["files"] if name not in names]
            kept += [{**item, "files": files}] if files else []
        elif item["source"]["file"] not in names:
            kept.append(item)
    return kept

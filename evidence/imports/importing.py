"""Import a folder of another tool: copy its files to `original/`, write their contents to `import.json`, and check it.

There is no `run_manifest.json`, because trainproof did not carry the run out. The folder appears whole or not at all.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from evidence import layout
from evidence.hashes import sha256_file
from evidence.imports.folder import is_weights, read_tool_folder, walk_files
from evidence.imports.grade import tool_findings
from evidence.imports.run import ImportedRun
from evidence.run import Run, finding, read_run
from evidence.writing import output_error, write_json
from schemas.catalog import VERSION, schema
from schemas.formats import join_words, quantity
from schemas.problems import Problem, ProblemError, problem_of, truncate_problems

READERS = 6  # version of the readers: raised whenever the same files would be read in another way


@dataclass(frozen=True, kw_only=True)
class ImportResult:
    """The new run folder, the contents of its originals, its import.json, and what was not copied and why."""

    path: Path
    view: ImportedRun
    document: dict[str, Any]
    notes: list[Problem]


def import_run(folder: Path, *, name: str, root: Path, now: datetime) -> ImportResult:
    """Make a run folder below `root`, whose id begins with `name`, of a folder that another tool wrote.

    Raises:
        ProblemError: Exit code 2 for a missing or unreadable folder, a bad name, and a root inside the folder or
            that cannot be written. Exit code 1 for a run of trainproof and a folder in which nothing is recognised.
    """
    folder, root = Path(folder), Path(root)
    run_id = layout.new_run_id(name, now)
    _refuse(folder, name, run_id, root)
    target, making = root / run_id, root / f".{run_id}.tmp"
    try:
        root.mkdir(parents=True, exist_ok=True)
        originals, notes = _copy(folder, making / layout.ORIGINAL)
        view = read_tool_folder(making / layout.ORIGINAL)
        for original in originals:
            original["encoding"] = view.files[original["path"]].encoding if original["kept"] else None
        document = {
            "schema_version": VERSION,
            "run_id": run_id,
            "imported_at": now.isoformat(timespec="seconds"),
            "readers": READERS,
            "source": folder.resolve().name or "root",
            "originals": originals,
            **contents(view),
        }
        write_json(making / layout.IMPORT, document)
        making.rename(target)
    except BaseException as error:
        shutil.rmtree(making, ignore_errors=True)
        if isinstance(error, OSError):
            raise output_error(error, root, subject="The import") from error
        raise
    return ImportResult(path=target, view=replace(view, path=target / layout.ORIGINAL), document=document, notes=notes)


def contents(view: ImportedRun) -> dict[str, Any]:
    """Return the part of import.json that is read from the originals."""
    return {
        "tools": [{"name": name, "files": files} for name, files in view.tools.items()],
        "templates": view.templates,
        "facts": [asdict(fact) for fact in view.facts],
        "metrics": [{**asdict(row), "inferred": []} for row in view.metrics],
        "scores": [asdict(score) for score in view.scores],
        "predictions": [asdict(prediction) for prediction in view.predictions],
    }


def _refuse(folder: Path, name: str, run_id: str, root: Path) -> None:
    problems = []
    if not folder.is_dir():
        problems.append(_refusal(folder, f"{folder} is not a folder.", "Pass the folder that the other tool wrote."))
    elif root.resolve().is_relative_to(folder.resolve()):
        what = f"The root {root} lies inside {folder}, which is only read."
        problems.append(_refusal(folder, what, "Pass another --root."))
    if not re.search(schema("types")["$defs"]["run_id"]["pattern"], run_id):
        advice = "Use letters, digits, dot, underscore and hyphen, and begin with a letter or a digit."
        problems.append(_refusal(folder, f"{name!r} cannot be the beginning of a run's name.", advice))
    if problems:
        raise ProblemError(problems, exit_code=2)
    if read_run(folder).is_ours:
        advice = f"Use it as it is: `trainproof check {folder}`."
        raise ProblemError([_refusal(folder, f"{folder} is already a run of trainproof.", advice)])
    view = read_tool_folder(folder)
    if not view.looks_like_run:
        what = f"Nothing in {folder} is recognised as part of a run ({len(view.files)} files were read)."
        advice = (
            "Pass the folder that holds the log, the metrics or the answers of the run. Export the metrics of a "
            "tracker's database as CSV, and run `wandb sync` on an offline run."
        )
        raise ProblemError([_refusal(folder, what, advice)])


def _refusal(folder: Path, what: str, advice: str) -> Problem:
    return problem_of("TP096", file=str(folder), what=what, why=None, next=advice)


def _copy(folder: Path, target: Path) -> tuple[list[dict[str, Any]], list[Problem]]:
    """Copy the files and return the list of originals; weights are only hashed."""
    originals: list[dict[str, Any]] = []
    notes: list[Problem] = []
    for name in walk_files(folder, notes):
        path, kept = folder / name, not is_weights(name)
        try:
            source = path.open("rb")
        except OSError as error:
            what = f"{path} cannot be read: {error.strerror or error}."
            advice = "Make it readable, or take it out of the folder, and import again."
            raise ProblemError([_refusal(path, what, advice)], exit_code=2) from error
        with source:
            if kept:
                path = target / name  # The copy is hashed, as a run that still writes may change the original.
                path.parent.mkdir(parents=True, exist_ok=True)
                with path.open("wb") as copy:
                    shutil.copyfileobj(source, copy)
        size = path.stat().st_size
        if not kept:
            notes.append(problem_of("TP523", file=str(path), what=f"{name} ({size:,} bytes) was not copied."))
        originals.append({"path": name, "bytes": size, "sha256": sha256_file(path), "kept": kept})
    return originals, notes


# Checking an import

TAMPERED = ("TP231", "TP232", "TP233", "TP375", "TP376")  # findings after which an import proves nothing


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
    more = {tool: f" and {len(files) - 3} more" if len(files) > 3 else "" for tool, files in view.tools.items()}
    tools = [f"{tool} ({', '.join(files[:3])}{more[tool]})" for tool, files in view.tools.items()]
    counted = ((view.metrics, "metric row"), (view.predictions, "answer"), (view.scores, "score"))
    counts = [quantity(len(items), noun) for items, noun in counted if items]
    held = f" with {join_words(counts, last='and')}" if counts else ""
    what = f"trainproof did not write this folder; it holds {join_words(tools, last='and')}{held}."
    advice = f"Run `trainproof import {run.path} --name NAME` to keep the files with their hashes."
    return problem_of("TP517", file=str(run.path), what=what, next=advice)


def _changed_originals(run: Run, document: dict[str, Any], view: ImportedRun) -> Iterator[tuple[str, Problem]]:
    """Yield each original that is not the one that was imported, with its problem."""
    for index, original in enumerate(document["originals"]):
        name, place = original["path"], f"{layout.ORIGINAL}/{original['path']}"
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
    for name in sorted(view.files.keys() - {original["path"] for original in document["originals"]}):
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
            what = f"{part} in import.json differs from what the originals give."
            yield finding(run.path, "TP375", layout.IMPORT, what, pointer=f"/{part}")
    hashes = {original["sha256"] for original in document["originals"]}
    for name in (*layout.ROLES, layout.MANIFEST):
        if name in run.files and sha256_file(run.path / name) not in hashes:
            yield finding(run.path, "TP375", name, f"{name} is not one of the originals.")


def _without_files(items: list[Any], names: set[str]) -> list[tuple[str, Any]]:
    """Return (file, statement) pairs of a part of import.json, without those of some files."""
    pairs: list[tuple[str, Any]] = []
    for item in items:
        if isinstance(item, str):
            pairs.append((item, item))
        elif "files" in item:
            pairs += [(file, item["name"]) for file in item["files"] or [""]]
        else:
            pairs.append((item["source"]["file"], item))
    return [(file, statement) for file, statement in pairs if file not in names]

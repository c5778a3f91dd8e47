"""Importing: a folder of another tool becomes a run folder that states what it is.

The files are copied to `original/` byte for byte, and `import.json` holds what was read from the copies. There is no
`run_manifest.json`: trainproof did not carry the run out. The folder appears whole or not at all.
"""

from __future__ import annotations

import hashlib
import re
import shutil
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from datetime import datetime
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

from evidence.records.foreign_run import entries, is_weights, read_foreign
from evidence.records.ours import read_run
from evidence.run import layout
from evidence.run.write import not_written, write_json
from foreign.readers.statement import Citation
from foreign.readers.tracking import name_store
from foreign.readers.view import ForeignRun
from schemas.catalog import VERSION, schema
from schemas.problems import Problem, ProblemError, problem_of
from schemas.reading import read_rows

READERS = 4
"""Version of the readers: raised whenever the same files would be read in another way."""


_BLOCK = 1 << 20
_MOST_LOOKED_AT = 5000
_OUR_ROWS = {"metric_row": layout.METRICS, "prediction_row": layout.PREDICTIONS}


@dataclass(frozen=True, kw_only=True)
class ImportResult:
    """What an import made."""

    path: Path
    """The new run folder."""
    view: ForeignRun
    """What was read from its originals."""
    document: dict[str, Any]
    """The value of its import.json."""
    notes: tuple[Problem, ...]
    """What was not copied, and why."""


def import_run(folder: Path, *, name: str, root: Path, now: datetime) -> ImportResult:
    """Make a run folder of a folder that another tool wrote; the folder itself is only read.

    Args:
        folder: What to import.
        name: Beginning of the new run's id.
        root: Where the new run folder is made; missing folders are made.
        now: The time, in UTC.

    Raises:
        ProblemError: Exit code 2: no such folder, a name that no run can have, a root inside the folder, or it could
            not be written and nothing is left behind. Exit code 1: the folder is a run of trainproof, or nothing in it
            is recognised.
    """
    folder, root = Path(folder), Path(root)
    run_id = layout.new_run_id(name, now)
    _refuse(folder, name, run_id, root)
    target = root / run_id
    making = root / f".{run_id}.tmp"
    try:
        root.mkdir(parents=True, exist_ok=True)
        originals, notes = _copy(folder, making / layout.ORIGINAL)
        view = read_foreign(making / layout.ORIGINAL)
        document = {
            "schema_version": VERSION,
            "run_id": run_id,
            "imported_at": now.isoformat(timespec="seconds"),
            "readers": READERS,
            "source": folder.resolve().name or "root",
            "originals": [
                {**original, "encoding": view.files[original["path"]].encoding if original["kept"] else None}
                for original in originals
            ],
            **contents(view),
        }
        _keep_rows(view, making)
        write_json(making / layout.IMPORT, document)
        making.rename(target)
    except BaseException as error:
        shutil.rmtree(making, ignore_errors=True)
        if isinstance(error, OSError):
            raise not_written(error, root, what="The import") from error
        raise
    return ImportResult(path=target, view=read_foreign(target / layout.ORIGINAL), document=document, notes=tuple(notes))


def contents(view: ForeignRun) -> dict[str, Any]:
    """Return what import.json holds of a view: everything that follows from the originals."""
    return {
        "tools": [{"name": name, "files": files} for name, files in view.tools.items()],
        "templates": view.templates,
        "facts": [
            {"name": one.name, "value": one.value, "how": one.how, "source": _source(one.source), "note": one.note}
            for one in view.facts
        ],
        "metrics": [
            {"values": row.values, "stage": row.stage, "inferred": list(row.inferred), "source": _source(row.source)}
            for row in view.metrics
        ],
        "scores": [{**asdict(score), "source": _source(score.source)} for score in view.scores],
        "predictions": [{**asdict(one), "source": _source(one.source)} for one in view.predictions],
    }


def _source(source: Citation) -> dict[str, Any]:
    return {"file": source.file, "line": source.line, "pointer": source.pointer}


def _refuse(folder: Path, name: str, run_id: str, root: Path) -> None:
    problems = []
    if not folder.is_dir() and not (problems := _stores(folder, [folder])):
        problems.append(_usage(folder, f"{folder} is no folder.", "Give the folder that the other tool wrote."))
    pattern = schema("types")["$defs"]["run_id"]["pattern"]
    if not re.search(pattern, run_id):
        what = f"{name!r} cannot be the beginning of a run's name."
        then = "Use letters, digits, dot, underscore and hyphen, and begin with a letter or a digit."
        problems.append(_usage(folder, what, then))
    if folder.is_dir() and root.resolve().is_relative_to(folder.resolve()):
        what = f"The root {root} lies inside {folder}, which is only read."
        problems.append(_usage(folder, what, "Give another --root."))
    if problems:
        raise ProblemError(problems, exit_code=2)
    if read_run(folder).is_ours:
        what = f"{folder} is a run of trainproof already."
        raise ProblemError([_usage(folder, what, f"Use it as it is: `trainproof check {folder}`.")])
    view = read_foreign(folder)
    if not view.looks_like_run and (
        stores := _stores(folder, islice(filter(Path.is_file, folder.rglob("*")), _MOST_LOOKED_AT))
    ):
        raise ProblemError(stores)
    if not view.looks_like_run:
        what = f"Nothing in {folder} is recognised as part of a run ({len(view.files)} files were looked at)."
        then = "Give the folder that holds the log, the metrics or the answers of the run."
        raise ProblemError([_usage(folder, what, then)])


def _stores(folder: Path, paths: Iterable[Path]) -> list[Problem]:
    """Return a problem that names what a folder holds, if that is the store of another tool that is not read."""
    for path in paths:
        try:
            store = name_store(path.as_posix(), partial(_ends_of, path))
        except OSError:
            continue
        if store:
            name = path.relative_to(folder).as_posix() if path != folder else path.name
            then = f"Export its metrics as CSV{store[1]}, and import the folder with that file."
            return [_usage(folder, f"{name} is {store[0]}, which trainproof cannot read.", then)]
    return []


def _ends_of(path: Path) -> bytes:
    """Return the first and the last bytes of a file; a zip has its list of names at the end."""
    with path.open("rb") as file:
        head = file.read(_BLOCK)
        file.seek(max(len(head), path.stat().st_size - _BLOCK))
        return head + file.read()


def _usage(folder: Path, what: str, then: str) -> Problem:
    return problem_of("TP096", file=str(folder), what=what, why=None, next=then)


def _copy(folder: Path, target: Path) -> tuple[list[dict[str, Any]], list[Problem]]:
    """Copy the files and return the list of originals; weights are hashed where they are."""
    target.mkdir(parents=True)
    originals: list[dict[str, Any]] = []
    notes: list[Problem] = []
    for name, _ in entries(folder, notes):
        kept = not is_weights(name)
        digest, size = hashlib.sha256(), 0
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        with _open(folder / name) as source, (target / name).open("wb") as copy:
            while block := source.read(_BLOCK):
                digest.update(block)
                size += len(block)
                if kept:
                    copy.write(block)
        if not kept:
            (target / name).unlink()
            what = f"{name} ({size:,} bytes) was not copied."
            notes.append(problem_of("TP523", file=str(folder / name), what=what))
        originals.append({"path": name, "bytes": size, "sha256": digest.hexdigest(), "kept": kept})
    return originals, notes


def _open(path: Path) -> BinaryIO:
    """Open a file of the source.

    Raises:
        ProblemError: Exit code 2: it cannot be read. That is shown of this file, not of the place that is written to.
    """
    try:
        return path.open("rb")
    except OSError as error:
        what = f"{path} cannot be read: {error.strerror or error}."
        raise ProblemError(
            [_usage(path, what, "Make it readable, or take it out of the folder, and import again.")], exit_code=2
        ) from error


def _keep_rows(view: ForeignRun, run: Path) -> None:
    """Copy a file of rows to its place in a run where every row satisfies our schema as it stands."""
    for kind, name in _OUR_ROWS.items():
        fitting = [
            path
            for path in (run / layout.ORIGINAL / file for file in view.files if file.endswith(".jsonl"))
            if (rows := read_rows(path, kind)).values and not rows.problems
        ]
        if len(fitting) == 1:
            shutil.copyfile(fitting[0], run / name)

"""Change every value of a run once and recompute all hashes, so that only a contradiction can reveal the change.

Each leaf of each document, and of some rows, becomes another value of its type, null, or is removed; rows are removed,
repeated and swapped, and files removed.
"""

import json
import shutil
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import yaml

from evidence import layout
from evidence.hashes import sha256_file, sha256_json, sha256_manifest
from evidence.rules.identity import SEALED
from schemas.reading import parse_time

DOCUMENTS = (layout.MANIFEST, layout.CONFIG, layout.PLAN, layout.FIRST_EXAMPLES, layout.EVAL_SUMMARY)
ROWS = (layout.METRICS, layout.LOG, layout.PREDICTIONS, layout.BASELINE_PREDICTIONS, layout.ANSWERS_OVER_STEPS)
KINDS = ("other", "null", "removed")

Key = str | int


@dataclass(frozen=True, kw_only=True)
class Forgery:
    """One change.

    Attributes:
        file: Name of the file.
        what: `other`, `null` or `removed` for a value; otherwise the change of rows or the file.
        path: Keys from the document or row to the value.
        line: Line of the row.
    """

    file: str
    what: str
    path: tuple[Key, ...] = ()
    line: int | None = None

    @property
    def place(self) -> str:
        """Place of the change without rows and list positions: `metrics.jsonl/loss`."""
        keys = ("*" if isinstance(key, int) else key for key in self.path)
        return "/".join((self.file, *keys))


class Forger:
    """A copy of a run in which one value at a time is changed."""

    def __init__(self, original: Path, folder: Path) -> None:
        shutil.copytree(original, folder, ignore=shutil.ignore_patterns(*layout.WEIGHT_FOLDERS, layout.LOCK))
        self.folder = folder
        self._bytes = {path.name: path.read_bytes() for path in sorted(folder.iterdir()) if path.is_file()}
        self.values: dict[str, Any] = {}
        for name, content in self._bytes.items():
            if name in ROWS:
                self.values[name] = [json.loads(line) for line in content.decode("utf-8").splitlines()]
            elif name == layout.CONFIG:
                self.values[name] = yaml.safe_load(content)
            elif name in DOCUMENTS:
                self.values[name] = json.loads(content)

    def forgeries(self) -> Iterator[Forgery]:
        """Yield every change of this run, in a fixed order."""
        for name in DOCUMENTS:
            for path, value in leaves(self.values.get(name, {})):
                if name == layout.MANIFEST and path[0] == "artifacts":
                    continue  # written by `_list`
                yield from _changes(name, path, value, None)
        for name in ROWS:
            rows = self.values.get(name, [])
            for index in sorted({0, len(rows) // 2, len(rows) - 1} if rows else ()):
                for path, value in leaves(rows[index]):
                    yield from _changes(name, path, value, index + 1)
            for what in ("row removed", "row repeated", "rows swapped", "cut off") if len(rows) > 1 else ():
                for line in sorted({1, len(rows) // 2, len(rows) - 1}):
                    yield Forgery(file=name, what=what, line=line)
        for name in self._bytes:
            yield Forgery(file=name, what="file removed")

    def commit(self, forgery: Forgery) -> None:
        self.restore()
        values = deepcopy(self.values)
        if forgery.what == "file removed":
            (self.folder / forgery.file).unlink()
            values.pop(forgery.file, None)
        elif forgery.path:
            value = values[forgery.file]
            change(value[forgery.line - 1] if forgery.line else value, forgery.path, forgery.what)
        else:
            _move(values[forgery.file], forgery)
        self._reseal(values, forgery)

    def restore(self) -> None:
        for name, content in self._bytes.items():
            (self.folder / name).write_bytes(content)

    def _reseal(self, values: dict[str, Any], forgery: Forgery) -> None:
        """Write the changed files, then their hashes, the seal in the log and the artifact list."""
        if forgery.file != layout.PLAN and layout.PLAN in values and layout.CONFIG in values:
            values[layout.PLAN]["config_sha256"] = sha256_json(values[layout.CONFIG])
        for name in (*ROWS, layout.CONFIG, layout.PLAN):
            self._write(name, values)
        if summary := values.get(layout.EVAL_SUMMARY):
            self._state_hashes(summary, forgery)
        manifest = values.get(layout.MANIFEST)
        if manifest and forgery.file != layout.LOG:
            for record in values.get(layout.LOG, []):
                if record["event"] == SEALED:
                    record["fields"]["manifest_sha256"] = sha256_manifest(manifest)
        for name in (layout.EVAL_SUMMARY, layout.FIRST_EXAMPLES, layout.LOG):
            self._write(name, values)
        if manifest:
            self._list(manifest)
            self._write(layout.MANIFEST, values)

    def _state_hashes(self, summary: dict[str, Any], forgery: Forgery) -> None:
        if forgery.file != layout.EVAL_SUMMARY:
            for block in filter(None, (summary, summary["baseline"])):
                if (self.folder / block["predictions"]["path"]).is_file():
                    block["predictions"]["sha256"] = sha256_file(self.folder / block["predictions"]["path"])
        elif forgery.path[:1] == ("generation",) and forgery.path[1:] != ("sha256",):
            settings = {key: value for key, value in summary["generation"].items() if key != "sha256"}
            summary["generation"]["sha256"] = sha256_json(settings)

    def _list(self, manifest: dict[str, Any]) -> None:
        for artifact in list(manifest["artifacts"]):
            file = self.folder / artifact["path"]
            if file.is_file():
                artifact |= {"bytes": file.stat().st_size, "sha256": sha256_file(file)}
            else:
                manifest["artifacts"].remove(artifact)

    def _write(self, name: str, values: dict[str, Any]) -> None:
        if name not in values or not (self.folder / name).exists():
            return
        if name in ROWS:
            text = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in values[name])
        elif name == layout.CONFIG:
            text = yaml.safe_dump(values[name], sort_keys=False, allow_unicode=True)
        else:
            text = json.dumps(values[name], ensure_ascii=False, indent=2) + "\n"
        (self.folder / name).write_bytes(text.encode("utf-8"))


def leaves(value: Any, path: tuple[Key, ...] = ()) -> Iterator[tuple[tuple[Key, ...], Any]]:
    """Yield each scalar with its path; of lists only the first, middle and last item."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield from leaves(item, (*path, key))
    elif isinstance(value, list):
        for index in sorted({0, len(value) // 2, len(value) - 1}) if value else ():
            yield from leaves(value[index], (*path, index))
    else:
        yield path, value


def change(value: Any, path: tuple[Key, ...], what: str) -> None:
    *groups, key = path
    for group in groups:
        value = value[group]
    if what == "removed":
        del value[key]
    else:
        value[key] = None if what == "null" else other(value[key])


def other(value: Any) -> Any:
    if isinstance(value, bool):
        return not value
    if value is None:
        return 1
    if isinstance(value, int):
        return value + 1
    if isinstance(value, float):
        return value * 1.05 + (0.01 if value == 0 else 0)
    if (at := parse_time(value)) is not None and len(value) > len("2026-01-01"):
        return (at - timedelta(hours=1)).isoformat(timespec="milliseconds")
    if value and all(letter in "0123456789abcdef" for letter in value) and len(value) in (40, 64):
        return ("1" if value[0] == "0" else "0") + value[1:]
    return f"{value}x"


def _changes(name: str, path: tuple[Key, ...], value: Any, line: int | None) -> Iterator[Forgery]:
    for what in KINDS:
        if what == "null" and value is None:
            continue
        if what == "removed" and isinstance(path[-1], int):
            continue  # covered by the changes of rows and examples
        yield Forgery(file=name, path=path, what=what, line=line)


def _move(rows: list[Any], forgery: Forgery) -> None:
    index = (forgery.line or 1) - 1
    if forgery.what == "row removed":
        del rows[index]
    elif forgery.what == "row repeated":
        rows.insert(index, deepcopy(rows[index]))
    elif forgery.what == "rows swapped":
        rows[index], rows[index + 1] = rows[index + 1], rows[index]
    else:
        del rows[index + 1 :]

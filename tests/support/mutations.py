"""Apply the changes of a case file to a run folder, as a careless or dishonest person could.

A change names a `file` and one action: `value` at a `pointer` (of a document, of the row in `line`, or of `all` rows),
`remove` of a pointer, `remove_line`, `repeat_line`, `swap_lines`, `replace` of text, `append` of text, `text`, `hex`,
`delete`, `link_to`, `copy_to` or `make_folder`. `reseal` recomputes the hashes, as a forger would.
"""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml
from synthetic import seal, write_document

from evidence import layout
from evidence.hashes import sha256_file, sha256_json

Change = dict[str, Any]


def apply(folder: Path, change: Change) -> None:
    """Apply one change to a run folder."""
    [action] = [name for name in ACTIONS if name in change]
    ACTIONS[action](folder / change["file"], change)


def reseal(folder: Path, changes: list[Change]) -> None:
    """Recompute every hash; that of the plan only if the plan itself was not changed."""
    plan, config = folder / layout.PLAN, folder / layout.CONFIG
    if plan.is_file() and not any(change["file"] == layout.PLAN for change in changes):
        write_document(plan, _load(plan) | {"config_sha256": sha256_json(_load(config))})
    path = folder / layout.EVAL_SUMMARY
    if path.is_file():
        summary = _load(path)
        for scores in filter(None, (summary, summary["baseline"])):
            file = folder / scores["predictions"]["path"]
            if file.is_file():
                scores["predictions"]["sha256"] = sha256_file(file)
        write_document(path, summary)
    seal(folder)


def _set(path: Path, change: Change) -> None:
    if "line" in change:
        lines = path.read_text("utf-8").splitlines()
        for index in range(len(lines)) if change["line"] == "all" else [change["line"] - 1]:
            row = _edited(json.loads(lines[index]), change["pointer"], change["value"])
            lines[index] = json.dumps(row, ensure_ascii=False)
        _write(path, "".join(f"{line}\n" for line in lines))
    else:
        _save(path, _edited(_load(path), change["pointer"], change["value"]))


def _load(path: Path) -> Any:
    text = path.read_text("utf-8")
    return yaml.safe_load(text) if path.suffix == ".yaml" else json.loads(text)


def _save(path: Path, document: Any) -> None:
    if path.suffix == ".yaml":
        _write(path, yaml.safe_dump(document, sort_keys=False))
    else:
        write_document(path, document)


def _edited(document: Any, pointer: str, *value: Any) -> Any:
    *groups, key = pointer.split("/")[1:]
    group = document
    for name in groups:
        group = group[int(name) if isinstance(group, list) else name]
    if key == "-":
        group.append(*value)
    elif value:
        [group[int(key) if isinstance(group, list) else key]] = value
    else:
        del group[int(key) if isinstance(group, list) else key]
    return document


def _lines(path: Path, act: Callable[[list[str]], None]) -> None:
    lines = path.read_text("utf-8").splitlines()
    act(lines)
    _write(path, "".join(f"{line}\n" for line in lines))


def _swap(lines: list[str], one: int, other: int) -> None:
    lines[one - 1], lines[other - 1] = lines[other - 1], lines[one - 1]


def _replace(path: Path, change: Change) -> None:
    old, new = change["replace"]
    text = path.read_bytes().decode("utf-8")
    assert old in text, f"{old!r} is not in {path.name}"
    _write(path, text.replace(old, new))


def _link(path: Path, change: Change) -> None:
    path.unlink(missing_ok=True)
    path.symlink_to(change["link_to"])


def _make_folder(path: Path, _change: Change) -> None:
    path.unlink()
    path.mkdir()


def _write(path: Path, text: str) -> None:
    path.write_bytes(text.encode("utf-8"))


ACTIONS: dict[str, Callable[[Path, Change], Any]] = {
    "value": _set,
    "remove": lambda path, change: _save(path, _edited(_load(path), change["remove"])),
    "remove_line": lambda path, change: _lines(path, lambda lines: lines.pop(change["remove_line"] - 1)),
    "repeat_line": lambda path, change: _lines(path, lambda lines: lines.append(lines[change["repeat_line"] - 1])),
    "swap_lines": lambda path, change: _lines(path, lambda lines: _swap(lines, *change["swap_lines"])),
    "replace": _replace,
    "append": lambda path, change: _write(path, path.read_text("utf-8") + change["append"]),
    "text": lambda path, change: _write(path, change["text"]),
    "hex": lambda path, change: path.write_bytes(bytes.fromhex(change["hex"])),
    "delete": lambda path, _change: path.unlink(),
    "link_to": _link,
    "copy_to": lambda path, change: shutil.copyfile(path, path.parent / change["copy_to"]),
    "make_folder": _make_folder,
}

"""Saved views of the runs page: names for addresses, in one file beside the queue: `<root>/.views/views.json`.

A view is what the address states: search, filters, columns, order, grouping. Nothing of it stands in a run folder, and
nothing in the file is trusted: a name is text, and of an address only known parameters with texts are taken. A file
that is not valid is named and left as it is.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from evidence.writing import write_json
from schemas.problems import Problem, ProblemError, pointer_to, problem_of
from schemas.reading import parse_json

FOLDER = ".views"
FILE = "views.json"
VERSION = "1.0"
PARAMETERS = ("q", "grade", "mode", "status", "tag", "columns", "sort", "order", "group", "archived")
"""Parameters of the address that a view keeps; the page of a long list is not one."""

MOST_VIEWS = 200
LONGEST_NAME = 80
LONGEST_VALUE = 4000
MOST_VALUES = 200

_writing = threading.Lock()

Address = Mapping[str, tuple[str, ...]]


@dataclass(frozen=True, kw_only=True)
class SavedView:
    """A name and what the address states: values by parameter."""

    name: str
    address: Address

    @property
    def link(self) -> str:
        """The address after the page's own, with its question mark; empty for a view of everything."""
        pairs = [(key, value) for key in PARAMETERS for value in self.address.get(key, ())]
        return f"?{urlencode(pairs)}" if pairs else ""


def path_of(root: Path) -> Path:
    """Return the file of a root's views."""
    return root / FOLDER / FILE


def saved_views(root: Path) -> list[SavedView]:
    """Return the views of a root by name; none where there is no file.

    Raises:
        ProblemError: The file cannot be read or is not valid.
    """
    path = path_of(root)
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return []
    except OSError as error:
        what = f"The saved views cannot be read: {error.strerror or error}."
        raise ProblemError(
            [_problem(path, what, advice="See that this file can be read; it is left as it is.")]
        ) from error
    parsed = parse_json(data, file=str(path))
    if parsed.problems or not parsed.is_read:
        raise ProblemError([*parsed.problems, _problem(path, "The saved views cannot be read.")])
    views, wrong = _views(parsed.value)
    if wrong:
        pointer, what = wrong
        raise ProblemError([_problem(path, what, pointer=pointer, line=parsed.lines(pointer))])
    return sorted(views, key=lambda view: view.name.lower())


def save(root: Path, name: str, address: Address) -> None:
    """Keep an address under a name; a view of that name is replaced.

    Raises:
        ProblemError: The name is empty or too long, so is the address, there are too many views, or the file is not
            valid or cannot be written; nothing was changed.
    """
    name = _find_view(root, name)
    for key, values in address.items():
        if not _is_bearable(values):
            what = f"Of {key} a view keeps {MOST_VALUES} values of {LONGEST_VALUE:,} characters at most; this has more."
            raise ProblemError([_problem(path_of(root), what, advice=f"Shorten {key} and save again.")])
    _rewrite(
        root, lambda views: [*(view for view in views if view.name != name), SavedView(name=name, address=address)]
    )


def rename(root: Path, old: str, new: str) -> None:
    """Give a view another name; a view of that name is replaced.

    Raises:
        ProblemError: As for `save`.
    """
    new = _find_view(root, new)

    def renamed(views: Sequence[SavedView]) -> list[SavedView]:
        moved = [SavedView(name=new, address=view.address) for view in views if view.name == old]
        return [*(view for view in views if view.name not in {old, new if moved else old}), *moved]

    _rewrite(root, renamed)


def delete(root: Path, name: str) -> None:
    """Forget a view.

    Raises:
        ProblemError: The file is not valid or cannot be written.
    """
    _rewrite(root, lambda views: [view for view in views if view.name != name])


def _rewrite(root: Path, change: Callable[[Sequence[SavedView]], list[SavedView]]) -> None:
    path = path_of(root)
    with _writing:
        views = change(saved_views(root))
        if len(views) > MOST_VIEWS:
            what = f"There are {MOST_VIEWS} saved views; that is the most."
            raise ProblemError([_problem(path, what, advice="Delete one that is no longer used, and save again.")])
        value = {
            "schema_version": VERSION,
            "views": [
                {"name": view.name, "address": {key: list(values) for key, values in view.address.items()}}
                for view in views
            ],
        }
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_json(path, value)
        except OSError as error:
            what = f"The view could not be saved: {error.strerror or error}."
            raise ProblemError([_problem(path, what, advice="Fix that and save again.")]) from error


def _find_view(root: Path, name: str) -> str:
    name = " ".join(name.split())
    if not 1 <= len(name) <= LONGEST_NAME:
        what = f"A view needs a name of 1 to {LONGEST_NAME} characters."
        raise ProblemError([_problem(path_of(root), what, advice="Write one into Name, and press the button again.")])
    return name


def _views(value: Any) -> tuple[list[SavedView], tuple[str, str] | None]:
    """Return the views that a document holds, or where and why it is not such a document."""
    if not isinstance(value, dict) or not isinstance(value.get("views"), list):
        return [], ("", "The file holds no list of views.")
    if value.get("schema_version") != VERSION:
        return [], ("/schema_version", f"The saved views are not of version {VERSION}.")
    if len(value["views"]) > MOST_VIEWS:
        return [], ("/views", f"There are more than {MOST_VIEWS} views.")
    views: dict[str, SavedView] = {}
    for index, item in enumerate(value["views"]):
        pointer = pointer_to(["views", index])
        if not isinstance(item, dict) or not _is_name(item.get("name")):
            return [], (pointer, "A view has no name, or one that is too long.")
        if not _is_address(item.get("address")):
            return [], (pointer, "A view has an invalid address.")
        address = {key: tuple(item["address"][key]) for key in PARAMETERS if key in item["address"]}
        views[item["name"]] = SavedView(name=item["name"], address=address)
    return list(views.values()), None


def _is_name(value: Any) -> bool:
    return isinstance(value, str) and 1 <= len(value) <= LONGEST_NAME


def _is_address(value: Any) -> bool:
    return isinstance(value, dict) and all(
        isinstance(values, list) and all(isinstance(one, str) for one in values) and _is_bearable(values)
        for values in value.values()
    )


def _is_bearable(values: Sequence[str]) -> bool:
    """Return whether a parameter is not longer than a view keeps; what is saved and what is read hold to the same."""
    return len(values) <= MOST_VALUES and all(len(one) <= LONGEST_VALUE for one in values)


_MEND = "Correct the file, or move it away; it contains only names and addresses of views."


def _problem(
    path: Path, what: str, *, advice: str = _MEND, pointer: str | None = None, line: int | None = None
) -> Problem:
    return problem_of("TP082", file=str(path), line=line, pointer=pointer, what=what, next=advice, why=None)

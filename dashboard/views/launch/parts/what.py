"""The first question of the page: what is trained, and on which rows. A card for each, with what was read of it."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain, islice
from pathlib import Path
from typing import Any

import streamlit as st

from dashboard.shared.config import form
from dashboard.shared.parts import config_form, gate, markup, token_rows
from dashboard.shared.parts.launching import trying
from dashboard.shared.session import state
from evidence.writing import write_bytes
from launch.jobs import launch_folder
from schemas.catalog import DATASETS, MODELS
from schemas.formats import count, short_count, size
from schemas.reading import get_number, get_objects, get_str

_MODEL, _ROWS = ("model", "name"), ("data", "dataset")


ROWS = ("jsonl", "parquet", "txt")
"""Ends of the names of files that rows are read from."""

_FOLDER = "rows"
_MOST = 50
_LOOKED_AT = 2_000
"""Files and folders that are looked at; where a home folder has more, the rest is not offered."""
_COUNTED_BYTES = 1 << 24
"""Lines of a larger file are not counted for a label."""


@dataclass(frozen=True, kw_only=True)
class Offer:
    """Something that a configuration can name.

    Attributes:
        name: As the configuration names it.
        label: The name and how large it is.
    """

    name: str
    label: str


def models(folder: Path) -> list[Offer]:
    """Return the models that are built in and those in a folder or one below it, at most fifty."""
    found = []
    for path in _near(folder):
        if path.suffix.lower() == ".gguf" and path.is_file():
            found.append((path, path.stat().st_size))
        elif path.is_dir() and (path / "config.json").is_file() and (weights := list(path.glob("*.safetensors"))):
            found.append((path, sum(each.stat().st_size for each in weights)))
    built_in = [Offer(name=name, label=f"{name}, built in") for name in MODELS]
    return built_in + [_offer(folder, path, size(taken)) for path, taken in found[:_MOST]]


def datasets(folder: Path, root: Path) -> list[Offer]:
    """Return the rows that are built in, those in a folder or one below it, and those that were dropped here."""
    kept = launch_folder(root) / _FOLDER
    files = [*_near(folder), *(sorted(kept.iterdir()) if kept.is_dir() else ())]
    found = [path for path in files if path.suffix.lower().lstrip(".") in ROWS and path.is_file()]
    built_in = [Offer(name=name, label=f"{name}, built in") for name in DATASETS]
    return built_in + [_offer(folder, path, _length(path)) for path in found[:_MOST]]


def keep_rows(root: Path, name: str, content: bytes) -> Path:
    """Write a dropped file among the jobs of a root and return its path; the same content is kept once.

    Raises:
        OSError: It could not be written.
    """
    stem, ending = Path(name).stem, Path(name).suffix.lower()
    plain = re.sub("[^A-Za-z0-9._-]", "-", stem).lstrip("._-")[:60] or "rows"
    path = launch_folder(root) / _FOLDER / f"{plain}-{hashlib.sha256(content).hexdigest()[:8]}{ending}"
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.is_file() or path.read_bytes() != content:
        write_bytes(path, content)
    return path


def _near(folder: Path) -> Iterator[Path]:
    """Yield what a folder and the folders in it hold, without hidden ones; what cannot be read is left out."""
    inside = _inside(folder)
    below = (path for each in inside if each.is_dir() and not each.is_symlink() for path in _inside(each))
    yield from islice(chain(inside, below), _LOOKED_AT)


def _inside(folder: Path) -> list[Path]:
    try:
        return sorted(islice((path for path in folder.iterdir() if not path.name.startswith(".")), _LOOKED_AT))
    except OSError:
        return []


def _offer(folder: Path, path: Path, said: str) -> Offer:
    name = path.relative_to(folder) if path.is_relative_to(folder) else path
    return Offer(name=str(name), label=f"{name}, {said}")


def _length(path: Path) -> str:
    status = path.stat()
    if path.suffix.lower() != ".jsonl" or status.st_size > _COUNTED_BYTES:
        return size(status.st_size)
    return f"{count(_lines(path, status.st_size, status.st_mtime_ns))} rows, {size(status.st_size)}"


@lru_cache(maxsize=4 * _MOST)
def _lines(path: Path, _bytes: int, _mtime_ns: int) -> int:
    """Return the lines of a file that hold something; counted again only when the file has changed."""
    return sum(bool(line.strip()) for line in path.read_bytes().splitlines())


def show(source: str, edited: Mapping[str, Any], read: Mapping[str, Any] | None) -> None:
    """Draw the model and the rows.

    `read` is the answer of `trainproof train --check`, or None if it is not known yet.
    """
    folder, found = Path.cwd(), read if read is not None and read.get("can_begin") is True else {}
    model_side, rows_side = st.columns(2)
    with model_side, st.container(border=True, height="stretch"):
        _card("Model", get_str(edited, *_MODEL), _model_lines(found))
        _others(source, _MODEL, models(folder), "Another model that is here")
    with rows_side, st.container(border=True, height="stretch"):
        _card("Rows", get_str(edited, *_ROWS), _rows_lines(found))
        _others(source, _ROWS, datasets(folder, state.root()), "Other rows that are here")
        if gate.may_operate():
            key = f"drop {source}"
            st.file_uploader("Or drop a file of rows", type=ROWS, key=key, on_change=_drop, args=(source, key))
    if examples := get_objects(found, "first_examples", "examples"):
        rows = st.expander("Three rows as the model sees them", key="rows", on_change="rerun", bind="query-params")
        if rows.open:
            with rows:
                token_rows.show(examples)


def _card(kind: str, name: str | None, lines: Sequence[str]) -> None:
    inside = "".join(f"<p>{markup.safe(line)}</p>" for line in lines)
    st.html(f'<div class="tp-card"><h2>{markup.safe(name or "none")}<small>{kind}</small></h2>{inside}</div>')


def _model_lines(found: Mapping[str, Any]) -> list[str]:
    whole, learn = get_number(found, "model", "parameters"), get_number(found, "model", "trained_parameters")
    if whole is None or learn is None:
        return []
    trained = "all of them learn" if learn == whole else f"{short_count(learn)} learn"
    origin = "trained before" if get_str(found, "model", "origin") == "pretrained" else "random weights"
    return [f"{short_count(whole)} parameters, {trained}", f"{get_str(found, 'model', 'family')}, {origin}"]


def _rows_lines(found: Mapping[str, Any]) -> list[str]:
    rows, tokens = get_number(found, "training_rows"), get_number(found, "dataset", "tokens")
    if rows is None or tokens is None:
        return []
    made = get_number(found, "dataset", "generated_rows") or 0
    items = get_number(found, "evaluation_items")
    return [
        f"{count(rows)} rows, {short_count(tokens)} tokens" + (f", {count(made)} rows generated" if made else ""),
        "Nothing is evaluated" if items is None else f"{count(items)} items are evaluated",
    ]


def _others(source: str, path: form.Path, offers: Sequence[Offer], label: str) -> None:
    """Draw a box of what else is here; what is chosen goes into the form."""
    key = f"others {source} {path[0]}"
    labels = {offer.name: offer.label for offer in offers}
    st.selectbox(
        label,
        list(labels),
        index=None,
        key=key,
        format_func=lambda name: labels.get(name, name),
        placeholder=f"{len(labels)} here",
        on_change=_take,
        args=(source, path, key),
    )


def _take(source: str, path: form.Path, key: str) -> None:
    if (name := st.session_state.get(key)) is not None:
        config_form.put(source, {path: name})
        st.session_state[key] = None


def _drop(source: str, key: str) -> None:
    given = st.session_state.get(key)
    if given is None or not gate.may_operate():
        return
    with trying("The file could not be kept"):
        path = keep_rows(state.root(), given.name, given.getvalue())
        config_form.put(source, {_ROWS: str(path)})

"""Evaluation items that the training rows teach: as the manifest states them, and counted again from the rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from evidence.records.dataset import Stamp, dataset_file, dataset_rows
from evidence.records.facts import Facts, finding
from evidence.run import layout
from evidence.scores.overlap import Overlap, overlap_of, row_texts
from schemas.formats import quantity
from schemas.problems import Problem

BY_CHANCE = 0.05
"""Share of an evaluation set that rows of the same templates may be near. The built-in sets: 2 % at most."""
_NAMED = 3


def evaluation_is_unseen(facts: Facts) -> Iterator[Problem]:
    """Yield problems where training rows teach items of the evaluation, or teach more of it than is stated."""
    if facts.manifest is None:
        return
    dataset = facts.manifest["dataset"]
    stated: Mapping[str, Any] | None = dataset.get("overlap")
    rows = dataset["overlap_with_eval"]
    if rows:
        what = f"{rows} training rows have a prompt of the evaluation set{_name_items(stated or {})}."
        place = "/dataset/overlap_with_eval"
        yield finding(facts.folder, "TP408", layout.MANIFEST, what, expected="0", pointer=place)
    items = _items(facts)
    if stated is not None and _are_many(stated, len(items)):
        yield finding(facts.folder, "TP414", layout.MANIFEST, _near(stated, len(items)), pointer="/dataset/overlap")
    counted_again = _counted_again(facts, items)
    if counted_again is None or rows is None:
        return
    fewer = counted_again.rows_same > rows
    if stated is not None and not dataset["generated_rows"]:
        # Generated rows may make everyday language of a gram, so only all rows together tell which are near.
        fewer = fewer or len(counted_again.items_near) > stated["items_near"]
    if fewer and stated is not None:
        what = f"{_counts(counted_again.document())}; the manifest states: {_counts(stated)}."
        yield finding(facts.folder, "TP317", layout.MANIFEST, what, pointer="/dataset/overlap")
    elif fewer:
        # Until version 1.2 only prompts that were equal in every character were counted.
        again = counted_again.document()
        what = (
            f"{again['rows_same']} training rows ask, spelled in any way, what the evaluation asks{_name_items(again)}."
        )
        yield finding(facts.folder, "TP408", layout.MANIFEST, what, pointer="/dataset/overlap_with_eval")


def seen_in_training(overlap: Mapping[str, Any], *, items: int) -> Iterator[tuple[str, str]]:
    """Yield what is odd about the overlap of rows that were read with the evaluation items.

    Args:
        overlap: as the manifest has it.
        items: of the set.
    """
    if overlap["rows_same"]:
        asked = f"{overlap['items_same']} of the {items} evaluation items ({quantity(overlap['rows_same'], 'row')})"
        yield "TP408", f"Training rows ask {asked}{_name_items(overlap)}."
    if _are_many(overlap, items):
        yield "TP414", _near(overlap, items)


def _are_many(overlap: Mapping[str, Any], items: int) -> bool:
    return bool(overlap["items_near"] > max(1, BY_CHANCE * items))


def _near(overlap: Mapping[str, Any], items: int) -> str:
    near = f"{overlap['items_near']} of the {items} evaluation items ({quantity(overlap['rows_near'], 'row')})"
    return f"Training rows are near {near}{_name_items(overlap, near=True)}."


def _counts(overlap: Mapping[str, Any]) -> str:
    return (
        f"{overlap['rows_same']} training rows ask {overlap['items_same']} items, "
        f"{overlap['rows_near']} more are near {overlap['items_near']} others"
    )


def _name_items(overlap: Mapping[str, Any], *, near: bool = False) -> str:
    """Return the first items that rows hold, or are near, by their ids, to stand behind a count."""
    same = overlap.get("items_same", 0)
    ids = overlap.get("items", [])
    ids = ids[same:] if near else ids[:same]
    more = " and others" if len(ids) > _NAMED else ""
    return f": {', '.join(ids[:_NAMED])}{more}" if ids else ""


def _items(facts: Facts) -> tuple[tuple[str, str, str], ...]:
    """Return id, prompt and expected answer of each item of a complete evaluation; none otherwise."""
    rows = facts.predictions or ()
    if facts.eval_summary is None or len(rows) != facts.eval_summary["eval_set"]["items"]:
        return ()
    return tuple((row["id"], row["prompt"], row["expected"]) for row in rows)


def _counted_again(facts: Facts, items: tuple[tuple[str, str, str], ...]) -> Overlap | None:
    """Return the overlap of a run's items with the rows of its dataset's file; None where the file is not here."""
    found = dataset_file(facts) if items else None
    return None if found is None else _overlap(*found, items)


@lru_cache(maxsize=64)
def _overlap(path: Path, stamp: Stamp, items: tuple[tuple[str, str, str], ...]) -> Overlap | None:
    """Return the overlap of a file's rows with items; many runs have both in common."""
    if (rows := dataset_rows(path, stamp)) is None:
        return None
    named = [dict(zip(("id", "prompt", "expected"), item, strict=True)) for item in items]
    return overlap_of(named, map(row_texts, rows))


CHECKS = (evaluation_is_unseen,)

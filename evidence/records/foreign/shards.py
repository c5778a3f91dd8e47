"""Files of weights that an index names, held against those that are in the folder."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path

from evidence.records.foreign import rules
from schemas.problems.problem import Problem
from schemas.problems.rule import problem_of
from schemas.problems.words import counted, listed
from schemas.reading.json_text import read_json
from schemas.reading.limits import LARGEST_DOCUMENT

_INDEX = (".safetensors.index.json", ".bin.index.json")
_NAMED = 3
"""Absent files that are named; further ones are counted."""


def absent_shards(folder: Path, names: Collection[str]) -> Iterator[Problem]:
    """Yield a problem for each index whose files are not all in the folder.

    Args:
        folder: The folder.
        names: The paths of its files.
    """
    for name in names:
        path = folder / name
        if not name.endswith(_INDEX):
            continue
        try:
            text = path.read_text("utf-8", "replace") if path.stat().st_size <= LARGEST_DOCUMENT else ""
        except OSError:
            continue  # That it cannot be read is said elsewhere.
        value = read_json(text, file=str(path)).value
        weights = value.get("weight_map") if isinstance(value, dict) else None
        above = name.rpartition("/")[0]
        shards = sorted({one for one in weights.values() if isinstance(one, str)}) if isinstance(weights, dict) else []
        absent = [one for one in shards if (f"{above}/{one}" if above else one) not in names]
        if absent:
            more = [counted(len(absent) - _NAMED, "other")] if len(absent) > _NAMED else []
            verb = "is" if len(absent) == 1 else "are"
            what = (
                f"{name} names {counted(len(shards), 'file')} of weights; "
                f"{listed([*absent[:_NAMED], *more], last='and')} {verb} not in the folder."
            )
            yield problem_of(rules.SHARDS_ABSENT, file=str(path), what=what, pointer="/weight_map")

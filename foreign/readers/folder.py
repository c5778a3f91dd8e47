"""Files that belong together: runs of a sweep beside each other, and shards of weights that an index names."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path, PurePosixPath

from foreign import rules
from foreign.readers.view import FileReading
from schemas.problems.problem import Problem
from schemas.problems.rule import problem_of
from schemas.problems.words import listed, quantity
from schemas.reading.json_text import read_json
from schemas.reading.limits import LARGEST_DOCUMENT

_PARTS_OF_ONE = re.compile(
    r"rank|worker|process|proc|node|host|gpu|device|checkpoint|ckpt|step|epoch|eval", re.IGNORECASE
)
"""Names of folders that hold parts of one run."""

_A_RUN = 2
"""Files that a run has at least: what was requested, and what was measured."""


def other_runs(readings: Mapping[str, FileReading]) -> tuple[str, list[str]] | None:
    """Return the folder of the run that is read and those of the others; None where a folder holds one run.

    Two folders are runs of a sweep if they stand beside each other, hold files of the same names, and measured each a
    course of its own; nothing above them measured one.
    """
    inside: dict[str, dict[str, FileReading]] = defaultdict(dict)
    for name, reading in readings.items():
        if reading.tool is not None:
            folder = str(PurePosixPath(name).parent)
            inside[folder][PurePosixPath(name).name] = reading
    beside: dict[tuple[str, frozenset[str]], list[str]] = defaultdict(list)
    for folder, files in inside.items():
        place = PurePosixPath(folder)
        is_part = folder == "." or _PARTS_OF_ONE.search(place.name)
        if not is_part and len(files) >= _A_RUN and _measured_files(files) and len(_measured_files(files)) < len(files):
            beside[str(place.parent), frozenset(files)].append(folder)
    runs = max(beside.values(), key=len, default=[])
    elsewhere = any(_measured_files(files) for folder, files in inside.items() if folder not in runs)
    if len(runs) < _A_RUN or elsewhere:
        return None
    read = max(runs, key=lambda folder: (sum(len(one.metrics) for one in inside[folder].values()), folder))
    return read, sorted(folder for folder in runs if folder != read)


def _measured_files(files: Mapping[str, FileReading]) -> set[str]:
    return {name for name, reading in files.items() if reading.metrics}


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
            continue  # That it cannot be read is reported elsewhere.
        value = read_json(text, file=str(path)).value
        weights = value.get("weight_map") if isinstance(value, dict) else None
        above = name.rpartition("/")[0]
        shards = sorted({one for one in weights.values() if isinstance(one, str)}) if isinstance(weights, dict) else []
        absent = [one for one in shards if (f"{above}/{one}" if above else one) not in names]
        if absent:
            more = [quantity(len(absent) - _NAMED, "other")] if len(absent) > _NAMED else []
            verb = "is" if len(absent) == 1 else "are"
            what = (
                f"{name} names {quantity(len(shards), 'file')} of weights; "
                f"{listed([*absent[:_NAMED], *more], last='and')} {verb} not in the folder."
            )
            yield problem_of(rules.SHARDS_ABSENT, file=str(path), what=what, pointer="/weight_map")

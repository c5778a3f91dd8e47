"""Folders beside each other that hold the same files each: the runs of a sweep, of which one is read."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping
from pathlib import PurePosixPath

from evidence.records.foreign.view import FileReading

_PARTS_OF_ONE = re.compile(
    r"rank|worker|process|proc|node|host|gpu|device|checkpoint|ckpt|step|epoch|eval", re.IGNORECASE
)
"""Names of folders that hold parts of one run."""

_A_RUN = 2
"""Files that a run has at least: what was asked for, and what was measured."""


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
        if not is_part and len(files) >= _A_RUN and _measured(files) and len(_measured(files)) < len(files):
            beside[str(place.parent), frozenset(files)].append(folder)
    runs = max(beside.values(), key=len, default=[])
    elsewhere = any(_measured(files) for folder, files in inside.items() if folder not in runs)
    if len(runs) < _A_RUN or elsewhere:
        return None
    read = max(runs, key=lambda folder: (sum(len(one.metrics) for one in inside[folder].values()), folder))
    return read, sorted(folder for folder in runs if folder != read)


def _measured(files: Mapping[str, FileReading]) -> set[str]:
    return {name for name, reading in files.items() if reading.metrics}

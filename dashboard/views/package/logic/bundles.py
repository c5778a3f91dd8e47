"""Where bundles made on the page lie, and what they may be called."""

from __future__ import annotations

import re
import shlex
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from dashboard.shared.charts.contents_figure import Content
from evidence import layout
from evidence.bundle.build import ChecklistItem
from evidence.bundle.contents import RUNS, files_of_run
from evidence.bundle.reading import open_bundle
from evidence.bundle.verify import BundleVerdict, verify_bundle
from schemas.formats import quantity, size
from schemas.problems import Problem, ProblemError, problem_of

FOLDER = Path("bundles")
"""Folder of bundles, below the folder that the dashboard was started in."""

MOST_UNPACKED_BYTES = 512 << 20
"""Bytes of an uploaded bundle; its rows take several times as much memory, on a machine that may be training."""

BUILDING = "Scanning, hashing, writing, verifying"
_GRADING = "Verifying: every run in the zip is graded again"

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


def is_name(name: str) -> bool:
    """Return whether a bundle may be called so; a name never leads out of the folder."""
    return _NAME.fullmatch(name) is not None and ".." not in name


def suggest_name(runs: Sequence[str]) -> str:
    """Return a name for a bundle of these runs: that of the only one, else `submission`."""
    return runs[0] if len(runs) == 1 and is_name(runs[0]) else "submission"


def path_of(name: str) -> Path:
    """Return the file of a bundle whose name `is_name` has accepted."""
    return FOLDER / f"{name.removesuffix('.zip')}.zip"


def made_bundles() -> list[Path]:
    """Return the bundles in the folder, newest first."""
    if not FOLDER.is_dir():
        return []
    found = [path for path in FOLDER.glob("*.zip") if path.is_file() and not path.is_symlink() and is_name(path.stem)]
    return sorted(found, key=lambda path: path.stat().st_mtime_ns, reverse=True)


def runs_in(path: Path) -> frozenset[str]:
    """Return the names of the runs in a bundle; empty for a file that is not a bundle, or that cannot be read."""
    try:
        with open_bundle(path) as files:
            parts = [name.split("/") for name in files.sizes]
    except (OSError, ProblemError):
        return frozenset()
    return frozenset(part[1] for part in parts if len(part) > 2 and part[0] == RUNS)


_KINDS = {
    layout.MANIFEST: "run manifest",
    layout.EVAL_SUMMARY: "eval summary",
    layout.LOG: "logs",
    layout.METRICS: "logs",
    layout.SYSTEM: "logs",
    layout.CHAIN: "logs",
    layout.ROLLOUTS: "roll-outs",
    layout.ANSWERS_OVER_STEPS: "predictions",
    layout.PREDICTIONS: "predictions",
    layout.BASELINE_PREDICTIONS: "predictions",
    layout.CONFIG: "settings, plan, examples",
    layout.PLAN: "settings, plan, examples",
    layout.FIRST_EXAMPLES: "settings, plan, examples",
    layout.TRAINED_PARAMS: "weights",
}
_STATES = "states to repeat from"
_ORDER = (*dict.fromkeys(_KINDS.values()), _STATES, "other")


def contents(folders: Sequence[Path]) -> list[Content]:
    """Return what a bundle of these runs holds, by run and kind; report and lists, a few kilobytes, are left out."""
    found: dict[tuple[str, str], list[int]] = {}
    for folder in folders:
        for name in files_of_run(folder).packed:
            found.setdefault((folder.name, _kind_of(name)), []).append((folder / name).stat().st_size)
    rows = [folder.name for folder in folders]
    return [
        Content(row=row, kind=kind, files=len(sizes), bytes=sum(sizes))
        for (row, kind), sizes in sorted(
            found.items(), key=lambda each: (rows.index(each[0][0]), _ORDER.index(each[0][1]))
        )
    ]


def _kind_of(name: str) -> str:
    """Return what a file of a run is, by its path in the run."""
    if layout.is_weight_file(name):
        return "weights"
    return _STATES if name.startswith(f"{layout.STATES}/") else _KINDS.get(name, "other")


def checklist_said(items: Sequence[ChecklistItem]) -> str:
    """Return a checklist in a line: `3 problems block this zip, 1 warning`."""
    blocked = sum(item.state == "blocked" for item in items)
    warnings = sum(item.state == "warning" for item in items)
    said = [f"{quantity(blocked, 'problem')} {'blocks' if blocked == 1 else 'block'} this zip"] if blocked else []
    said += [quantity(warnings, "warning")] if warnings else []
    return ", ".join(said) or "Everything is in order"


def progress_of(draw: Callable[[float, str], object]) -> Callable[[int, int], None]:
    """Return a function that shows how far the builder is.

    The bar is drawn a hundred times at most, each time with its words.

    What comes after the last byte takes about as long as what was before it: every run in the zip is read and graded.
    """
    last = [-1]

    def tell(done: int, whole: int) -> None:
        percent = int(100 * done / whole) if whole else 100
        if percent != last[0]:
            last[0] = percent
            draw(min(percent, 100) / 100, BUILDING if percent < 100 else _GRADING)

    return tell


def verdict_on(content: bytes, name: str) -> BundleVerdict:
    """Return the verdict on an uploaded bundle; only a temporary file ever holds it.

    Raises:
        OSError: The temporary file could not be written.
        ProblemError: It unpacks to more than the page verifies.
    """
    with tempfile.TemporaryDirectory(prefix="trainproof-upload-") as folder:
        path, unpacked = Path(folder) / "upload.zip", 0
        path.write_bytes(content)
        with suppress(ProblemError), open_bundle(path) as files:
            unpacked = sum(files.sizes.values())
        if unpacked > MOST_UNPACKED_BYTES:
            raise ProblemError([_too_large(name, unpacked)])
        return verify_bundle(path)


def _too_large(name: str, unpacked: int) -> Problem:
    return problem_of(
        "TP086",
        file=name,
        what=f"The bundle unpacks to {size(unpacked)}, and this page verifies at most {size(MOST_UNPACKED_BYTES)}.",
        next=f"Verify it in a terminal: `{shlex.join(['trainproof', 'verify', name])}`.",
    )

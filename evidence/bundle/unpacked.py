"""One run to work with, wherever it lies: a run folder as it is, or a run of a bundle, verified and unpacked.

What was unpacked is in a private temporary folder and removed afterwards. Weights that the bundle holds are unpacked
too: anyone who repeats or questions a run needs them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from evidence.bundle.format.layout import RUNS
from evidence.bundle.format.rules import UNREADABLE, refusal
from evidence.bundle.verify import verify_bundle
from evidence.bundle.zip.archive import ArchiveError
from evidence.bundle.zip.content import stream
from evidence.bundle.zip.hostile import ArchiveLimits, harmless_entries
from evidence.run.scratch import scratch_folder
from evidence.run.unreadable import no_such_run
from schemas.problems.problem import ProblemError
from schemas.problems.rule import Rule, problem_of

DOES_NOT_HOLD = Rule(
    "TP856",
    "Bundle does not hold",
    "What was changed since it was packed is not the run that was handed in.",
    "See `trainproof verify`, and ask for the bundle again.",
)
WHICH_RUN = Rule(
    "TP857", "Which run of the bundle", "The bundle holds several runs, or none of that name.", "Name one with --run."
)


@contextmanager
def unpacked_run(path: Path, run_id: str | None = None) -> Iterator[Path]:
    """Give the folder of a run.

    Args:
        path: A run folder, which is given as it is, or a bundle.
        run_id: Which run of the bundle. None: its only one.

    Raises:
        ProblemError: Exit code 2: there is nothing at the path, it is not readable, or the bundle holds several runs
            and none was named. Exit code 1: the bundle does not hold.
    """
    if path.is_dir():
        yield path
        return
    if not path.is_file():
        raise ProblemError([no_such_run(path)], exit_code=2)
    with scratch_folder("trainproof-run-") as scratch:
        try:
            folder = _unpack(path, run_id, scratch)
        except OSError as error:
            what = f"The bundle cannot be unpacked: {error.strerror or error}."
            raise ProblemError([refusal(UNREADABLE, str(path), what)], exit_code=2) from None
        yield folder


def _unpack(path: Path, run_id: str | None, folder: Path) -> Path:
    """Verify a bundle, write one of its runs below a folder, and return that run's folder."""
    verdict = verify_bundle(path)
    if not verdict.ok:
        errors = [each for each in verdict.findings if each.severity == "error"]
        first = f" The first error is {errors[0].code}: {errors[0].what}" if errors else ""
        what = f"The bundle does not hold.{first}"
        raise ProblemError([problem_of(DOES_NOT_HOLD, file=str(path), what=what)], exit_code=1)
    chosen = _choose_run(path, run_id, [run.run_id for run in verdict.runs])
    inside = f"{RUNS}/{chosen}/"
    with path.open("rb") as file:
        entries, problems = harmless_entries(file, ArchiveLimits())
        if problems:  # another file has taken its place since it was verified
            raise ProblemError(problems, exit_code=1)
        try:
            for entry in entries:
                if entry.name.startswith(inside) and not entry.is_directory:
                    target = folder / entry.name
                    target.parent.mkdir(parents=True, exist_ok=True)
                    with target.open("xb") as copy:
                        for block in stream(file, entry):
                            copy.write(block)
        except ArchiveError as error:
            raise ProblemError([refusal(error.rule, error.entry or "", error.what)], exit_code=1) from error
    return folder / RUNS / chosen


def _choose_run(path: Path, run_id: str | None, runs: Sequence[str]) -> str:
    """Return the name of the run that is meant."""
    if run_id in runs or (run_id is None and len(runs) == 1):
        return run_id or runs[0]
    held = ", ".join(runs) or "none"
    what = f"The bundle holds {len(runs)} runs: {held}." if run_id is None else f"The bundle holds no run {run_id!r}."
    raise ProblemError([problem_of(WHICH_RUN, file=str(path), what=what, expected=f"one of: {held}")], exit_code=2)

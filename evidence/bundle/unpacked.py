"""One run to work with, wherever it lies: a run folder as it is, or a run of a bundle, verified and unpacked.

What was unpacked is in a private temporary folder and removed afterwards. Weights that the bundle holds are unpacked
too: anyone who repeats or questions a run needs them.

A file with train states of one run, what its maker sends when a judge's number names some of them, is a zip in the form
of bundles: `answer.json` with the hash of the run's manifest, and `states/STEP.safetensors`. A judge opens it as any
stranger's archive: nothing is written to disk before it was found harmless.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from evidence.bundle.files import is_unpacked_bundle, open_bundle
from evidence.bundle.format.layout import RUNS
from evidence.bundle.format.rules import refusal
from evidence.bundle.verify import verify_bundle
from evidence.bundle.zip.container import LocalHeader, ending, local_header
from evidence.run.layout import STATES
from evidence.run.scratch import scratch_folder
from evidence.run.unreadable import no_such_run
from evidence.run.write import as_json_text
from schemas.problems import ProblemError, problem_of


@contextmanager
def unpacked_run(path: Path, run_id: str | None = None) -> Iterator[Path]:
    """Give the folder of a run.

    Args:
        path: A run folder, which is given as it is, or a bundle, packed or unpacked.
        run_id: Which run of the bundle. None: its only one.

    Raises:
        ProblemError: Exit code 2: there is nothing at the path, it is not readable, or the bundle holds several runs
            and none was named. Exit code 1: the bundle does not hold.
    """
    if path.is_dir() and not is_unpacked_bundle(path):
        yield path
        return
    if not path.exists():
        raise ProblemError([no_such_run(path)], exit_code=2)
    with scratch_folder("trainproof-run-") as scratch:
        try:
            folder = _unpack(path, run_id, scratch)
        except OSError as error:
            what = f"The bundle cannot be unpacked: {error.strerror or error}."
            raise ProblemError([refusal("TP801", str(path), what)], exit_code=2) from None
        yield folder


def _unpack(path: Path, run_id: str | None, folder: Path) -> Path:
    """Verify a bundle, write one of its runs below a folder, and return that run's folder."""
    verdict = verify_bundle(path)
    if not verdict.ok:
        errors = [each for each in verdict.findings if each.severity == "error"]
        first = f" The first error is {errors[0].code}: {errors[0].what}" if errors else ""
        what = f"The bundle does not hold.{first}"
        raise ProblemError([problem_of("TP856", file=str(path), what=what)], exit_code=1)
    chosen = _choose_run(path, run_id, [run.run_id for run in verdict.runs])
    with open_bundle(path) as files:  # Another file that has taken its place since is refused as ever.
        files.write_to(folder, lambda name: name.startswith(f"{RUNS}/{chosen}/"))
    return folder / RUNS / chosen


def _choose_run(path: Path, run_id: str | None, runs: Sequence[str]) -> str:
    """Return the name of the run that is meant."""
    if run_id in runs or (run_id is None and len(runs) == 1):
        return run_id or runs[0]
    held = ", ".join(runs) or "none"
    what = f"The bundle holds {len(runs)} runs: {held}." if run_id is None else f"The bundle holds no run {run_id!r}."
    raise ProblemError([problem_of("TP857", file=str(path), what=what, expected=f"one of: {held}")], exit_code=2)


ANSWER = "answer.json"
"""Which run the states are of."""

MOST_STATES = 64
"""States in one answer."""

_NAME = re.compile(rf"{STATES}/[0-9]{{1,12}}\.safetensors")


def pack_states(folder: Path, run_sha256: str, output: Path) -> None:
    """Write the states below a folder as an answer.

    Raises:
        OSError: It cannot be written.
    """
    contents = {ANSWER: as_json_text({"run_sha256": run_sha256}).encode()}
    contents |= {f"{STATES}/{path.name}": path.read_bytes() for path in sorted((folder / STATES).iterdir())}
    files = [
        LocalHeader(name=name, size_bytes=len(contents[name]), crc32=zlib.crc32(contents[name]))
        for name in sorted(contents)
    ]
    output.parent.mkdir(parents=True, exist_ok=True)
    with output.open("wb") as file:
        for each in files:
            file.write(local_header(each))
            file.write(contents[each.name])
        file.write(ending(files))


@contextmanager
def sent_states(path: Path | None, run_sha256: str | None) -> Iterator[Path | None]:
    """Give a folder with the states of an answer, gone afterwards; None if there is no answer.

    Args:
        path: The file. None: no states were sent.
        run_sha256: The hash of the manifest of the run that they are to be of.

    Raises:
        ProblemError: Exit code 2: it cannot be read, or is not an answer for this run. Exit code 1: it is not harmless.
    """
    if path is None:
        yield None
        return
    with scratch_folder("trainproof-states-") as scratch:
        try:
            _unpack_states(path, scratch)
            stated = json.loads((scratch / ANSWER).read_text(encoding="utf-8"))
        except OSError as error:
            what = f"The states cannot be read: {error.strerror or error}."
            raise ProblemError([refusal("TP801", str(path), what)], exit_code=2) from None
        except (ValueError, RecursionError):
            stated = None
        if not isinstance(stated, dict) or stated.get("run_sha256") != run_sha256:
            what = f"The answer is not for the run whose manifest has the SHA-256 {run_sha256}."
            raise ProblemError([problem_of("TP858", file=str(path), what=what)], exit_code=2)
        yield scratch


def _unpack_states(path: Path, folder: Path) -> None:
    with open_bundle(path) as files:
        strange = [name for name in files.sizes if name != ANSWER and not _NAME.fullmatch(name)]
        if ANSWER not in files.sizes:
            what = f"It holds no {ANSWER}."
        elif strange or len(files.sizes) > MOST_STATES + 1:
            what = (
                f"It holds {strange[0]}, which is not a state." if strange else f"It holds over {MOST_STATES} states."
            )
        else:
            files.write_to(folder, lambda _: True)
            return
        raise ProblemError([problem_of("TP858", file=str(path), what=what)], exit_code=2)

"""Unpack one run of a bundle to work with it, and the train states that its maker sends to a judge.

An answer with train states is a canonical zip with `answer.json`, which holds the hash of the run manifest, and
`states/STEP.safetensors`. It is opened as carefully as a bundle.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from evidence.bundle.contents import RUNS, bundle_problem
from evidence.bundle.reading import canonical_zip, is_unpacked_bundle, open_bundle
from evidence.bundle.verify import BundleVerdict, verify_bundle
from evidence.layout import STATES, run_not_found
from evidence.writing import as_json_text, scratch_folder
from schemas.problems import ProblemError

ANSWER = "answer.json"
MAX_STATES = 64  # in one answer
_STATE_NAME = re.compile(rf"{STATES}/[0-9]{{1,12}}\.safetensors")


@contextmanager
def unpacked_run(path: Path, run_id: str | None = None) -> Iterator[Path]:
    """Give a run folder: the path itself, or a run of a verified bundle, weights included, in a temporary folder.

    Raises:
        ProblemError: The path cannot be read, or a bundle of several runs needs a `run_id` (exit code 2); or the bundle
            does not verify (exit code 1).
    """
    if path.is_dir() and not is_unpacked_bundle(path):
        yield path
        return
    if not path.exists():
        raise ProblemError([run_not_found(path)], exit_code=2)
    with scratch_folder("trainproof-run-") as scratch:
        try:
            verdict = verify_bundle(path)
            refuse_invalid(verdict)
            runs = [run.name for run in verdict.runs]
            if run_id not in runs if run_id else len(runs) != 1:
                names = ", ".join(runs) or "none"
                holds = f"does not contain {run_id!r}" if run_id else f"holds {len(runs)} runs: {names}"
                problem = bundle_problem("TP857", str(path), f"The bundle {holds}.", expected=f"one of: {names}")
                raise ProblemError([problem], exit_code=2)
            name = run_id or runs[0]
            with open_bundle(path) as files:
                files.write_to(scratch, lambda file: file.startswith(f"{RUNS}/{name}/"))
        except OSError as error:
            what = f"The bundle cannot be unpacked: {error.strerror or error}."
            raise ProblemError([bundle_problem("TP801", str(path), what)], exit_code=2) from None
        yield scratch / RUNS / name


def refuse_invalid(verdict: BundleVerdict) -> None:
    """Raise a problem with the first error of a bundle that does not verify."""
    errors = [finding for finding in verdict.findings if finding.severity == "error"]
    if errors:
        what = f"The bundle does not verify. First error: {errors[0].code}: {errors[0].what}"
        raise ProblemError([bundle_problem("TP856", str(verdict.path), what)])


def pack_states(folder: Path, run_sha256: str, output: Path) -> None:
    """Write the train states of a folder as an answer for the run with that manifest hash."""
    contents = {ANSWER: as_json_text({"run_sha256": run_sha256}).encode()}
    contents |= {f"{STATES}/{path.name}": path.read_bytes() for path in (folder / STATES).iterdir()}
    output.parent.mkdir(parents=True, exist_ok=True)
    with output.open("wb") as file:
        file.writelines(canonical_zip(contents))


@contextmanager
def sent_states(path: Path | None, run_sha256: str | None) -> Iterator[Path | None]:
    """Give a temporary folder with the states of an answer for the run with this manifest hash; None without an answer.

    Raises:
        ProblemError: The file cannot be read or is not an answer for this run (exit code 2), or is unsafe (1).
    """
    if path is None:
        yield None
        return
    with scratch_folder("trainproof-states-") as scratch:
        try:
            with open_bundle(path) as files:
                strange = [name for name in files.sizes if name != ANSWER and not _STATE_NAME.fullmatch(name)]
                problem = f"It holds {strange[0]}, which is not a state." if strange else ""
                if ANSWER not in files.sizes:
                    problem = f"{ANSWER} is missing."
                elif len(files.sizes) > MAX_STATES + 1:
                    problem = f"It holds more than {MAX_STATES} states."
                if problem:
                    raise ProblemError([bundle_problem("TP858", str(path), problem)], exit_code=2)
                files.write_to(scratch, lambda _: True)
            stated = json.loads((scratch / ANSWER).read_text(encoding="utf-8"))
        except OSError as error:
            what = f"The states cannot be read: {error.strerror or error}."
            raise ProblemError([bundle_problem("TP801", str(path), what)], exit_code=2) from None
        except (ValueError, RecursionError):
            stated = None
        if not isinstance(stated, dict) or stated.get("run_sha256") != run_sha256:
            what = f"The answer is not for the run whose manifest has SHA-256 {run_sha256}."
            raise ProblemError([bundle_problem("TP858", str(path), what)], exit_code=2)
        yield scratch

"""One page about runs, to be sent away: the report of a bundle without the bundle, and how runs compare."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from evidence.bundle.format.documents import FileHash
from evidence.bundle.format.layout import RUNS, files_of_run
from evidence.bundle.format.rules import refusal
from evidence.bundle.inspection import folder_problems
from evidence.bundle.judgement import JudgedRun, judged_together
from evidence.bundle.report.page import ReportRun, report_html
from evidence.bundle.secrets.redact import masked_text
from evidence.compare.comparison import Pair, compare_runs
from evidence.records.facts import facts_of
from evidence.run.hashes import sha256_file
from evidence.run.write import write_bytes
from schemas.formats import points
from schemas.problems import Problem, ProblemError
from schemas.reading import get_str


def shared_report(folders: Sequence[Path]) -> bytes:
    """Return the page, of one file without script or network; secrets and home folders in it are masked.

    Args:
        folders: Run folders, which exist.
    """
    judged = judged_together(folders)
    # The score of a smoke run means nothing about a full one.
    modes = {each.name: get_str(each.run.manifest, "mode") for each in judged}
    pairs = compare_runs([each.run for each in judged]).pairs if len(judged) > 1 else ()
    pairs = tuple(pair for pair in pairs if modes.get(pair.first) == modes.get(pair.second))
    page = report_html(
        [_report_run(each) for each in judged], partial=False, compared=[describe_pair(pair) for pair in pairs]
    )
    return masked_text(page.encode("utf-8"))[0]


def write_report(folders: Sequence[Path], output: Path) -> None:
    """Write the page; an older HTML file of that name is replaced.

    Raises:
        ProblemError: Exit code 2: a folder does not exist, or the output cannot be written there.
    """
    problems = [*folder_problems(folders), *_output_problems(folders, output)]
    if problems:
        raise ProblemError(problems, exit_code=2)
    page = shared_report(folders)
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        write_bytes(output, page)
    except OSError as error:
        what = f"The report cannot be written: {error.strerror or error}."
        raise ProblemError([refusal("TP848", str(output), what)], exit_code=2) from error


def _output_problems(folders: Sequence[Path], output: Path) -> Iterator[Problem]:
    if output.is_dir():
        yield refusal("TP848", str(output), "The output is a folder.")
    elif output.exists() and output.suffix not in {".html", ".htm"}:
        yield refusal("TP848", str(output), "The file there is not HTML, and would be replaced.")
    inside = next((folder for folder in folders if folder.resolve() in output.resolve().parents), None)
    if inside is not None:
        yield refusal("TP848", str(output), f"The output lies inside the run folder {inside}.")


def describe_pair(pair: Pair) -> str:
    """Return how two runs compare, in a sentence or two."""
    score, names = pair.score, f"{pair.first} and {pair.second}"
    if score is None:
        return f"{names}: {' '.join(pair.refused) or 'their scores cannot be compared.'}"
    word = "better" if score.difference > 0 else "worse"
    verdict = (
        f"{pair.second} is {word} than {pair.first}" if score.adjusted_p_value < _LEVEL else f"{names}: cannot tell"
    )
    seen = score.detectable_difference
    least = "" if seen is None else f" Less than {100 * seen:.1f} points could hardly be seen with these items."
    return (
        f"{verdict}: exact match differs by {points(score.difference)} "
        f"({points(score.low)} to {points(score.high)}), p = {score.adjusted_p_value:.2g}.{least}"
    )


_LEVEL = 0.05


def _report_run(judged: JudgedRun) -> ReportRun:
    files = [
        FileHash(
            path=f"{RUNS}/{judged.name}/{name}",
            size_bytes=(judged.folder / name).stat().st_size,
            sha256=sha256_file(judged.folder / name),
        )
        for name in files_of_run(judged.folder).packed
    ]
    return ReportRun(
        name=judged.name,
        grade=judged.grade,
        findings=judged.findings,
        facts=facts_of(judged.run),
        notes=judged.run.notes,
        files=tuple(files),
    )

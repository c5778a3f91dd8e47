"""Golden tests of tests/cases/foreign: contents, grade and findings of every folder.

A case is `<name>/folder` with the files of another tool, and `<name>/problem.txt`. After a wanted change, write the
texts anew with `WRITE_CASES=1 pytest tests/evidence/imports/test_cases.py` and read the difference.
"""

import os
from pathlib import Path

import pytest

from evidence.grade import check_run
from evidence.imports.folder import read_tool_folder
from evidence.imports.run import ImportedRun
from evidence.run import read_run
from schemas.render import render_text

CASES = sorted(path.parent for path in (Path(__file__).parents[2] / "cases" / "foreign").glob("*/folder"))


def describe(view: ImportedRun) -> list[str]:
    lines = [f"{tool}: {', '.join(files)}" for tool, files in view.tools.items()]
    for fact in view.facts:
        note = f" [{fact.note}]" if fact.note else ""
        lines.append(f"fact {fact.name} = {fact.value!r} {fact.how} in {fact.source}{note}")
    for row in view.metrics:
        values = " ".join(f"{name}={value}" for name, value in row.values.items())
        lines.append(f"row {values} stage {row.stage} in {row.source}")
    for score in view.scores:
        at = f" at {score.checkpoint}" if score.checkpoint else ""
        note = f" [{score.note}]" if score.note else ""
        lines.append(f"score {score.name} = {score.value}{at} in {score.source}{note}")
    for one in view.predictions:
        answer = (one.id, one.prompt, one.expected, one.output_text, one.extracted_answer, one.correct, one.reasoning)
        lines.append(f"answer {answer!r} in {one.source}")
    return lines


@pytest.mark.parametrize("case", CASES, ids=lambda path: path.name)
def test_folder_is_read_and_graded(case: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(case)
    report = check_run(read_run(Path("folder")))
    parts = [
        report.grade.name,
        *report.grade.reasons,
        "",
        *describe(read_tool_folder(Path("folder"))),
        "",
        render_text(report.findings),
    ]
    text = "\n".join(parts)
    if os.environ.get("WRITE_CASES"):
        Path("problem.txt").write_text(text, "utf-8")
    assert text == Path("problem.txt").read_text("utf-8")


def test_there_are_enough_cases() -> None:
    assert len(CASES) >= 20

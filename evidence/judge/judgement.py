"""The judgement of one run: every finding, the grade that follows, and what distinguishes the run from others."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from evidence.judge.grade import Grade, grade_of, grade_of_foreign, sentences
from evidence.judge.report import RunReport
from evidence.records.facts import Facts, facts_of
from evidence.records.ours import Run
from evidence.rules.across import Fingerprint, copies, fingerprint_of
from evidence.rules.catalog import check
from evidence.rules.imported import foreign_findings
from evidence.rules.placeholders import placeholders
from evidence.run import layout
from evidence.run.hashes import sha256_file
from schemas.problems import Problem, problem_of, worst_first


def check_run(run: Run) -> list[Problem]:
    """Return every problem of a run, worst first: shapes, hashes, and everything that must agree."""
    return list(judge(run).report.findings)


@dataclass(frozen=True, kw_only=True)
class RunJudgement:
    """A run's report, and what distinguishes the run from the others of its root."""

    report: RunReport
    fingerprint: Fingerprint


def judge(run: Run, *, excused: Callable[[Problem], bool] = lambda _: False) -> RunJudgement:
    """Return what `report_of` returns, and what `together` needs to compare the run with others.

    Args:
        run: The run, as read.
        excused: Whether a finding is passed over.
    """
    facts, view = facts_of(run), run.foreign()
    found = _found_in_ours(run, facts) if view is None else foreign_findings(run, view)
    findings = worst_first(run.with_line(problem) for problem in found if not excused(problem))
    grade = grade_of(facts, findings) if view is None else grade_of_foreign(view, findings)
    sha256 = sha256_file(run.path / layout.MANIFEST) if grade.name == "consistent" else None
    report = RunReport(path=run.path, grade=grade, findings=findings, manifest_sha256=sha256)
    return RunJudgement(report=report, fingerprint=fingerprint_of(facts, findings))


def _found_in_ours(run: Run, facts: Facts) -> Iterator[Problem]:
    if not run.is_run:
        what = f"{run.path.name or run.path} holds none of the files that a run writes."
        yield from run.problems or [problem_of("TP501", file=str(run.path), what=what)]
        return
    yield from (*run.problems, *run.row_problems(), *placeholders(run))
    yield from map(run.with_line_of_row, check(facts))


def report_of(run: Run) -> RunReport:
    """Return a run's findings and grade, as far as they follow from the run alone."""
    return judge(run).report


def together(judged: Sequence[RunJudgement]) -> list[RunReport]:
    """Return the reports with the findings between runs added: a run and a changed copy contradict each other."""
    added = copies([one.fingerprint for one in judged])
    return [_with_findings(one.report, added.get(one.report.path, [])) for one in judged]


def _with_findings(report: RunReport, added: Sequence[Problem]) -> RunReport:
    if not added:
        return report
    findings = worst_first((*report.findings, *added))
    errors = [problem for problem in added if problem.severity == "error"]
    if not errors:
        return replace(report, findings=findings)
    before = report.grade.reasons if report.grade.name == "contradictory" else ()
    return replace(report, grade=Grade(name="contradictory", reasons=(*sentences(errors), *before)), findings=findings)

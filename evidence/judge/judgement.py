"""The judgement of one run: every finding, the grade that follows, and what tells the run from others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from evidence.judge.grade import Grade, grade_of, sentences
from evidence.judge.report import RunReport
from evidence.records.facts import Facts, facts_of
from evidence.records.ours import Run
from evidence.rules.across import Fingerprint, copies, fingerprint_of
from evidence.rules.catalog import CHECKS
from evidence.rules.completeness import NOT_A_RUN
from evidence.rules.imported import foreign_findings
from evidence.rules.placeholders import placeholders
from schemas.problems.problem import Problem, worst_first
from schemas.problems.rule import problem_of


def check_run(run: Run) -> list[Problem]:
    """Return every problem of a run, worst first: shapes, hashes, and everything that must agree."""
    return check_facts(run, facts_of(run))


def check_facts(run: Run, facts: Facts) -> list[Problem]:
    """Return what `check_run` returns, from facts that are there already."""
    if (view := run.foreign()) is not None:
        return list(worst_first(run.with_line(problem) for problem in foreign_findings(run, view)))
    if not run.is_run:
        what = f"{run.path.name or run.path} holds none of the files that a run writes."
        return list(run.problems) or [problem_of(NOT_A_RUN, file=str(run.path), what=what)]
    problems = [*run.problems, *run.row_problems(), *placeholders(run)]
    for check in CHECKS:
        problems.extend(map(run.with_line_of_row, check(facts)))
    return list(worst_first(run.with_line(problem) for problem in problems))


@dataclass(frozen=True, kw_only=True)
class Judged:
    """A run's report, and what tells the run from the others of its root."""

    report: RunReport
    fingerprint: Fingerprint


def judge(run: Run) -> Judged:
    """Return what `report_of` returns, and what `together` needs to hold the run against others."""
    facts = facts_of(run)
    findings = tuple(check_facts(run, facts))
    report = RunReport(path=run.path, grade=grade_of(run, facts, findings), findings=findings)
    return Judged(report=report, fingerprint=fingerprint_of(facts))


def report_of(run: Run) -> RunReport:
    """Return a run's findings and grade, as far as they follow from the run alone."""
    return judge(run).report


def together(judged: Sequence[Judged]) -> list[RunReport]:
    """Return the reports with the findings between runs added: a run and its copy contradict each other."""
    added = copies([one.fingerprint for one in judged])
    return [_with_findings(one.report, added.get(one.report.path, [])) for one in judged]


def _with_findings(report: RunReport, added: Sequence[Problem]) -> RunReport:
    if not added:
        return report
    before = report.grade.reasons if report.grade.name == "contradictory" else ()
    grade = Grade(name="contradictory", reasons=(*sentences(added), *before))
    return replace(report, grade=grade, findings=worst_first((*report.findings, *added)))

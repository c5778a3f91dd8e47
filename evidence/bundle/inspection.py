"""Whether a run may be packed: its grade, its files, and what they give away.

Three kinds of refusal:

- never packed: a contradictory run (no label could state which of its statements is true), no run at all, a run that is
  still going on, links and special files, names that other systems cannot hold, secrets;
- packed only with the label `partial` (`--allow-partial`): a partial run, a template, a run with errors;
- reported, and packed: home folders, e-mail addresses, private network addresses. A run states the command it was
  started with, so most honest runs hold one; whether that matters is for their owner to decide.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from evidence.bundle.format.layout import RunFiles, files_of_run
from evidence.bundle.format.rules import refusal
from evidence.bundle.judgement import judged_together
from evidence.bundle.secrets.redact import Redaction
from evidence.bundle.secrets.scan import scan_file
from evidence.judge.grade import Grade
from evidence.records.facts import facts_of
from evidence.records.ours import Run
from evidence.rules.hygiene import unlisted_files
from evidence.run import layout
from evidence.run.layout import holds_weights
from schemas.formats import quantity, visible
from schemas.problems import Problem
from schemas.reading import get_str

FIT_GRADES = frozenset({"consistent", "measured"})
"""Grades that are packed without a label."""
LABELLED_GRADES = frozenset({"partial", "template"})
"""Grades that are packed with the label `partial` only; the others are never packed."""

GRADES_REFUSED = ("TP853", "TP852", "TP841")
"""Codes that speak of a grade."""

_RUN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")  # as types.schema.json has it

State = Literal["ok", "note", "warning", "blocked"]
Advance = Callable[[int], None]
"""Called with the bytes done since its last call."""


@dataclass(frozen=True, kw_only=True)
class Inspection:
    """One run folder as the packer sees it. Files in problems are named from the run folder."""

    folder: Path
    """The run folder, as given."""
    name: str
    """Its name, under which it is packed."""
    run: Run
    """What it holds."""
    grade: Grade
    """What it is worth."""
    findings: tuple[Problem, ...]
    """What `trainproof check` finds."""
    files: RunFiles
    """What is packed and what is not."""
    secrets: tuple[Problem, ...]
    """Secrets in the files that would be packed."""
    unreadable: tuple[Problem, ...]
    """Files that could not be looked into."""
    details: tuple[Problem, ...]
    """Personal details in them."""

    @property
    def name_problems(self) -> tuple[Problem, ...]:
        """Why no bundle can hold a run of this name; none where it is a run id."""
        if _RUN_NAME.fullmatch(self.name):
            return ()
        what = f"The run folder is named `{visible(self.name)}`, which is not a run id."
        return (refusal("TP845", self.name, what),)

    @property
    def never(self) -> tuple[Problem, ...]:
        """Why the run cannot be packed at all."""
        problems = [*self.secrets, *self.files.problems, *self.unreadable, *self.name_problems]
        if self.run.alive:
            problems.append(refusal("TP843", self.name, "A process holds this run folder."))
        if self.grade.name == "not a run":
            problems.append(refusal("TP853", self.name, "This is not a run."))
        elif self.grade.name not in FIT_GRADES | LABELLED_GRADES:
            problems.append(refusal("TP852", self.name, self._graded()))
        return tuple(problems)

    @property
    def unless_labelled(self) -> tuple[Problem, ...]:
        """Why the run can be packed with a label only."""
        problems = []
        if self.grade.name in LABELLED_GRADES:
            problems.append(refusal("TP841", self.name, self._graded()))
        if self.grade.name in FIT_GRADES | LABELLED_GRADES:
            problems += self.error_problems
        return tuple(problems)

    @property
    def error_problems(self) -> tuple[Problem, ...]:
        """How many errors `trainproof check` finds; none where it finds none."""
        errors = [finding for finding in self.findings if finding.severity == "error"]
        if not errors:
            return ()
        what = f"The run has {quantity(len(errors), 'error')}; the first: {errors[0].what}"
        fit = self.grade.name in FIT_GRADES | LABELLED_GRADES
        then = None if fit else "Run `trainproof check` on the folder and repair what it names; no label makes it fit."
        return (refusal("TP842", self.name, what, next=then),)

    def _graded(self) -> str:
        reasons = "; ".join(reason.rstrip(".") for reason in self.grade.reasons)
        return (
            f"The run is graded {self.grade.name}: {reasons}." if reasons else f"The run is graded {self.grade.name}."
        )


@dataclass(frozen=True, kw_only=True)
class ChecklistItem:
    """One line of the checklist."""

    run: str
    """Name of the run; empty if the line concerns all of them."""
    what: str
    """What was looked at, as a noun phrase."""
    state: State
    """blocked: it must not be packed as it is. warning: it is packed, but look at it first."""
    detail: str
    """What was found, as a sentence."""
    next: str
    """What to do; empty if there is nothing to do."""


def inspect_runs(
    folders: Sequence[Path],
    *,
    with_weights: bool = False,
    with_unlisted: bool = False,
    advance: Advance | None = None,
    redactions: Sequence[Redaction] = (),
) -> list[Inspection]:
    """Return what the packer must know of run folders that exist, in the order of their names.

    They are checked together, so that a run copied under another name is found.

    Args:
        folders: The run folders.
        with_weights: Whether to take checkpoints, adapters and exports too.
        with_unlisted: Whether to take files that a sealed run does not list.
        advance: Told how many bytes were looked into.
        redactions: Files in them that were masked for this bundle.
    """
    inspections = []
    for judged in judged_together(folders, redactions):
        unlisted = () if with_unlisted else unlisted_files(facts_of(judged.run))
        files = files_of_run(judged.folder, with_weights=with_weights, unlisted=unlisted)
        found = _scan(judged.folder, files.packed, advance)
        inspections.append(
            Inspection(
                folder=judged.folder,
                name=judged.name,
                run=judged.run,
                grade=judged.grade,
                # What stays here is not the bundle's affair: its verifier will not see it.
                findings=tuple(each for each in judged.findings if each.file not in files.left_out),
                files=files,
                secrets=tuple(problem for problem in found if problem.code == "TP846"),
                unreadable=tuple(problem for problem in found if problem.code == "TP854"),
                details=tuple(problem for problem in found if problem.code == "TP847"),
            )
        )
    return inspections


def folder_problems(folders: Sequence[Path]) -> list[Problem]:
    """Return which of the folders are missing, and which share a name."""
    problems = [
        refusal("TP840", str(folder), "This is not a folder." if folder.exists() else "This does not exist.")
        for folder in folders
        if not folder.is_dir()
    ]
    names = [folder.resolve().name for folder in folders]
    repeated = sorted(name for name, times in Counter(names).items() if times > 1)
    return problems + [refusal("TP849", name, "Several of the folders have this name.") for name in repeated]


def checklist(folders: Sequence[Path], *, with_weights: bool = False) -> list[ChecklistItem]:
    """Return what stands between run folders and a bundle, line by line; nothing is written."""
    items = [_blocked_item("", "folder", problem) for problem in folder_problems(folders)]
    for inspection in inspect_runs([folder for folder in folders if folder.is_dir()], with_weights=with_weights):
        items += run_checklist(inspection)
    return items


def run_checklist(inspection: Inspection) -> list[ChecklistItem]:
    """Return the lines of one run: grade, problems, secrets, personal details, files."""
    name, grade, files = inspection.name, inspection.grade, inspection.files
    by_code = {problem.code: problem for problem in (*inspection.unless_labelled, *inspection.never)}
    size = sum((inspection.folder / path).stat().st_size for path in files.packed)
    lines = [
        _line(name, "grade", _first(by_code, GRADES_REFUSED), f"The run is graded {grade.name}."),
        _line(name, "errors", next(iter(inspection.error_problems), None), "`trainproof check` finds no error."),
        _line(name, "end of the run", _first(by_code, ["TP843"]), "Nothing writes to the folder."),
        *(_blocked_item(name, "secrets", problem) for problem in inspection.secrets),
    ]
    if not inspection.secrets:
        lines.append(_line(name, "secrets", None, "No file holds a known kind of secret."))
    lines += [
        _item(name, "personal details", "warning", f"{problem.file}: {problem.what}", problem.next)
        for problem in inspection.details
    ]
    lines += [_blocked_item(name, "name", problem) for problem in inspection.name_problems]
    lines += [_blocked_item(name, "files", problem) for problem in (*files.problems, *inspection.unreadable)]
    lines += challenge_line(inspection)
    left_out = f" Left out: {', '.join(files.left_out)}." if files.left_out else ""
    lines.append(_item(name, "files", "ok", f"{quantity(len(files.packed), 'file')}, {size:,} bytes.{left_out}", ""))
    return lines


def challenge_line(inspection: Inspection) -> list[ChecklistItem]:
    """Return whether anyone who gets the bundle can question the model; nothing where the run states no score."""
    if layout.EVAL_SUMMARY not in inspection.files.packed:
        return []
    holders = (layout.TRAINED_PARAMS, *(f"{name}/" for name in layout.WEIGHT_FOLDERS))
    packed = [name for name in holders if any(path.startswith(name) for path in inspection.files.packed)]
    if layout.TRAINED_PARAMS in packed:
        # TP328 holds the file to that hash; of adapters, the hash is over their base too, which is not here.
        is_whole = get_str(inspection.run.manifest, "training", "method") != "lora"
        what = "the parameters that answered" if is_whole else "the adapters that the run sealed"
        detail = f"Can be challenged: yes, {layout.TRAINED_PARAMS} has the hash of {what}."
        return [_item(inspection.name, "challenge", "ok", detail, "")]
    if packed:
        detail = f"Can be challenged: perhaps, {packed[0]} is packed; whether it holds what answered was not looked at."
        then = f"See with `trainproof challenge {inspection.folder} --generate 1`."
        return [_item(inspection.name, "challenge", "note", detail, then)]
    here = [name for name in inspection.files.left_out if name in layout.WEIGHT_FOLDERS]
    detail = "Can be challenged: no, the zip holds no parameters, so nobody can put questions to the model."
    then = (
        f"Pack {' and '.join(f'{name}/' for name in here)} too: trainproof package {inspection.folder} --with-weights."
        if here
        else "A run keeps its trained parameters up to recording.params_mib; this one has none."
    )
    return [_item(inspection.name, "challenge", "note", detail, then)]


def _scan(folder: Path, names: Sequence[str], advance: Advance | None) -> list[Problem]:
    """Return secrets and personal details in files; arrays of weights are not text and are passed over."""
    problems: list[Problem] = []
    for name in names:
        try:
            if not (holds_weights(name) and _is_binary(folder / name)):
                problems += scan_file(folder / name, name)
            if advance:
                advance((folder / name).stat().st_size)
        except OSError as error:
            problems.append(refusal("TP854", name, f"The file cannot be read: {error.strerror}."))
    return problems


def _is_binary(path: Path) -> bool:
    with path.open("rb") as file:
        return b"\0" in file.read(1 << 16)


def _first(by_code: Mapping[str, Problem], codes: Sequence[str]) -> Problem | None:
    return next((by_code[code] for code in codes if code in by_code), None)


def _line(run: str, what: str, problem: Problem | None, good: str) -> ChecklistItem:
    return _blocked_item(run, what, problem) if problem else _item(run, what, "ok", good, "")


def _blocked_item(run: str, what: str, problem: Problem) -> ChecklistItem:
    detail = problem.what if problem.file in {"", run} else f"{problem.file}: {problem.what}"
    return _item(run, what, "blocked", detail, problem.next)


def _item(run: str, what: str, state: State, detail: str, then: str) -> ChecklistItem:
    return ChecklistItem(run=run, what=what, state=state, detail=detail, next=then)

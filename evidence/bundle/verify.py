"""Check and grade runs, verify bundles, and unpack a run, or the train states that its maker sends to a judge.

An archive is read completely before anything is written. If it is safe, its run documents are unpacked into a private
temporary folder, checked and graded again, and the folder is removed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from evidence.bundle import contents
from evidence.bundle.contents import BUNDLE_MANIFEST, HASHES, RUNS, Progress, StoredFile, bundle_problem
from evidence.bundle.reading import MAX_LIST_BYTES, BundleFiles, canonical_zip, is_unpacked_bundle, open_bundle
from evidence.bundle.secrets import MASK, MAX_REDACTED_BYTES, Redaction, is_redactable, utf16_encoding
from evidence.grade import FORMER_NAMES, Grade, RunJudgement, RunReport, check_across_runs, judge
from evidence.layout import ORIGINAL, STATES, is_weight_file, run_not_found
from evidence.notes import Notes
from evidence.proof.receipts import run_sha256
from evidence.proof.signatures import problem_error
from evidence.proof.timestamps import Timestamp, load_timestamps
from evidence.proof.verification import NOT_COVERED, Proof, apply_proofs, find_proofs
from evidence.run import Run, read_run
from evidence.writing import as_json_text, scratch_folder
from schemas.formats import join_words, quantity
from schemas.problems import Problem, ProblemError, worst_first
from schemas.reading import get_str, parse_json
from schemas.validate import read_document

GRADES_PACKED = frozenset({"consistent", "measured"})  # grades that are packed without a label
GRADES_LABELLED = frozenset({"partial", "template"})  # packed only with the label `partial`; no others are packed
_MAX_DOCUMENT_BYTES = 8 << 30  # of run documents, without weights, that are unpacked to be checked
_UNCHECKED = (contents.REPORT, "ro-crate-metadata.json", "schemas/")  # only hashed; two are of earlier versions
_HASH_MISMATCH = ("TP201", "TP231")  # findings that a redacted file causes
ANSWER = "answer.json"
MAX_STATES = 64  # in one answer
_STATE_NAME = re.compile(rf"{STATES}/[0-9]{{1,12}}\.safetensors")


@dataclass(frozen=True, kw_only=True)
class CheckedRun:
    """A run with its grade and the findings of `trainproof check`.

    Attributes:
        run: The run; for a bundle, its folder exists only while the bundle is open.
        folder_grade: Grade that follows from its files alone, as everyone finds it.
        findings: Problems, with files relative to the run folder.
        proofs: This user's receipts, and those in the folder.
        files: Files with paths relative to the bundle; empty before they are hashed.
        stated_grade: Grade that the bundle states, under its present name, or None.
    """

    run: Run
    folder_grade: Grade
    findings: tuple[Problem, ...]
    manifest_sha256: str | None = None
    proofs: tuple[Proof, ...] = ()
    files: tuple[StoredFile, ...] = ()
    stamps: tuple[Timestamp, ...] = ()
    stated_grade: str | None = None

    @property
    def folder(self) -> Path:
        """The run folder."""
        return self.run.path

    @property
    def name(self) -> str:
        """Name of the run folder."""
        return self.folder.resolve().name

    @property
    def commit(self) -> str | None:
        """Commit of the code that the run states, or None."""
        return self.run.manifest["code"]["commit"] if self.run.manifest else None

    @property
    def grade(self) -> Grade:
        """The grade with the proofs that this user trusts."""
        return apply_proofs(self.folder_grade, self.proofs)

    @property
    def errors(self) -> list[Problem]:
        """The findings that are errors."""
        return [finding for finding in self.findings if finding.severity == "error"]


@dataclass(frozen=True, kw_only=True)
class SignatureCheck:
    """Result of checking a signature file, which the user requested or which was only found next to the zip.

    `key_id` is the fingerprint of the key that made it, or None if it is invalid. `signers` are the names of that key
    on the trust list, or None if the user passed the key.
    """

    path: Path
    is_requested: bool
    problems: tuple[Problem, ...] = ()
    key_id: str | None = None
    signers: tuple[str | None, ...] = ()

    @property
    def author(self) -> str:
        """Who signed, as a sentence."""
        if self.problems:
            return "The author is unknown: the signature does not hold."
        if not self.signers:
            return (
                f"The author is unknown: {self.path.name} was made with {self.key_id}, a key that you do not trust. "
                "`trainproof trust add KEY --name NAME` trusts a person's key."
            )
        if names := [name for name in self.signers if name]:
            return f"Signed by {join_words(names, 'and')}, whom you trust ({self.key_id})."
        return f"Signed with {self.key_id}. Whose key this is, you must know from elsewhere."


@dataclass(frozen=True, kw_only=True)
class StampCheck:
    """Verdicts on timestamps, one sentence each, and the problems of invalid ones."""

    sentences: tuple[str, ...]
    problems: tuple[Problem, ...]


@dataclass(frozen=True, kw_only=True)
class AttestationCheck:
    """Result of checking a workflow attestation.

    A valid one has a `sentence` on who built the bundle and where, and the URL of that workflow run. `unchecked` is the
    reason if nothing was checked.
    """

    path: Path
    sentence: str | None = None
    invocation: str | None = None
    unchecked: str | None = None
    problems: tuple[Problem, ...] = ()


@dataclass(frozen=True, kw_only=True)
class BundleVerdict:
    """Everything that verifying a bundle found; hashes are None if it does not verify.

    Attributes:
        findings: Problems of the bundle itself, worst first, with files relative to its root.
        runs: Its runs by name; empty if the archive was refused.
        manifest_sha256: Hash of bundle_manifest.json (label, grades and reasons).
        files: Number of files, which have `size_bytes` unpacked.
        unchecked: Files outside the runs whose content nothing confirms, such as REPORT.html.
    """

    path: Path
    findings: tuple[Problem, ...]
    runs: tuple[CheckedRun, ...] = ()
    content_sha256: str | None = None
    manifest_sha256: str | None = None
    partial: bool = False
    redactions: tuple[Redaction, ...] = ()
    files: int = 0
    size_bytes: int = 0
    unchecked: tuple[str, ...] = ()
    signature: SignatureCheck | None = None
    stamps: StampCheck | None = None
    attestation: AttestationCheck | None = None

    @property
    def ok(self) -> bool:
        """Whether the bundle verifies, and so do its signature, timestamps and attestation."""
        return self.holds and not any(problem.severity == "error" for problem in self.witness_problems)

    @property
    def witness_problems(self) -> tuple[Problem, ...]:
        """Problems of signature, timestamps and attestation."""
        checks = (self.signature, self.stamps, self.attestation)
        return tuple(problem for check in checks if check for problem in check.problems)

    @property
    def holds(self) -> bool:
        """Whether the bundle itself verifies."""
        return not any(finding.severity == "error" for finding in self.findings)

    @property
    def answer(self) -> list[str]:
        """Whether the bundle is verified, what that means, and by whom, as sentences."""
        if not self.holds:
            return ["Not valid.", "Do not rely on its content."]
        intact = "Every file has its listed hash, and every grade follows from the files."
        if not self.ok:
            return ["Intact, but its signature, timestamp or attestation is not valid.", intact]
        if unproven := [run.name for run in self.runs if run.grade.name != "verified"]:
            who = f"Neither you (on this computer) nor anyone on your trust list has reproduced {join_words(unproven)}"
            return ["Intact, not verified.", intact, f"{who}; run `trainproof replay` to check the numbers."]
        return ["Verified.", intact, "You, or people on your trust list, reproduced or witnessed every run."]

    @property
    def author(self) -> str:
        """Who signed the bundle, as a sentence."""
        return self.signature.author if self.signature else "Not signed: the author is unknown."

    @property
    def uncovered(self) -> list[str]:
        """What the answer does not cover, as sentences."""
        found = [f"{each.path}: {quantity(each.count, 'place')} masked, so not as written." for each in self.redactions]
        if self.unchecked:
            # Earlier versions packed the schemas, too.
            names = dict.fromkeys("schemas/" if name.startswith("schemas/") else name for name in self.unchecked)
            found.append(
                f"{join_words(names, 'and')}: `trainproof compare --html` writes the page from the checked runs."
            )
        return [*found, NOT_COVERED]

    @property
    def proven(self) -> str:
        """What the verdict proves, in a few sentences."""
        more = [self.author, f"Not covered: {' '.join(self.uncovered)}"] if self.holds else []
        return " ".join([*self.answer, *more])


def headline(verdict: BundleVerdict) -> str:
    """Summarize in one sentence why a bundle fails, or return "" if it verifies.

    A claimed score that the predictions contradict comes first, then other contradictions, then changed files.
    """
    if verdict.ok:
        return ""
    found = [*verdict.findings, *verdict.witness_problems]
    found += [replace(error, what=f"{run.name}: {error.what}") for run in verdict.runs for error in run.errors]
    errors = [each for each in found if each.severity == "error"]
    worst = next(each for code in ("TP340", "TP3", "TP823", "") for each in errors if each.code.startswith(code))
    return f"{worst.file} changed since the bundle was built." if worst.code == "TP823" else worst.what


def check_runs(folders: Sequence[Path], redactions: Sequence[Redaction] = ()) -> list[CheckedRun]:
    """Check and grade run folders together, so that a copied run is found, and return them by name.

    `redactions` lists files in them that were masked for a bundle.
    """
    runs = [read_run(folder) for folder in folders]
    checked = []
    for run, report in zip(runs, check_across_runs([_judge(run, redactions) for run in runs]), strict=True):
        sha256 = run_sha256(run.path)
        checked.append(
            CheckedRun(
                run=run,
                folder_grade=report.grade,
                findings=tuple(relative_to_run(finding, run.path) for finding in report.findings),
                manifest_sha256=sha256,
                proofs=find_proofs(run.path, sha256) if sha256 and report.grade.name == "consistent" else (),
            )
        )
    return sorted(checked, key=lambda each: each.name)


def relative_to_run(problem: Problem, folder: Path) -> Problem:
    """Return a problem with its file relative to the run folder, or the folder's name for the folder itself."""
    path = Path(problem.file)
    if not path.is_relative_to(folder):
        return problem
    return replace(problem, file=path.relative_to(folder).as_posix() if path != folder else folder.resolve().name)


def _judge(run: Run, redactions: Sequence[Redaction]) -> RunJudgement:
    """Check a run, ignoring the changed hashes of redacted files if their original is the one that the run recorded."""
    prefix = f"{RUNS}/{run.path.resolve().name}/"
    redacted = {each.path.removeprefix(prefix): each for each in redactions if each.path.startswith(prefix)}
    if not redacted:
        return judge(run)
    recorded = {each["path"]: each["sha256"] for each in (run.manifest or {}).get("artifacts", [])}
    recorded |= {f"{ORIGINAL}/{name}": sha256 for name, sha256 in run.originals.items()}
    known = {str(run.path / name) for name, each in redacted.items() if recorded.get(name) == each.sha256}
    judged = judge(run, ignore=lambda each: each.code in _HASH_MISMATCH and each.file in known)
    grade = judged.report.grade
    if grade.name == "consistent":
        reason = f"Redacted for the bundle, so not as the run wrote it: {', '.join(sorted(redacted))}."
        grade = Grade(name="measured", reasons=(reason,))
    notes = []
    for name, each in sorted(redacted.items()):
        what = f"{quantity(each.count, 'place')} masked; the original has SHA-256 {each.sha256}."
        notes.append(bundle_problem("TP832", str(run.path / name), what))
    report = RunReport(path=run.path, grade=grade, findings=worst_first((*judged.report.findings, *notes)))
    return replace(judged, report=report)


def verify_bundle(path: Path, *, progress: Progress | None = None) -> BundleVerdict:
    """Verify a bundle: a zip, or the folder that one was unpacked into. Raises an `OSError` if it cannot be read.

    The verdict holds no rows or documents of its runs but their manifests.
    """
    with verified_bundle(path, progress=progress) as verdict:
        kept = Run(folder=path, files=(), notes=Notes(), alive=False, problems=())
        runs = [replace(run, run=replace(kept, folder=run.folder, manifest=run.run.manifest)) for run in verdict.runs]
        return replace(verdict, runs=tuple(runs))


@contextmanager
def verified_bundle(path: Path, *, progress: Progress | None = None) -> Iterator[BundleVerdict]:
    """Verify a bundle and give the verdict; the documents of its runs stay unpacked meanwhile."""
    with ExitStack() as stack:
        try:
            verdict = _check_files(path, stack.enter_context(open_bundle(path)), progress, stack)
        except ProblemError as error:
            verdict = BundleVerdict(path=path, findings=error.problems)
        yield verdict


def _check_files(path: Path, files: BundleFiles, progress: Progress | None, stack: ExitStack) -> BundleVerdict:
    """Read all files of a bundle once, then check its documents in a private folder that ends with `stack`."""
    found = files.hashes(progress)
    folder = stack.enter_context(scratch_folder("trainproof-verify-"))
    documents = sum(size for name, size in files.sizes.items() if _is_run_document(name))
    lists = ((name, files.sizes.get(name, 0), MAX_LIST_BYTES) for name in (HASHES, BUNDLE_MANIFEST))
    for name, size, limit in ((RUNS, documents, _MAX_DOCUMENT_BYTES), *lists):
        if size > limit:
            expected = f"at most {limit:,} bytes"
            raise ProblemError([bundle_problem("TP812", name, f"It has {size:,} bytes.", expected=expected)])
    problems = [*_list_problems(found, files.content(HASHES)), *files.problems]
    manifest, shape_problems = _read_manifest(files.content(BUNDLE_MANIFEST), folder)
    problems += shape_problems
    files.write_to(folder, _is_run_document)
    stated = manifest or {}
    redactions = tuple(Redaction(**each) for each in stated.get("redactions", []))
    unfit = list(_redaction_problems(redactions, files, found))
    problems = [*problems, *unfit]
    redactions = () if unfit else redactions
    names = sorted({name.split("/")[1] for name in found if name.startswith(f"{RUNS}/")})
    grades = {each["run_id"]: FORMER_NAMES.get(each["grade"], each["grade"]) for each in stated.get("runs", [])}
    runs = [
        replace(
            run,
            files=tuple(file for name, file in found.items() if name.startswith(f"{RUNS}/{run.name}/")),
            stamps=load_timestamps(run.folder, run.run.manifest),
            stated_grade=grades.get(run.name),
        )
        for run in check_runs([folder / RUNS / name for name in names], redactions)
    ]
    if manifest:
        problems += [*_manifest_problems(found, names, manifest), *_grade_problems(runs, partial=manifest["partial"])]
    is_sound = manifest is not None and not any(problem.severity == "error" for problem in problems)
    return BundleVerdict(
        path=path,
        findings=worst_first(problems),
        runs=tuple(runs),
        content_sha256=manifest["content_sha256"] if manifest and is_sound else None,
        manifest_sha256=found[BUNDLE_MANIFEST].sha256 if is_sound else None,
        partial=stated.get("partial", False),
        redactions=redactions,
        files=len(found),
        size_bytes=sum(each.size_bytes for each in found.values()),
        unchecked=tuple(name for name in sorted(found) if name.startswith(_UNCHECKED)),
    )


def _is_run_document(path: str) -> bool:
    return path.startswith(f"{RUNS}/") and not is_weight_file("/".join(path.split("/")[2:]))


def _list_problems(found: Mapping[str, StoredFile], content: bytes | None) -> Iterator[Problem]:
    """Compare the files of a bundle with the content of MANIFEST.sha256."""
    listed = None if content is None else contents.read_hash_lines(content.decode("utf-8", "replace"))
    if listed is None:
        wrong = "A line is not `<sha256>  <path>`, or a path occurs twice."
        yield bundle_problem("TP820", HASHES, f"{HASHES} is missing." if content is None else wrong)
        return
    for path in sorted(found.keys() - {HASHES} | listed.keys()):
        if path not in found:
            yield bundle_problem("TP821", path, f"The file is listed in {HASHES} but missing.")
        elif path not in listed:
            yield bundle_problem("TP822", path, f"The file is not listed in {HASHES}.")
        elif found[path].sha256 != listed[path]:
            what = f"The file has SHA-256 {found[path].sha256}."
            yield bundle_problem("TP823", path, what, expected=f"SHA-256 {listed[path]}")
        elif path != BUNDLE_MANIFEST and not path.startswith((f"{RUNS}/", *_UNCHECKED)):
            yield bundle_problem("TP822", path, "The file is listed, but no bundle holds such a file.")


def _read_manifest(content: bytes | None, folder: Path) -> tuple[dict[str, Any] | None, Sequence[Problem]]:
    """Return bundle_manifest.json, or None if it is missing or invalid, and its problems."""
    if content is None:
        return None, [bundle_problem("TP820", BUNDLE_MANIFEST, f"{BUNDLE_MANIFEST} is missing.")]
    (folder / BUNDLE_MANIFEST).write_bytes(content)
    document = read_document(folder / BUNDLE_MANIFEST, "bundle_manifest")
    problems = [relative_to_run(problem, folder) for problem in document.problems]
    return (None if any(problem.severity == "error" for problem in problems) else document.value), problems


def _manifest_problems(
    found: Mapping[str, StoredFile], names: Sequence[str], manifest: Mapping[str, Any]
) -> Iterator[Problem]:
    """Compare the files of a bundle with a valid bundle_manifest.json."""
    digest = contents.content_sha256(found.values())
    if digest != manifest["content_sha256"]:
        what = f"The content digest is {digest}."
        yield bundle_problem("TP824", BUNDLE_MANIFEST, what, expected=manifest["content_sha256"])
    stated = sorted(f"{run['run_id']} in {run['path']}" for run in manifest["runs"])
    present = [f"{name} in {RUNS}/{name}" for name in names]
    if stated != present:
        first, *_ = sorted(set(stated) ^ set(present)) or stated
        what = f"The listed runs are not those in the folder {RUNS}. First difference: {first}."
        yield bundle_problem("TP829", BUNDLE_MANIFEST, what)


def _redaction_problems(
    redactions: Sequence[Redaction], files: BundleFiles, found: Mapping[str, StoredFile]
) -> Iterator[Problem]:
    """Yield stated redactions that are impossible or not visible in the file."""
    paths = [each.path for each in redactions]
    for each in redactions:
        top, _, rest = each.path.partition("/")
        name = rest.partition("/")[2]
        if paths.count(each.path) > 1 or top != RUNS or not name or not is_redactable(name) or each.path not in found:
            what = f"`{each.path}` cannot be redacted, or is listed twice."
            yield bundle_problem("TP833", BUNDLE_MANIFEST, what)
        elif (masks := _count_masks(files, each.path)) < each.count:
            what = f"`{MASK}` occurs {quantity(masks, 'time')} in the file."
            yield bundle_problem("TP833", each.path, what, expected=f"at least {each.count:,}")
        elif found[each.path].sha256 == each.sha256:
            yield bundle_problem("TP833", each.path, "The file is listed as redacted, but it is the original.")


def _count_masks(files: BundleFiles, path: str) -> int:
    if files.sizes[path] > 2 * MAX_REDACTED_BYTES:
        return 0
    content = files.content(path) or b""
    return content.decode(utf16_encoding(content) or "utf-8", "replace").count(MASK)


def _grade_problems(runs: Sequence[CheckedRun], *, partial: bool) -> Iterator[Problem]:
    """Yield runs whose grade differs from the stated one, or that such a bundle may not hold."""
    for run in runs:
        place, grade = f"{RUNS}/{run.name}", run.folder_grade.name
        if run.stated_grade not in {None, grade}:
            what = f"The bundle states the grade `{run.stated_grade}`; the run is graded `{grade}`."
            yield bundle_problem("TP825", place, what)
        if grade not in GRADES_PACKED | GRADES_LABELLED:
            what = f"The run is graded `{grade}`. Bundles cannot hold such runs."
            yield bundle_problem("TP826", place, what, next="Ask for a bundle without this run.")
        elif not partial and (run.errors or grade not in GRADES_PACKED):
            state = "has errors" if run.errors else f"is graded `{grade}`"
            yield bundle_problem("TP826", place, f"The run {state}, but the bundle is not labelled partial.")


# Runs and states for further work


@contextmanager
def unpacked_run(path: Path, run_id: str | None = None) -> Iterator[Path]:
    """Give a run folder: the path itself, or a run of a verified bundle, weights included, in a temporary folder.

    A path that cannot be read, and a bundle of several runs without a `run_id`, are problems with exit code 2; a bundle
    that does not verify has exit code 1.
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
            raise problem_error(path, "TP801", what=f"It cannot be unpacked: {error.strerror or error}.") from None
        yield scratch / RUNS / name


def refuse_invalid(verdict: BundleVerdict) -> None:
    """Raise a problem with the first error of a bundle that does not verify."""
    errors = [finding for finding in verdict.findings if finding.severity == "error"]
    if errors:
        what = f"The bundle does not verify. First error: {errors[0].code}: {errors[0].what}"
        raise problem_error(verdict.path, "TP856", what=what, exit_code=1)


def pack_states(folder: Path, run_sha256: str, output: Path) -> None:
    """Write the train states of a folder as an answer for the run with that manifest hash."""
    files = {ANSWER: as_json_text({"run_sha256": run_sha256}).encode()}
    files |= {f"{STATES}/{path.name}": path.read_bytes() for path in (folder / STATES).iterdir()}
    output.parent.mkdir(parents=True, exist_ok=True)
    with output.open("wb") as file:
        file.writelines(canonical_zip(files))


@contextmanager
def sent_states(path: Path | None, run_sha256: str | None) -> Iterator[Path | None]:
    """Give a temporary folder with the states of an answer for the run with this manifest hash; None without an answer.

    A file that cannot be read or is not an answer for this run is a problem with exit code 2; an unsafe one has 1.
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
                    raise problem_error(path, "TP858", what=problem)
                files.write_to(scratch, lambda _: True)
            stated = get_str(parse_json((scratch / ANSWER).read_bytes(), file=ANSWER).value, "run_sha256")
        except OSError as error:
            raise problem_error(path, "TP801", what=f"It cannot be read: {error.strerror or error}.") from None
        if stated is None or stated != run_sha256:
            what = f"The answer is not for the run whose manifest has SHA-256 {run_sha256}."
            raise problem_error(path, "TP858", what=what)
        yield scratch

"""Evidence that was written once is judged the same for ever; evidence of a later version is refused in plain words.

The files of tests/corpus are frozen: `expected.json` states the hash of each, and grade and findings of every run and
bundle. Words may change, so findings are held by code, severity, file and pointer.
"""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from bundles import contents, listed_again, pack

from evidence.bundle.verify import verify_bundle
from evidence.bundle.witnesses import check_signature
from evidence.grade import FORMER_NAMES, check_run
from evidence.hashes import sha256_file
from evidence.run import read_run
from schemas.problems import Problem
from schemas.render import render_text

CORPUS = Path(__file__).parents[1] / "corpus"
VERSIONS = sorted(path.parent for path in CORPUS.glob("*/expected.json"))
RUNS = sorted(path for version in VERSIONS for path in (version / "runs").iterdir())
BUNDLES = sorted(path for version in VERSIONS for path in (version / "bundles").glob("*.zip"))


def expected(path: Path) -> Any:
    """Return what was found then, grades under the names that they have today."""
    stated = json.loads((path.parents[1] / "expected.json").read_text("utf-8"))[path.parent.name][path.name]
    if "grade" in stated:
        return stated | {"grade": FORMER_NAMES.get(stated["grade"], stated["grade"])}
    grades = {run: [FORMER_NAMES.get(name, name) for name in names] for run, names in stated["grades"].items()}
    return stated | {"grades": grades}


def without_words(findings: tuple[Problem, ...], folder: Path) -> list[list[str | None]]:
    return [[each.code, each.severity, each.file.replace(f"{folder}/", ""), each.pointer] for each in findings]


@pytest.mark.parametrize("version", VERSIONS, ids=lambda path: path.name)
def test_no_frozen_file_was_changed(version: Path) -> None:
    stated = json.loads((version / "expected.json").read_text("utf-8"))["files"]
    files = (path for path in sorted(version.rglob("*")) if path.is_file() and path.name != "expected.json")
    assert {path.relative_to(version).as_posix(): sha256_file(path) for path in files} == stated


@pytest.mark.parametrize("folder", RUNS, ids=lambda path: path.name)
def test_old_run_is_judged_as_ever(folder: Path) -> None:
    report = check_run(read_run(folder))
    assert {"grade": report.grade.name, "findings": without_words(report.findings, folder)} == expected(folder)


@pytest.mark.parametrize("path", BUNDLES, ids=lambda path: path.name)
def test_old_bundle_verifies_as_ever(path: Path) -> None:
    verdict = verify_bundle(path)
    assert {
        "ok": verdict.ok,
        "content_sha256": verdict.content_sha256,
        "partial": verdict.partial,
        "grades": {run.name: [run.stated_grade, run.grade.name] for run in verdict.runs},
        "findings": without_words(verdict.findings, path.parent),
    } == expected(path)


def test_an_old_signature_must_be_made_again() -> None:
    verdict = check_signature(verify_bundle(CORPUS / "v1/bundles/finished.zip"), None, None)
    assert verdict.ok
    assert verdict.signature is not None
    [problem] = verdict.signature.problems
    assert (problem.code, problem.severity) == ("TP834", "warning")


@pytest.mark.parametrize("version", ["1.3", "2.0"])
def test_bundle_of_a_later_version_is_refused_in_plain_words(version: str, tmp_path: Path) -> None:
    files = listed_again(contents(CORPUS / "v1/bundles/finished.zip"))
    manifest = json.loads(files["bundle_manifest.json"])
    files["bundle_manifest.json"] = json.dumps(manifest | {"schema_version": version, "wrapped": True}).encode()
    verdict = verify_bundle(pack(files, tmp_path / "later.zip"))
    assert not verdict.ok
    assert render_text([each for each in verdict.findings if each.code == "TP115"]) == (
        "error TP115: bundle_manifest.json at /schema_version (line 1): "
        f"The document has schema version {version}; nothing else was checked.\n"
        "  The meaning of its fields may differ.\n"
        '  Expected: "1.0", "1.1" or "1.2".\n'
        "  Next: Upgrade trainproof (`pip install --upgrade trainproof`) to a release that reads this version.\n"
    )


@pytest.mark.parametrize("version", ["1.3", "2.0"])
@pytest.mark.parametrize("name", ["run_manifest.json", "eval_summary.json", "first_examples.json", "plan.json"])
def test_document_of_a_later_version_is_refused_in_plain_words(version: str, name: str, tmp_path: Path) -> None:
    folder = tmp_path / "finished"
    shutil.copytree(CORPUS / "v1/runs/finished", folder)
    document = json.loads((folder / name).read_text("utf-8"))
    (folder / name).write_text(json.dumps(document | {"schema_version": version, "later": {}}), "utf-8")
    report = check_run(read_run(folder))
    assert "TP115" in {each.code for each in report.findings}
    assert report.grade.name in {"partial", "measured", "contradictory"}

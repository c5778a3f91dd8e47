"""Evidence that was written once is judged the same for ever; evidence of a later version is refused in plain words.

The files of tests/corpus are frozen: `expected.json` states the hash of each, and grade and findings of every run and
bundle. Words may change, so findings are held by code, severity, file and pointer.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from bundles import contents, listed_again, pack

from evidence.bundle.verify import verify_bundle
from evidence.judge.grade import FORMER_NAMES
from evidence.judge.judgement import report_of
from evidence.records.ours import read_run
from evidence.run.hashes import sha256_file
from schemas.problems import Problem
from schemas.render import as_text
from trainproof.terminal.signatures import with_signature

CORPUS = Path(__file__).parents[2] / "corpus"
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


def found(findings: tuple[Problem, ...], folder: Path) -> list[list[str | None]]:
    """Return findings without their words; that another version built a bundle is no property of the bundle."""
    return [
        [each.code, each.severity, each.file.replace(f"{folder}/", ""), each.pointer]
        for each in findings
        if each.code != "TP830"
    ]


@pytest.mark.parametrize("version", VERSIONS, ids=lambda path: path.name)
def test_no_frozen_file_was_changed(version: Path) -> None:
    stated = json.loads((version / "expected.json").read_text("utf-8"))["files"]
    files = (path for path in sorted(version.rglob("*")) if path.is_file() and path.name != "expected.json")
    assert {path.relative_to(version).as_posix(): sha256_file(path) for path in files} == stated


@pytest.mark.parametrize("folder", RUNS, ids=lambda path: path.name)
def test_old_run_is_judged_as_ever(folder: Path) -> None:
    report = report_of(read_run(folder))
    assert {"grade": report.grade.name, "findings": found(report.findings, folder)} == expected(folder)


@pytest.mark.parametrize("path", BUNDLES, ids=lambda path: path.name)
def test_old_bundle_verifies_as_ever(path: Path) -> None:
    verdict = verify_bundle(path)
    assert {
        "ok": verdict.ok,
        "content_sha256": verdict.content_sha256,
        "partial": verdict.partial,
        "grades": {run.run_id: [run.stated_grade, run.grade] for run in verdict.runs},
        "findings": found(verdict.findings, path.parent),
    } == expected(path)


def test_old_signature_still_proves_who_signed() -> None:
    path = CORPUS / "v1/bundles/finished.zip"
    verdict = with_signature(verify_bundle(path), None, path.with_name("signer.key.pub"))
    assert verdict.ok
    assert verdict.signature is not None
    assert verdict.signature.problems == ()


def test_bundle_without_the_schema_of_a_kind_that_it_does_not_hold_is_whole(tmp_path: Path) -> None:
    files = contents(CORPUS / "v1/bundles/finished.zip")
    for kind in ("import", "notes", "dataset_row"):
        files.pop(f"schemas/v1/{kind}.schema.json")
    whole = pack(listed_again(files | {"bundle_manifest.json": other_build(files)}), tmp_path / "old.zip")
    assert verify_bundle(whole).ok
    files.pop("schemas/v1/metric_row.schema.json")
    lacking = pack(listed_again(files | {"bundle_manifest.json": other_build(files)}), tmp_path / "lacking.zip")
    assert [each.file for each in verify_bundle(lacking).findings if each.severity == "error"] == [
        "schemas/v1/metric_row.schema.json"
    ]


def other_build(files: dict[str, bytes]) -> bytes:
    manifest = json.loads(files["bundle_manifest.json"])
    manifest["made_by"].pop("build")
    return json.dumps(manifest).encode()


@pytest.mark.parametrize("version", ["1.3", "2.0"])
def test_bundle_of_a_later_version_is_refused_in_plain_words(version: str, tmp_path: Path) -> None:
    files = listed_again(contents(CORPUS / "v1/bundles/finished.zip"))
    manifest = json.loads(files["bundle_manifest.json"])
    files["bundle_manifest.json"] = json.dumps(manifest | {"schema_version": version, "wrapped": True}).encode()
    verdict = verify_bundle(pack(files, tmp_path / "later.zip"))
    assert not verdict.ok
    assert as_text([each for each in verdict.findings if each.code == "TP115"]) == (
        "error TP115: bundle_manifest.json at /schema_version (line 1): "
        f"The document follows version {version} of the schema; nothing else was checked.\n"
        "  What its fields mean may differ there, so that a guess could be wrong without a sign.\n"
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
    report = report_of(read_run(folder))
    assert "TP115" in {each.code for each in report.findings}
    assert report.grade.name in {"partial", "measured", "contradictory"}

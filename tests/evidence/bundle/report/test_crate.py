"""The crate of a bundle: what it says of runs, and what an independent judge of crates says of it."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import tempfile
import zipfile
from contextlib import suppress
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import compiled
import crate_judge
import pytest
from bundles import contents, listed_again, pack, small_bundle
from synthetic import write_run

from evidence.bundle.build import build_bundle
from evidence.bundle.verify import verify_bundle

pytestmark = pytest.mark.slow

JUDGE = Path(__file__).parents[3] / "cases" / "crate"
"""The context of RO-Crate 1.1, and the pinned packages of the judge."""


@pytest.fixture(scope="session")
def judge_python() -> str:
    """Return the Python of an environment that holds the judge and nothing of ours, kept for every clone."""
    lock = JUDGE / "judge.lock"
    made_of = sys.version.encode() + lock.read_bytes()
    folder = compiled.kept() / "judges" / hashlib.sha256(made_of).hexdigest()[:16]
    if not folder.exists():
        install_judge(lock, folder)
    return str(folder / "bin" / "python")


def install_judge(lock: Path, folder: Path) -> None:
    """Make the environment beside its place and move it there whole: other workers look for it too."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent, ignore_cleanup_errors=True) as beside:
        made = Path(beside, "made")
        uv = str(Path(sys.executable).with_name("uv"))
        install = [uv, "pip", "install", "--quiet", "--python", str(made / "bin" / "python"), "--require-hashes"]
        try:
            subprocess.run([uv, "venv", "--quiet", "--python", sys.executable, str(made)], check=True)
            subprocess.run([*install, "-r", str(lock)], capture_output=True, text=True, check=True)
        except (FileNotFoundError, subprocess.CalledProcessError) as error:
            if os.environ.get("CI"):
                raise
            pytest.skip(f"roc-validator could not be installed here: {getattr(error, 'stderr', None) or error}")
        with suppress(OSError):  # another worker was there first
            made.rename(folder)


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle of every kind of thing that a crate describes."""
    folder = tmp_path_factory.mktemp("crate")
    runs = [
        write_run(folder / "runs", "good", steps=4, items=6),
        write_run(folder / "runs", "cut", steps=4, status="interrupted", seed=1),
        write_run(folder / "runs", "broken", steps=4, status="failed", seed=2),
        write_run(folder / "runs", "bare", steps=4, seed=3),
    ]
    (runs[0] / "notes äö 1.txt").write_text("as they came\n", "utf-8")
    (runs[3] / "run_manifest.json").unlink()
    return build_bundle(runs, folder / "all.zip", allow_partial=True, with_unlisted=True).output


def crate_of(path: Path) -> dict[str, Any]:
    return json.loads(contents(path)["ro-crate-metadata.json"])


def entities(path: Path) -> dict[str, dict[str, Any]]:
    return {entity["@id"]: entity for entity in crate_of(path)["@graph"]}


def links(value: Any) -> list[str]:
    return [each["@id"] for each in (value if isinstance(value, list) else [value])]


def test_a_run_is_an_action(bundle: Path):
    found = entities(bundle)
    action = found["#run-good"]
    assert {key: action[key] for key in ("@type", "name", "description", "startTime", "endTime", "actionStatus")} == {
        "@type": "CreateAction",
        "name": "Training run good",
        "description": "A full run of own-model on 1 × cpu.",
        "startTime": "2026-11-20T12:00:00.000+00:00",
        "endTime": "2026-11-20T12:00:26.000+00:00",
        "actionStatus": "http://schema.org/CompletedActionStatus",
    }
    inputs, results = links(action["object"]), links(action["result"])
    assert inputs[:2] == ["runs/good/config.yaml", "runs/good/plan.json"]
    assert found[inputs[2]]["description"].startswith("Training data: ")
    assert "runs/good/notes%20%C3%A4%C3%B6%201.txt" in results
    program = found[action["instrument"]["@id"]]
    manifest = json.loads(contents(bundle)["runs/good/run_manifest.json"])
    assert (program["name"], program["softwareVersion"]) == ("trainproof", manifest["code"]["version"])
    assert manifest["code"]["commit"] in program["description"]


def test_a_run_that_did_not_succeed_says_how_it_ended(bundle: Path):
    found = entities(bundle)
    for name in ("cut", "broken"):
        manifest = json.loads(contents(bundle)[f"runs/{name}/run_manifest.json"])
        assert found[f"#run-{name}"]["actionStatus"] == "http://schema.org/FailedActionStatus"
        assert found[f"#run-{name}"]["error"] == f"{manifest['status']}: {manifest['exit']['message']}"


def test_without_a_manifest_there_is_a_folder_and_no_action(bundle: Path):
    found = entities(bundle)
    assert "#run-bare" not in found
    assert "runs/bare/" in links(found["./"]["hasPart"])
    assert sorted(links(found["./"]["mentions"])) == ["#run-broken", "#run-cut", "#run-good"]


def test_every_file_is_described_with_its_size(bundle: Path):
    found, files = entities(bundle), contents(bundle)
    described = {entity["@id"] for entity in found.values() if entity["@type"] == "File"}
    assert len(described) == len(files) - 1  # all but the crate, which describes itself in another way
    for name, content in files.items():
        if name in found and name not in {"ro-crate-metadata.json", "MANIFEST.sha256", "bundle_manifest.json"}:
            assert found[name]["contentSize"] == str(len(content))


def test_nothing_is_referred_to_that_is_not_described(bundle: Path):
    graph = crate_of(bundle)["@graph"]
    known = {entity["@id"] for entity in graph}
    assert len(known) == len(graph)
    named = {each for entity in graph for value in entity.values() if _is_link(value) for each in links(value)}
    assert named <= known


def _is_link(value: Any) -> bool:
    return isinstance(value, dict) or (isinstance(value, list) and all(isinstance(each, dict) for each in value))


def test_people_and_licence_are_said_not_to_be_stated(bundle: Path):
    found = entities(bundle)
    root = found["./"]
    assert found[root["author"]["@id"]]["name"] == "Makers of this bundle, who are not named in it"
    assert found[root["license"]["@id"]]["name"] == "No licence is stated"
    assert root["description"].endswith("it holds runs that are unfinished, empty or have errors.")
    assert root["datePublished"] == "2026-11-20"


def test_no_run_states_a_date(tmp_path: Path):
    run = write_run(tmp_path, "bare", steps=4)
    (run / "run_manifest.json").unlink()
    path = build_bundle([run], tmp_path / "bare.zip", allow_partial=True).output
    root = entities(path)["./"]
    assert root["datePublished"] == "1980-01-01"
    assert "mentions" not in root


def test_a_time_before_the_first_year_is_left_out(tmp_path: Path):
    started = datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=14)))  # in UTC, before the first day that Python knows
    run = write_run(tmp_path, "odd", steps=4, status="interrupted", started=started)
    path = build_bundle([run], tmp_path / "odd.zip", allow_partial=True).output
    assert "startTime" not in entities(path)["#run-odd"]


@pytest.mark.parametrize(
    ("old", "new"), [("CompletedActionStatus", "FailedActionStatus"), ('"version": "1.1"', '"version": "1.2"')]
)
def test_a_crate_that_was_edited_is_found(tmp_path: Path, old: str, new: str):
    files = contents(small_bundle(tmp_path))
    text = files["ro-crate-metadata.json"].decode()
    assert old in text
    files["ro-crate-metadata.json"] = text.replace(old, new).encode()
    verdict = verify_bundle(pack(listed_again(files), tmp_path / "forged.zip"))
    assert [(finding.code, finding.file, finding.what) for finding in verdict.findings] == [
        ("TP831", "ro-crate-metadata.json", "The crate differs from the one that the files inside give.")
    ]


def test_a_bundle_without_crate(tmp_path: Path):
    files = contents(small_bundle(tmp_path))
    del files["ro-crate-metadata.json"]
    verdict = verify_bundle(pack(listed_again(files), tmp_path / "forged.zip"))
    assert [(finding.code, finding.what) for finding in verdict.findings] == [
        ("TP820", "The archive has no ro-crate-metadata.json.")
    ]


@pytest.mark.slow
def test_the_independent_judge_finds_nothing_in_ours_and_what_is_wrong_in_an_edited_one(
    bundle: Path, judge_python: str, tmp_path: Path
):
    folders = [tmp_path / "ours", tmp_path / "edited"]
    for folder in folders:
        with zipfile.ZipFile(bundle) as archive:
            archive.extractall(folder)
    crate = folders[1] / "ro-crate-metadata.json"
    value = json.loads(crate.read_text("utf-8"))
    (action,) = [entity for entity in value["@graph"] if entity["@id"] == "#run-good"]
    del action["instrument"], action["agent"]
    crate.write_text(json.dumps(value), "utf-8")
    command = [judge_python, crate_judge.__file__, str(JUDGE / "context.jsonld"), *map(str, folders)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
    ours, edited = json.loads(done.stdout)
    assert [level["issues"] for level in ours.values()] == [[], []]
    assert ours["REQUIRED"]["checks"] >= 40
    assert ours["RECOMMENDED"]["checks"] >= 95
    assert any("instrument" in issue for issue in edited["REQUIRED"]["issues"])
    assert any("agent" in issue for issue in edited["RECOMMENDED"]["issues"])

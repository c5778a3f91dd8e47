"""The in-toto statement about a run: every file by its hash, and a signature over it that speaks for the bundle."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path

import pytest
from synthetic import write_run

from evidence.bundle.build import build_bundle
from evidence.layout import MANIFEST
from evidence.proof.statement import RUN_PREDICATE
from trainproof import command


@pytest.fixture(autouse=True)
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "own"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_run(tmp_path_factory.mktemp("runs"), "demo-1", steps=4, items=6)


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ended:
        command.main([str(argument) for argument in arguments])
    captured = capsys.readouterr()
    return int(ended.value.code or 0), captured.out, captured.err


def test_every_file_is_a_subject(folder: Path, capsys: pytest.CaptureFixture[str]):
    code, out, _ = run(capsys, "statement", folder)
    stated = json.loads(out)
    assert code == 0
    assert (stated["_type"], stated["predicateType"]) == ("https://in-toto.io/Statement/v1", RUN_PREDICATE)
    there = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()}
    assert {each["name"]: each["digest"]["sha256"] for each in stated["subject"]} == there
    predicate = stated["predicate"]
    assert predicate["run_sha256"] == there[MANIFEST]
    assert predicate["config_sha256"] == there["config.yaml"]
    manifest = json.loads((folder / MANIFEST).read_text())
    summary = json.loads((folder / "eval_summary.json").read_text())
    assert predicate["code"]["commit"] == manifest["code"]["commit"]
    assert predicate["result"] == manifest["result"]
    assert predicate["scores"]["exact_match"]["value"] == summary["metrics"]["exact_match"]["value"]
    alone = json.loads(run(capsys, "statement", folder, "--predicate")[1])
    assert alone | {"stated_at": None} == predicate | {"stated_at": None}


def test_the_page_names_every_field(folder: Path, capsys: pytest.CaptureFixture[str]):
    predicate = json.loads(run(capsys, "statement", folder, "--predicate")[1])
    page = Path("docs/witness.md").read_text()
    table = page[page.index("| field | what |") :]
    named = re.findall(r"`([a-z_0-9]+)`", " ".join(line.split("|")[1] for line in table.splitlines() if "|" in line))
    assert set(named) == set(predicate)
    assert RUN_PREDICATE in page


def test_a_run_that_has_not_ended_is_not_stated(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    changed = write_run(tmp_path, "demo-2", steps=4, items=0, manifest={"artifacts": []})
    path = changed / MANIFEST
    path.write_text(json.dumps(json.loads(path.read_text()) | {"artifacts": []}))
    code, out, err = run(capsys, "statement", changed)
    assert (code, out) == (1, "")
    assert err.startswith(f"error TP872: {changed}: The run is not sealed: it lists no files.\n")


def test_signed_it_speaks_for_the_bundle_of_its_run_alone(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    pytest.importorskip("cryptography", reason="needs cryptography (extra `sign`)")
    path, zipped = tmp_path / "statement.json", build_bundle([folder], tmp_path / "demo-1.zip").output
    path.write_text(run(capsys, "statement", folder)[1])
    code, _, err = run(capsys, "sign", path, "--new-key", tmp_path / "me")
    assert (code, err) == (0, "")
    flags = ["--signature", f"{path}.sig", "--public-key", tmp_path / "me.pub"]
    code, out, _ = run(capsys, "verify", zipped, *flags)
    assert code == 0
    assert "signed this content, in a statement of 20" in out
    other = write_run(tmp_path / "runs", "demo-1", steps=4, items=6, seed=7)
    code, out, _ = run(capsys, "verify", build_bundle([other], tmp_path / "other.zip").output, *flags)
    assert code == 1
    assert f"error TP835: {path}.sig: The signature is for the run whose manifest has the hash " in out

"""Redaction: what is masked, what stays as it is, what the bundle says of it, and lies about it."""

from __future__ import annotations

import json
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from bundles import contents, listed_again, pack
from secret_samples import HF, SECRETS
from synthetic import seal, write_run

from evidence.bundle.build import build_bundle
from evidence.bundle.secrets.redact import masked_text
from evidence.bundle.secrets.scan import scan_file
from evidence.bundle.verify import verify_bundle
from schemas.problems import ProblemError
from trainproof.terminal.bundles import build_text, verdict_text

PRIVATE = "RSA " + "PRIVATE KEY-----"
KEY = f"-----BEGIN {PRIVATE}\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-256-CBC,AB\n\nMIIE+/a=\nbbbb\n-----END {PRIVATE}"


@pytest.mark.parametrize("name", SECRETS)
def test_every_kind_of_secret_is_masked_and_not_found_again(name: str, tmp_path: Path):
    text = SECRETS[name]
    content = text if isinstance(text, bytes) else text.encode()
    masked, count = masked_text(content)
    assert count >= 1
    path = tmp_path / "log.txt"
    path.write_bytes(masked)
    assert [problem for problem in scan_file(path, "log.txt") if problem.code == "TP846"] == []


@pytest.mark.parametrize("name", [name for name, text in SECRETS.items() if isinstance(text, str)])
def test_a_line_of_json_stays_one(name: str):
    line = json.dumps({"message": SECRETS[name], "level": "info"}) + "\n"
    masked, _ = masked_text(line.encode())
    assert json.loads(masked)["level"] == "info"


def test_what_is_masked():
    text = b"loading /home/ada/a.jsonl, C:\\Users\\ada\\b and /Users/ada\n"
    assert masked_text(text) == (b"loading /home/REDACTED/a.jsonl, C:\\Users\\REDACTED\\b and /Users/REDACTED\n", 3)
    assert masked_text(f"https://me:{HF}@huggingface.co".encode()) == (b"https://me:REDACTED@huggingface.co", 1)
    assert masked_text(b"nothing here, ada@host.org\n") == (b"nothing here, ada@host.org\n", 0)
    assert masked_text(b"\0/home/ada") == (b"\0/home/ada", 0)


def test_a_torn_file_of_two_byte_signs_is_left_as_it_is():
    torn = b"\xff\xfe" + "hf".encode("utf-16-le") + b"x"
    assert masked_text(torn) == (torn, 0)


def test_a_private_key_goes_whole():
    masked, count = masked_text(f"before\n{KEY}\nafter\n".encode())
    assert (masked, count) == (b"before\nREDACTED\nafter\n", 1)
    line = json.dumps({"message": KEY, "level": "info"}).encode()
    masked, _ = masked_text(line)
    assert json.loads(masked) == {"message": "REDACTED", "level": "info"}


def test_masking_twice_changes_nothing():
    masked, _ = masked_text("\n".join(text for text in SECRETS.values() if isinstance(text, str)).encode())
    assert masked_text(masked) == (masked, 0)


def secret_run(root: Path, **changes: Any) -> Path:
    """Return a run whose log holds a token and a home folder, sealed with them."""
    run = write_run(root, "demo", steps=4, items=6, **changes)
    log = run / "log.jsonl"
    first, *rest = log.read_text("utf-8").splitlines(keepends=True)
    row = json.loads(first)
    row["message"] = f"HF_TOKEN={HF} in /home/ada/run"
    log.write_text(json.dumps(row) + "\n" + "".join(rest), "utf-8")
    seal(run)
    return run


@pytest.fixture
def built(tmp_path: Path) -> Path:
    return build_bundle([secret_run(tmp_path / "runs")], tmp_path / "demo.zip", redact=True).output


def test_the_bundle_says_what_was_masked(tmp_path: Path):
    run = secret_run(tmp_path / "runs")
    before = {path.name: path.read_bytes() for path in run.iterdir()}
    report = build_bundle([run], tmp_path / "demo.zip", redact=True)
    assert {path.name: path.read_bytes() for path in run.iterdir()} == before  # the run stays as it is
    files = contents(report.output)
    assert HF.encode() not in b"".join(files.values())
    assert b"HF_TOKEN=REDACTED in /home/REDACTED/run" in files["runs/demo/log.jsonl"]
    original = sha256(before["log.jsonl"]).hexdigest()
    stated = {"path": "runs/demo/log.jsonl", "count": 2, "sha256": original}
    assert json.loads(files["bundle_manifest.json"])["redactions"] == [stated]
    assert (
        f"2 places were masked when the bundle was built; the file of the run has SHA-256 {original}."
        in files["REPORT.html"].decode()
    )
    assert "  Redacted: runs/demo/log.jsonl, 2 places; what stood there cannot be checked.\n" in build_text(report)


def test_verify_understands_and_says_it(built: Path):
    verdict = verify_bundle(built)
    assert (verdict.ok, verdict.findings) == (True, ())
    (run,) = verdict.runs
    assert (run.stated_grade, run.grade) == ("measured", "measured")
    assert run.reasons == ("Redacted for the bundle, so not as the run wrote it: log.jsonl.",)
    assert [(finding.code, finding.severity, finding.file) for finding in run.findings] == [
        ("TP832", "warning", "log.jsonl")
    ]
    assert "1 file was redacted for it; what stood there is not proven." in verdict.proven
    assert "  Redacted: runs/demo/log.jsonl, 2 places; what stood there cannot be checked.\n" in verdict_text(verdict)


def test_nothing_to_mask_is_the_same_bundle(tmp_path: Path):
    run = write_run(tmp_path / "runs", "demo", steps=4, items=6)
    plain, masked = (
        build_bundle([run], tmp_path / f"{redact}.zip", redact=redact).output.read_bytes() for redact in (False, True)
    )
    assert plain == masked


def test_redacted_bundles_are_the_same_every_time(tmp_path: Path, built: Path):
    again = build_bundle([tmp_path / "runs" / "demo"], tmp_path / "again.zip", redact=True).output
    assert again.read_bytes() == built.read_bytes()


def test_the_manifest_may_hold_a_home_folder(tmp_path: Path):
    run = write_run(tmp_path / "runs", "demo", steps=4, manifest={"command": ["/home/ada/.venv/bin/trainproof"]})
    report = build_bundle([run], tmp_path / "demo.zip", redact=True, allow_partial=True)
    assert [each.path for each in report.redactions] == ["runs/demo/run_manifest.json"]
    assert report.warnings == ()


def test_what_results_are_computed_from_is_never_masked(tmp_path: Path):
    run = write_run(tmp_path / "runs", "demo", steps=4, items=6)
    path = run / "predictions.jsonl"
    path.write_text(path.read_text("utf-8").replace("What is", f"{HF} is", 1), "utf-8")
    with pytest.raises(ProblemError) as caught:
        build_bundle([run], tmp_path / "demo.zip", redact=True)
    assert ("TP846", str(path)) in [(problem.code, problem.file) for problem in caught.value.problems]
    assert not (tmp_path / "demo.zip").exists()


def test_a_log_that_was_changed_before_is_still_contradictory(tmp_path: Path):
    run = secret_run(tmp_path / "runs")
    with (run / "log.jsonl").open("a", encoding="utf-8") as log:
        log.write((run / "log.jsonl").read_text("utf-8").splitlines()[-1] + "\n")
    with pytest.raises(ProblemError) as caught:
        build_bundle([run], tmp_path / "demo.zip", redact=True)
    assert "TP852" in {problem.code for problem in caught.value.problems}


def test_a_link_in_the_run_is_refused_as_ever(tmp_path: Path):
    run = secret_run(tmp_path / "runs")
    (run / "link.txt").symlink_to("/etc/hostname")
    with pytest.raises(ProblemError) as caught:
        build_bundle([run], tmp_path / "demo.zip", redact=True)
    assert [(problem.code, problem.file) for problem in caught.value.problems] == [("TP844", str(run / "link.txt"))]


LIES: dict[str, tuple[Callable[[dict[str, Any]], object], set[str]]] = {
    # Without the statement, the log is simply another one than the run wrote.
    "not told": (lambda m: m.pop("redactions"), {"TP825", "TP826", "TP827", "TP831"}),
    "other original": (lambda m: m["redactions"][0].update(sha256="0" * 64), {"TP825", "TP826", "TP827", "TP831"}),
    "more places": (lambda m: m["redactions"][0].update(count=3), {"TP825", "TP826", "TP827", "TP831", "TP833"}),
    "results": (
        lambda m: m["redactions"].append({"path": "runs/demo/metrics.jsonl", "count": 1, "sha256": "0" * 64}),
        {"TP825", "TP826", "TP827", "TP831", "TP833"},
    ),
    "no such file": (
        lambda m: m["redactions"].append({"path": "runs/demo/more.txt", "count": 1, "sha256": "0" * 64}),
        {"TP825", "TP826", "TP827", "TP831", "TP833"},
    ),
    "twice": (lambda m: m["redactions"].append(m["redactions"][0]), {"TP825", "TP826", "TP827", "TP831", "TP833"}),
}


@pytest.mark.parametrize("name", LIES)
def test_lies_about_redaction(built: Path, tmp_path: Path, name: str):
    lie, expected = LIES[name]
    files = contents(built)
    manifest = json.loads(files["bundle_manifest.json"])
    lie(manifest)
    files["bundle_manifest.json"] = json.dumps(manifest, ensure_ascii=False, indent=2).encode() + b"\n"
    verdict = verify_bundle(pack(listed_again(files), tmp_path / "lie.zip"))
    assert {finding.code for finding in verdict.findings} == expected

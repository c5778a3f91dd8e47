"""Secrets and personal details: found, masked, no false alarms; redactions in bundles."""

import io
import json
import random
import time
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from bundles import contents, listed_again, pack
from secret_samples import HEX, HF, SECRETS
from synthetic import seal, write_run

from evidence.bundle.build import build_bundle
from evidence.bundle.secrets import (
    BLOCK_BYTES,
    MAX_PER_FILE,
    OVERLAP_BYTES,
    find_secrets,
    hide_secrets,
    redact_text,
    scan_file,
)
from evidence.bundle.verify import verify_bundle
from schemas.problems import ProblemError
from trainproof.cli.submit import build_text, verdict_text

DETAILS = (
    "loading /home/ada/data/train.jsonl",
    "/Users/ada/Library",
    "C:\\Users\\ada\\run",
    json.dumps("C:\\Users\\ada\\run"),
    "contact: ada.lovelace@mail.co.uk",
    "coordinator 10.128.0.7:8476",
    "http://192.168.1.20:6006",
    "bound to 172.17.0.2",
)
HARMLESS = {
    "hash lines": f"{HEX * 2}  runs/a/metrics.jsonl\n" * 50,
    "commit": f'"commit": "{HEX}01234567", "wandb_version": "0.19"',
    "tokens": '{"tokens_seen": 123456789012345678, "output_tokens": 12, "stop_token_id": 2, "max_new_tokens": 160}',
    "packages": "nvidia-curand-cu12==10.3.5.147\nnvidia-cublas-cu12 12.4.5.8\n{'nvidia-curand-cu12': '10.3.5.147'}",
    "decorators and addresses": "@jax.jit\ndef f(): ...\ngit@github.com:me/repo.git\nhttps://github.com/me/repo@main",
    "words with hyphens": "task-specific-risk-aware-sk-learn-like-pipelines and disk-based-storage-of-things",
    "placeholders": "password=os.environ['X'] password: ${PW} https://user:****@host/ api_key=None api_key: <yours>",
    "prose": "The secret of the token is a password unknown to all. Bearer of news. machine learning login page.",
    "prompt": '{"prompt": "A price is 10.50 and 172.25; 3 x 10.10.10?", "expected": "192.168"}',
    "key that the manuals of AWS print": "AKIA" + "IOSFODNN7EXAMPLE",
    "secret that they print": "aws_secret_access_key = wJalrXUtnFEMI/K7MDENG/bPxRfiCY" + "EXAMPLEKEY",
    "names with prefixes": "npm_config_cache as-is ak-to gsk_ sig=4 modal.as-built dapi r8_ asian-languages whsec_",
    "token of one letter": "HF_TOKEN=hf" + f"_{'x' * 34}",
    "password of a manual": "postgresql://user:password@localhost/db and https://username:password@example.org",
    "example mail": "write to someone@example.com or noreply@github.com",
}


def find_kinds(text: str | bytes, code: str) -> list[str]:
    data = text if isinstance(text, bytes) else text.encode()
    return [pattern.kind for pattern, _, _ in find_secrets(io.BytesIO(data)) if pattern.code == code]


AS_TEXT = [name for name, text in SECRETS.items() if isinstance(text, str)]


@pytest.mark.parametrize("name", SECRETS)
def test_secret_is_found_and_masked(name: str) -> None:
    text = SECRETS[name]
    content = text if isinstance(text, bytes) else text.encode()
    assert find_kinds(content, "TP846")
    masked, count = redact_text(content)
    assert count >= 1
    assert not find_kinds(masked, "TP846")


@pytest.mark.parametrize("name", AS_TEXT)
def test_secret_in_a_line_of_json_is_found_and_masked(name: str) -> None:
    line = json.dumps({"message": f"Traceback:\n{SECRETS[name]}\nend", "level": "info"}) + "\n"
    assert find_kinds(line, "TP846")
    assert json.loads(redact_text(line.encode())[0])["level"] == "info"
    assert "[hidden]" in hide_secrets(line)


@pytest.mark.parametrize("text", DETAILS)
def test_personal_detail_is_found(text: str) -> None:
    assert find_kinds(text, "TP847")
    assert not find_kinds(text, "TP846")


@pytest.mark.parametrize("name", HARMLESS)
def test_harmless_text_raises_no_alarm(name: str) -> None:
    assert list(find_secrets(io.BytesIO(HARMLESS[name].encode()))) == []


def test_evidence_and_noise_raise_no_alarm(tmp_path: Path) -> None:
    run = write_run(tmp_path, "demo-20261120-120000-9f3a", steps=50, items=40)
    assert [problem for file in sorted(run.iterdir()) for problem in scan_file(file, file.name)] == []
    assert not find_kinds(random.Random(3).randbytes(8 << 20), "TP846")


@pytest.mark.parametrize("before", [0, BLOCK_BYTES - 20, BLOCK_BYTES, 2 * BLOCK_BYTES - len(HF) // 2])
def test_secret_across_two_blocks_is_found(before: int) -> None:
    filler = (b"x" * 99 + b"\n") * (before // 100 + 1)
    data = filler[:before] + b"\n" + HF.encode() + b"\n" + filler[: OVERLAP_BYTES * 2]
    (line,) = [line for pattern, line, _ in find_secrets(io.BytesIO(data)) if pattern.code == "TP846"]
    assert line == data[: data.index(b"hf_")].count(b"\n") + 1


def test_many_findings_are_truncated(tmp_path: Path) -> None:
    path = tmp_path / "log.txt"
    path.write_text("".join(f"line {n} {HF}\n" for n in range(100)))
    problems = scan_file(path, "log.txt")
    assert len(problems) == MAX_PER_FILE + 1
    assert problems[-1].what == "80 more findings of this kind are not listed."
    assert HF not in repr(problems)


def test_long_line_is_scanned_in_linear_time() -> None:
    data = ("api_key " * 200_000 + "@a.b" * 200_000 + "://:" * 200_000).encode()
    start = time.process_time()
    assert not find_kinds(data, "TP846")
    assert time.process_time() - start < 20  # 0.8 s where this was written; quadratic time would take hours


PRIVATE = "RSA " + "PRIVATE KEY-----"
KEY = f"-----BEGIN {PRIVATE}\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-256-CBC,AB\n\nMIIE+/a=\nbbbb\n-----END {PRIVATE}"
TORN = b"\xff\xfe" + "hf".encode("utf-16-le") + b"x"
EVERYTHING = "\n".join(SECRETS[name] for name in AS_TEXT).encode()


@pytest.mark.parametrize(
    ("text", "masked", "count"),
    [
        (
            b"loading /home/ada/a.jsonl, C:\\Users\\ada\\b and /Users/ada\n",
            b"loading /home/REDACTED/a.jsonl, C:\\Users\\REDACTED\\b and /Users/REDACTED\n",
            3,
        ),
        (f"https://me:{HF}@huggingface.co".encode(), b"https://me:REDACTED@huggingface.co", 1),
        (b"nothing here, ada@host.org\n", b"nothing here, ada@host.org\n", 0),
        (b"\0/home/ada", b"\0/home/ada", 0),
        (TORN, TORN, 0),
        (f"before\n{KEY}\nafter\n".encode(), b"before\nREDACTED\nafter\n", 1),
        (json.dumps({"key": KEY, "level": 1}).encode(), b'{"key": "REDACTED", "level": 1}', 1),
        (redact_text(EVERYTHING)[0], redact_text(EVERYTHING)[0], 0),
    ],
)
def test_redacted_text(text: bytes, masked: bytes, count: int) -> None:
    assert redact_text(text) == (masked, count)


def secret_run(root: Path) -> Path:
    """Write a run whose log holds a token and a home folder."""
    run = write_run(root, "demo", steps=4, items=6)
    log = run / "log.jsonl"
    first, *rest = log.read_text("utf-8").splitlines(keepends=True)
    row = json.loads(first)
    row["message"] = f"HF_TOKEN={HF} in /home/ada/run"
    log.write_text(json.dumps(row) + "\n" + "".join(rest), "utf-8")
    seal(run)
    return run


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("built")
    return build_bundle([secret_run(root / "runs")], root / "demo.zip", redact=True).output


def test_bundle_and_verdict_list_redactions(tmp_path: Path) -> None:
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
    assert f"2 places masked; the original has SHA-256 {original}." in files["REPORT.html"].decode()
    verdict = verify_bundle(report.output)
    assert (verdict.ok, verdict.findings) == (True, ())
    masked = "runs/demo/log.jsonl: 2 places masked, so not as written."
    assert masked in verdict.uncovered
    assert f"Not covered\n  {masked}\n" in verdict_text(verdict)
    assert "  Redacted: runs/demo/log.jsonl, 2 places.\n" in build_text(report)
    (run,) = verdict.runs
    assert (run.stated_grade, run.grade.name) == ("measured", "measured")
    assert [(each.code, each.severity, each.file) for each in run.findings] == [("TP832", "warning", "log.jsonl")]
    again = build_bundle([tmp_path / "runs" / "demo"], tmp_path / "again.zip", redact=True).output
    assert again.read_bytes() == report.output.read_bytes()


def test_redaction_without_secrets_changes_nothing(tmp_path: Path) -> None:
    run = write_run(tmp_path / "runs", "demo", steps=4, items=6)
    plain, masked = (
        build_bundle([run], tmp_path / f"{redact}.zip", redact=redact).output.read_bytes() for redact in (False, True)
    )
    assert plain == masked


def test_home_folder_in_the_manifest_is_masked(tmp_path: Path) -> None:
    run = write_run(tmp_path / "runs", "demo", steps=4, manifest={"command": ["/home/ada/.venv/bin/trainproof"]})
    report = build_bundle([run], tmp_path / "demo.zip", redact=True, allow_partial=True)
    assert [each.path for each in report.redactions] == ["runs/demo/run_manifest.json"]
    assert report.warnings == ()


def leak_into_predictions(run: Path) -> None:
    path = run / "predictions.jsonl"
    path.write_text(path.read_text("utf-8").replace("What is", f"{HF} is", 1), "utf-8")


def repeat_last_log_line(run: Path) -> None:
    log = (run / "log.jsonl").read_text("utf-8")
    (run / "log.jsonl").write_text(log + log.splitlines()[-1] + "\n", "utf-8")


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (leak_into_predictions, "TP846"),
        (repeat_last_log_line, "TP852"),
        (lambda run: (run / "link.txt").symlink_to("/etc/hostname"), "TP844"),
    ],
)
def test_redaction_does_not_excuse_other_problems(change: Callable[[Path], None], code: str, tmp_path: Path) -> None:
    run = secret_run(tmp_path / "runs")
    change(run)
    with pytest.raises(ProblemError) as caught:
        build_bundle([run], tmp_path / "demo.zip", redact=True)
    assert code in {problem.code for problem in caught.value.problems}
    assert not (tmp_path / "demo.zip").exists()


def redaction(path: str) -> dict[str, Any]:
    return {"path": path, "count": 1, "sha256": "0" * 64}


LIES: dict[str, tuple[Callable[[dict[str, Any]], object], set[str]]] = {
    # Without the statement, the log is simply another one than the run wrote.
    "not stated": (lambda m: m.pop("redactions"), set()),
    "other original": (lambda m: m["redactions"][0].update(sha256="0" * 64), set()),
    "more places": (lambda m: m["redactions"][0].update(count=3), {"TP833"}),
    "results": (lambda m: m["redactions"].append(redaction("runs/demo/metrics.jsonl")), {"TP833"}),
    "no such file": (lambda m: m["redactions"].append(redaction("runs/demo/more.txt")), {"TP833"}),
    "twice": (lambda m: m["redactions"].append(m["redactions"][0]), {"TP833"}),
}


@pytest.mark.parametrize("name", LIES)
def test_lies_about_redaction(built: Path, tmp_path: Path, name: str) -> None:
    lie, expected = LIES[name]
    files = contents(built)
    manifest = json.loads(files["bundle_manifest.json"])
    lie(manifest)
    files["bundle_manifest.json"] = json.dumps(manifest).encode()
    verdict = verify_bundle(pack(listed_again(files), tmp_path / "lie.zip"))
    assert {finding.code for finding in verdict.findings} == {"TP825", "TP826"} | expected

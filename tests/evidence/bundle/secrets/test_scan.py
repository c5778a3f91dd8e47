"""Secrets are found wherever they hide, and evidence that holds none raises no alarm."""

from __future__ import annotations

import io
import json
import random
import time
from pathlib import Path

import pytest
from secret_samples import HEX, HF, SECRETS
from synthetic import write_run

from evidence.bundle.secrets.scan import BLOCK_BYTES, MOST_PER_FILE, OVERLAP_BYTES, find_secrets, mask, scan_file

DETAILS = {
    "home folder": "loading /home/ada/data/train.jsonl",
    "home folder on macOS": "/Users/ada/Library",
    "home folder on Windows": "C:\\Users\\ada\\run",
    "home folder on Windows in JSON": json.dumps("C:\\Users\\ada\\run"),
    "e-mail address": "contact: ada.lovelace@mail.co.uk",
    "private address 10": "coordinator 10.128.0.7:8476",
    "private address 192.168": "http://192.168.1.20:6006",
    "private address 172": "bound to 172.17.0.2",
}
HARMLESS = {
    "hash lines": f"{HEX * 2}  runs/a/metrics.jsonl\n" * 50,
    "commit": f'"commit": "{HEX}01234567", "wandb_version": "0.19"',
    "tokens": '{"tokens_seen": 123456789012345678, "output_tokens": 12, "stop_token_id": 2, "max_new_tokens": 160}',
    "packages": "nvidia-curand-cu12==10.3.5.147\nnvidia-cublas-cu12 12.4.5.8\n{'nvidia-curand-cu12': '10.3.5.147'}",
    "decorators and addresses": "@jax.jit\ndef f(): ...\ngit@github.com:me/repo.git\nhttps://github.com/me/repo@main",
    "words with hyphens": "task-specific-risk-aware-sk-learn-like-pipelines and disk-based-storage-of-things",
    "placeholders": "password=os.environ['X'] password: ${PW} https://user:****@host/ api_key=None api_key: <yours>",
    "prose": "The secret of the token is a password nobody has. Bearer of news. machine learning login page.",
    "prompt": '{"prompt": "A price is 10.50 and 172.25; 3 x 10.10.10?", "expected": "192.168"}',
    "key that the manuals of AWS print": "AKIA" + "IOSFODNN7EXAMPLE",
    "secret that they print": "aws_secret_access_key = wJalrXUtnFEMI/K7MDENG/bPxRfiCY" + "EXAMPLEKEY",
    "names with prefixes": "npm_config_cache as-is ak-to gsk_ sig=4 modal.as-built dapi r8_ asian-languages whsec_",
    "token of one letter": "HF_TOKEN=hf" + f"_{'x' * 34}",
    "password of a manual": "postgresql://user:password@localhost/db and https://username:password@example.org",
    "example mail": "write to someone@example.com or noreply@github.com",
}


def found_in(text: str | bytes, code: str) -> list[str]:
    data = text if isinstance(text, bytes) else text.encode()
    return [finding.kind for finding in find_secrets(io.BytesIO(data)) if finding.code == code]


@pytest.mark.parametrize("name", SECRETS)
def test_secret_is_found(name: str):
    assert found_in(SECRETS[name], "TP846")


@pytest.mark.parametrize("name", [name for name in SECRETS if isinstance(SECRETS[name], str)])
def test_secret_is_found_in_a_line_of_json(name: str):
    assert found_in(json.dumps({"message": f"Traceback:\n{SECRETS[name]}\nend"}), "TP846")


def test_forty_kinds_are_known() -> None:
    assert len(SECRETS) >= 40


@pytest.mark.parametrize("name", DETAILS)
def test_personal_detail_is_found(name: str):
    assert found_in(DETAILS[name], "TP847")
    assert not found_in(DETAILS[name], "TP846")


@pytest.mark.parametrize("name", HARMLESS)
def test_harmless_text_raises_no_alarm(name: str):
    assert list(find_secrets(io.BytesIO(HARMLESS[name].encode()))) == []


def test_evidence_raises_no_alarm(tmp_path: Path):
    run = write_run(tmp_path, "demo-20261120-120000-9f3a", steps=50, items=40)
    alarms = [problem for file in sorted(run.iterdir()) for problem in scan_file(file, file.name)]
    assert alarms == []


def test_random_bytes_raise_no_alarm():
    assert not found_in(random.Random(3).randbytes(8 << 20), "TP846")


def test_mask_shows_where_to_look_and_no_more():
    assert mask(HF.encode()) == f"hf_a… ({len(HF)} characters)"
    assert mask(b"hunter2") == "h… (7 characters)"
    assert mask(b"abc") == "… (3 characters)"


@pytest.mark.parametrize("before", [0, BLOCK_BYTES - 20, BLOCK_BYTES, 2 * BLOCK_BYTES - len(HF) // 2])
def test_found_across_the_blocks_in_which_a_file_is_read(before: int):
    filler = (b"x" * 99 + b"\n") * (before // 100 + 1)
    data = filler[:before] + b"\n" + HF.encode() + b"\n" + filler[: OVERLAP_BYTES * 2]
    (finding,) = [finding for finding in find_secrets(io.BytesIO(data)) if finding.code == "TP846"]
    assert finding.line == data[: data.index(b"hf_")].count(b"\n") + 1


def test_many_findings_are_counted_rather_than_listed(tmp_path: Path):
    path = tmp_path / "log.txt"
    path.write_text("".join(f"line {n} {HF}\n" for n in range(100)))
    problems = scan_file(path, "log.txt")
    assert len(problems) == MOST_PER_FILE + 1
    assert problems[-1].what == "80 more findings of this kind are not listed."
    assert HF not in repr(problems)


def test_one_very_long_line_is_scanned_in_reasonable_time():
    data = ("api_key " * 200_000 + "@a.b" * 200_000 + "://:" * 200_000).encode()
    start = time.process_time()
    assert not found_in(data, "TP846")
    assert time.process_time() - start < 20  # 0.8 s where this was written; squares would take hours

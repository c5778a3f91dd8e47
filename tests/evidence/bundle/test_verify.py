"""Changed bundles are refused: random bytes, changed files, and files with recomputed hash lists."""

import json
import random
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from bundles import contents, listed_again, pack, small_bundle
from synthetic import write_run

from evidence.bundle.build import build_bundle
from evidence.bundle.verify import BundleVerdict, headline, verify_bundle

BYTE_TAMPERS, FILE_TAMPERS, KNOWING_TAMPERS = 800, 200, 200
Files = dict[str, bytes]


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_bundle(tmp_path_factory.mktemp("bundle"))


def codes(verdict: BundleVerdict) -> set[str]:
    return {finding.code for finding in verdict.findings}


def edit_manifest(files: Files, change: Callable[[dict[str, Any]], object]) -> Files:
    """Return the files with bundle_manifest.json changed and its hash in MANIFEST.sha256 corrected."""
    manifest = json.loads(files["bundle_manifest.json"])
    change(manifest)
    content = json.dumps(manifest, ensure_ascii=False, indent=2).encode() + b"\n"
    before, after = (sha256(each).hexdigest().encode() for each in (files["bundle_manifest.json"], content))
    hashes = files["MANIFEST.sha256"].replace(before, after)
    return files | {"bundle_manifest.json": content, "MANIFEST.sha256": hashes}


def test_bundle_verifies(bundle: Path) -> None:
    verdict = verify_bundle(bundle)
    assert (verdict.ok, verdict.findings, verdict.partial, headline(verdict)) == (True, (), False, "")
    assert [(run.name, run.stated_grade, run.grade.name) for run in verdict.runs] == [
        ("demo-1", "consistent", "consistent")
    ]
    [kept] = [run.run for run in verdict.runs]
    assert (kept.metrics, kept.config, kept.eval_summary) == (None, None, None), "a verdict is kept, rows are not"
    assert verdict.answer[0] == "Intact, not verified."
    assert verdict.answer[-1] == (
        "Neither you (on this computer) nor anyone on your trust list has reproduced demo-1; run `trainproof replay` "
        "to check the numbers."
    )
    assert verdict.proven.startswith(" ".join([*verdict.answer, "Not signed: the author is unknown. Not covered: "]))
    assert verdict.uncovered[0].startswith("REPORT.html: ")


def flip(data: bytearray, chance: random.Random) -> None:
    data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)


def cut_out(data: bytearray, chance: random.Random) -> None:
    start = chance.randrange(len(data))
    del data[start : start + chance.randint(1, 50)]


def insert_bytes(data: bytearray, chance: random.Random) -> None:
    at = chance.randrange(len(data) + 1)
    data[at:at] = chance.randbytes(chance.randint(1, 50))


def overwrite(data: bytearray, chance: random.Random) -> None:
    at = chance.randrange(len(data) - 8)
    data[at : at + 8] = bytes(byte ^ 0x55 for byte in data[at : at + 8])


def test_random_changes_of_bytes_are_found(bundle: Path, tmp_path: Path) -> None:
    chance = random.Random(20261120)
    original = bundle.read_bytes()
    path = tmp_path / "tampered.zip"
    for number in range(BYTE_TAMPERS):
        data = bytearray(original)
        chance.choice([flip, flip, flip, cut_out, insert_bytes, overwrite])(data, chance)
        path.write_bytes(data)
        verdict = verify_bundle(path)
        # A header field that no content depends on, such as a date, gives a note; any other change is an error.
        assert verdict.findings, f"change {number} was not found"
        assert not verdict.ok or codes(verdict) == {"TP816"}


FILE_CHANGES = ("change", "remove", "add", "rename", "swap", "cut")


def changed(original: Files, kind: str, chance: random.Random) -> Files:
    """Return the files of a bundle with one change."""
    one, other = chance.sample(sorted(original), 2)
    content, at = original[one], chance.randrange(len(original[one]))
    without = {name: content for name, content in original.items() if name != one}
    folder = chance.choice(["", "runs/demo-1/", "schemas/v1/", "runs/other/", "more/"])
    return {
        "change": original | {one: content[:at] + bytes([content[at] ^ 1 << chance.randrange(8)]) + content[at + 1 :]},
        "remove": without,
        "add": original | {f"{folder}added.json": b"{}\n"},
        "rename": without | {f"{one}.old": content},
        "swap": original | {one: original[other], other: content},
        "cut": original | {one: content[:at]},
    }[kind]


@pytest.mark.slow
def test_changes_of_files_are_found(bundle: Path, tmp_path: Path) -> None:
    chance = random.Random(7)
    original = contents(bundle)
    for number in range(FILE_TAMPERS):
        kind = FILE_CHANGES[number % len(FILE_CHANGES)]
        path = pack(changed(original, kind, chance), tmp_path / "tampered.zip")
        assert not verify_bundle(path).ok, f"{kind}, change {number}"


@pytest.mark.slow
def test_changes_of_runs_with_recomputed_lists_are_found(bundle: Path, tmp_path: Path) -> None:
    """Everything is compared with the run manifest, so a change of the manifest alone may contradict nothing."""
    chance = random.Random(11)
    original = contents(bundle)
    names = sorted(name for name in original if name.startswith("runs/") and not name.endswith("run_manifest.json"))
    for number in range(KNOWING_TAMPERS):
        name = names[number % len(names)]
        content = bytearray(original[name])
        chance.choice([flip, cut_out, insert_bytes])(content, chance)
        files = original | {name: bytes(content)}
        assert not verify_bundle(pack(listed_again(files), tmp_path / "forged.zip")).ok, f"{name}, change {number}"


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("runs/demo-1/metrics.jsonl", (b'"loss": ', b'"loss": 0'), {"TP825", "TP826"}),
        ("runs/loose.txt", b"hello\n", {"TP829", "TP826"}),
        ("runs/other/readme.txt", b"hello\n", {"TP829", "TP826"}),
        ("more/readme.txt", b"hello\n", {"TP822"}),
        ("REPORT.html", b"an excellent run", set()),
        ("REPORT.html", None, set()),
    ],
)
def test_forged_files_with_recomputed_lists(bundle, tmp_path, name, content, expected):
    files = contents(bundle)
    if isinstance(content, tuple):
        content = files[name].replace(*content, 1)
    files |= {name: content}
    files = {name: content for name, content in files.items() if content is not None}
    verdict = verify_bundle(pack(listed_again(files), tmp_path / "forged.zip"))
    assert codes(verdict) == expected
    assert verdict.unchecked == (("REPORT.html",) if "REPORT.html" in files else ())


@pytest.mark.parametrize(
    ("lie", "expected"),
    [
        (lambda m: m["runs"][0].update(grade="measured"), {"TP825"}),
        (lambda m: m.update(content_sha256="0" * 64), {"TP824"}),
        (lambda m: m["runs"][0].update(run_id="demo-2"), {"TP829"}),
        (lambda m: m["runs"][0].update(path="runs/demo-2"), {"TP829"}),
        (lambda m: m.update(extra=1), {"TP123"}),
        (lambda m: m["made_by"].update(version="0.0.1", build="0" * 64), set()),
    ],
)
def test_lies_of_the_bundle_manifest(bundle, tmp_path, lie, expected):
    assert codes(verify_bundle(pack(edit_manifest(contents(bundle), lie), tmp_path / "forged.zip"))) == expected


@pytest.mark.parametrize("text", ["", "no hash\n", "0" * 64 + "  a\n" + "0" * 64 + "  a\n", "0" * 64 + "  a", "\xe9\n"])
def test_invalid_hash_lists(bundle: Path, tmp_path: Path, text: str) -> None:
    files = contents(bundle)
    files["MANIFEST.sha256"] = text.encode("latin-1")
    assert "TP820" in codes(verify_bundle(pack(files, tmp_path / "x.zip")))


def test_partial_run_without_the_label(tmp_path: Path) -> None:
    run = write_run(tmp_path / "runs", "cut", status="interrupted")
    path = build_bundle([run], tmp_path / "cut.zip", allow_partial=True).output
    files = edit_manifest(contents(path), lambda manifest: manifest.update(partial=False))
    assert codes(verify_bundle(pack(files, tmp_path / "x.zip"))) == {"TP826"}


def test_headline(bundle: Path, tmp_path: Path) -> None:
    files = contents(bundle)
    place = "runs/demo-1/eval_summary.json"
    summary = json.loads(files[place])
    summary["metrics"]["exact_match"]["value"] = 0.99
    forged = verify_bundle(pack(listed_again(files | {place: json.dumps(summary).encode()}), tmp_path / "forged.zip"))
    assert headline(forged).startswith("demo-1: metrics.exact_match.value is 0.99; predictions.jsonl gives ")
    changed = verify_bundle(pack(files | {"REPORT.html": b"\n"}, tmp_path / "changed.zip"))
    assert headline(changed) == "REPORT.html changed since the bundle was built."
    (tmp_path / "none.zip").write_text("no zip")
    assert (
        headline(verify_bundle(tmp_path / "none.zip"))
        == "This is not a zip, or its end is missing or followed by other bytes."
    )

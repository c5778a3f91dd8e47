"""Whatever is changed in a bundle is found: blindly in its bytes, knowingly in its files, with both lists rewritten."""

from __future__ import annotations

import json
import random
import zipfile
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import pytest
from bundles import contents, listed_again, pack, small_bundle
from synthetic import write_run

from evidence.bundle.build import build_bundle
from evidence.bundle.verify import BundleVerdict, verify_bundle

BYTE_TAMPERS, FILE_TAMPERS, KNOWING_TAMPERS = 800, 200, 200


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_bundle(tmp_path_factory.mktemp("bundle"))


def codes(verdict: BundleVerdict) -> set[str]:
    return {finding.code for finding in verdict.findings}


def test_the_bundle_itself_holds(bundle: Path):
    verdict = verify_bundle(bundle)
    assert (verdict.ok, verdict.findings, verdict.partial) == (True, (), False)
    assert [(run.run_id, run.stated_grade, run.grade) for run in verdict.runs] == [
        ("demo-1", "consistent", "consistent")
    ]
    assert verdict.proven == (
        "The bundle is whole and consistent: no file differs from its lists, and every grade follows from the "
        "documents inside. That demo-1 ran as described, nobody whom you trust has seen: `trainproof replay` repeats a "
        "run. "
        "Not signed: the author is unknown."
    )


def flip(data: bytearray, chance: random.Random) -> None:
    data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)


def cut_out(data: bytearray, chance: random.Random) -> None:
    start = chance.randrange(len(data))
    del data[start : start + chance.randint(1, 50)]


def put_in(data: bytearray, chance: random.Random) -> None:
    at = chance.randrange(len(data) + 1)
    data[at:at] = chance.randbytes(chance.randint(1, 50))


def overwrite(data: bytearray, chance: random.Random) -> None:
    at = chance.randrange(len(data) - 8)
    data[at : at + 8] = bytes(byte ^ 0x55 for byte in data[at : at + 8])


def test_every_blind_change_of_bytes_is_found(bundle: Path, tmp_path: Path):
    chance = random.Random(20261120)
    original = bundle.read_bytes()
    for number in range(BYTE_TAMPERS):
        data = bytearray(original)
        chance.choice([flip, flip, flip, cut_out, put_in, overwrite])(data, chance)
        path = tmp_path / "tampered.zip"
        path.write_bytes(data)
        verdict = verify_bundle(path)
        # A header field that no content depends on (a date) is told as a note; anything else makes it not hold.
        assert verdict.findings, f"change {number} was not found"
        assert not verdict.ok or codes(verdict) == {"TP816"}


def change_file(files: dict[str, bytes], chance: random.Random) -> None:
    name = chance.choice(sorted(files))
    content = bytearray(files[name])
    content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
    files[name] = bytes(content)


def remove_file(files: dict[str, bytes], chance: random.Random) -> None:
    del files[chance.choice(sorted(files))]


def add_file(files: dict[str, bytes], chance: random.Random) -> None:
    folder = chance.choice(["", "runs/demo-1/", "schemas/v1/", "runs/other/", "more/"])
    files[f"{folder}added-{chance.randrange(1000)}.json"] = b"{}\n"


def rename_file(files: dict[str, bytes], chance: random.Random) -> None:
    name = chance.choice(sorted(files))
    files[f"{name}.old"] = files.pop(name)


def swap_files(files: dict[str, bytes], chance: random.Random) -> None:
    one, other = chance.sample(sorted(files), 2)
    files[one], files[other] = files[other], files[one]


def cut_file(files: dict[str, bytes], chance: random.Random) -> None:
    name = chance.choice(sorted(files))
    files[name] = files[name][: chance.randrange(len(files[name]))]


FILE_CHANGES = [change_file, remove_file, add_file, rename_file, swap_files, cut_file]


@pytest.mark.slow
def test_every_change_of_files_is_found(bundle: Path, tmp_path: Path):
    chance = random.Random(7)
    original = contents(bundle)
    for number in range(FILE_TAMPERS):
        files = dict(original)
        change = FILE_CHANGES[number % len(FILE_CHANGES)]
        change(files, chance)
        assert not verify_bundle(pack(files, tmp_path / "tampered.zip")).ok, f"{change.__name__}, change {number}"


@pytest.mark.slow
def test_every_change_of_a_file_is_found_though_both_lists_were_rewritten(bundle: Path, tmp_path: Path):
    """The manifest of the run is what everything else is held against: a change of it alone may contradict nothing."""
    chance = random.Random(11)
    original = contents(bundle)
    lists = {"MANIFEST.sha256", "bundle_manifest.json", "runs/demo-1/run_manifest.json"}
    names = sorted(original.keys() - lists)
    for number in range(KNOWING_TAMPERS):
        name = names[number % len(names)]
        content = bytearray(original[name])
        chance.choice([flip, cut_out, put_in])(content, chance)
        files = original | {name: bytes(content)}
        assert not verify_bundle(pack(listed_again(files), tmp_path / "forged.zip")).ok, f"{name}, change {number}"


def edited(name: str, old: str, new: str) -> Callable[[dict[str, bytes]], None]:
    def edit(files: dict[str, bytes]) -> None:
        text = files[name].decode()
        assert old in text
        files[name] = text.replace(old, new, 1).encode()

    return edit


def without(name: str) -> Callable[[dict[str, bytes]], None]:
    return lambda files: files.pop(name) and None


def added(name: str) -> Callable[[dict[str, bytes]], None]:
    return lambda files: files.update({name: b"hello\n"})


FORGERIES = {
    "better report": (edited("REPORT.html", "consistent", "consistent, excellent"), {"TP827", "TP831"}),
    "other schema": (edited("schemas/v1/plan.schema.json", "required", "optional"), {"TP828"}),
    "schema left out": (without("schemas/v1/plan.schema.json"), {"TP828", "TP831"}),
    "schema of our own": (added("schemas/v1/extra.schema.json"), {"TP828", "TP831"}),
    "better loss": (edited("runs/demo-1/metrics.jsonl", '"loss": ', '"loss": 0'), {"TP825", "TP826", "TP827", "TP831"}),
    "no report": (without("REPORT.html"), {"TP820"}),
    "file beside the runs": (added("runs/loose.txt"), {"TP829", "TP826", "TP827", "TP831"}),
    "run of nothing": (added("runs/other/readme.txt"), {"TP829", "TP826", "TP827", "TP831"}),
    "file that no page names": (added("more/readme.txt"), {"TP831"}),
}


@pytest.mark.parametrize("name", FORGERIES)
def test_a_forger_who_rewrites_both_lists_is_found_all_the_same(bundle: Path, tmp_path: Path, name: str):
    forge, expected = FORGERIES[name]
    files = contents(bundle)
    forge(files)
    assert codes(verify_bundle(pack(listed_again(files), tmp_path / "forged.zip"))) == expected


MANIFEST_LIES: dict[str, tuple[Callable[[dict], object], set[str]]] = {
    "better grade": (lambda m: m["runs"][0].update(grade="measured"), {"TP825"}),
    "other digest": (lambda m: m.update(content_sha256="0" * 64), {"TP824"}),
    "file left out": (lambda m: m["files"].pop(), {"TP824"}),
    "file twice": (lambda m: m["files"].append(m["files"][0]), {"TP824"}),
    "other size": (lambda m: m["files"][3].update(bytes=1), {"TP824"}),
    "run not named": (lambda m: m["runs"][0].update(run_id="demo-2"), {"TP829"}),
    "other folder": (lambda m: m["runs"][0].update(path="runs/demo-2"), {"TP829"}),
    "not our shape": (lambda m: m.update(extra=1), {"TP123"}),
    "other version": (lambda m: m["made_by"].update(version="0.0.1"), {"TP830"}),
    "other build": (lambda m: m["made_by"].update(build="0" * 64), {"TP830"}),
}


@pytest.mark.parametrize("name", MANIFEST_LIES)
def test_lies_of_the_bundle_manifest(bundle: Path, tmp_path: Path, name: str):
    lie, expected = MANIFEST_LIES[name]
    files = contents(bundle)
    manifest = json.loads(files["bundle_manifest.json"])
    lie(manifest)
    before = sha256(files["bundle_manifest.json"]).hexdigest()
    files["bundle_manifest.json"] = json.dumps(manifest, ensure_ascii=False, indent=2).encode() + b"\n"
    after = sha256(files["bundle_manifest.json"]).hexdigest()
    files["MANIFEST.sha256"] = files["MANIFEST.sha256"].replace(before.encode(), after.encode())
    assert codes(verify_bundle(pack(files, tmp_path / "forged.zip"))) == expected


def test_packed_again_it_holds_and_says_so(bundle: Path, tmp_path: Path):
    path = tmp_path / "again.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.mkdir("runs")
        for name, content in reversed(contents(bundle).items()):
            archive.writestr(name, content)
    verdict = verify_bundle(path)
    assert (verdict.ok, codes(verdict)) == (True, {"TP816"})
    assert verdict.content_sha256 == verify_bundle(bundle).content_sha256


def test_an_added_folder_is_found(bundle: Path, tmp_path: Path):
    path = tmp_path / "again.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in contents(bundle).items():
            archive.writestr(name, content)
        archive.mkdir("runs/demo-1/empty")
    assert codes(verify_bundle(path)) == {"TP816", "TP822"}


@pytest.mark.parametrize("text", ["", "no hash\n", "0" * 64 + "  a\n" + "0" * 64 + "  a\n", "0" * 64 + "  a", "\xe9\n"])
def test_hash_lists_that_cannot_be_read(bundle: Path, tmp_path: Path, text: str):
    files = contents(bundle)
    files["MANIFEST.sha256"] = text.encode("latin-1")
    assert "TP820" in codes(verify_bundle(pack(files, tmp_path / "x.zip")))


def test_a_partial_run_without_the_label(tmp_path: Path):
    run = write_run(tmp_path / "runs", "cut", status="interrupted")
    path = build_bundle([run], tmp_path / "cut.zip", allow_partial=True).output
    files = contents(path)
    files["bundle_manifest.json"] = files["bundle_manifest.json"].replace(b'"partial": true', b'"partial": false')
    verdict = verify_bundle(pack(listed_again(files), tmp_path / "x.zip"))
    assert codes(verdict) == {"TP826", "TP827", "TP831"}

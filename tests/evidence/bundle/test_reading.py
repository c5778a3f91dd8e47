"""Zips of any origin: hostile ones are refused before anything is written, repacked ones are read."""

import hashlib
import io
import random
import sys
import tempfile
import zipfile
from pathlib import Path, PurePosixPath

import pytest
from bundles import contents, listed_again, small_bundle
from hostile_zips import CASES, FOLDER, Part, raw_zip
from synthetic import write_run

from evidence.bundle import reading
from evidence.bundle.build import build_bundle
from evidence.bundle.reading import read_content, read_entries
from evidence.bundle.verify import unpacked_run, verify_bundle
from schemas.problems import Problem, ProblemError
from schemas.render import render_text

NOT_HOSTILE = {"no_entries", "not_a_bundle"}
WHOLE_ARCHIVE = {
    "archive_comment", "bytes_after", "bytes_before", "cut_off", "cut_off_list", "empty_file",
    "lists_more_than_it_claims", "not_a_zip", "second_archive_behind", "too_many_entries",
}  # fmt: skip
"""Cases in which no single entry is to blame."""
APPLE = b"\0\5\x16\7\0\2\0\0Mac OS X        "


class Pipe(io.RawIOBase):
    """An output that cannot seek, for which zipfile writes data descriptors."""

    def __init__(self) -> None:
        self.written = bytearray()

    def writable(self) -> bool:
        return True

    def write(self, data: bytes) -> int:
        self.written += data
        return len(data)


def read_hashes(data: bytes) -> dict[str, str] | None:
    """Return hash by name, or None if the archive is refused."""
    file = io.BytesIO(data)
    try:
        read = {entry.name: b"".join(read_content(file, entry)) for entry in read_entries(file)}
    except ProblemError:
        return None
    return {name: hashlib.sha256(content).hexdigest() for name, content in read.items()}


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_bundle(tmp_path_factory.mktemp("bundle"))


@pytest.mark.parametrize("name", sorted(CASES))
def test_hostile_archives_are_refused_before_anything_is_written(name, tmp_path, monkeypatch):
    if name not in NOT_HOSTILE:
        monkeypatch.setattr(tempfile, "TemporaryDirectory", lambda *_, **__: pytest.fail("a folder was made"))
    path = tmp_path / "hostile.zip"
    path.write_bytes(CASES[name]())
    verdict = verify_bundle(path)
    assert not verdict.ok
    assert (verdict.runs, verdict.content_sha256) == ((), None)
    assert [path.name for path in tmp_path.iterdir()] == ["hostile.zip"]
    if name not in NOT_HOSTILE:
        assert {finding.code for finding in verdict.findings} <= {"TP801", "TP802", "TP812"}
        assert name in WHOLE_ARCHIVE | {"empty_name"} or all(finding.file for finding in verdict.findings)


def test_message_about_a_hostile_archive(tmp_path: Path) -> None:
    path = tmp_path / "hostile.zip"
    path.write_bytes(CASES["climbs"]())
    assert render_text(verify_bundle(path).findings) == (
        "error TP802: ../evil.txt: Path traversal: the name contains `..`.\n"
        "  The entry is a link or encrypted, its name is unsafe or not unique, or programs would read it in different "
        "ways.\n  Next: Ask for the bundle again, or build it with `trainproof package`.\n"
    )
    path.write_bytes(raw_zip([Part(name="__MACOSX/../../evil", content=APPLE)]))
    assert [finding.file for finding in verify_bundle(path).findings] == ["__MACOSX/../../evil"]


def ordinary_archives() -> list[bytes]:
    """Return small honest archives of every form: stored, deflated, streamed, with zip64 fields."""
    forms = []
    for compression in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        for target in (io.BytesIO(), Pipe()):
            with zipfile.ZipFile(target, "w", compression) as archive:
                archive.writestr("runs/a/metrics.jsonl", b'{"step": 1}\n' * 30)
                archive.writestr("é.txt", b"")
                with archive.open("wide.bin", "w", force_zip64=True) as entry:
                    entry.write(bytes(300))
            forms.append(target.getvalue() if isinstance(target, io.BytesIO) else bytes(target.written))
    return forms


def changed(data: bytes, chance: random.Random) -> bytes:
    """Overwrite, cut out or insert a few bytes."""
    result = bytearray(data)
    for _ in range(chance.randint(1, 4)):
        at = chance.randrange(len(result))
        kind = chance.randrange(4)
        if kind == 0:
            result[at] = chance.choice([0, 1, 0x7F, 0x80, 0xFE, 0xFF])
        elif kind == 1:
            result[at : at + 4] = chance.randbytes(4)
        elif kind == 2:
            del result[at : at + chance.randint(1, 8)]
        else:
            result[at:at] = chance.randbytes(chance.randint(1, 8))
    return bytes(result)


@pytest.mark.parametrize("form", range(4))
def test_changed_archives_are_refused_or_read_as_they_were(form: int) -> None:
    original = ordinary_archives()[form]
    truth = read_hashes(original)
    assert truth is not None
    chance = random.Random(form)
    for _ in range(1500):
        found = read_hashes(changed(original, chance))
        # An accepted archive has the old contents; only names may have changed, which MANIFEST.sha256 would show.
        assert found is None or sorted(found.values()) == sorted(truth.values())


def test_noise_and_truncated_archives() -> None:
    chance = random.Random(11)
    for data in [*ordinary_archives(), CASES["overlap"](), CASES["not_a_bundle"]()]:
        for end in range(0, len(data), 3):
            read_hashes(data[:end])
    for _ in range(300):
        assert read_hashes(chance.randbytes(chance.randrange(400)) + b"PK\x05\x06" + chance.randbytes(18)) is None


@pytest.mark.parametrize(("limit", "value"), [("MAX_ENTRIES", 1), ("MAX_BYTES", 300), ("MAX_EXCESS_BYTES", 10)])
def test_limits(limit: str, value: int, monkeypatch: pytest.MonkeyPatch) -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a", bytes(100_000))
        archive.writestr("b", b"2")
    assert len(read_entries(buffer)) == 2
    monkeypatch.setattr(reading, limit, value)
    with pytest.raises(ProblemError) as caught:
        read_entries(buffer)
    assert [problem.code for problem in caught.value.problems] == ["TP812"]


def packed(path: Path, files: dict[str, bytes], folders: tuple[str, ...] = ()) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for folder in folders:
            archive.mkdir(folder)
        for name, content in files.items():
            archive.writestr(name, content)
    return path


def finder_files(files: dict[str, bytes], folder: str) -> dict[str, bytes]:
    """Add the files with which Finder zips a folder: an AppleDouble file for each, and `.DS_Store`."""
    packed = {folder + name: content for name, content in files.items()}
    places = [PurePosixPath("__MACOSX", name) for name in packed]
    doubles = {str(place.with_name(f"._{place.name}")): APPLE for place in places}
    return packed | doubles | {f"{folder}.DS_Store": b"\0\0\0\1Bud1"}


def explorer_files(files: dict[str, bytes], folder: str) -> dict[str, bytes]:
    packed = {folder + name: content for name, content in files.items()}
    return packed | {f"{folder}Thumbs.db": b"x", f"{folder}runs/desktop.ini": b"x"}


def notes(path: Path) -> list[tuple[str, str]]:
    verdict = verify_bundle(path)
    assert verdict.ok, verdict.findings
    assert [run.grade.name for run in verdict.runs] == ["consistent"]
    return [(each.code, each.what) for each in verdict.findings]


def errors(path: Path) -> list[Problem]:
    verdict = verify_bundle(path)
    assert not verdict.ok
    return [each for each in verdict.findings if each.severity == "error"]


@pytest.mark.parametrize(
    ("add", "folder", "ignored"),
    [(finder_files, "", "files"), (finder_files, "mine/", "files"), (explorer_files, "my bundle/", "2 files")],
)
def test_repacked_bundle_verifies_with_one_note(add, folder, ignored, bundle, tmp_path):
    again = packed(tmp_path / "again.zip", add(contents(bundle), folder), (folder,) if folder else ())
    ((code, what),) = notes(again)
    assert code == "TP816"
    assert what.startswith("The bundle was zipped again" + (f" in the folder `{folder}`" if folder else ""))
    assert what.endswith(f"{ignored} of the operating system ignored.")
    assert verify_bundle(again).content_sha256 == verify_bundle(bundle).content_sha256
    with unpacked_run(again) as run:
        assert {path.name for path in run.iterdir()}.isdisjoint({"desktop.ini", ".DS_Store"})
    with zipfile.ZipFile(again) as archive:
        archive.extractall(tmp_path / "unpacked")
    ((code, what),) = notes(tmp_path / "unpacked")
    assert (code, what[:23]) == ("TP816", "The bundle was unpacked")


def test_unpacked_bundle_verifies(bundle: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(bundle) as archive:
        archive.extractall(tmp_path / "here")
    assert notes(tmp_path / "here") == []
    with unpacked_run(tmp_path / "here") as run:
        assert run.name == "demo-1"
    metrics = tmp_path / "here" / "runs" / "demo-1" / "metrics.jsonl"
    metrics.write_bytes(metrics.read_bytes().replace(b"1", b"2", 1))
    assert {"TP823", "TP824"} <= {each.code for each in errors(tmp_path / "here")}


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"mine/runs/demo-1/log.jsonl": b"{}\n"}, "TP823"),
        ({"mine/more.txt": b"hello"}, "TP822"),
        ({"mine/runs/demo-1/.hidden": b"hello"}, "TP822"),
        ({"mine/runs/demo-1/empty/": b""}, "TP822"),
        ({"notes.txt": b"hello"}, "TP822"),
        ({"mine/runs/demo-1/log.jsonl": None}, "TP821"),
    ],
)
def test_changed_repacked_bundle_fails(change, code, bundle, tmp_path):
    files = finder_files(contents(bundle), "mine/") | change
    kept = {name: content for name, content in files.items() if content is not None}
    assert code in {each.code for each in errors(packed(tmp_path / "again.zip", kept))}


def test_listed_file_is_not_ignored(bundle: Path, tmp_path: Path) -> None:
    files = listed_again(contents(bundle) | {"runs/demo-1/desktop.ini": b"of the run"})
    assert "TP822" not in {each.code for each in verify_bundle(packed(tmp_path / "a.zip", files)).findings}
    del files["runs/demo-1/desktop.ini"]
    assert "TP821" in {each.code for each in errors(packed(tmp_path / "b.zip", files))}


def test_folders_that_java_deflates_are_read(bundle: Path, tmp_path: Path) -> None:
    empty = {"method": 8, "packed": 2, "size": 0, "crc32": 0}
    folder = Part(name="runs/", content=b"", deflate=True, mode=FOLDER, local=empty, central=empty)
    parts = [folder, *(Part(name=name, content=content) for name, content in contents(bundle).items())]
    (tmp_path / "java.zip").write_bytes(raw_zip(parts))
    assert notes(tmp_path / "java.zip") == [("TP816", "The bundle was zipped again.")]


@pytest.mark.skipif(sys.platform == "win32", reason="links need a right there")
def test_link_in_an_unpacked_bundle_is_refused(bundle: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(bundle) as archive:
        archive.extractall(tmp_path / "here")
    (tmp_path / "here" / "more").symlink_to("/etc")
    assert [(each.code, each.file) for each in errors(tmp_path / "here")] == [("TP802", "more")]


@pytest.fixture(scope="module")
def two_runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle of two runs, one with an export."""
    root = tmp_path_factory.mktemp("two")
    folders = [write_run(root, name, seed=seed) for seed, name in enumerate(("one", "two"))]
    (folders[0] / "export").mkdir()
    (folders[0] / "export" / "model.safetensors").write_bytes(b"\0weights")
    return build_bundle(folders, root / "both.zip", with_weights=True).output


def refused_run(path: Path, run_id: str | None = None) -> ProblemError:
    with pytest.raises(ProblemError) as caught, unpacked_run(path, run_id):
        pass
    return caught.value


@pytest.mark.parametrize("repack", [False, True])
def test_run_is_unpacked_with_its_weights_and_removed(repack: bool, two_runs: Path, tmp_path: Path) -> None:
    path = packed(tmp_path / "again.zip", finder_files(contents(two_runs), "mine/")) if repack else two_runs
    with unpacked_run(path, "one") as folder:
        found = {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
        original = two_runs.parent / "one"
        assert found == {path.relative_to(original).as_posix(): path.read_bytes() for path in original.rglob("*.*")}
        assert found["export/model.safetensors"] == b"\0weights"
    assert not folder.exists()
    with unpacked_run(original) as folder:
        assert folder == original


def test_unpacking_needs_a_run_of_a_valid_bundle(two_runs: Path, tmp_path: Path) -> None:
    unnamed = refused_run(two_runs)
    assert (unnamed.exit_code, unnamed.problems[0].code) == (2, "TP857")
    assert refused_run(two_runs, "three").problems[0].code == "TP857"
    files = contents(two_runs)
    files["runs/one/metrics.jsonl"] = files["runs/one/metrics.jsonl"].replace(b"1", b"2", 1)
    forged = refused_run(packed(tmp_path / "changed.zip", files), "one")
    assert (forged.exit_code, forged.problems[0].code, "TP823" in forged.problems[0].what) == (1, "TP856", True)
    assert refused_run(tmp_path / "absent.zip").exit_code == 2
    (tmp_path / "text.zip").write_text("no zip")
    assert refused_run(tmp_path / "text.zip").problems[0].code == "TP856"

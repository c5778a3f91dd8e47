"""Every hostile archive is refused with its code and its whole text, and nothing is written before that."""

from __future__ import annotations

import io
import tempfile
import zipfile
from pathlib import Path

import pytest
from hostile_zips import CASES, FOLDER, Part, raw_zip

from evidence.bundle.verify import verify_bundle
from evidence.bundle.zip.archive import ArchiveLimits, safe_entries
from schemas.render import as_text

TEXTS = Path(__file__).parents[3] / "cases" / "zips"
HARMLESS = {"no_entries", "not_a_bundle"}


def test_every_case_has_its_text():
    assert {path.stem for path in TEXTS.glob("*.txt")} == CASES.keys()


@pytest.mark.parametrize("name", sorted(CASES))
def test_refused_with_its_text_and_nothing_written(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    if name not in HARMLESS:

        def no_folder(*_: object, **__: object) -> None:
            pytest.fail("a folder was made for a hostile archive")

        monkeypatch.setattr(tempfile, "TemporaryDirectory", no_folder)
    path = tmp_path / "hostile.zip"
    path.write_bytes(CASES[name]())
    verdict = verify_bundle(path)
    assert as_text(verdict.findings) == (TEXTS / f"{name}.txt").read_text("utf-8")
    assert not verdict.ok
    assert verdict.runs == ()
    assert verdict.content_sha256 is None
    assert [path.name for path in tmp_path.iterdir()] == ["hostile.zip"]


def archive_of(**contents: bytes) -> io.BytesIO:
    """Return an ordinary deflated archive as Python's zipfile writes it."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in contents.items():
            archive.writestr(name, content)
    return buffer


def test_ordinary_archives_are_harmless():
    entries, problems = safe_entries(archive_of(a=b"one", b=bytes(1000)))
    assert problems == []
    assert [(entry.name, entry.size_bytes) for entry in entries] == [("a", 3), ("b", 1000)]


class Unseekable(io.RawIOBase):
    """A pipe: zipfile then writes sizes behind the content, in data descriptors."""

    def __init__(self) -> None:
        self.written = b""

    def writable(self) -> bool:
        return True

    def write(self, data: bytes) -> int:
        self.written += bytes(data)
        return len(data)


@pytest.mark.parametrize("compression", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_streamed_archives_with_data_descriptors_are_harmless(compression: int):
    pipe = Unseekable()
    with zipfile.ZipFile(pipe, "w", compression) as archive:
        archive.writestr("a.txt", b"hello" * 100)
        archive.writestr("b.txt", b"")
    _, problems = safe_entries(io.BytesIO(pipe.written))
    assert problems == []


def test_folders_are_harmless():
    folder = Part(name="runs/", content=b"", mode=FOLDER)
    _, problems = safe_entries(io.BytesIO(raw_zip([folder, Part(name="runs/a.txt")])))
    assert problems == []


def test_zip64_is_read():
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive, archive.open("a.txt", "w", force_zip64=True) as entry:
        entry.write(b"hello")
    _, problems = safe_entries(buffer)
    assert problems == []


def test_limits_are_the_callers():
    _, problems = safe_entries(archive_of(a=bytes(100_000)), ArchiveLimits(ratio=2, ratio_floor_bytes=10))
    assert [problem.code for problem in problems] == ["TP812"]
    _, problems = safe_entries(archive_of(a=b"1", b=b"2"), ArchiveLimits(entries=1))
    assert [problem.code for problem in problems] == ["TP813"]


def test_more_than_a_bundle_may_hold_is_refused_by_its_total():
    _, problems = safe_entries(archive_of(a=bytes(600), b=bytes(600)), ArchiveLimits(total_bytes=1000))
    assert [(problem.code, problem.what) for problem in problems] == [("TP812", "The archive declares 1,200 bytes.")]

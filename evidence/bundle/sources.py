"""The files of a bundle: those of the runs, and those made here (schemas, report, crate, the two lists)."""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from evidence.bundle.format.documents import FileHash, StatedRun, bundle_manifest, hash_lines
from evidence.bundle.format.layout import BUNDLE_MANIFEST, CRATE, HASHES, REPORT, RUNS
from evidence.bundle.inspection import Advance, Inspection
from evidence.bundle.integrity import published_schemas
from evidence.bundle.report.crate import crate_text
from evidence.bundle.report.page import ReportRun, report_html
from evidence.bundle.secrets.redact import Redaction
from evidence.writing import as_json_text

BLOCK_BYTES = 1 << 20


@dataclass(frozen=True, kw_only=True)
class PackedFile:
    """One file to be packed: either on disk or made here."""

    path: str
    """Path inside the bundle."""
    disk: Path | None
    """The file. None: see content."""
    content: bytes = b""
    """What was made here."""
    size_bytes: int
    """Size of the content."""
    sha256: str
    """Hash of the content."""
    crc32: int
    """Checksum of the content."""

    @property
    def hash(self) -> FileHash:
        """The file as the lists state it."""
        return FileHash(path=self.path, size_bytes=self.size_bytes, sha256=self.sha256)


def all_sources(
    inspections: Sequence[Inspection], advance: Advance, *, partial: bool, redactions: Sequence[Redaction] = ()
) -> list[PackedFile]:
    """Return every file of the bundle in the order of paths: runs, schemas, report, crate and the two lists."""
    by_run = {each.name: [_from_disk(each, name, advance) for name in each.files.packed] for each in inspections}
    runs = [_report_run(each, by_run[each.name]) for each in inspections]
    made = [_made_file(path, content) for path, content in published_schemas().items()]
    made.append(_made_file(REPORT, report_html(runs, partial=partial).encode("utf-8")))
    made.append(_made_file(CRATE, crate_text(runs, [source.hash for source in made], partial=partial).encode("utf-8")))
    sources = [source for run in by_run.values() for source in run] + made
    manifest = bundle_manifest(
        [source.hash for source in sources],
        stated_runs(inspections),
        partial=partial,
        redactions=[each.as_dict() for each in redactions],
    )
    sources.append(_made_file(BUNDLE_MANIFEST, as_json_text(manifest).encode("utf-8")))
    hashes = hash_lines({source.path: source.sha256 for source in sources})
    sources.append(_made_file(HASHES, hashes.encode("utf-8")))
    return sorted(sources, key=lambda source: source.path)


def _report_run(inspection: Inspection, sources: Sequence[PackedFile]) -> ReportRun:
    return ReportRun(
        name=inspection.name,
        grade=inspection.grade,
        findings=inspection.findings,
        facts=inspection.run,
        notes=inspection.run.notes,
        files=tuple(source.hash for source in sources),
    )


def _from_disk(inspection: Inspection, name: str, advance: Advance) -> PackedFile:
    """Return one file of a run with size, hash and checksum, read once."""
    path, digest, checksum, size = inspection.folder / name, hashlib.sha256(), 0, 0
    with path.open("rb") as file:
        for block in blocks(file):
            digest.update(block)
            checksum = zlib.crc32(block, checksum)
            size += len(block)
            advance(len(block))
    place = f"{RUNS}/{inspection.name}/{name}"
    return PackedFile(path=place, disk=path, size_bytes=size, sha256=digest.hexdigest(), crc32=checksum)


def _made_file(path: str, content: bytes) -> PackedFile:
    """Return a file that is made here."""
    return PackedFile(
        path=path,
        disk=None,
        content=content,
        size_bytes=len(content),
        sha256=hashlib.sha256(content).hexdigest(),
        crc32=zlib.crc32(content),
    )


def stated_runs(inspections: Sequence[Inspection]) -> tuple[StatedRun, ...]:
    """Return the runs and their grades as a bundle states them."""
    return tuple(
        StatedRun(run_id=each.name, grade=each.grade.name, reasons=tuple(each.grade.reasons)) for each in inspections
    )


def blocks(file: BinaryIO) -> Iterator[bytes]:
    """Yield the content of a file in blocks."""
    while block := file.read(BLOCK_BYTES):
        yield block

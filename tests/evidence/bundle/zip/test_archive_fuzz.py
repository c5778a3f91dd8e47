"""No bytes, however wrong, bring the reader of archives to a traceback, to endless work or to a wrong content."""

from __future__ import annotations

import hashlib
import io
import random
import zipfile

import pytest
from hostile_zips import CASES

from evidence.bundle.zip.archive import ArchiveError, safe_entries, stream

CHANGES = 1500


class Pipe(io.RawIOBase):
    """Takes what is written and cannot seek, so that zipfile writes data descriptors."""

    def __init__(self) -> None:
        self.written = bytearray()

    def writable(self) -> bool:
        return True

    def write(self, data: bytes) -> int:
        self.written += data
        return len(data)


def seeds() -> list[bytes]:
    """Return small honest archives of every form that the reader knows."""
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
    """Return the bytes with a few of them overwritten, cut out or put in."""
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


def contents_of(data: bytes) -> dict[str, str] | None:
    """Return hash by name as our reader gives it; None if it refuses."""
    file = io.BytesIO(data)
    entries, problems = safe_entries(file)
    if problems:
        return None
    try:
        contents = {entry.name: b"".join(stream(file, entry)) for entry in entries}
        return {name: hashlib.sha256(content).hexdigest() for name, content in contents.items()}
    except ArchiveError:
        return None


@pytest.mark.parametrize("seed", range(4))
def test_changed_archives_are_refused_or_read_as_they_were(seed: int):
    original = seeds()[seed]
    truth = contents_of(original)
    assert truth is not None
    chance = random.Random(seed)
    for _ in range(CHANGES):
        found = contents_of(changed(original, chance))
        # What is still accepted has the old contents; only names may have changed, and no list would agree with them.
        assert found is None or sorted(found.values()) == sorted(truth.values())


def test_noise_and_cut_off_archives():
    chance = random.Random(11)
    for data in [*seeds(), CASES["overlap"](), CASES["not_a_bundle"]()]:
        for end in range(0, len(data), 3):
            contents_of(data[:end])
    for _ in range(300):
        assert contents_of(chance.randbytes(chance.randrange(400)) + b"PK\x05\x06" + chance.randbytes(18)) is None

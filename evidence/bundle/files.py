"""The files of a bundle wherever they lie: in a zip, ours or packed again, or unpacked in a folder.

Whoever packs a bundle again (Finder, Explorer, a platform for uploads) adds files of the system and a folder around it.
Those are left aside with a note; everything else is held against the lists as ever.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from evidence.bundle.format.documents import FileHash, read_hash_lines
from evidence.bundle.format.layout import HASHES
from evidence.bundle.format.rules import refusal
from evidence.bundle.zip.archive import BLOCK_BYTES, ArchiveError, safe_entries, stream
from evidence.bundle.zip.container import Progress, has_our_form
from evidence.run.layout import holds_run
from schemas.formats import quantity, visible
from schemas.problems import Problem, ProblemError

MOST_LIST_BYTES = 256 << 20
"""Most bytes of a list, report or crate that are read into memory."""

_OF_SYSTEM = re.compile(r"^__MACOSX/|(?:^|/)(?:\._[^/]*|\.DS_Store|Thumbs\.db|desktop\.ini)$", re.IGNORECASE)
"""Files that macOS and Windows add to folders."""


@dataclass(frozen=True, kw_only=True)
class BundleFiles:
    """The files of a bundle, none of which was written anywhere."""

    sizes: Mapping[str, int]
    """Size of each file by its path in the bundle."""
    problems: tuple[Problem, ...]
    """What lies beside the bundle or in empty folders, and a note if the bundle was packed again."""
    blocks: Callable[[str], Iterator[bytes]]
    """Reads a file by its path; raises `ArchiveError` if the content is not what its entry declares."""

    def content(self, path: str) -> bytes | None:
        """Return the content of a file whose size is bearable, or None if there is no such file."""
        return b"".join(self.blocks(path)) if path in self.sizes else None

    def hashes(self, progress: Progress | None = None) -> dict[str, FileHash]:
        """Return size and hash of every file, each read once."""
        total, done = sum(self.sizes.values()), 0
        found: dict[str, FileHash] = {}
        for path, size in self.sizes.items():
            digest = hashlib.sha256()
            for block in self.blocks(path):
                digest.update(block)
                done += len(block)
                if progress:
                    progress(done, total)
            found[path] = FileHash(path=path, size_bytes=size, sha256=digest.hexdigest())
        return found

    def write_to(self, folder: Path, is_wanted: Callable[[str], bool]) -> None:
        """Write files below a folder that is empty and ours."""
        for path in filter(is_wanted, self.sizes):
            target = folder / path
            target.parent.mkdir(parents=True, exist_ok=True)
            with target.open("xb") as copy:
                for block in self.blocks(path):
                    copy.write(block)


@contextmanager
def open_bundle(path: Path) -> Iterator[BundleFiles]:
    """Give the files of a bundle.

    Args:
        path: A zip, or the folder that one was unpacked into.

    Raises:
        OSError: It cannot be read.
        ProblemError: Exit code 1: it is refused, and nothing of it was written.
    """
    if path.is_dir():
        sizes = dict(_walk(path))

        def read(name: str) -> Iterator[bytes]:
            with (path / name).open("rb") as content:
                while block := content.read(BLOCK_BYTES):
                    yield block

        yield _bundle(sizes, (), read, packed="not at all")
        return
    with path.open("rb") as file:
        entries, problems = safe_entries(file)
        if problems:
            raise ProblemError(problems)
        by_name = {entry.name: entry for entry in entries}
        sizes = {entry.name: entry.size_bytes for entry in entries if not entry.is_directory}
        folders = [entry.name for entry in entries if entry.is_directory]
        try:
            for name in folders:
                list(stream(file, by_name[name]))
            packed = "as written" if has_our_form(file, entries) else "again"
            yield _bundle(sizes, folders, lambda name: stream(file, by_name[name]), packed=packed)
        except ArchiveError as error:
            raise ProblemError([error.problem]) from error


def is_unpacked_bundle(folder: Path) -> bool:
    """Return whether a folder holds an unpacked bundle, perhaps in another folder, and is not itself a run."""
    if holds_run(child.name.lower() for child in folder.iterdir()):
        return False
    return any(next(folder.glob(f"{above}{HASHES}"), None) for above in ("", "*/", "*/*/"))


def _walk(folder: Path) -> Iterator[tuple[str, int]]:
    """Yield path and size of each file below a folder; links are refused, not followed."""
    for each in sorted(folder.rglob("*")):
        inside = each.relative_to(folder).as_posix()
        if each.is_symlink() or not (each.is_file() or each.is_dir()):
            kind = "a symbolic link" if each.is_symlink() else "a device, pipe or socket"
            raise ProblemError([refusal("TP804", inside, f"This is {kind}.")])
        if each.is_file():
            yield inside, each.stat().st_size


def _bundle(
    sizes: Mapping[str, int], folders: Sequence[str], read: Callable[[str], Iterator[bytes]], *, packed: str
) -> BundleFiles:
    """Return the files that belong to the bundle, by their paths in it.

    Args:
        sizes: Size of each file that is there.
        folders: Folders that are listed by themselves.
        read: Reads a file.
        packed: `as written`, `again` or `not at all`: how the files are packed.
    """
    lists = [name for name in sizes if f"/{name}".endswith(f"/{HASHES}") and not _OF_SYSTEM.search(name)]
    outer = min(lists, key=lambda name: name.count("/"), default=HASHES).removesuffix(HASHES)
    listing = outer + HASHES
    is_readable = sizes.get(listing, MOST_LIST_BYTES) < MOST_LIST_BYTES
    named = read_hash_lines(b"".join(read(listing)).decode("utf-8", "replace")) if is_readable else None
    # A run may hold a file of such a name; then the list names it.
    ignored = {name for name in sizes if _OF_SYSTEM.search(name) and name.removeprefix(outer) not in (named or {})}
    problems = [
        refusal("TP822", name, f"The file is beside the folder `{visible(outer)}`, which holds the bundle.")
        for name in sizes.keys() - ignored
        if not name.startswith(outer)
    ]
    filled = {f"{parent}/" for name in sizes for parent in PurePosixPath(name).parents}
    problems += [
        refusal("TP822", name, f"{HASHES} names no file in this folder.") for name in folders if name not in filled
    ]
    if packed == "again" or outer or ignored:
        what = "The bundle was packed again" if packed == "again" else "The bundle is unpacked"
        what += f" in the folder `{visible(outer)}`" if outer else ""
        what += f", with {quantity(len(ignored), 'file')} of the operating system, left aside here" if ignored else ""
        problems.append(refusal("TP816", "", f"{what}."))
    return BundleFiles(
        sizes={
            name.removeprefix(outer): size
            for name, size in sizes.items()
            if name.startswith(outer) and name not in ignored
        },
        problems=tuple(problems),
        blocks=lambda name: read(outer + name),
    )

"""Compiled programs kept between runs: JAX's own cache, in a folder for this processor and these versions.

JAX tells programs apart by their text, options and its own version. It neither looks at the processor that a program
was compiled for, nor sees whether a file is the one that was written; both are done here. Who sets
`JAX_COMPILATION_CACHE_DIR`, or turns the cache off with `JAX_ENABLE_COMPILATION_CACHE=false`, is left alone.
"""

from __future__ import annotations

import atexit
import hashlib
import os
import platform
import shutil
import time
import warnings
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import jax

from evidence import layout
from evidence.hashes import sha256_json
from schemas.formats import quantity
from trainer.planning.compile.cache import versions
from trainer.recorder.attached import walk_attached
from trainer.recorder.cache_folder import folder, size_bytes
from trainer.recorder.environment import cpu_name, processor

WORTH_KEEPING_SECONDS = 0.0
"""A program that is compiled in less is compiled again: none, for reading takes a fraction even of small ones."""

UNUSED_DAYS = 60
"""Programs for another processor or other versions are removed when nobody has used them for so long."""

ENTRY, USED, SEAL = "-cache", "-atime", "-sha256"
"""Ends of the names of files: a program and the time of its last use, which JAX writes, and the program's hash."""


def keep_programs(room: Path | None = None) -> list[str]:
    """Let JAX keep what it compiles and take what it has compiled before; once in a process, before anything compiles.

    An entry without the hash that was written beside it is removed first: it is damaged, or a process was killed
    before it could say that it is whole.

    Args:
        room: where the folders of processors and versions lie, whole programs of attached ones among them: it travels
            with what a session leaves. None: in the user's cache folder.

    Returns:
        What was taken of attached programs and what was not, a line each.
    """
    most = size_bytes()
    if jax.config.values["jax_compilation_cache_dir"] or not most:
        return []
    said: list[str] = []
    in_room = room or folder() / "programs"
    own = in_room / machine_key()
    try:
        remove_unused(in_room, but=own)
        own.mkdir(parents=True, exist_ok=True)
        remove_unsealed(own)
        if room is not None:
            said = [take_programs(path, own) for path in attached_programs()]
        os.utime(own)
    except OSError:
        return said  # a folder that cannot be written to keeps none, and the next run compiles again
    # What JAX cannot read it compiles again; who runs the command can do nothing about it.
    warnings.filterwarnings("ignore", message="Error (reading|writing) persistent compilation cache entry")
    jax.config.update("jax_compilation_cache_dir", str(own))
    jax.config.update("jax_compilation_cache_max_size", most)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", WORTH_KEEPING_SECONDS)
    atexit.register(seal, own)
    return said


def seal_programs() -> None:
    """Seal what was compiled so far, so that it is kept if the process is killed later."""
    own = jax.config.values["jax_compilation_cache_dir"]
    if own and Path(own).name == machine_key():
        seal(Path(own))


def attached_programs() -> Iterator[Path]:
    """Yield the attached folders of programs, one for each processor and set of versions."""
    for found, folders, files in walk_attached():
        if found.name == layout.PROGRAMS:
            yield from (found / name for name in folders)
        if found.name == layout.PROGRAMS or layout.MANIFEST in files:
            folders.clear()


def take_programs(attached: Path, own: Path) -> str:
    """Copy the whole programs of an attached folder that are not there yet, and return what was done, in words.

    Args:
        attached: read-only, of any processor and versions.
        own: of this processor and these versions.
    """
    if attached.name != own.name:
        return f"compiled programs in {attached} are ignored: they are for another processor or other versions"
    taken = broken = 0
    for entry in sorted(attached.glob(f"*{ENTRY}")):
        copies = [own / path.name for path in (entry, beside(entry, USED), beside(entry, SEAL))]
        if all(path.is_file() for path in copies):
            continue
        for path in copies:  # the program first and its seal last: what is cut off counts for nothing
            if (entry.parent / path.name).is_file():
                shutil.copyfile(entry.parent / path.name, path)
        if is_sealed(copies[0]):
            taken += 1
        else:
            broken += 1
            for path in copies:
                path.unlink(missing_ok=True)
    ignored = f"; {broken} that are damaged or half written are ignored" if broken else ""
    return f"{quantity(taken, 'compiled program')} taken from {attached}{ignored}"


def machine_key() -> str:
    """Return a name for what a program runs on: the processor's features and the versions of what compiles."""
    return sha256_json([platform.machine(), cpu_name(), processor(), versions()])[:16]


def remove_unsealed(own: Path) -> None:
    """Remove entries that are not what was written, and what lies beside entries that JAX removed for its room.

    Without the time of its last use an entry would keep JAX from writing any other.
    """
    for entry in own.glob(f"*{ENTRY}"):
        if not is_sealed(entry):
            entry.unlink(missing_ok=True)
    for end in (SEAL, USED):
        for file in own.glob(f"*{end}"):
            if not file.with_name(file.name.removesuffix(end) + ENTRY).is_file():
                file.unlink(missing_ok=True)


def is_sealed(entry: Path) -> bool:
    """Return whether an entry is what was written, with the time of its last use beside it."""
    sealed = beside(entry, SEAL)
    is_whole = sealed.is_file() and sealed.read_text(encoding="ascii", errors="replace") == digest(entry)
    return is_whole and beside(entry, USED).is_file()


def seal(own: Path) -> None:
    """Write the hash of each new entry beside it."""
    with suppress(OSError):
        for entry in own.glob(f"*{ENTRY}"):
            if not beside(entry, SEAL).exists():
                beside(entry, SEAL).write_text(digest(entry), encoding="ascii")


def beside(entry: Path, end: str) -> Path:
    """Return another file of an entry."""
    return entry.with_name(entry.name.removesuffix(ENTRY) + end)


def digest(entry: Path) -> str:
    """Return the SHA-256 of a file."""
    return hashlib.sha256(entry.read_bytes()).hexdigest()


def remove_unused(room: Path, *, but: Path) -> None:
    """Remove the folders of other processors and versions that nobody has used for long."""
    oldest = time.time() - UNUSED_DAYS * 86400
    for other in room.iterdir() if room.is_dir() else ():
        if other != but and other.stat().st_mtime < oldest:
            shutil.rmtree(other, ignore_errors=True)

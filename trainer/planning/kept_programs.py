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
from contextlib import suppress
from functools import cache
from pathlib import Path

import jax

from evidence.run.hashes import sha256_json
from trainer.planning.compile.cache import versions
from trainer.recorder.cache_folder import folder, size_bytes
from trainer.recorder.processor import cpu_name, processor

WORTH_KEEPING_SECONDS = 0.0
"""A program that is compiled in less is compiled again: none, for reading takes a fraction even of small ones."""

UNUSED_DAYS = 60
"""Programs for another processor or other versions are removed when nobody has used them for so long."""

ENTRY, USED, SEAL = "-cache", "-atime", "-sha256"
"""Ends of the names of files: a program and the time of its last use, which JAX writes, and the program's hash."""


@cache
def keep_programs() -> None:
    """Let JAX keep what it compiles and take what it has compiled before; once in a process, before anything compiles.

    An entry without the hash that was written beside it is removed first: it is damaged, or a process was killed
    before it could say that it is whole.
    """
    most = size_bytes()
    if jax.config.values["jax_compilation_cache_dir"] or not most:
        return
    room = folder() / "programs"
    own = room / machine_key()
    try:
        remove_unused(room, but=own)
        own.mkdir(parents=True, exist_ok=True)
        remove_unsealed(own)
        os.utime(own)
    except OSError:
        return  # a folder that cannot be written to keeps none, and the next run compiles again
    # What JAX cannot read it compiles again; who runs the command can do nothing about it.
    warnings.filterwarnings("ignore", message="Error (reading|writing) persistent compilation cache entry")
    jax.config.update("jax_compilation_cache_dir", str(own))
    jax.config.update("jax_compilation_cache_max_size", most)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", WORTH_KEEPING_SECONDS)
    atexit.register(seal, own)


def machine_key() -> str:
    """Return a name for what a program runs on: the processor's features and the versions of what compiles."""
    return sha256_json([platform.machine(), cpu_name(), processor(), versions()])[:16]


def remove_unsealed(own: Path) -> None:
    """Remove entries that are not what was written, and what lies beside entries that JAX removed for its room.

    Without the time of its last use an entry would keep JAX from writing any other.
    """
    for entry in own.glob(f"*{ENTRY}"):
        seal_file = beside(entry, SEAL)
        is_sealed = seal_file.is_file() and seal_file.read_text(encoding="ascii", errors="replace") == digest(entry)
        if not (is_sealed and beside(entry, USED).is_file()):
            entry.unlink(missing_ok=True)
    for end in (SEAL, USED):
        for file in own.glob(f"*{end}"):
            if not file.with_name(file.name.removesuffix(end) + ENTRY).is_file():
                file.unlink(missing_ok=True)


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

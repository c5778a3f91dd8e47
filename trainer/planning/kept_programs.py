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

from trainer.planning.compile.cache import folder, versions

SIZE = "TRAINPROOF_CACHE_MIB"
"""Environment variable with the most that the programs of one processor take, in MiB; 0 keeps none."""

DEFAULT_MIB = 1024

WORTH_KEEPING_SECONDS = 0.0
"""A program that is compiled in less is compiled again: none, for reading takes a fraction even of small ones."""

UNUSED_DAYS = 60
"""Programs for another processor or other versions are removed when nobody has used them for so long."""

ENTRY, SEAL = "-cache", "-sha256"
"""Ends of the names of a program's file, which JAX writes, and of its hash beside it."""

PROCESSORS = Path("/proc/cpuinfo")


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


def size_bytes() -> int:
    """Return the most bytes that are kept; a size that is no number is the default."""
    stated = os.environ.get(SIZE, "")
    return (int(stated) if stated.isdecimal() else DEFAULT_MIB) << 20


def machine_key() -> str:
    """Return a name for what a program runs on: the processor's features and the versions of what compiles."""
    described = [platform.machine(), processor(), *(f"{name} {found}" for name, found in sorted(versions().items()))]
    return hashlib.sha256("\n".join(described).encode()).hexdigest()[:16]


def processor() -> str:
    """Return the model and the features of the processor, as Linux lists them; elsewhere what Python knows."""
    if not PROCESSORS.is_file():
        return platform.processor()
    first = PROCESSORS.read_text(encoding="utf-8", errors="replace").partition("\n\n")[0]
    wanted = ("vendor_id", "cpu family", "model", "model name", "stepping", "flags", "Features", "CPU part")
    lines = (line.partition(":") for line in first.splitlines())
    return "\n".join(f"{name.strip()}:{value}" for name, _, value in lines if name.strip() in wanted)


def remove_unsealed(own: Path) -> None:
    """Remove entries that are not what was written."""
    for entry in own.glob(f"*{ENTRY}"):
        seal_file = seal_of(entry)
        if not seal_file.is_file() or seal_file.read_text(encoding="ascii", errors="replace") != digest(entry):
            entry.unlink(missing_ok=True)
            seal_file.unlink(missing_ok=True)
    for seal_file in own.glob(f"*{SEAL}"):
        if not seal_file.with_name(seal_file.name.removesuffix(SEAL) + ENTRY).is_file():
            seal_file.unlink(missing_ok=True)  # JAX removed the entry for its room


def seal(own: Path) -> None:
    """Write the hash of each new entry beside it."""
    with suppress(OSError):
        for entry in own.glob(f"*{ENTRY}"):
            if not seal_of(entry).exists():
                seal_of(entry).write_text(digest(entry), encoding="ascii")


def seal_of(entry: Path) -> Path:
    """Return the file with an entry's hash."""
    return entry.with_name(entry.name.removesuffix(ENTRY) + SEAL)


def digest(entry: Path) -> str:
    """Return the SHA-256 of a file."""
    return hashlib.sha256(entry.read_bytes()).hexdigest()


def remove_unused(room: Path, *, but: Path) -> None:
    """Remove the folders of other processors and versions that nobody has used for long."""
    oldest = time.time() - UNUSED_DAYS * 86400
    for other in room.iterdir() if room.is_dir() else ():
        if other != but and other.stat().st_mtime < oldest:
            shutil.rmtree(other, ignore_errors=True)

"""The folder in which tests keep what JAX has compiled: outside the checkout, so that a fresh clone finds it.

JAX names an entry by its program, its own version and the flags. The folder is named by what else decides whether an
entry may run here: the versions, the flags and the instruction sets of the processor. A process that is killed while
it writes leaves half an entry; JAX then compiles anew, and the next session removes the half.
"""

import hashlib
import os
import platform
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.metadata import version
from pathlib import Path

QUICK = "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"
"""`XLA_FLAGS` for quick rather than thorough compilation, of programs that are run a few times."""
LIMIT_BYTES = 1_000_000_000
"""Least recently read entries of all folders are removed above it. A whole session compiles about a third of it."""
CHECKED = "checked"
"""File whose time says until when entries have been found whole."""


def kept() -> Path:
    """Return the folder of all that tests keep for every clone."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "trainproof-tests"


def prepare(flags: str) -> Path:
    """Return the folder for these `XLA_FLAGS`, made if it is missing."""
    facts = "\n".join([version("jax"), version("jaxlib"), flags, platform.machine(), _instruction_sets()])
    folder = kept() / "compiled" / hashlib.sha256(facts.encode()).hexdigest()[:16]
    # JAX trusts what it reads there.
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder


def _instruction_sets() -> str:
    """Return the processor's model and instruction sets, or the machine's name if the system does not list them."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except FileNotFoundError:
        return platform.node()
    kinds = ("vendor_id", "cpu family", "model\t", "model name", "flags", "Features", "CPU part")
    return "\n".join(sorted({line for line in lines if line.startswith(kinds)}))


def clean(folder: Path, limit_bytes: int = LIMIT_BYTES) -> None:
    """Remove halves of entries from a folder, and the oldest entries of all folders beside it above a size."""
    checked = folder / CHECKED
    since = checked.stat().st_mtime if checked.exists() else 0.0
    checked.touch()
    for status, entry in _entries(folder):
        if status.st_mtime >= since and not _is_whole(entry):
            entry.unlink(missing_ok=True)
    found = [pair for each in folder.parent.iterdir() if each.is_dir() for pair in _entries(each)]
    found.sort(key=lambda pair: max(pair[0].st_atime, pair[0].st_mtime))
    size = sum(status.st_size for status, _ in found)
    for status, entry in found:
        if size <= limit_bytes:
            return
        entry.unlink(missing_ok=True)
        size -= status.st_size


def _entries(folder: Path) -> Iterator[tuple[os.stat_result, Path]]:
    """Yield the entries of a folder from which another session may remove some meanwhile."""
    for entry in folder.glob("*-cache"):
        with suppress(FileNotFoundError):
            yield entry.stat(), entry


def _is_whole(entry: Path) -> bool:
    """Return whether JAX can unpack an entry, or whether nothing is left to unpack."""
    with suppress(FileNotFoundError):
        try:
            zlib.decompress(entry.read_bytes())
        except zlib.error:
            return False
    return True


@contextmanager
def anew(folder: Path | None = None) -> Iterator[None]:
    """Let JAX compile every program inside, or keep programs in another folder."""
    import jax
    from jax.experimental.compilation_cache import compilation_cache

    def use(enabled: bool, path: str | None) -> None:
        jax.config.update("jax_enable_compilation_cache", enabled)
        jax.config.update("jax_compilation_cache_dir", path)
        # A plugin may have imported JAX before its environment was set.
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
        jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
        compilation_cache.reset_cache()

    before = jax.config.jax_enable_compilation_cache, jax.config.jax_compilation_cache_dir
    use(folder is not None, str(folder) if folder else before[1])
    yield
    use(*before)

"""Describe the machine: system, packages, environment variables, processor, cache folder and attached folders.

XLA's CPU compiler uses every instruction set that it finds, and other instructions add in another order. Compiled for a
level that nearly every processor has, a program gives the same bits everywhere (docs/decisions/determinism.md).
"""

from __future__ import annotations

import os
import platform
from collections.abc import Iterable, Iterator
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, NamedTuple

import psutil

from evidence.layout import user_folder

PACKAGES = (
    *("jax", "jaxlib", "flax", "optax", "orbax-checkpoint", "transformers", "tokenizers", "safetensors", "numpy"),
    *("libtpu", "jax-cuda12-plugin", "jax-cuda13-plugin"),
)
"""Packages whose version can change numbers."""

FLAGS = (
    *("XLA_FLAGS", "LIBTPU_INIT_ARGS", "JAX_PLATFORMS", "JAX_ENABLE_X64", "JAX_DEFAULT_MATMUL_PRECISION"),
    *("XLA_PYTHON_CLIENT_PREALLOCATE", "XLA_CLIENT_MEM_FRACTION", "XLA_PYTHON_CLIENT_MEM_FRACTION"),
    *("XLA_PYTHON_CLIENT_ALLOCATOR", "CUDA_VISIBLE_DEVICES"),
)
"""Environment variables that can change numbers or memory."""

PROCESSORS = Path("/proc/cpuinfo")

NATIVE, V3 = "native", "x86-64-v3"
"""Compile for all instructions of this processor, or for every Intel CPU since 2013 and AMD CPU since 2017."""
V3_FLAGS = ("avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe")
"""Instructions that x86-64-v3 adds to x86-64-v2, by Linux's names."""
MAX_ISA = "xla_cpu_max_isa"
MAX_ISA_FLAG = f"--{MAX_ISA}=AVX2"
"""Flag that makes XLA leave newer instructions out; XLA reads it once, when JAX starts."""

V3_OPTIONS: tuple[tuple[str, str | bool], ...] = (
    # Square roots by hardware estimates, and kernels with their own summation order, differ between processors.
    ("xla_cpu_enable_platform_dependent_math", False),
    # The kernel library splits sums by the number of threads, but not products.
    ("xla_cpu_experimental_ynn_fusion_type", "LIBRARY_FUSION_TYPE_INDIVIDUAL_DOT"),
    # A product with a transposed factor would go to a library that splits its sum by caches and threads.
    ("xla_disable_hlo_passes", "transpose-folding"),
)
"""Compiler options of each program for x86-64-v3."""

RECORDED_FLAGS = ("sse4", "avx", "f16c", "fma", "amx", "bmi", "abm", "movbe", "asimd", "sve", "bf16", "i8mm")
"""Prefixes of the instruction sets that compilers and matrix libraries use."""

DEFAULT_CACHE_MIB = 256
"""Enough for hundreds of programs; see docs/decisions/determinism.md."""
ATTACHED_DEPTH = 8
"""Deepest attached folder that is searched: Kaggle has owner, name and version, and a run is two levels below."""

CompilerOptions = tuple[tuple[str, str | bool], ...]
"""Hashable compiler options of `jax.jit`."""


def environment(compiled_for: str | None = None) -> dict[str, Any]:
    """Return the group `environment` of the manifest, with the level of CPU programs or None without any."""
    # The flag that `request_level` adds is not a setting of the user.
    user_flags = [each for each in _xla_flags() if compiled_for != V3 or each != MAX_ISA_FLAG]
    variables = os.environ | {"XLA_FLAGS": " ".join(user_flags)}
    return {
        "os": f"{platform.system()} {platform.release()} {platform.machine()}",
        "python": platform.python_version(),
        "cpu_count": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "memory_bytes": psutil.virtual_memory().total,
        **({"cpu": name} if (name := cpu_name()) else {}),
        "processor": processor(compiled_for),
        "packages": installed_versions(PACKAGES),
        "flags": {name: variables[name] for name in FLAGS if variables.get(name)},
    }


def installed_versions(packages: Iterable[str]) -> dict[str, str]:
    """Return the versions of packages, without packages that are not installed."""
    found = {}
    for package in packages:
        with suppress(PackageNotFoundError):
            found[package] = version(package)
    return found


def processor(compiled_for: str | None = None) -> dict[str, Any]:
    """Return the group `environment.processor` of the manifest, with the level of CPU programs or None without any."""
    cpu = _cpu_info()
    numbers = {"family": "cpu family", "model": "model", "stepping": "stepping"}
    instructions = cpu.get("flags", cpu.get("Features", "")).split()
    return {
        **{key: int(cpu[name]) for key, name in numbers.items() if cpu.get(name, "").isdigit()},
        "instructions": sorted(each for each in instructions if each.startswith(RECORDED_FLAGS)),
        **({} if compiled_for is None else {"compiled_for": compiled_for}),
    }


def cpu_name() -> str | None:
    """Return the model name of the processor, or None if the operating system does not report it."""
    return _cpu_info().get("model name") or platform.processor() or None


def _cpu_info() -> dict[str, str]:
    """Return Linux's description of the first processor; empty on other systems."""
    if not PROCESSORS.is_file():
        return {}
    first = PROCESSORS.read_text(encoding="utf-8", errors="replace").strip().split("\n\n")[0]
    lines = (line.partition(":") for line in first.splitlines())
    return {name.strip(): value.strip() for name, _, value in lines}


class Level(NamedTuple):
    """Instruction set that CPU programs are compiled for in this process, and why it is not the configured one."""

    name: str
    """`x86-64-v3` or `native`."""
    why: str = ""

    @property
    def options(self) -> CompilerOptions:
        """Compiler options of each program."""
        return V3_OPTIONS if self.name == V3 else ()


def request_level(level: str) -> None:
    """Add the flag of a level to XLA_FLAGS if the processor supports it; call it before JAX starts."""
    if level != NATIVE and MAX_ISA_FLAG not in _xla_flags() and not _unsupported():
        os.environ["XLA_FLAGS"] = " ".join([*_xla_flags(), MAX_ISA_FLAG])


def select_level(requested: str) -> Level:
    """Return the level that CPU programs are compiled for in this process, given `precision.cpu_isa`."""
    if requested == NATIVE:
        return Level(NATIVE)
    started = "" if MAX_ISA_FLAG in _xla_flags() else "JAX had started for all that the processor has"
    why = _unsupported() or started
    return Level(NATIVE, why) if why else Level(requested)


def _xla_flags() -> list[str]:
    return os.environ.get("XLA_FLAGS", "").split()


def _unsupported() -> str:
    """Return why programs cannot be compiled for x86-64-v3 here, or an empty string."""
    names = [MAX_ISA, *dict(V3_OPTIONS)]
    if own := [each for each in _xla_flags() if each.lstrip("-").split("=")[0] in names and each != MAX_ISA_FLAG]:
        return f"XLA_FLAGS states {' '.join(own)}"
    instructions = set(_cpu_info().get("flags", "").split())
    if not instructions:
        return f"this {platform.machine()} processor names no instructions of x86-64"
    missing = [each for each in V3_FLAGS if each not in instructions]
    return f"this processor lacks {', '.join(missing)}" if missing else ""


def cache_folder() -> Path:
    """Return the folder for what can be computed again: `$TRAINPROOF_CACHE`, else the user's cache folder."""
    configured = os.environ.get("TRAINPROOF_CACHE")
    return Path(configured) if configured else user_folder("XDG_CACHE_HOME", ".cache")


def cache_limit_bytes() -> int:
    """Return the size limit of the compiled programs of one processor: `$TRAINPROOF_CACHE_MIB` if it is a number.

    0 disables the cache.
    """
    configured = os.environ.get("TRAINPROOF_CACHE_MIB", "")
    return (int(configured) if configured.isdecimal() else DEFAULT_CACHE_MIB) << 20


def attached_folder() -> Path:
    """Return the folder where Kaggle attaches data sets, models and outputs of earlier sessions, read-only."""
    return Path(os.environ.get("TRAINPROOF_INPUT", "/kaggle/input"))


def walk_attached() -> Iterator[tuple[Path, list[str], list[str]]]:
    """Yield each attached folder with the names of its folders and files, as `os.walk`."""
    top = attached_folder()
    for name, folders, files in os.walk(top):
        folders.sort()
        if len(Path(name).relative_to(top).parts) >= ATTACHED_DEPTH:
            folders.clear()
        yield Path(name), folders, files

"""The processor: what it is, and for which of its instructions the programs of a run are compiled.

A CPU's compiler uses every instruction that it finds, and another instruction adds in another order. Compiled for a
level that nearly every processor has, a program gives the same bits on all of them (docs/decisions/processors.md).
"""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PROCESSORS = Path("/proc/cpuinfo")
"""Where Linux describes its processors."""

NATIVE = "native"
"""Compiled for all that the processor has."""
V3 = "x86-64-v3"
"""Compiled for what processors by Intel since 2013 and by AMD since 2017 have."""

NEEDED = ("avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe")
"""What x86-64-v3 has beyond x86-64-v2, as Linux names it."""

FLAG = "xla_cpu_max_isa"
ASKED = f"--{FLAG}=AVX2"
"""What makes XLA leave newer instructions out; it reads that once, when JAX starts."""

OPTIONS: tuple[tuple[str, str | bool], ...] = (
    # Roots by hardware estimates, and kernels that add in their own order, differ from processor to processor.
    ("xla_cpu_enable_platform_dependent_math", False),
    # Sums by the kernels' library are divided by the number of threads; products are not.
    ("xla_cpu_experimental_ynn_fusion_type", "LIBRARY_FUSION_TYPE_INDIVIDUAL_DOT"),
    # A product with a turned factor would go to a library that divides its sum by caches and threads.
    ("xla_disable_hlo_passes", "transpose-folding"),
)
"""Its further options, with each program, by the names of its flags."""

TELLING = ("sse4", "avx", "f16c", "fma", "amx", "bmi", "abm", "movbe", "asimd", "sve", "bf16", "i8mm")
"""How the names of instruction sets begin that compilers and libraries for matrices look at."""

CompilerOptions = tuple[tuple[str, str | bool], ...]
"""Options of `jax.jit` beside XLA_FLAGS, hashable."""


@dataclass(frozen=True, kw_only=True)
class Level:
    """What programs are compiled for here."""

    name: str
    """`x86-64-v3` or `native`."""
    why: str = ""
    """Why it is not the configured one; empty if it is."""

    @property
    def options(self) -> CompilerOptions:
        """Options of the compiler."""
        return OPTIONS if self.name == V3 else ()


def ask_for(asked: str) -> None:
    """Add what a level needs to XLA_FLAGS where it can be had; before JAX starts, which reads them once."""
    if asked != NATIVE and ASKED not in _flags() and not _why_not():
        os.environ["XLA_FLAGS"] = " ".join(each for each in (*_flags(), ASKED) if each)


def level_of(asked: str) -> Level:
    """Return what programs are compiled for in this process, if they run on this machine's CPU.

    Args:
        asked: `precision.cpu_isa`.
    """
    if asked == NATIVE:
        return Level(name=NATIVE)
    why = _why_not()
    if not why and ASKED not in _flags():
        why = "JAX had started for all that the processor has"
    return Level(name=NATIVE, why=why) if why else Level(name=asked)


def flags_beside(level: str | None) -> str:
    """Return XLA_FLAGS without what a level added to them, which the level implies."""
    return " ".join(each for each in _flags() if level != V3 or each != ASKED)


def _flags() -> list[str]:
    return os.environ.get("XLA_FLAGS", "").split()


def _why_not() -> str:
    """Return why a level cannot be had here; empty if it can."""
    names = [name for name, _ in OPTIONS]
    own = [each for each in _flags() if each.lstrip("-").split("=")[0] in (*names, FLAG) and each != ASKED]
    if own:
        return f"XLA_FLAGS states {' '.join(own)}"
    there = set(_describe().get("flags", "").split())
    if not there:
        return f"this {platform.machine()} processor names no instructions of x86-64"
    missing = [each for each in NEEDED if each not in there]
    return f"this processor has no {', '.join(missing)}" if missing else ""


def processor(compiled_for: str | None = None) -> dict[str, Any]:
    """Return the manifest's group `environment.processor`.

    Args:
        compiled_for: the level of the run's programs. None: they run on other devices, or nothing was compiled.
    """
    described = _describe()
    numbers = {"family": "cpu family", "model": "model", "stepping": "stepping"}
    found = described.get("flags", described.get("Features", "")).split()
    return {
        **{key: int(described[name]) for key, name in numbers.items() if described.get(name, "").isdigit()},
        "instructions": sorted(each for each in found if each.startswith(TELLING)),
        **({} if compiled_for is None else {"compiled_for": compiled_for}),
    }


def cpu_name() -> str | None:
    """Return the model of the processor as the operating system names it, or None if it names none."""
    return _describe().get("model name") or platform.processor() or None


def _describe() -> dict[str, str]:
    """Return what Linux states of the first processor, by its names; nothing on other systems."""
    if not PROCESSORS.is_file():
        return {}
    first = PROCESSORS.read_text(encoding="utf-8", errors="replace").strip().split("\n\n")[0]
    lines = (line.partition(":") for line in first.splitlines())
    return {name.strip(): value.strip() for name, _, value in lines}

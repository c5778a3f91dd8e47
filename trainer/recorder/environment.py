"""Where it ran: operating system, Python, packages that decide the numbers, and environment variables that do."""

from __future__ import annotations

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import psutil

PACKAGES = (
    "jax",
    "jaxlib",
    "flax",
    "optax",
    "orbax-checkpoint",
    "transformers",
    "tokenizers",
    "safetensors",
    "numpy",
    "libtpu",
    "jax-cuda12-plugin",
    "jax-cuda13-plugin",
)
PROCESSORS = Path("/proc/cpuinfo")
"""Where Linux describes its processors."""

FLAGS = (
    "XLA_FLAGS",
    "LIBTPU_INIT_ARGS",
    "JAX_PLATFORMS",
    "JAX_ENABLE_X64",
    "JAX_DEFAULT_MATMUL_PRECISION",
    "XLA_PYTHON_CLIENT_PREALLOCATE",
    "XLA_CLIENT_MEM_FRACTION",
    "XLA_PYTHON_CLIENT_MEM_FRACTION",
    "XLA_PYTHON_CLIENT_ALLOCATOR",
    "CUDA_VISIBLE_DEVICES",
)


def environment() -> dict[str, Any]:
    """Return the manifest's group `environment`."""
    return {
        "os": f"{platform.system()} {platform.release()} {platform.machine()}",
        "python": platform.python_version(),
        "cpu_count": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "memory_bytes": psutil.virtual_memory().total,
        **({"cpu": named} if (named := cpu_name()) else {}),
        "packages": {name: found for name in PACKAGES if (found := installed(name))},
        "flags": {name: os.environ[name] for name in FLAGS if name in os.environ},
    }


def cpu_name() -> str | None:
    """Return the model of the processor as the operating system names it, None where it names none."""
    if PROCESSORS.is_file():
        with PROCESSORS.open(encoding="utf-8", errors="replace") as lines:
            for line in lines:
                name, _, value = line.partition(":")
                if name.strip() == "model name" and value.strip():
                    return value.strip()
    return platform.processor() or None


def installed(package: str) -> str | None:
    """Return the version of an installed package, None for one that is not."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None

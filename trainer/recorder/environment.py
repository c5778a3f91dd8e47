"""Where it ran: operating system, Python, packages that decide the numbers, and environment variables that do."""

from __future__ import annotations

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import psutil

from trainer.recorder.processor import cpu_name, flags_beside, processor

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


def environment(compiled_for: str | None = None) -> dict[str, Any]:
    """Return the manifest's group `environment`.

    Args:
        compiled_for: the level that the CPU's programs are compiled for. None: nothing is compiled for a CPU.
    """
    return {
        "os": f"{platform.system()} {platform.release()} {platform.machine()}",
        "python": platform.python_version(),
        "cpu_count": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "memory_bytes": psutil.virtual_memory().total,
        **({"cpu": named} if (named := cpu_name()) else {}),
        "processor": processor(compiled_for),
        "packages": {name: found for name in PACKAGES if (found := installed_version(name))},
        "flags": _flags(compiled_for),
    }


def _flags(compiled_for: str | None) -> dict[str, str]:
    found = os.environ | {"XLA_FLAGS": flags_beside(compiled_for)}
    return {name: found[name] for name in FLAGS if found.get(name)}


def installed_version(package: str) -> str | None:
    """Return the version of an installed package, None for one that is not."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None

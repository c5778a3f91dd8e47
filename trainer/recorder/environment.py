"""Where it ran: operating system, Python, packages that decide the numbers, and environment variables that do."""

from __future__ import annotations

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import psutil

from schemas.catalog import VERSION
from trainer.config.tree import Config
from trainer.recorder.code import code_identity
from trainer.recorder.processor import cpu_name, flags_beside, level_of, processor
from trainer.recorder.recorder import NO_RESULT, now

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


def first_manifest(
    *,
    run_id: str,
    command: list[str],
    config: Config,
    devices: dict[str, Any],
    dataset: dict[str, Any],
    parent: dict[str, Any] | None,
) -> dict[str, Any]:
    """Return the document `run_manifest.json` of a run that has just begun."""
    level = level_of(config.precision.cpu_isa).name if devices["platform"] == "cpu" else None
    return {
        "schema_version": VERSION,
        "run_id": run_id,
        "mode": config.mode,
        "status": "running",
        "started_at": now(),
        "finished_at": None,
        "command": command,
        "code": code_identity(),
        "environment": environment(level),
        "devices": devices,
        "model": None,
        "dataset": dataset,
        "training": None,
        "result": dict(NO_RESULT),
        "exit": None,
        "parent": parent,
        "artifacts": [],
    }

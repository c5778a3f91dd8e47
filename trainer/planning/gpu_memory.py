"""How much of a GPU's memory JAX takes: what is left after CUDA's own share, instead of three quarters.

JAX takes one pool of a GPU when it starts, 75 % of the card unless told. Of a T4 with 15 GiB a run would get 11.3.
"""

from __future__ import annotations

import os
import shutil
import subprocess

from evidence.targets import Target

FRACTION = "XLA_CLIENT_MEM_FRACTION"
OLDER_FRACTION = "XLA_PYTHON_CLIENT_MEM_FRACTION"
"""The same under its earlier name; JAX refuses to start where both are set."""

CUDA_BYTES = 900 * 2**20
"""Left to CUDA: its context, its libraries' kernels, and what cuDNN and cuBLAS work in (0.4 to 0.7 GiB)."""

MIB = 2**20


def give_jax_the_gpu() -> None:
    """Set JAX's share of a GPU's memory, where there is a GPU and nobody has set it; before JAX asks for its devices.

    The share stands in the manifest with the other environment variables, and the device then reports it as its limit,
    which is what the plan compares with.
    """
    if FRACTION in os.environ or OLDER_FRACTION in os.environ or not may_use_gpus():
        return
    totals = gpu_memories()
    if totals:
        os.environ[FRACTION] = f"{fraction_of(min(totals)):.3f}"


def may_use_gpus() -> bool:
    """Return whether JAX_PLATFORMS leaves room for a GPU."""
    platforms = os.environ.get("JAX_PLATFORMS", "")
    return not platforms or any(name in platforms for name in ("cuda", "gpu"))


def fraction_of(total_bytes: int) -> float:
    """Return the share of a card that is left after CUDA's own, at most 0.98.

    A T4 with 15,360 MiB: 1 − 900 / 15,360 = 0.941.
    """
    return min(max(1 - CUDA_BYTES / total_bytes, 0.5), 0.98)


def gpu_memories() -> list[int]:
    """Return the memory of each GPU in bytes, as its driver says; none where no driver answers."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return []
    command = [program, "--query-gpu=memory.total", "--format=csv,noheader,nounits"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return []
    return [int(line) * MIB for line in answer.split() if line.isdecimal()]


def available_bytes(target: Target) -> int | None:
    """Return what a run may use of one device: of a card, what is left when CUDA has taken its own."""
    if target.memory_bytes is None or target.platform != "gpu":
        return target.memory_bytes
    return target.memory_bytes - CUDA_BYTES

"""Describe devices to their compilers: TPU chips by libtpu's names, CUDA GPUs by a target description."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from typing import Any

from evidence.targets import THIS_MACHINE, Target

TPU_PACKAGE = "libtpu"
CUDA_PACKAGES = ("jax_cuda12_plugin", "jax_cuda13_plugin")


@dataclass(frozen=True, kw_only=True)
class Chips:
    """TPU chips as libtpu names them.

    Attributes:
        topology: Kind and arrangement, `v5e:2x4`.
        chips_per_host: Bounds, or None for libtpu's default.
        chip_config: `megacore` (two cores are one device), or None for libtpu's default.
    """

    topology: str
    devices: int
    chips_per_host: tuple[int, ...] | None = None
    chip_config: str | None = None

    def order(self) -> dict[str, Any]:
        """Return the description for the compiling process."""
        return {"platform": "tpu", **asdict(self)}


@dataclass(frozen=True, kw_only=True)
class Cards:
    """CUDA GPUs of one kind; `description` is a `GpuTargetConfigProto` as text."""

    description: str
    devices: int

    def order(self) -> dict[str, Any]:
        """Return the description for the compiling process."""
        return {"platform": "gpu", **asdict(self)}


@dataclass(frozen=True, kw_only=True)
class Processors:
    """The CPU of this machine as JAX devices.

    Attributes:
        count: Cores that one program uses.
        flags: XLA_FLAGS, which decide the number of devices.
    """

    devices: int
    count: int
    flags: str

    def order(self) -> dict[str, Any]:
        """Return the description for the compiling process."""
        return {"platform": "cpu", **asdict(self)}


Machine = Chips | Cards | Processors

V5E_1 = Chips(topology="v5e:1x1", devices=1, chips_per_host=(1, 1, 1))
V5E_8 = Chips(topology="v5e:2x4", devices=8)


def find_machine(target: Target, *, devices: int) -> Machine | None:
    """Return how to compile for a target, or None if its compiler is unknown or not installed."""
    if target.platform == "cpu" and target.name == THIS_MACHINE:
        return Processors(devices=devices, count=os.cpu_count() or 1, flags=os.environ.get("XLA_FLAGS", ""))
    if target.compiler is None or not has_compiler(target.platform):
        return None
    if target.platform == "tpu":
        bounds = target.compiler["chips_per_host"]
        return Chips(
            topology=target.compiler["topology"],
            devices=devices,
            chips_per_host=None if bounds is None else tuple(int(number) for number in bounds.split("x")),
            chip_config=target.compiler["chip_config"],
        )
    return Cards(description=describe_gpu(target), devices=devices)


def has_compiler(platform: str) -> bool:
    """Return whether the compiler of a platform is installed; its devices need not be present."""
    packages = {"tpu": (TPU_PACKAGE,), "gpu": CUDA_PACKAGES}.get(platform, ())
    return any(find_spec(package) is not None for package in packages)


def to_install(platform: str) -> str:
    """Return the command that installs the compiler of a platform."""
    return "pip install 'trainproof[plan]'" if platform == "tpu" else "pip install 'trainproof[plan-cuda]'"


def describe_gpu(target: Target) -> str:
    """Return the target description of a CUDA GPU; values missing in the table are the same on all GPUs."""
    assert target.compiler is not None, "checked by the caller"
    card = target.compiler
    major, minor = card["compute_capability"].split(".")
    shared = _SHARED_KIB.get(card["compute_capability"], 100) * 1024
    memory, bandwidth = target.memory_bytes or 0, int(target.memory_bandwidth or 0)
    return f"""
gpu_device_info {{
  threads_per_block_limit: 1024
  threads_per_warp: 32
  shared_memory_per_block: 49152
  shared_memory_per_core: {shared}
  shared_memory_per_block_optin: {shared - 1024 if shared > 65536 else shared}
  threads_per_core_limit: {1024 if card["compute_capability"] == "7.5" else 2048 if minor == "0" else 1536}
  core_count: {card["multiprocessors"]}
  fpus_per_core: {64 if major in ("6", "7") or card["compute_capability"] == "8.0" else 128}
  block_dim_limit_x: 2147483647
  block_dim_limit_y: 65535
  block_dim_limit_z: 65535
  memory_bandwidth: {bandwidth}
  l2_cache_size: {int(card["l2_cache_mib"] * 2**20)}
  clock_rate_ghz: {card["clock_ghz"]}
  device_memory_size: {memory}
  cuda_compute_capability {{ major: {major} minor: {minor} }}
  registers_per_core_limit: 65536
  registers_per_block_limit: 65536
}}
platform_name: "CUDA"
dnn_version_info {{ major: 9 minor: 8 }}
runtime_version {{ major: 12 minor: 9 }}
device_description_str: "{target.kind}"
"""


_SHARED_KIB = {"6.0": 64, "7.0": 96, "7.5": 64, "8.0": 164, "8.6": 100, "8.9": 100, "9.0": 228, "12.0": 100}
"""KiB of shared memory of a multiprocessor by compute capability (CUDA C++ Programming Guide)."""

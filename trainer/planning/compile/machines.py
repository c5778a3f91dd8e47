"""Devices that are not here, as their compilers know them: TPU chips by libtpu's names, CUDA cards by description."""

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
    """TPU chips as libtpu names them."""

    topology: str
    """Kind and arrangement, `v5e:2x4`."""
    devices: int
    chips_per_host: tuple[int, int, int] | None = None
    """None: libtpu's own default for the kind."""
    chip_config: str | None = None
    """`megacore`: two cores are one device. None: libtpu's own for the kind."""

    def order(self) -> dict[str, Any]:
        """Return what the compiling process is told."""
        return {"platform": "tpu", **asdict(self)}


@dataclass(frozen=True, kw_only=True)
class Cards:
    """CUDA cards of one kind."""

    description: str
    """A `GpuTargetConfigProto` as text."""
    devices: int

    def order(self) -> dict[str, Any]:
        """Return what the compiling process is told."""
        return {"platform": "gpu", **asdict(self)}


@dataclass(frozen=True, kw_only=True)
class Processors:
    """The processors of this machine, which JAX takes for so many devices."""

    devices: int
    count: int
    """Processors that one program is divided over."""
    flags: str
    """XLA's, as this process has them: they decide how many devices there are."""

    def order(self) -> dict[str, Any]:
        """Return what the compiling process is told."""
        return {"platform": "cpu", **asdict(self)}


Machine = Chips | Cards | Processors

V5E_1 = Chips(topology="v5e:1x1", devices=1, chips_per_host=(1, 1, 1))
V5E_8 = Chips(topology="v5e:2x4", devices=8)


def machine_of(target: Target, *, devices: int) -> Machine | None:
    """Return how a target's compiler is asked, None where its table says nothing of it or it is not installed."""
    if target.platform == "cpu" and target.name == THIS_MACHINE:
        return Processors(devices=devices, count=os.cpu_count() or 1, flags=os.environ.get("XLA_FLAGS", ""))
    if target.compiler is None or not has_compiler(target.platform):
        return None
    if target.platform == "tpu":
        bounds = target.compiler["chips_per_host"]
        return Chips(
            topology=target.compiler["topology"],
            devices=devices,
            chips_per_host=None if bounds is None else _three(bounds),
            chip_config=target.compiler["chip_config"],
        )
    return Cards(description=description_of(target), devices=devices)


def has_compiler(platform: str) -> bool:
    """Return whether the compiler of a platform is installed here; none of its devices is needed."""
    packages = {"tpu": (TPU_PACKAGE,), "gpu": CUDA_PACKAGES}.get(platform, ())
    return any(find_spec(package) is not None for package in packages)


def to_install(platform: str) -> str:
    """Return what brings the compiler of a platform."""
    return "pip install 'trainproof[plan]'" if platform == "tpu" else "pip install 'trainproof[plan-cuda]'"


def description_of(target: Target) -> str:
    """Return a card's description, as XLA reads it; what a table does not say is the same on all of CUDA's cards."""
    assert target.compiler is not None, "the caller has looked"
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
"""Shared memory of a multiprocessor (CUDA C++ Programming Guide, technical specifications by compute capability)."""


def _three(bounds: str) -> tuple[int, int, int]:
    """Return the three numbers of `1x1x1`."""
    first, second, third = (int(number) for number in bounds.split("x"))
    return first, second, third

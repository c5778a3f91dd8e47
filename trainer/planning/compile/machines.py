"""Describe devices to their compilers: TPU chips by libtpu's names, CUDA GPUs by a target description."""

from __future__ import annotations

import os
import tomllib
from dataclasses import dataclass
from importlib.resources import files
from importlib.util import find_spec
from typing import Any

import jax

from evidence.targets import THIS_MACHINE, Platform, Target

COMPILERS = {"tpu": ("libtpu",), "gpu": ("jax_cuda12_plugin", "jax_cuda13_plugin")}
"""Packages with the compiler of a platform."""


@dataclass(frozen=True, kw_only=True)
class Machine:
    """Devices that a program is compiled for."""

    platform: Platform
    devices: int
    topology: str = ""
    """Kind and arrangement of TPU chips as libtpu names them, `v5e:2x4`."""
    chips_per_host: tuple[int, ...] | None = None
    """Bounds of a host's chips; `chip_config` may be `megacore` (two cores are one device)."""
    chip_config: str | None = None
    description: str = ""
    """`GpuTargetConfigProto` of a CUDA GPU as text."""
    cores: int = 1
    """Cores of this CPU that one program uses."""
    flags: str = ""
    """XLA_FLAGS of this CPU, which decide its number of devices."""

    def list_devices(self) -> list[Any]:
        """Return the JAX devices, none of which is present unless they are this CPU's."""
        if self.platform == "cpu":
            return jax.devices("cpu")[: self.devices]
        from jax.experimental import topologies

        if self.platform == "gpu":
            found = topologies.get_topology_desc(
                "g", "cuda", target_config=self.description, topology=f"1x1x{self.devices}"
            )
        else:
            options = {"chips_per_host_bounds": self.chips_per_host, "chip_config_name": self.chip_config}
            stated = {name: value for name, value in options.items() if value is not None}
            found = topologies.get_topology_desc(self.topology, "tpu", **stated)
        return list(found.devices)[: self.devices]


V5E_1 = Machine(platform="tpu", topology="v5e:1x1", devices=1, chips_per_host=(1, 1, 1))
V5E_8 = Machine(platform="tpu", topology="v5e:2x4", devices=8)


def find_machine(target: Target, *, devices: int) -> Machine | None:
    """Return how to compile for a target, or None if its compiler is unknown or not installed."""
    if target.platform == "cpu" and target.name == THIS_MACHINE:
        flags = os.environ.get("XLA_FLAGS", "")
        return Machine(platform="cpu", devices=devices, cores=os.cpu_count() or 1, flags=flags)
    if target.compiler is None or not has_compiler(target.platform):
        return None
    if target.platform == "gpu":
        return Machine(platform="gpu", devices=devices, description=describe_gpu(target))
    bounds = target.compiler["chips_per_host"]
    return Machine(
        platform="tpu",
        devices=devices,
        topology=target.compiler["topology"],
        chips_per_host=None if bounds is None else tuple(int(number) for number in bounds.split("x")),
        chip_config=target.compiler["chip_config"],
    )


def has_compiler(platform: str) -> bool:
    """Return whether the compiler of a platform is installed; its devices need not be present."""
    return any(find_spec(package) is not None for package in COMPILERS.get(platform, ()))


def missing_compiler(platform: str) -> str:
    """Return why a platform's compiler cannot be used, and how to install it."""
    if platform == "cpu":
        return "another machine's CPU cannot be compiled for"
    extra = "plan" if platform == "tpu" else "plan-cuda"
    return f"the {platform.upper()} compiler is not installed (pip install 'trainproof[{extra}]')"


def describe_gpu(target: Target) -> str:
    """Return the target description of a CUDA GPU."""
    assert target.compiler is not None, "checked by the caller"
    table = tomllib.loads(files("trainer").joinpath("gpus.toml").read_text(encoding="utf-8"))
    card, capability = target.compiler, target.compiler["compute_capability"]
    major, minor = capability.split(".")
    shared = table["shared_kib"].get(capability, 100) * 1024
    text: str = table["description"]
    return text.format(
        card=card,
        major=major,
        minor=minor,
        shared=shared,
        optin=shared - 1024 if shared > 65536 else shared,
        threads=1024 if capability == "7.5" else 2048 if minor == "0" else 1536,
        fpus=64 if major in ("6", "7") or capability == "8.0" else 128,
        bandwidth=int(target.memory_bandwidth or 0),
        l2=int(card["l2_cache_mib"] * 2**20),
        memory=target.memory_bytes or 0,
        kind=target.kind,
    )

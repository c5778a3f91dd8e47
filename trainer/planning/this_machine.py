"""The machine that plans, as a target: its devices asked of JAX, their speed from the table where that knows them."""

from __future__ import annotations

import shutil
from pathlib import Path

import psutil

from evidence.targets.table import THIS_MACHINE, target_of_kind
from evidence.targets.target import Target
from trainer.config.tree import Config
from trainer.planning.devices import Devices, choose_devices


def this_machine(config: Config) -> Target:
    """Return this machine with the devices that a run would take.

    Raises:
        ProblemError: exit code 3; the platform that the configuration asks for is absent, or has fewer devices.
    """
    return as_target(choose_devices(config.mesh.device, config.mesh.devices, config.precision.cpu_isa))


def as_target(devices: Devices) -> Target:
    """Return devices of this machine as a target."""
    alike = target_of_kind(devices.kind, len(devices.list))
    return Target(
        name=THIS_MACHINE,
        title=f"this machine, {len(devices.list)} × {devices.kind}",
        platform=devices.platform,
        device_kinds=(devices.kind,),
        devices=len(devices.list),
        memory_bytes=devices.memory_bytes,
        memory_source=devices.memory_source,
        memory_bandwidth=None if alike is None else alike.memory_bandwidth,
        peak_flops={} if alike is None else alike.peak_flops,
        element_types=("float32", "bfloat16", "float16") if alike is None else alike.element_types,
        host_memory_bytes=psutil.virtual_memory().total,
        disk_bytes=shutil.disk_usage(Path()).free,
        compiler=None if alike is None else alike.compiler,
    )

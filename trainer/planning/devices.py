"""Which devices a run uses, as a target too, and which element types they multiply; absent ones are refused."""

from __future__ import annotations

import os
import shutil
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import jax
import psutil
from jax._src.xla_bridge import backends_are_initialized

from evidence.targets import THIS_MACHINE, Target, find_target
from schemas.formats import join_words, size
from schemas.problems import Problem, ProblemError, problem_of
from trainer.config.tree import Config, ElementType
from trainer.planning.gpu_memory import give_jax_the_gpu
from trainer.planning.kept_programs import keep_programs
from trainer.recorder.environment import NATIVE, request_level
from trainer.recorder.recorder import Recorder

Platform = Literal["cpu", "gpu", "tpu"]

REFUSED = 3
"""Exit code of a run that is refused: it does not fit, or the device is absent."""

PREFERENCE: tuple[Platform, ...] = ("tpu", "gpu", "cpu")

ADVICE: dict[str, str] = {
    "tpu": "On Kaggle choose Settings, Accelerator, TPU v5e-8 and install trainproof[tpu]; or use --device auto.",
    "gpu": "Install trainproof[cuda12] or trainproof[cuda13] to match the driver; or use --device auto.",
    "cpu": "Unset JAX_PLATFORMS, which hides the CPU.",
}

CGROUP_LIMITS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))
"""Where Linux says how much memory a container may use, in cgroup version 2 and 1."""

PROCESS_BYTES = 300 * 2**20
"""What a process on a CPU takes beside the run's arrays: libraries that are loaded as they are needed, compiled
programs, and what compiling them leaves (docs/decisions/memory-estimate.md)."""


@dataclass(frozen=True, kw_only=True)
class Devices:
    """The devices of a run, as JAX reports them."""

    requested: str
    platform: Platform
    kind: str
    chosen_because: str
    memory_bytes: int | None
    """Usable memory of each device. None: the device does not say."""
    memory_source: str
    list: tuple[Any, ...]
    """The `jax.Device` objects."""

    def document(self) -> dict[str, Any]:
        """Return the manifest's group `devices`."""
        return {
            "requested": self.requested,
            "platform": self.platform,
            "kind": self.kind,
            "count": len(self.list),
            "memory_bytes": self.memory_bytes,
            "chosen_because": self.chosen_because,
            "list": [{"id": device.id, "kind": device.device_kind} for device in self.list],
        }

    def record(self, recorder: Recorder) -> None:
        """Write down which devices were chosen and why."""
        recorder.log(
            "info",
            "devices_chosen",
            f"{len(self.list)} × {self.kind} ({self.chosen_because})",
            platform=self.platform,
            count=len(self.list),
        )


def choose_devices(requested: str, count: int | None, cpu_isa: str = NATIVE) -> Devices:
    """Return the devices that `--device` and `mesh.devices` ask for. From here on JAX keeps programs.

    Args:
        requested: auto, cpu, gpu or tpu. auto takes a TPU, else a GPU, else the CPU.
        count: how many. None: all of that platform.
        cpu_isa: what a CPU's programs are to be compiled for; the first call of a process decides.

    Raises:
        ProblemError: exit code 3; the platform is absent, or it has fewer devices.
    """
    if requested in ("auto", "gpu"):
        give_jax_the_gpu()
    if not backends_are_initialized():
        request_level(cpu_isa)
    keep_programs()
    platform, because = choose_platform(requested)
    found = devices_of(platform)
    if count is not None and count > len(found):
        raise ProblemError([too_few(platform, count, len(found))], exit_code=REFUSED)
    used = tuple(found[:count])
    memory_bytes, source = usable_memory(used[0], platform, sharing=len(used))
    return Devices(
        requested=requested,
        platform=platform,
        kind=used[0].device_kind,
        chosen_because=because,
        memory_bytes=memory_bytes,
        memory_source=source,
        list=used,
    )


def choose_platform(requested: str) -> tuple[Platform, str]:
    """Return the platform and why it was taken."""
    if requested == "auto":
        for number, platform in enumerate(PREFERENCE):
            if devices_of(platform):
                absent = PREFERENCE[:number]
                reason = f"auto: no {' and no '.join(absent)} found" if absent else "auto: the fastest kind found"
                return platform, reason
    for platform in PREFERENCE:
        if platform == requested and devices_of(platform):
            return platform, f"asked for with --device {requested}"
    raise ProblemError([absent_device(requested)], exit_code=REFUSED)


def devices_of(platform: str) -> list[Any]:
    """Return the devices of a platform; none if JAX has no such backend, or none at all."""
    try:
        return list(jax.devices(platform))
    except (RuntimeError, AssertionError):
        return []


def usable_memory(device: Any, platform: Platform, *, sharing: int) -> tuple[int | None, str]:
    """Return the bytes a run may use on one device, and where the figure comes from.

    CPU "devices" share the machine's memory, so each gets an equal part of what is free and the process does not take.
    """
    if platform == "cpu":
        free, source = free_main_memory()
        return max(free - PROCESS_BYTES, 0) // sharing, f"{source}; less {size(PROCESS_BYTES)} for the process itself"
    stats = device.memory_stats() or {}
    limit = stats.get("bytes_limit")
    return (int(limit), "limit reported by the device") if limit else (None, "the device reports no limit")


def free_main_memory() -> tuple[int, str]:
    """Return the main memory that this process may still use: what is free, within the container's limit."""
    free = psutil.virtual_memory().available
    used = psutil.Process(os.getpid()).memory_info().rss
    for file in CGROUP_LIMITS:
        limit = file.read_text().strip() if file.is_file() else "max"
        if limit.isdigit() and int(limit) - used < free:
            return int(limit) - used, f"the container's limit ({file})"
    return free, "free main memory"


def absent_device(requested: str) -> Problem:
    """Return the problem of a platform that JAX does not find."""
    found = sorted(platform for platform in PREFERENCE if devices_of(platform))
    if not found:
        return no_device(requested)
    return problem_of(
        "TP701",
        file="--device",
        why=None,
        what=f"No {requested} device was found; JAX sees only: {', '.join(found)}.",
        expected=f"at least one {requested} device",
        next=ADVICE[requested],
    )


def no_device(requested: str) -> Problem:
    """Return the problem of a JAX that finds no device at all, as where JAX_PLATFORMS names what is not installed."""
    what = "No device was found" if requested == "auto" else f"No {requested} device was found"
    return problem_of(
        "TP701",
        file="--device",
        what=f"{what}; with JAX_PLATFORMS={os.environ.get('JAX_PLATFORMS', '')} JAX sees none at all.",
        why="JAX_PLATFORMS is the list of platforms that JAX may use; it can use none of them here.",
        expected="at least one device",
        next="Unset JAX_PLATFORMS, or install JAX for it: trainproof[cuda12], trainproof[cuda13] or trainproof[tpu].",
    )


def too_few(platform: str, count: int, found: int) -> Problem:
    """Return the problem of asking for more devices than there are."""
    return problem_of(
        "TP702",
        why=None,
        file="mesh.devices",
        what=f"mesh.devices asks for {count} {platform} devices; JAX sees {found}.",
        expected=f"at most {found}",
        next=f"Use --set mesh.devices={found}, or leave it out to use all of them.",
    )


def this_machine(config: Config) -> Target:
    """Return this machine with the devices that a run would take.

    Raises:
        ProblemError: exit code 3; the platform that the configuration asks for is absent, or has fewer devices.
    """
    return as_target(choose_devices(config.mesh.device, config.mesh.devices, config.precision.cpu_isa))


def as_target(devices: Devices) -> Target:
    """Return devices of this machine as a target."""
    alike = find_target(devices.kind, len(devices.list))
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
        element_types=ALL_TYPES if alike is None else alike.element_types,
        host_memory_bytes=psutil.virtual_memory().total,
        disk_bytes=shutil.disk_usage(Path()).free,
        compiler=None if alike is None else alike.compiler,
    )


BFLOAT16_CAPABILITY = 8.0
"""CUDA's compute capability from which on there is bfloat16: A100 (8.0), L4 (8.9) have it, T4 (7.5), P100 (6.0) not."""

ALL_TYPES: tuple[ElementType, ...] = ("float32", "bfloat16", "float16")


def element_types_of(devices: Devices) -> tuple[str, ...] | None:
    """Return the element types of products that devices have, None where nothing is known against any.

    A CPU computes every type in float32, at no loss against float32 itself.
    """
    if devices.platform != "gpu" or not hasattr(devices.list[0], "compute_capability"):
        return None
    return element_types_at(float(devices.list[0].compute_capability))


def element_types_at(capability: float) -> tuple[str, ...]:
    """Return the element types of products at a compute capability: of a T4, 7.5, float32 and float16."""
    return ("float32", "float16", *(("bfloat16",) if capability >= BFLOAT16_CAPABILITY else ()))


def refuse_absent_types(config: Config, *, kind: str, element_types: Collection[str] | None) -> None:
    """Refuse a run in an element type that a device does not have.

    Args:
        config: the run.
        kind: what the device is called.
        element_types: those of products that it has in hardware. None: nothing is refused.

    Raises:
        ProblemError: exit code 3, naming each setting and what to set instead.
    """
    if element_types is None:
        return
    declared = {"params": config.precision.params, "compute": config.precision.compute}
    problems = [
        problem_of(
            "TP730",
            file=kind,
            pointer=f"/precision/{key}",
            what=f"precision.{key} is {value}, which {kind} does not have.",
            expected=join_words(sorted(element_types)),
            next=f"Use --set precision.{key}={instead(key, config, element_types)}.",
        )
        for key, value in declared.items()
        if value not in element_types
    ]
    if problems:
        raise ProblemError(problems, exit_code=REFUSED)


def instead(key: str, config: Config, element_types: Collection[str]) -> ElementType:
    """Return the element type of 16 bits to use, bfloat16 where the device has it; float32 where none can be."""
    if "bfloat16" in element_types:
        return "bfloat16"
    # Parameters that learn need more than float16 has; a frozen model does not.
    fits = key == "compute" or config.method.kind != "full"
    return "float16" if "float16" in element_types and fits else "float32"

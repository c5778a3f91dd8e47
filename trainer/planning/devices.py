"""Which devices a run uses. What was asked for and is absent is refused; nothing falls back in silence."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import jax
import psutil
from jax._src.xla_bridge import backends_are_initialized

from schemas.problems.formats import size
from schemas.problems.problem import Problem, ProblemError
from schemas.problems.rule import Rule, problem_of
from trainer.planning.gpu_memory import give_jax_the_gpu
from trainer.planning.kept_programs import keep_programs
from trainer.recorder.processor import NATIVE, ask_for
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

ABSENT = Rule(
    "TP701",
    "Device absent",
    "The device asked for is not there; nothing falls back in silence.",
    "Use --device auto, or install JAX for the device.",
)
TOO_FEW = Rule("TP702", "Too few devices", "mesh.devices asks for more than there are.", "Lower mesh.devices.")


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
        ask_for(cpu_isa)
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
        for platform in PREFERENCE:
            if devices_of(platform):
                absent = PREFERENCE[: PREFERENCE.index(platform)]
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
        # JAX says the one with a RuntimeError, the other, depending on what JAX_PLATFORMS names, with either.
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
        ABSENT,
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
        ABSENT,
        file="--device",
        what=f"{what}; with JAX_PLATFORMS={os.environ.get('JAX_PLATFORMS', '')} JAX sees none at all.",
        why="JAX_PLATFORMS is the list of platforms that JAX may use; it can use none of them here.",
        expected="at least one device",
        next="Unset JAX_PLATFORMS, or install JAX for it: trainproof[cuda12], trainproof[cuda13] or trainproof[tpu].",
    )


def too_few(platform: str, count: int, found: int) -> Problem:
    """Return the problem of asking for more devices than there are."""
    return problem_of(
        TOO_FEW,
        why=None,
        file="mesh.devices",
        what=f"mesh.devices asks for {count} {platform} devices; JAX sees {found}.",
        expected=f"at most {found}",
        next=f"Use --set mesh.devices={found}, or leave it out to use all of them.",
    )

"""The process that JAX runs in: instruction level, GPU pool, compilation cache, and the devices of a run.

Each command calls `init_runtime` once, before JAX looks for devices. Nothing else here changes the process.
"""

from __future__ import annotations

import os
import platform as machine
import shutil
import subprocess
import time
import warnings
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

import jax
import psutil
from jax._src.xla_bridge import backends_are_initialized

from evidence import layout
from evidence.hashes import sha256_json
from evidence.targets import THIS_MACHINE, Target, find_target
from schemas.formats import join_words, quantity, size
from schemas.problems import Problem, ProblemError, problem_of
from trainer.config.tree import Config, ElementType
from trainer.distributed import exchange, process_count
from trainer.recorder.environment import (
    cache_folder,
    cache_limit_bytes,
    cpu_name,
    installed_versions,
    processor,
    request_level,
    walk_attached,
)

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
"""Memory limit of a container on Linux, in cgroup version 2 and 1."""
PROCESS_BYTES = 450 * 2**20
"""Memory of a process on a CPU in addition to the run's arrays: libraries, tokenizers, rows, and compiled programs."""
CUDA_BYTES = 900 * 2**20
"""Left to CUDA: its context, the kernels of its libraries, and workspace of cuDNN and cuBLAS (0.4 to 0.7 GiB)."""
GPU_FRACTION = "XLA_CLIENT_MEM_FRACTION"
OLDER_GPU_FRACTION = "XLA_PYTHON_CLIENT_MEM_FRACTION"
"""The same under its earlier name; JAX refuses to start if both are set."""
COMPILERS = ("jax", "jaxlib", "flax", "optax", "libtpu", "jax-cuda12-pjrt", "jax-cuda13-pjrt")
"""Packages that decide what a program is compiled to."""
UNUSED_DAYS = 60
"""Compiled programs for another processor or other versions are deleted if unused for this long."""
BFLOAT16_CAPABILITY = 8.0
"""First CUDA compute capability with bfloat16: A100 (8.0) and L4 (8.9) have it, T4 (7.5) and P100 (6.0) do not."""
ALL_TYPES: tuple[ElementType, ...] = ("float32", "bfloat16", "float16")


def init_runtime(config: Config) -> None:
    """Prepare this process for JAX: CPU instruction level, share of the GPU memory, and compilation cache.

    Settings that are already in the environment win. Nothing changes after JAX has started, except the cache.
    """
    if not backends_are_initialized():
        request_level(config.precision.cpu_isa)
        if config.mesh.device in ("auto", "gpu"):
            reserve_gpu_memory()
    use_compilation_cache()


def reserve_gpu_memory() -> None:
    """Let JAX use a GPU's memory except `CUDA_BYTES`, instead of its default of 75 %.

    The fraction is computed for the smallest GPU and limited to 0.5 to 0.98: for a T4 with 15,360 MiB it is
    1 - 900 / 15,360 = 0.941. It is recorded with the environment variables, and the device reports it as its limit.
    """
    platforms = os.environ.get("JAX_PLATFORMS") or "gpu"
    is_set = GPU_FRACTION in os.environ or OLDER_GPU_FRACTION in os.environ
    if is_set or not any(name in platforms for name in ("cuda", "gpu")):
        return
    command = ["nvidia-smi", "--query-gpu=memory.total", "--format=csv,noheader,nounits"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return
    if totals := [int(line) << 20 for line in answer.split() if line.isdecimal()]:
        os.environ[GPU_FRACTION] = f"{min(max(1 - CUDA_BYTES / min(totals), 0.5), 0.98):.3f}"


def use_compilation_cache(room: Path | None = None) -> list[str]:
    """Set up JAX's compilation cache in a folder for this processor and these versions, which JAX's own key omits.

    `JAX_COMPILATION_CACHE_DIR` and a size limit of 0 leave the cache as it is. Folders of other processors and versions
    are deleted if unused for `UNUSED_DAYS`. Compiled programs of attached folders are copied into a `room`, which is
    saved with a session, instead of the user's cache folder; a line about each is returned.
    """
    limit = cache_limit_bytes()
    if jax.config.values["jax_compilation_cache_dir"] or not limit:
        return []
    own = (room or cache_folder() / "programs") / machine_key()
    try:
        own.mkdir(parents=True, exist_ok=True)
        os.utime(own)
        for other in own.parent.iterdir():
            if other.stat().st_mtime < time.time() - UNUSED_DAYS * 86400:
                shutil.rmtree(other, ignore_errors=True)
        # JAX can evict nothing if an entry lacks its time of use, as after a kill.
        for entry in own.glob("*-cache"):
            if not _time_of_use(entry).is_file():
                entry.unlink(missing_ok=True)
        said = [] if room is None else list(copy_attached_programs(own))
    except OSError:
        return []  # a read-only folder
    # JAX compiles again what it cannot read.
    warnings.filterwarnings("ignore", message="Error (reading|writing) persistent compilation cache entry")
    jax.config.update("jax_compilation_cache_dir", str(own))
    jax.config.update("jax_compilation_cache_max_size", limit)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    return said


def _time_of_use(entry: Path) -> Path:
    return entry.with_name(entry.name.removesuffix("-cache") + "-atime")


def copy_attached_programs(own: Path) -> Iterator[str]:
    """Copy compiled programs of attached folders that are missing in `own`; yield a line about each folder."""
    for found, folders, files in walk_attached():
        for attached in [found / name for name in folders] if found.name == layout.PROGRAMS else []:
            if attached.name != own.name:
                yield f"ignored {attached}: compiled for another processor or other versions"
                continue
            entries = [entry for entry in sorted(attached.glob("*-cache")) if _time_of_use(entry).is_file()]
            missing = [entry for entry in entries if not (own / entry.name).is_file()]
            for path in (each for entry in missing for each in (_time_of_use(entry), entry)):
                shutil.copyfile(path, own / path.name)
            yield f"copied {quantity(len(missing), 'compiled program')} from {attached}"
        if found.name == layout.PROGRAMS or layout.MANIFEST in files:
            folders.clear()


def machine_key() -> str:
    """Return a name for this processor and the versions that compile for it."""
    return sha256_json([machine.machine(), cpu_name(), processor(), versions()])[:16]


@cache
def versions() -> dict[str, str]:
    """Return the versions of the installed packages that compile programs."""
    return installed_versions(COMPILERS)


@dataclass(frozen=True, kw_only=True)
class Devices:
    """The devices of a run, as JAX reports them."""

    requested: str
    platform: Platform
    kind: str
    chosen_because: str
    memory_bytes: int | None
    """Usable memory of each device, or None if the device does not report it."""
    memory_source: str
    list: tuple[Any, ...]
    """The `jax.Device` objects."""

    @property
    def local(self) -> tuple[Any, ...]:
        """The devices of this process."""
        return tuple(device for device in self.list if device.process_index == jax.process_index())

    def document(self) -> dict[str, Any]:
        """Return the manifest's group `devices`."""
        names = ("requested", "platform", "kind", "memory_bytes", "chosen_because")
        devices = [{"id": device.id, "kind": device.device_kind} for device in self.list]
        counts = {"count": len(self.list)} | ({"processes": process_count()} if process_count() > 1 else {})
        return {name: getattr(self, name) for name in names} | counts | {"list": devices}


def choose_devices(requested: str, count: int | None) -> Devices:
    """Choose devices for `--device` (auto takes a TPU, then a GPU, then the CPU) and `mesh.devices` (None takes all).

    Raises `ProblemError` with exit code 3 if the platform is absent or has fewer devices.
    """
    platform, because = _choose_platform(requested)
    found = list_devices(platform)
    # A process without devices would do nothing.
    if count is not None and (count > len(found) or (process_count() > 1 and count < len(found))):
        raise ProblemError([too_few_devices(count, len(found), f"JAX sees {len(found)}")], exit_code=REFUSED)
    used = tuple(found[:count])
    here = [device for device in used if device.process_index == jax.process_index()]
    memory_bytes, source = usable_memory(here[0], platform, sharing=len(here))
    memory_bytes = min(exchange(memory_bytes or 0)) or None
    return Devices(
        requested=requested,
        platform=platform,
        kind=used[0].device_kind,
        chosen_because=because,
        memory_bytes=memory_bytes,
        memory_source=source,
        list=used,
    )


def _choose_platform(requested: str) -> tuple[Platform, str]:
    """Return the platform and why it was chosen."""
    present = [platform for platform in PREFERENCE if list_devices(platform)]
    if requested == "auto" and present:
        absent = PREFERENCE[: PREFERENCE.index(present[0])]
        return present[0], f"auto: no {' and no '.join(absent)} found" if absent else "auto: the fastest kind found"
    for platform in present:
        if platform == requested:
            return platform, f"requested with --device {requested}"
    device = "device" if requested == "auto" else f"{requested} device"
    if present:
        seen, why, then = f"JAX sees only: {', '.join(sorted(present))}.", None, ADVICE[requested]
    else:
        seen = f"with JAX_PLATFORMS={os.environ.get('JAX_PLATFORMS', '')} JAX sees none at all."
        why = "JAX_PLATFORMS lists the platforms that JAX may use, and none of them is available."
        then = "Unset JAX_PLATFORMS, or install JAX for it: trainproof[cuda12], trainproof[cuda13] or trainproof[tpu]."
    what, expected = f"No {device} was found; {seen}", f"at least one {device}"
    problem = problem_of("TP701", file="--device", what=what, why=why, expected=expected, next=then)
    raise ProblemError([problem], exit_code=REFUSED)


def list_devices(platform: str) -> list[Any]:
    """Return the devices of a platform, or nothing if JAX lacks its backend."""
    try:
        return list(jax.devices(platform))
    except (RuntimeError, AssertionError):
        return []


def too_few_devices(count: int, found: int, there: str) -> Problem:
    """Return the problem of a `mesh.devices` above the number of devices."""
    what, then = f"mesh.devices is {count}, but {there}.", f"Use --set mesh.devices={found}, or omit it to use all."
    return problem_of("TP702", file="mesh.devices", what=what, why=None, expected=f"at most {found}", next=then)


def usable_memory(device: Any, platform: str, *, sharing: int) -> tuple[int | None, str]:
    """Return the usable bytes of one device and their source; CPU devices share the free memory equally."""
    if platform != "cpu":
        limit = (device.memory_stats() or {}).get("bytes_limit")
        return (int(limit), "limit reported by the device") if limit else (None, "the device reports no limit")
    free, source = psutil.virtual_memory().available, "free main memory"
    used = psutil.Process().memory_info().rss
    for file in CGROUP_LIMITS:
        stated = file.read_text().strip() if file.is_file() else "max"
        if stated.isdigit() and int(stated) - used < free:
            free, source = int(stated) - used, f"the container's limit ({file})"
            break
    return max(free - PROCESS_BYTES, 0) // sharing, f"{source}; less {size(PROCESS_BYTES)} for the process itself"


def this_machine(config: Config) -> Target:
    """Return this machine as a target, with the devices that a run would use; see `choose_devices`."""
    return target_from(choose_devices(config.mesh.device, config.mesh.devices))


def target_from(devices: Devices) -> Target:
    """Return devices of this machine as a target, with the speeds of the table."""
    alike = find_target(devices.kind, len(devices.list))
    element_types = supported_types(devices) or (ALL_TYPES if alike is None else alike.element_types)
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
        element_types=element_types,
        host_memory_bytes=psutil.virtual_memory().total,
        disk_bytes=shutil.disk_usage(Path()).free,
        compiler=None if alike is None else alike.compiler,
    )


def available_bytes(target: Target) -> int | None:
    """Return the memory of one device that a run may use: a GPU of the table loses CUDA's share."""
    if target.memory_bytes is None or target.platform != "gpu" or target.name == THIS_MACHINE:
        return target.memory_bytes
    return target.memory_bytes - CUDA_BYTES


def supported_types(devices: Devices) -> tuple[ElementType, ...] | None:
    """Return the element types of products that GPUs support, or None for other devices."""
    if devices.platform != "gpu" or not hasattr(devices.list[0], "compute_capability"):
        return None
    has_bfloat16 = float(devices.list[0].compute_capability) >= BFLOAT16_CAPABILITY
    return ("float32", "float16", "bfloat16") if has_bfloat16 else ("float32", "float16")


def refuse_absent_types(config: Config, *, kind: str, element_types: Collection[str] | None) -> None:
    """Refuse element types that a device named `kind` does not support (exit code 3); None supports all."""
    problems = []
    for key in ("params", "compute"):
        value = getattr(config.precision, key)
        if element_types is not None and value not in element_types:
            what, at = f"precision.{key} is {value}, which {kind} does not have.", f"/precision/{key}"
            then = f"Use --set precision.{key}={half_type(key, config, element_types)}."
            expected = join_words(sorted(element_types))
            problems.append(problem_of("TP730", file=kind, pointer=at, what=what, expected=expected, next=then))
    if problems:
        raise ProblemError(problems, exit_code=REFUSED)


def half_type(key: str, config: Config, element_types: Collection[str]) -> ElementType:
    """Return the 16-bit type for a setting: bfloat16 if supported, or float32 if neither type can be used."""
    if "bfloat16" in element_types:
        return "bfloat16"
    # Trained parameters need more precision than float16 has; frozen ones do not.
    fits = key == "compute" or config.method.kind != "full"
    return "float16" if "float16" in element_types and fits else "float32"

"""Plans of `trainproof plan`, kept on disk, so that the same plan is found at once."""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import evidence.rules
from evidence.hashes import sha256_json
from evidence.targets import THIS_MACHINE, Target, load_target, targets
from schemas.catalog import VERSION
from trainer.config.load import load_config
from trainer.config.tree import Config, document_of
from trainer.planning.compile.cache import keep, kept, source_digest, versions


@dataclass(frozen=True, kw_only=True)
class PlanFlags:
    """The flags of `plan`, as they were given."""

    config: Path
    on: str | None = None
    device: str | None = None
    settings: Sequence[str] = ()
    where: bool = False
    exact: bool = False
    quick: bool = False
    advice: bool = True
    grid: bool = False
    max_batch: bool = False
    hours: float | None = None
    """Of training, as a user stated them."""


def answer_of(flags: PlanFlags) -> dict[str, Any]:
    """Return the plan that is requested, or one configuration on every target.

    Raises:
        ProblemError: exit code 2: an unknown target, a configuration that cannot be built; 3: absent devices.
    """
    config = load_config(flags.config, flags={"mesh.device": flags.device}, settings=flags.settings)
    if flags.where:
        return where(config, flags)
    if flags.on is None or flags.on == THIS_MACHINE:
        from trainer.planning.devices import this_machine
        from trainer.planning.rehearsing import rehearsed_here

        config = rehearsed_here(config, device_is_stated=flags.device is not None)
        return with_headroom(cached_here(config, this_machine(config), flags), config)
    target = load_target(flags.on)
    if config.model.shape == "auto":  # to decide it takes JAX, which a kept plan is shown without
        from trainer.planning.rehearsing import rehearsed

        config = rehearsed(config, target)
    return with_headroom(cached_plan(config, target, flags), config)


def with_headroom(plan: dict[str, Any], config: Config) -> dict[str, Any]:
    """Return a plan with what is known now of what a model has to gain from rewards; it is not kept with the plan."""
    if config.objective.kind != "grpo":
        return plan
    from trainer.planning.plan import finding
    from trainproof.orders.headroom import headroom_findings

    found = headroom_findings(config, plan, Path("submission_runs"))
    return plan | {"findings": [*plan["findings"], *map(finding, found)]}


def plan_of(config: Path, *, device: str | None, settings: Sequence[str]) -> dict[str, Any]:
    """Return the plan of a configuration on this machine."""
    return answer_of(PlanFlags(config=config, device=device, settings=settings))


def cached_plan(config: Config, target: Target, flags: PlanFlags) -> dict[str, Any]:
    """Return the plan for a target of the table: the one kept of the same question, else made now.

    Where every program was compiled whole before (`--exact`), that answer is the one.
    """
    exact = replace(flags, exact=not flags.quick)
    for asked in dict.fromkeys((key_of(config, target, exact), key := key_of(config, target, flags))):
        if (known := kept(f"answer-{asked}")) is not None:
            return known
    plan = make_plan(config, target, flags)
    keep(f"answer-{key}", plan)
    return plan


def cached_here(config: Config, target: Target, flags: PlanFlags) -> dict[str, Any]:
    """Return the plan for this machine: the one kept of the same question, compared with the memory that is free now.

    It is made anew where that changes a verdict, and where what it advises follows from the memory.
    """
    anytime = replace(target, memory_bytes=None, memory_source="", disk_bytes=None)
    asked = question(config, anytime, flags) | {"here": repr(anytime), "processors": os.cpu_count()}
    asked |= {"xla_flags": os.environ.get("XLA_FLAGS", "")}
    key = hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()
    if (known := kept(f"answer-{key}")) is not None and (renewed := with_memory_of_now(known, target)) is not None:
        return renewed
    plan = make_plan(config, target, flags)
    if not flags.grid and not flags.max_batch:
        keep(f"answer-{key}", plan)
    return plan


def with_memory_of_now(plan: dict[str, Any], target: Target) -> dict[str, Any] | None:
    """Return a plan that was kept under the memory and the disk that are free now, None where it must be made anew."""
    from trainer.planning.gpu_memory import available_bytes
    from trainer.planning.program_memory import verdict

    available, free = available_bytes(target), target.disk_bytes or 0
    programs = [each | {"available_bytes": available} for each in plan["programs"]]
    now = [verdict(each["peak_bytes"], available, each["error_fraction"], each["method"]) for each in programs]
    if plan["advice"] or now != [each["verdict"] for each in programs] or plan["disk"]["need_bytes"] > free:
        return None
    machine = plan["target"] | {"memory_bytes": available, "memory_source": target.memory_source}
    disk = plan["disk"] | {"available_bytes": target.disk_bytes}
    return plan | {"available_bytes": available, "programs": programs, "target": machine, "disk": disk}


def make_plan(config: Config, target: Target, flags: PlanFlags) -> dict[str, Any]:
    """Return the plan, made now."""
    from trainer.planning.plan import PlanOptions, plan_for

    wish = PlanOptions(
        exact=flags.exact,
        quick=flags.quick,
        advice=flags.advice,
        max_batch=flags.max_batch,
        grid=flags.grid,
        brief=flags.where and not flags.exact,
        hours_stated=flags.hours,
        say=lambda line: say(f"{target.name}: {line}"),
    )
    return plan_for(config, target, wish)


def say(line: str) -> None:
    """Tell how far the plan is."""
    sys.stderr.write(line + "\n")
    sys.stderr.flush()


def key_of(config: Config, target: Target, flags: PlanFlags) -> str:
    """Return what a kept plan is found by."""
    return hashlib.sha256(json.dumps(question(config, target, flags), sort_keys=True).encode()).hexdigest()


def question(config: Config, target: Target, flags: PlanFlags) -> dict[str, Any]:
    """Return everything that decides a plan: configuration, files it names, target, measured runs, versions, source."""
    from trainer.planning.calibration import measured_on

    return {
        "config": document_of(config),
        # A name is expanded as it stands where the user has no home.
        "files": [stamp for name in named_files(config) for stamp in stamps(Path(os.path.expanduser(name)))],  # noqa: PTH111
        "target": dict(target.document),
        "flags": [flags.where, flags.exact, flags.quick, flags.advice, flags.grid, flags.max_batch, flags.hours],
        "measured": [each.document() for each in measured_on(target.platform, target.device_kinds)],
        "versions": versions(),
        "source": source_digest(evidence.rules),
    }


def named_files(config: Config) -> list[str]:
    """Return what a configuration names that may be a file or a folder."""
    return [name for name in (config.model.name, config.data.dataset, config.evaluation.eval_set) if name]


def stamps(path: Path) -> list[list[Any]]:
    """Return path, size and time of a file, or of the files of a folder; none where there is nothing."""
    found = sorted(path.iterdir()) if path.is_dir() else [path]
    return [[str(each), each.stat().st_size, each.stat().st_mtime_ns] for each in found if each.is_file()]


def where(config: Config, flags: PlanFlags) -> dict[str, Any]:
    """Return one configuration on every target of the table, side by side."""
    return {
        "schema_version": VERSION,
        "config_sha256": sha256_json(document_of(config)),
        "where": [row(name, config, flags) for name in targets()],
    }


def row(name: str, config: Config, flags: PlanFlags) -> dict[str, Any]:
    """Return what `--where` states of one target; a run that requests more devices than there are is unsupported."""
    target = targets()[name]
    anywhere = replace(config, mesh=replace(config.mesh, devices=None))
    plan = cached_plan(anywhere, target, replace(flags, advice=False, grid=False, max_batch=False))
    programs = plan["programs"]
    time = plan["time"]
    dearest = max(programs, key=lambda each: each["peak_bytes"]) if programs else None
    return {
        "target": name,
        "title": target.title,
        "devices": plan["target"]["devices"],
        "verdict": plan["verdict"],
        "need_bytes": plan["need_bytes"] if programs else None,
        "available_bytes": plan["available_bytes"],
        "error_fraction": plan["error_fraction"],
        "method": plan["method"],
        "because": dearest["because"] if dearest else plan["findings"][0]["what"],
        "program": dearest["name"] if dearest else None,
        "hours": time["hours"] if time else None,
        "tokens": time["tokens"] * config.limits.steps if time else None,
        "session_fraction": time["session_fraction"] if time else None,
        "week_fraction": time["week_fraction"] if time else None,
        "sessions": time["sessions"] if time else None,
    }

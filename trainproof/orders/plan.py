"""`trainproof plan`: plan a configuration on this machine, on a target, or on every target."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from evidence.hashes import sha256_json
from evidence.targets import THIS_MACHINE, Target, load_target, targets
from schemas.catalog import VERSION
from trainer.config.load import load_config
from trainer.config.tree import Config, document_of


@dataclass(frozen=True, kw_only=True)
class PlanFlags:
    """Flags of `plan`.

    Attributes:
        hours: Training time that the user states.
        calibrate: Measured runs, or folders of them, that narrow the time of a step.
    """

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
    calibrate: Sequence[Path] = ()


def answer_of(flags: PlanFlags) -> dict[str, Any]:
    """Return a plan, or one row for each target.

    Raises:
        ProblemError: exit code 2: an unknown target, a configuration that cannot be built; 3: absent devices.
    """
    from trainer.planning.smoke_shape import resolve_shape, resolve_shape_here
    from trainer.runtime import init_runtime, this_machine

    config = load_config(flags.config, flags={"mesh.device": flags.device}, settings=flags.settings)
    if flags.where:
        return where(config, flags)
    if flags.on is None or flags.on == THIS_MACHINE:
        init_runtime(config)
        config = resolve_shape_here(config, device_is_stated=flags.device is not None)
        target = this_machine(config)
    else:
        target = load_target(flags.on)
        config = resolve_shape(config, target)
    return make_plan(config, target, flags)


def plan_of(config: Path, *, device: str | None, settings: Sequence[str]) -> dict[str, Any]:
    """Return the plan of a configuration on this machine."""
    return answer_of(PlanFlags(config=config, device=device, settings=settings))


def make_plan(config: Config, target: Target, flags: PlanFlags) -> dict[str, Any]:
    """Plan a configuration for a target."""
    from trainer.planning.plan import PlanOptions, plan_config
    from trainproof.orders.calibrate import step_ratio

    options = PlanOptions(
        exact=flags.exact,
        quick=flags.quick,
        advice=flags.advice,
        max_batch=flags.max_batch,
        grid=flags.grid,
        hours_stated=flags.hours,
        step_ratio=step_ratio(flags.calibrate, target) if flags.calibrate else None,
        say=lambda line: say(f"{target.name}: {line}"),
    )
    return plan_config(config, target, options)


def say(line: str) -> None:
    """Show progress."""
    sys.stderr.write(line + "\n")
    sys.stderr.flush()


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
    plan = make_plan(anywhere, target, replace(flags, advice=False, grid=False, max_batch=False, calibrate=()))
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

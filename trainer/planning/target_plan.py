"""The plan of a configuration for a machine of the table: `plan.json`, before there is a run and without its device."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from evidence.run.hashes import sha256_json
from evidence.targets.target import Target
from schemas.catalog import VERSION
from schemas.problems.problem import Gathering, Problem
from schemas.problems.render import as_text
from trainer.config.tree import Config, document_of
from trainer.planning.advice import advice, deciding
from trainer.planning.ask import Asking, no_compiler
from trainer.planning.calibration import measured_on, narrowed_answers
from trainer.planning.changes import Change, changes_of
from trainer.planning.compile.ahead import Compiler
from trainer.planning.compile.machines import machine_of
from trainer.planning.devices import PROCESS_BYTES
from trainer.planning.element_types import refuse_absent_types
from trainer.planning.gpu_memory import CUDA_BYTES, available_bytes
from trainer.planning.program_answer import ProgramAnswer, parts_document
from trainer.planning.sizes import grid, largest_microbatch
from trainer.planning.spending import spending_of
from trainer.planning.subject import Subject, devices_used, subject_of
from trainer.planning.verdict import worst
from trainer.recorder.recorder import now


@dataclass(frozen=True, kw_only=True)
class Wish:
    """What somebody wants to know."""

    exact: bool = False
    """Compile every program whole."""
    quick: bool = False
    """Compile nothing."""
    advice: bool = True
    max_batch: bool = False
    grid: bool = False
    brief: bool = False
    """Ask the compiler only where a sum is not sure."""
    hours_stated: float | None = None
    """What somebody says that training takes, to be held against the plan."""
    limit_seconds: float = 600.0
    say: Callable[[str], None] = lambda line: None


def plan_for(config: Config, target: Target, wish: Wish) -> dict[str, Any]:
    """Return the plan of a configuration for a target, as `plan.json` has it.

    Raises:
        ProblemError: exit code 2 or 3; the configuration cannot be built, or asks for more devices than there are.
    """
    if absent := absent_types(config, target):
        return unsupported(config, target, absent)
    subject = subject_of(config, target, say=wish.say)
    if subject.warnings:
        sys.stderr.write(as_text(subject.warnings))
    with asking_for(target, subject, wish) as asking:
        measured = measured_on(target.platform, target.device_kinds)
        programs = narrowed_answers(asking.programs(subject.task, subject.asked), measured)
        plan = document(subject, target, programs)
        spent = spending_of(
            subject, target, programs, file=config.name, measured=measured, hours_stated=wish.hours_stated
        )
        plan |= {"time": spent.time, "disk": spent.disk, "host": spent.host}
        plan["findings"] = [finding(each) for each in (*subject.seen, *spent.findings)]
        if wish.advice and plan["verdict"] in ("does_not_fit", "tight"):
            could = partial(computable_changes, target)
            sets = advice(subject, asking, need_bytes=plan["need_bytes"], say=wish.say, changes=could)
            plan["advice"] = [each.document(plan["need_bytes"]) for each in sets]
            plan["changes"] = [single(each, plan) for each in plan["advice"] if len(each["set"]) == 1]
        if wish.max_batch:
            plan["max_batch"] = largest_microbatch(subject, asking, programs=programs, say=wish.say)
        if wish.grid:
            plan["grid"] = grid(subject, asking, say=wish.say)
    return plan


@contextmanager
def asking_for(target: Target, subject: Subject, wish: Wish) -> Iterator[Asking]:
    """Yield whom to ask about programs on a target; a compiler's process ends with the block."""
    machine = None if wish.quick else machine_of(target, devices=subject.task.mesh.size)
    why_not = "only formulas were asked for" if wish.quick else no_compiler(target.platform)
    plain = Asking(
        platform=target.platform,
        available_bytes=available_bytes(target),
        exact=wish.exact,
        limit_seconds=wish.limit_seconds,
        say=wish.say,
        why_not=why_not,
        longest=subject.longest,
    )
    plain = plain.brief() if wish.brief else plain
    if machine is None:
        yield plain
        return
    with Compiler() as compiler:
        yield replace(plain, machine=machine, compiler=compiler)


def document(subject: Subject, target: Target, programs: list[ProgramAnswer]) -> dict[str, Any]:
    """Return what plan.json says of memory."""
    decides = deciding(programs)
    return {
        **head(subject.task.config, target, devices=subject.task.mesh.size),
        "method": decides.way,
        "verdict": worst(program.verdict for program in programs),
        "need_bytes": decides.peak_bytes,
        "available_bytes": decides.available_bytes,
        "error_fraction": decides.error_fraction,
        "parts": parts_document(decides.parts),
        "changes": [],
        "forced": False,
        "programs": [program.document() for program in programs],
        "advice": [],
    }


def head(config: Config, target: Target, *, devices: int) -> dict[str, Any]:
    """Return what plan.json says of itself and of the target."""
    source = target.memory_source
    if target.platform == "gpu":
        source = f"{source}; less {CUDA_BYTES // 2**20} MiB for CUDA"
    return {
        "schema_version": VERSION,
        "made_at": now(),
        "config_sha256": sha256_json(document_of(config)),
        "target": {
            "name": target.kind,
            "title": target.title,
            "table_name": target.name,
            "platform": target.platform,
            "devices": devices,
            "memory_bytes": available_bytes(target),
            "memory_source": source,
            "process_bytes": PROCESS_BYTES if target.platform == "cpu" else None,
        },
    }


def unsupported(config: Config, target: Target, absent: list[Problem]) -> dict[str, Any]:
    """Return the plan of what the target does not compute: nothing else is said of it."""
    return {
        **head(config, target, devices=devices_used(config, target)),
        "method": "closed_form",
        "verdict": "unsupported",
        "need_bytes": 0,
        "available_bytes": available_bytes(target),
        "error_fraction": 0.0,
        "parts": [{"name": "nothing", "bytes": 0, "because": absent[0].what}],
        "changes": [],
        "forced": False,
        "programs": [],
        "time": None,
        "disk": None,
        "host": None,
        "advice": [],
        "findings": [finding(each) for each in absent],
    }


def computable_changes(target: Target, config: Config) -> list[Change]:
    """Return the changes of a configuration after which the target computes all that is asked of it."""
    changes = changes_of(config, target.element_types)
    return [change for change in changes if not absent_types(change.config, target)]


def absent_types(config: Config, target: Target) -> list[Problem]:
    """Return the problems of element types that the target does not compute."""
    problems: list[Problem] = []
    with Gathering(problems):
        refuse_absent_types(config, kind=target.name, element_types=target.element_types)
    return problems


def finding(problem: Problem) -> dict[str, Any]:
    """Return a problem as plan.json has it."""
    return {
        "code": problem.code,
        "severity": problem.severity,
        "what": problem.what,
        "why": problem.why,
        "next": problem.next,
    }


def single(advised: dict[str, Any], plan: dict[str, Any]) -> dict[str, Any]:
    """Return an advised set of one setting as the older key `changes` has it."""
    saves = max(advised["frees_bytes"], 0)
    need, error = plan["need_bytes"] - saves, plan["error_fraction"]
    fits = plan["available_bytes"] is not None and need * (1 + error) <= plan["available_bytes"]
    return {"set": advised["set"][0], "saves_bytes": saves, "fits": fits}

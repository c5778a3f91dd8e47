"""The story of a plan: machine, programs' memory, time, findings, advice, and `plan.json` of them.

Nothing is spent: shapes alone are looked at, and the machine need not be here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from evidence.hashes import sha256_json
from evidence.targets import Target
from schemas.catalog import VERSION
from schemas.problems import Problem, collect_problems
from trainer.config.tree import Config, document_of
from trainer.planning.advice import advice, deciding
from trainer.planning.calibration import measured_on, narrowed_answers
from trainer.planning.changes import Change, changes_of
from trainer.planning.compile.ahead import Compiler
from trainer.planning.compile.machines import machine_of
from trainer.planning.devices import PROCESS_BYTES, refuse_absent_types
from trainer.planning.estimator import Estimator, no_compiler
from trainer.planning.gpu_memory import CUDA_BYTES, available_bytes
from trainer.planning.program_memory import ProgramMemory, parts_document, worst
from trainer.planning.sizes import grid, largest_microbatch
from trainer.planning.spending import spending_of
from trainer.planning.subject import Subject, devices_used, subject_of
from trainer.recorder.recorder import now


@dataclass(frozen=True, kw_only=True)
class PlanOptions:
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


def plan_for(config: Config, target: Target, wish: PlanOptions) -> dict[str, Any]:
    """Return the plan of a configuration for a target, as `plan.json` has it.

    Raises:
        ProblemError: exit code 2 or 3; the configuration cannot be built, or asks for more devices than there are.
    """
    if absent := absent_types(config, target):
        return unsupported(config, target, absent)
    subject = subject_of(config, target, say=wish.say)
    with asking_for(target, subject, wish) as asking:
        measured = measured_on(target.platform, target.device_kinds)
        programs = narrowed_answers(asking.programs(subject.task, subject.asked), measured)
        machine = machine_document(target, devices=subject.task.mesh.size)
        plan = plan_document(config, machine, programs, available_bytes=available_bytes(target)) | {"advice": []}
        spent = spending_of(
            subject, target, programs, file=config.name, measured=measured, hours_stated=wish.hours_stated
        )
        plan |= {"time": spent.time, "disk": spent.disk, "host": spent.host}
        plan["findings"] = [finding(each) for each in (*subject.seen, *subject.warnings, *spent.findings)]
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
def asking_for(target: Target, subject: Subject, wish: PlanOptions) -> Iterator[Estimator]:
    """Yield whom to ask about programs on a target; a compiler's process ends with the block."""
    machine = None if wish.quick else machine_of(target, devices=subject.task.mesh.size)
    why_not = "only formulas were asked for" if wish.quick else no_compiler(target.platform)
    plain = Estimator(
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


def plan_document(
    config: Config,
    machine: dict[str, Any],
    programs: Sequence[ProgramMemory],
    *,
    available_bytes: int | None,
    changes: Sequence[dict[str, Any]] = (),
    forced: bool = False,
) -> dict[str, Any]:
    """Return what plan.json says of itself, the machine and its memory: of a target, or of a run on its own devices.

    Args:
        config: the run.
        machine: the group `target`.
        programs: what each of its programs needs.
        available_bytes: of each device. None: the device does not report it.
        changes: single settings that save memory.
        forced: whether `--force` was given.
    """
    decides = deciding(programs)
    return {
        "schema_version": VERSION,
        "made_at": now(),
        "config_sha256": sha256_json(document_of(config)),
        "target": machine,
        "method": decides.way,
        "verdict": worst(program.verdict for program in programs),
        "need_bytes": decides.peak_bytes,
        "available_bytes": available_bytes,
        "error_fraction": decides.error_fraction,
        "parts": parts_document(decides.parts),
        "changes": list(changes),
        "forced": forced,
        "programs": [program.document() for program in programs],
    }


def machine_document(target: Target, *, devices: int) -> dict[str, Any]:
    """Return the group `target` of plan.json for so many devices of a target."""
    source = target.memory_source
    if target.platform == "gpu":
        source = f"{source}; less {CUDA_BYTES // 2**20} MiB for CUDA"
    return {
        "name": target.kind,
        "title": target.title,
        "table_name": target.name,
        "platform": target.platform,
        "devices": devices,
        "memory_bytes": available_bytes(target),
        "memory_source": source,
        "process_bytes": PROCESS_BYTES if target.platform == "cpu" else None,
    }


def unsupported(config: Config, target: Target, absent: list[Problem]) -> dict[str, Any]:
    """Return the plan of what the target does not compute: nothing else is said of it."""
    return {
        "schema_version": VERSION,
        "made_at": now(),
        "config_sha256": sha256_json(document_of(config)),
        "target": machine_document(target, devices=devices_used(config, target)),
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
    with collect_problems(problems):
        refuse_absent_types(config, kind=target.name, element_types=target.element_types)
    return problems


def finding(problem: Problem) -> dict[str, Any]:
    """Return a problem as plan.json has it; one of a row states where that stands."""
    place = f"{problem.file} (line {problem.line}): " if problem.line else ""
    return {
        "code": problem.code,
        "severity": problem.severity,
        "what": place + problem.what,
        "why": problem.why,
        "next": problem.next,
    }


def single(advised: dict[str, Any], plan: dict[str, Any]) -> dict[str, Any]:
    """Return an advised set of one setting as the older key `changes` has it."""
    saves = max(advised["frees_bytes"], 0)
    need, error = plan["need_bytes"] - saves, plan["error_fraction"]
    fits = plan["available_bytes"] is not None and need * (1 + error) <= plan["available_bytes"]
    return {"set": advised["set"][0], "saves_bytes": saves, "fits": fits}

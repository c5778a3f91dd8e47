"""Plan a run on a target: memory of its programs, time, findings, and changes, as in `plan.json`.

`plan_config` plans a configuration for any target from shapes alone. `compiled_plan` plans a run on its own devices
from the programs that it will call, before weights are read or a folder is made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import jax

from evidence import layout
from evidence.hashes import sha256_json
from evidence.targets import Target
from schemas.catalog import VERSION
from schemas.formats import size
from schemas.problems import Problem, ProblemError, collect_problems, first_line, problem_of
from trainer.config.tree import Config, to_document
from trainer.loop.chain import describe_saved_artifacts
from trainer.loop.checkpoints import max_checkpoints
from trainer.loop.checkpoints import state_bytes as state_bytes_of
from trainer.loop.programs import RunPrograms, compiled_run
from trainer.loop.session import SessionLimit
from trainer.loop.state import state_shapes
from trainer.loop.task import Task
from trainer.objectives.data import Data
from trainer.planning.changes import Change, advise, grid, largest_microbatch, list_changes
from trainer.planning.compile.ahead import LIMIT_SECONDS
from trainer.planning.compile.machines import find_machine, missing_compiler
from trainer.planning.duration import CompileTime, Work, compiled_work, predict_step, session_parts, time_document
from trainer.planning.findings import PlannedRun, findings
from trainer.planning.formula import plain_bytes
from trainer.planning.memory import (
    FAR_ABOVE,
    Estimator,
    deciding,
    limit_bytes,
    parts_document,
    remat_candidates,
    weights_kept_bytes,
    worst,
)
from trainer.planning.out_of_memory import parse
from trainer.planning.subject import Subject, devices_used, read_subject, summarize_data
from trainer.planning.words import advice, does_not_fit, in_words
from trainer.recorder.recorder import FAILED, Recorder, is_out_of_memory, now
from trainer.runtime import (
    CUDA_BYTES,
    PROCESS_BYTES,
    REFUSED,
    Devices,
    available_bytes,
    refuse_absent_types,
    target_from,
)


@dataclass(frozen=True, kw_only=True)
class PlanOptions:
    """Options of a plan.

    Attributes:
        exact: Compile programs far from the limit too.
        quick: Compile nothing.
        advice: Plan changes if the run may not fit.
        hours_stated: Training time that the user states, to be checked.
        step_ratio: Measured over predicted step time (`calibration.py`).
        say: Called with lines about progress.
    """

    exact: bool = False
    quick: bool = False
    advice: bool = True
    max_batch: bool = False
    grid: bool = False
    hours_stated: float | None = None
    step_ratio: float | None = None
    limit_seconds: float = LIMIT_SECONDS
    say: Callable[[str], None] = lambda line: None


def plan_config(config: Config, target: Target, options: PlanOptions) -> dict[str, Any]:
    """Plan a configuration for a target.

    Raises:
        ProblemError: Exit code 2; the configuration cannot be built. Exit code 3; there are too few devices.
    """
    if absent := _absent_types(config, target):
        because = {"name": "nothing", "bytes": 0, "because": absent[0].what}
        document = _document(config, target, devices=devices_used(config, target))
        return document | {"parts": [because], "findings": [finding(problem) for problem in absent]}
    subject = read_subject(config, target, say=options.say)
    estimator = Estimator(
        platform=target.platform,
        available_bytes=limit_bytes(subject.task, target),
        machine=None if options.quick else find_machine(target, devices=subject.task.mesh.size),
        exact=options.exact,
        limit_seconds=options.limit_seconds,
        say=options.say,
        why_not="only formulas were requested" if options.quick else missing_compiler(target.platform),
        longest=subject.longest,
    )
    return plan(replace(subject, task=estimator.resolve_remat(subject.task)), target, estimator, options)


def plan(
    subject: Subject,
    target: Target,
    estimator: Estimator,
    options: PlanOptions,
    *,
    forced: bool = False,
    work: Work | None = None,
    compile_time: CompileTime | None = None,
) -> dict[str, Any]:
    """Return the plan of a run.

    Args:
        subject: The run.
        target: The machine.
        estimator: Memory of its programs.
        options: What is planned.
        forced: Whether `--force` was given.
        work: Work of the compiled step; by default it is counted in a traced one.
        compile_time: Measured compilation, or None to predict it.
    """
    task = subject.task
    programs = estimator.programs(task, subject.eval_shape)
    decides = deciding(programs)
    train = next(program for program in programs if program.name == "train")
    step = predict_step(task, target, train, step_ratio=options.step_ratio, work=work)
    checkpoint, kept = state_bytes_of(state_shapes(task)), max_checkpoints(task.config)
    parts = []
    if step.band is not None:
        parts = session_parts(
            subject, target, step.band, programs=programs, checkpoint_bytes=checkpoint, compile_time=compile_time
        )
    host = None
    if target.platform != "cpu":
        # Either the state passes through the host when it is saved, or the exported model.
        exported = "the merged model that is exported" if task.model.adapters else "the model that is exported"
        host = max((plain_bytes(task), exported), (checkpoint, "the copy of the state that is saved"))
    run = PlannedRun(
        subject=subject,
        target=target,
        train=train,
        step=step,
        parts=parts,
        checkpoint_bytes=checkpoint,
        host=host,
        hours_stated=options.hours_stated,
    )
    document = _document(task.declared, target, devices=task.mesh.size, kept_bytes=weights_kept_bytes(task)) | {
        "available_bytes": limit_bytes(task, target),
        "method": decides.method,
        "verdict": worst(program.verdict for program in programs),
        "need_bytes": decides.peak_bytes,
        "error_fraction": decides.error_fraction,
        "parts": parts_document(decides.parts),
        "forced": forced,
        "programs": [program.document() for program in programs],
        "time": time_document(subject, target, step, parts),
        "disk": {
            "need_bytes": checkpoint * kept,
            "available_bytes": target.disk_bytes,
            "because": f"{kept} × {size(checkpoint)}, a checkpoint",
            "kept": describe_saved_artifacts(task),
        },
        "host": host and {"need_bytes": host[0], "available_bytes": target.host_memory_bytes, "because": host[1]},
        "findings": [finding(problem) for problem in (*subject.overlap_warnings, *subject.warnings, *findings(run))],
    }
    if options.advice and document["verdict"] in ("does_not_fit", "tight"):

        def computable(config: Config) -> Iterator[Change]:
            changes = list_changes(config, target.element_types)
            return (change for change in changes if not _absent_types(change.config, target))

        document["advice"] = advise(subject, estimator, programs, computable)
    if options.max_batch:
        document["max_batch"] = largest_microbatch(subject, estimator, decides, say=options.say)
    if options.grid:
        document["grid"] = grid(subject, estimator)
    return document


def _document(config: Config, target: Target, *, devices: int, kept_bytes: int = 0) -> dict[str, Any]:
    """Return the plan of a run that a target does not support, which has every key of plan.json."""
    source = target.memory_source
    if target.platform == "gpu" and available_bytes(target) != target.memory_bytes:
        source = f"{source}; less {size(CUDA_BYTES)} for CUDA"
    return {
        "schema_version": VERSION,
        "made_at": now(),
        "config_sha256": sha256_json(to_document(config)),
        "target": {
            "name": target.kind,
            "title": target.title,
            "table_name": target.name,
            "platform": target.platform,
            "devices": devices,
            "memory_bytes": available_bytes(target),
            "memory_source": source,
            "process_bytes": PROCESS_BYTES + kept_bytes if target.platform == "cpu" else None,
        },
        "available_bytes": available_bytes(target),
        "method": "closed_form",
        "verdict": "unsupported",
        "need_bytes": 0,
        "error_fraction": 0.0,
        "parts": [],
        "forced": False,
        "programs": [],
        "time": None,
        "disk": None,
        "host": None,
        "advice": [],
        "findings": [],
    }


def _absent_types(config: Config, target: Target) -> list[Problem]:
    problems: list[Problem] = []
    with collect_problems(problems):
        refuse_absent_types(config, kind=target.name, element_types=target.element_types)
    return problems


def finding(problem: Problem) -> dict[str, Any]:
    """Return a problem as in plan.json, with the line of a row."""
    place = f"{problem.file} (line {problem.line}): " if problem.line else ""
    found = {name: getattr(problem, name) for name in ("code", "severity", "why", "next")}
    return found | {"what": place + problem.what}


def compiled_plan(
    task: Task, data: Data, devices: Devices, *, forced: bool, resumed: bool, say: Callable[[str], None]
) -> tuple[Task, RunPrograms, dict[str, Any]]:
    """Compile the programs of a run and plan from them.

    Returns:
        The task with `memory.remat: auto` resolved, its compiled programs, and `plan.json`.

    Raises:
        ProblemError: Exit code 3; it does not fit and is not forced. Exit code 4; its programs cannot be compiled.
    """
    target, options, model = target_from(devices), PlanOptions(), task.config.model.name
    limit = limit_bytes(task, target)
    formula = Estimator(platform=devices.platform, available_bytes=limit)
    subject = Subject(task=task, **vars(summarize_data(task.config, data)))

    def is_far_too_large(candidate: Task) -> bool:
        needs = (program.peak_bytes for program in formula.programs(candidate, data.eval_shape))
        return limit is not None and max(needs) > FAR_ABOVE * limit

    def formula_plan(task: Task) -> dict[str, Any]:
        return plan(replace(subject, task=task), target, formula, options, forced=forced)

    candidates = list(remat_candidates(task, limit))
    if is_far_too_large(candidates[-1]):
        refuse_what_does_not_fit(formula_plan(candidates[-1]), model=model)
    say(f"compiling the programs of the run for {len(devices.list)} × {devices.kind}")
    for task in candidates:
        is_last = task is candidates[-1]
        if not is_last and is_far_too_large(task):
            continue
        try:
            programs = compiled_run(task, data.source.lengths_in_use, eval_shape=data.eval_shape, resumed=resumed)
        except jax.errors.JaxRuntimeError as error:
            if not is_last and is_out_of_memory(error):
                continue
            raise _refused_by_compiler(error, formula_plan(task), model=model) from error
        estimator = replace(formula, compiled=programs.by_name)
        train = next(each for each in estimator.programs(task, data.eval_shape) if each.name == "train")
        if is_last or train.verdict == "fits":
            break
    compiled = [each for some in programs.by_name.values() for each in some]
    document = plan(
        replace(subject, task=task),
        target,
        estimator,
        options,
        forced=forced,
        work=compiled_work(programs.steps.longest.jaxpr, task),
        compile_time=CompileTime(
            seconds=sum(each.seconds for each in compiled),
            programs=len(compiled),
            cached=sum(each.is_kept for each in compiled),
        ),
    )
    refuse_what_does_not_fit(document, model=model)
    return task, programs, document


def _refused_by_compiler(error: jax.errors.JaxRuntimeError, plan: dict[str, Any], *, model: str) -> ProblemError:
    """Return why the compiler of the device made no program; the plan is by formula."""
    kind = plan["target"]["name"]
    if not is_out_of_memory(error):
        what = f"The compiler for {kind} refused the run: {first_line(error)}"
        return ProblemError([problem_of("TP711", file=model, what=what)], exit_code=FAILED)
    said = parse(str(error))
    if said is None or said.need_bytes is None or said.cap_bytes is None:
        what = f"The compiler for {kind} found too little memory: {first_line(error)}"
        problem = problem_of("TP710", file=model, what=what, next=advice(plan["advice"]))
    else:
        stated = plan | {"need_bytes": said.need_bytes, "available_bytes": said.cap_bytes}
        problem = does_not_fit(stated, model=model, can_force=False)
    return ProblemError([problem], exit_code=REFUSED)


def refuse_what_does_not_fit(plan: dict[str, Any], *, model: str) -> None:
    """Refuse a run that does not fit, unless it is forced.

    Raises:
        ProblemError: Exit code 3, with the largest parts and what to change.
    """
    if plan["verdict"] == "does_not_fit" and not plan["forced"]:
        raise ProblemError([does_not_fit(plan, model=model)], exit_code=REFUSED)


def record_plan(recorder: Recorder, plan: dict[str, Any], session: SessionLimit | None, *, steps: int) -> None:
    """Write plan.json, and log the plan and how its steps fit into a session."""
    recorder.document(layout.PLAN, plan)
    level = "warning" if plan["verdict"] in ("tight", "does_not_fit") else "info"
    recorder.log(level, "planned", in_words(plan), need_bytes=plan["need_bytes"])
    if session is not None:
        said = session.describe(plan, steps=steps)
        recorder.log("info", "session", said, name=session.name, left_seconds=session.left_seconds)

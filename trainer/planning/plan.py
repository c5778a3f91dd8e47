"""Plan a run on a target: memory of its programs, time, findings, and changes, as in `plan.json`.

`plan_config` plans a configuration for any target from shapes alone. `compiled_plan` plans a run on its own devices
from the programs that it will call, before weights are read or a folder is made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax

from evidence import layout
from evidence.hashes import sha256_json
from evidence.targets import Target
from schemas.catalog import VERSION
from schemas.formats import size
from schemas.problems import Problem, ProblemError, collect_problems, first_line, problem_of
from trainer.config.tree import Config, to_document
from trainer.data.answers import EvalShape
from trainer.loop.chain import describe_saved_artifacts
from trainer.loop.checkpoints import max_checkpoints
from trainer.loop.checkpoints import state_bytes as state_bytes_of
from trainer.loop.compilation import Compiled, donation
from trainer.loop.programs import RunPrograms, compiled_run
from trainer.loop.session import SessionLimit
from trainer.loop.state import state_shapes
from trainer.loop.task import Task
from trainer.objectives.data import Data
from trainer.planning.changes import Change, advise, grid, largest_microbatch, list_changes
from trainer.planning.compile.ahead import LIMIT_SECONDS, Compiler
from trainer.planning.compile.machines import find_machine, missing_compiler
from trainer.planning.duration import (
    CompileTime,
    Work,
    compiled_work,
    predict_step,
    session_parts,
    time_document,
)
from trainer.planning.findings import collect_figures, findings
from trainer.planning.formula import Parts, plain_bytes
from trainer.planning.memory import (
    COMPILED_ERROR,
    FAR_ABOVE,
    NOT_COMPILED,
    Estimator,
    ProgramMemory,
    deciding,
    parts_document,
    remat_candidates,
    resident_bytes,
    split_peak,
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
        return _unsupported(config, target, absent)
    subject = read_subject(config, target, say=options.say)
    with open_estimator(subject, target, options) as estimator:
        subject = replace(subject, task=estimator.resolve_remat(subject.task))
        return plan(subject, target, estimator, options)


@contextmanager
def open_estimator(subject: Subject, target: Target, options: PlanOptions) -> Iterator[Estimator]:
    """Yield an estimator with the compiler of a target, which ends with the block."""
    machine = None if options.quick else find_machine(target, devices=subject.task.mesh.size)
    estimator = Estimator(
        platform=target.platform,
        available_bytes=limit_bytes(subject.task, target),
        machine=machine,
        exact=options.exact,
        limit_seconds=options.limit_seconds,
        say=options.say,
        why_not="only formulas were requested" if options.quick else missing_compiler(target.platform),
        longest=subject.longest,
    )
    with Compiler() as compiler:
        yield replace(estimator, compiler=compiler)


def limit_bytes(task: Task, target: Target) -> int | None:
    """Return the memory of one device for arrays; on a CPU less what the process keeps after reading weights."""
    there = available_bytes(target)
    if there is None or target.platform != "cpu":
        return there
    return max(there - weights_kept_bytes(task) // task.mesh.size, 0)


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
    programs = estimator.programs(task, subject.asked)
    decides = deciding(programs)
    document = {
        **_head(task.declared, _machine_document(target, task), limit_bytes(task, target)),
        "method": decides.method,
        "verdict": worst(program.verdict for program in programs),
        "need_bytes": decides.peak_bytes,
        "error_fraction": decides.error_fraction,
        "parts": parts_document(decides.parts),
        "forced": forced,
        "programs": [program.document() for program in programs],
        "advice": [],
    }
    train = next(program for program in programs if program.name == "train")
    step = predict_step(task, target, train, step_ratio=options.step_ratio, work=work)
    checkpoint, kept = state_bytes_of(state_shapes(task)), max_checkpoints(task.config)
    parts = []
    if step.band is not None:
        parts = session_parts(
            subject, target, step.band, programs=programs, checkpoint_bytes=checkpoint, compile_time=compile_time
        )
    document["time"] = time_document(subject, target, step, parts)
    document["disk"] = {
        "need_bytes": checkpoint * kept,
        "available_bytes": target.disk_bytes,
        "because": f"{kept} × {size(checkpoint)}, a checkpoint",
        "kept": describe_saved_artifacts(task),
    }
    document["host"] = _host_document(task, target, checkpoint)
    host = document["host"] or {"need_bytes": None, "because": ""}
    figures = collect_figures(
        subject,
        target,
        step,
        parts,
        train,
        hours_stated=options.hours_stated,
        checkpoint_bytes=checkpoint,
        host_bytes=host["need_bytes"],
        host_because=host["because"],
    )
    found = (*subject.seen, *subject.warnings, *findings(figures, target))
    document["findings"] = [finding(problem) for problem in found]
    if options.advice and document["verdict"] in ("does_not_fit", "tight"):
        document["advice"] = advise(subject, estimator, programs, partial(_computable_changes, target))
    if options.max_batch:
        document["max_batch"] = largest_microbatch(subject, estimator, decides, say=options.say)
    if options.grid:
        document["grid"] = grid(subject, estimator)
    return document


def _head(config: Config, machine: dict[str, Any], available: int | None) -> dict[str, Any]:
    return {
        "schema_version": VERSION,
        "made_at": now(),
        "config_sha256": sha256_json(to_document(config)),
        "target": machine,
        "available_bytes": available,
    }


def _machine_document(target: Target, task: Task | None = None, *, devices: int = 1) -> dict[str, Any]:
    """Return the group `target` of plan.json for a run, or for so many devices."""
    source = target.memory_source
    if target.platform == "gpu" and available_bytes(target) != target.memory_bytes:
        source = f"{source}; less {size(CUDA_BYTES)} for CUDA"
    kept = 0 if task is None else weights_kept_bytes(task)
    return {
        "name": target.kind,
        "title": target.title,
        "table_name": target.name,
        "platform": target.platform,
        "devices": devices if task is None else task.mesh.size,
        "memory_bytes": available_bytes(target),
        "memory_source": source,
        "process_bytes": PROCESS_BYTES + kept if target.platform == "cpu" else None,
    }


def _host_document(task: Task, target: Target, checkpoint_bytes: int) -> dict[str, Any] | None:
    """Return the memory of an accelerator's host: a checkpoint's copy of the state, or the exported model."""
    if target.platform == "cpu":
        return None
    exported = "the merged model that is exported" if task.model.adapters else "the model that is exported"
    need, because = max((plain_bytes(task), exported), (checkpoint_bytes, "the copy of the state that is saved"))
    return {"need_bytes": need, "available_bytes": target.host_memory_bytes, "because": because}


def _unsupported(config: Config, target: Target, absent: list[Problem]) -> dict[str, Any]:
    """Return the plan of a run with element types that the target does not support."""
    return {
        **_head(config, _machine_document(target, devices=devices_used(config, target)), available_bytes(target)),
        "method": "closed_form",
        "verdict": "unsupported",
        "need_bytes": 0,
        "error_fraction": 0.0,
        "parts": [{"name": "nothing", "bytes": 0, "because": absent[0].what}],
        "forced": False,
        "programs": [],
        "time": None,
        "disk": None,
        "host": None,
        "advice": [],
        "findings": [finding(problem) for problem in absent],
    }


def _computable_changes(target: Target, config: Config) -> list[Change]:
    """Return changes after which a target supports the element types."""
    changes = list_changes(config, target.element_types)
    return [change for change in changes if not _absent_types(change.config, target)]


def _absent_types(config: Config, target: Target) -> list[Problem]:
    problems: list[Problem] = []
    with collect_problems(problems):
        refuse_absent_types(config, kind=target.name, element_types=target.element_types)
    return problems


def finding(problem: Problem) -> dict[str, Any]:
    """Return a problem as in plan.json, with the line of a row."""
    place = f"{problem.file} (line {problem.line}): " if problem.line else ""
    return {
        "code": problem.code,
        "severity": problem.severity,
        "what": place + problem.what,
        "why": problem.why,
        "next": problem.next,
    }


@dataclass(frozen=True, kw_only=True)
class RunEstimator(Estimator):
    """Reads the memory of a run's own compiled programs.

    Attributes:
        compiled: Programs by the names of a plan; those of one name never run together.
    """

    compiled: Mapping[str, tuple[Compiled, ...]]

    def program(self, name: str, task: Task, asked: EvalShape | None, parts: Parts) -> ProgramMemory:
        """Return the memory of the largest of the programs with this name."""
        programs = self.compiled.get(name, ())
        peaks = [each.peak_bytes for each in programs]
        known = [peak for peak in peaks if peak is not None]
        if not programs:
            return self._formula(name, parts, NOT_COMPILED.get(name, self.why_not))
        if len(known) < len(peaks):
            return self._formula(name, parts, "the device's compiler does not report the memory of a program")
        peak = max(known) + resident_bytes(name, parts)
        aliased = None
        if name == "train":
            read = donation(programs[known.index(max(known))].executable, state_shapes(task))
            if read["aliased_bytes"] is not None and read["state_bytes"]:
                aliased = read["aliased_bytes"] / read["state_bytes"]
        return ProgramMemory(
            name=name,
            method="compiler",
            peak_bytes=peak,
            available_bytes=self.available_bytes,
            error_fraction=COMPILED_ERROR,
            because="the compiled program that the run calls",
            seconds=round(sum(each.seconds for each in programs), 2),
            parts=split_peak(peak, parts),
            aliased_fraction=aliased,
        )


def compiled_plan(
    task: Task, data: Data, devices: Devices, *, forced: bool, resumed: bool, say: Callable[[str], None]
) -> tuple[Task, RunPrograms, dict[str, Any]]:
    """Compile the programs of a run and plan from them.

    Returns:
        The task with `memory.remat: auto` resolved, its compiled programs, and `plan.json`.

    Raises:
        ProblemError: Exit code 3; it does not fit and is not forced. Exit code 4; its programs cannot be compiled.
    """
    target, options = target_from(devices), PlanOptions()
    limit = limit_bytes(task, target)
    formula = Estimator(platform=devices.platform, available_bytes=limit)
    subject = Subject(task=task, **vars(summarize_data(task.config, data)))
    candidates = list(remat_candidates(task, limit))

    def need(candidate: Task) -> int:
        return max(program.peak_bytes for program in formula.programs(candidate, data.asked))

    def formula_plan(task: Task) -> dict[str, Any]:
        return plan(replace(subject, task=task), target, formula, options, forced=forced)

    if limit is not None and need(candidates[-1]) > FAR_ABOVE * limit:
        refuse_what_does_not_fit(formula_plan(candidates[-1]), model=task.config.model.name)
    say(f"compiling the programs of the run for {len(devices.list)} × {devices.kind}")
    for task in candidates:
        is_last = task is candidates[-1]
        if not is_last and limit is not None and need(task) > FAR_ABOVE * limit:
            continue
        try:
            programs = compiled_run(task, data.source.lengths_in_use, asked=data.asked, resumed=resumed)
        except jax.errors.JaxRuntimeError as error:
            if not is_last and is_out_of_memory(error):
                continue
            raise _refused_by_compiler(error, formula_plan(task), model=task.config.model.name) from error
        estimator = RunEstimator(platform=devices.platform, available_bytes=limit, compiled=programs.by_name)
        train = next(each for each in estimator.programs(task, data.asked) if each.name == "train")
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
    refuse_what_does_not_fit(document, model=task.config.model.name)
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

"""Plan a run as in `plan.json`: memory of its programs, time, findings, and changes.

`plan_config` plans a configuration for any target from shapes alone, `compiled_plan` a run on its own devices from the
programs that it will call, before weights are read or a folder is made.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import jax

from evidence import layout
from evidence.hashes import sha256_json
from evidence.targets import Target, load_target
from launch.places.place import Offer
from schemas.catalog import VERSION
from schemas.formats import quantity, size
from schemas.problems import Problem, ProblemError, collect_problems, first_line, problem_of, worst_first
from trainer import runtime
from trainer.config.tree import Config, to_document
from trainer.loop.chain import describe_saved_artifacts
from trainer.loop.checkpoints import max_checkpoints
from trainer.loop.compilation import tree_bytes
from trainer.loop.programs import RunPrograms, compiled_run
from trainer.loop.session import SessionLimit
from trainer.loop.state import state_shapes
from trainer.loop.task import Task
from trainer.objectives.data import Data
from trainer.planning import changes, duration, memory
from trainer.planning.compile.machines import find_machine, missing_compiler
from trainer.planning.duration import HOUR, Band, PredictedStep, SessionPart, Work
from trainer.planning.formula import plain_bytes
from trainer.planning.memory import Estimator, ProgramMemory
from trainer.planning.out_of_memory import parse
from trainer.planning.subject import Subject, devices_used, read_subject, resolve_shape, summarize_data
from trainer.recorder.recorder import FAILED, Recorder, is_out_of_memory, now
from trainer.runtime import Devices

METHODS = {"closed_form": "estimated", "compiler": "compiled"}
NAMED_PARTS = 4
"""Parts and changes named in a message."""


@dataclass(frozen=True, kw_only=True)
class PlanOptions:
    """Options of a plan."""

    exact: bool = False
    """Compile programs far from the limit too; `quick` compiles nothing."""
    quick: bool = False
    advice: bool = True
    """Plan changes if the run may not fit."""
    max_batch: bool = False
    grid: bool = False
    hours_stated: float | None = None
    """Training time that the user states, to be checked."""
    step_ratio: float | None = None
    """Measured over predicted step time (`duration.calibrate_from_run`)."""
    say: Callable[[str], None] = lambda line: None


def plan_config(config: Config, target: Target, options: PlanOptions) -> dict[str, Any]:
    """Plan a configuration for a target.

    Raises `ProblemError` with exit code 2 if it cannot be built, and 3 if there are too few devices.
    """
    absent: list[Problem] = []
    with collect_problems(absent):
        runtime.refuse_absent_types(config, kind=target.name, element_types=target.element_types)
    if absent:
        because = {"name": "nothing", "bytes": 0, "because": absent[0].what}
        document = _document(config, target, devices=devices_used(config, target))
        return document | {"parts": [because], "findings": [finding(problem) for problem in absent]}
    subject = read_subject(config, target, say=options.say)
    estimator = Estimator(
        platform=target.platform,
        available_bytes=memory.limit_bytes(subject.task, target),
        machine=None if options.quick else find_machine(target, devices=subject.task.mesh.size),
        exact=options.exact,
        say=options.say,
        why_not="nothing was compiled" if options.quick else missing_compiler(target.platform),
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
) -> dict[str, Any]:
    """Return the plan of a run as in plan.json; by default the work of a step is counted in a traced one."""
    task = subject.task
    programs = estimator.programs(task, subject.eval_shape)
    compiled = [each for some in (estimator.compiled or {}).values() for each in some]
    decides = memory.deciding(programs)
    train = next(program for program in programs if program.name == "train")
    step = duration.predict_step(task, target, train, step_ratio=options.step_ratio, work=work)
    checkpoint, kept = tree_bytes(state_shapes(task)), max_checkpoints(task.config)
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
        parts=duration.session_parts(subject, target, step.band, programs, checkpoint, compiled),
        checkpoint_bytes=checkpoint,
        host=host,
        hours_stated=options.hours_stated,
    )
    document = _document(task.declared, target, devices=task.mesh.size, kept_bytes=memory.weights_kept_bytes(task)) | {
        **{name: decides.document()[name] for name in ("method", "verdict", "error_fraction", "parts")},
        "available_bytes": memory.limit_bytes(task, target),
        "need_bytes": decides.peak_bytes,
        "forced": forced,
        "programs": [program.document() for program in programs],
        "time": duration.time_document(subject, target, step, run.parts),
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
        document["advice"] = changes.advise(subject, estimator, decides.peak_bytes, target.element_types)
    if options.max_batch:
        document["max_batch"] = changes.largest_microbatch(subject, estimator, decides, say=options.say)
    if options.grid:
        document["grid"] = changes.grid(subject, estimator)
    return document


def _document(config: Config, target: Target, *, devices: int, kept_bytes: int = 0) -> dict[str, Any]:
    """Return the plan of a run that a target does not support, which has every key of plan.json."""
    source = target.memory_source
    if target.platform == "gpu" and runtime.available_bytes(target) != target.memory_bytes:
        source = f"{source}; less {size(runtime.CUDA_BYTES)} for CUDA"
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
            "memory_bytes": runtime.available_bytes(target),
            "memory_source": source,
            "process_bytes": runtime.PROCESS_BYTES + kept_bytes if target.platform == "cpu" else None,
        },
        "available_bytes": runtime.available_bytes(target),
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


def finding(problem: Problem) -> dict[str, Any]:
    """Return a problem as in plan.json, with the line of a row."""
    place = f"{problem.file} (line {problem.line}): " if problem.line else ""
    found = {name: getattr(problem, name) for name in ("code", "severity", "why", "next")}
    return found | {"what": place + problem.what}


def compiled_plan(
    task: Task, data: Data, devices: Devices, *, forced: bool, resumed: bool, say: Callable[[str], None]
) -> tuple[Task, RunPrograms, dict[str, Any]]:
    """Return the task with `memory.remat: auto` resolved, its compiled programs, and the plan that is made from them.

    Raises `ProblemError` with exit code 3 if it does not fit and is not forced, and 4 if it cannot be compiled.
    """
    target, model = runtime.target_from(devices), task.config.model.name
    limit = memory.limit_bytes(task, target)
    formula = Estimator(platform=devices.platform, available_bytes=limit)
    subject = Subject(task=task, **vars(summarize_data(task.config, data)))

    def is_far_too_large(candidate: Task) -> bool:
        needs = (program.peak_bytes for program in formula.programs(candidate, data.eval_shape))
        return limit is not None and max(needs) > memory.FAR_ABOVE * limit

    def formula_plan(task: Task) -> dict[str, Any]:
        return plan(replace(subject, task=task), target, formula, PlanOptions(), forced=forced)

    candidates = list(memory.remat_candidates(task, limit))
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
    work = duration.compiled_work(programs.steps.longest.jaxpr, task)
    document = plan(replace(subject, task=task), target, estimator, PlanOptions(), forced=forced, work=work)
    refuse_what_does_not_fit(document, model=model)
    return task, programs, document


def _refused_by_compiler(error: jax.errors.JaxRuntimeError, plan: dict[str, Any], *, model: str) -> ProblemError:
    """Return why the compiler of the device made no program; the plan is by formula."""
    kind, said = plan["target"]["name"], parse(str(error))
    if not is_out_of_memory(error):
        what = f"The compiler for {kind} refused the run: {first_line(error)}"
        return ProblemError([problem_of("TP711", file=model, what=what)], exit_code=FAILED)
    if said is not None and said.need_bytes is not None and said.cap_bytes is not None:
        stated = plan | {"need_bytes": said.need_bytes, "available_bytes": said.cap_bytes}
        problem = does_not_fit(stated, model=model, can_force=False)
    else:
        what = f"The compiler for {kind} found too little memory: {first_line(error)}"
        problem = problem_of("TP710", file=model, what=what, next=advice(plan["advice"]))
    return ProblemError([problem], exit_code=runtime.REFUSED)


def in_words(plan: dict[str, Any]) -> str:
    """Return the memory of a plan as one line."""
    how = f"{METHODS[plan['method']]}, ±{plan['error_fraction']:.0%}"
    need = f"needs about {size(plan['need_bytes'])} on each device ({how})"
    if plan["available_bytes"] is None:
        return f"{need}; the device reports no limit"
    verdicts = {"fits": "it fits", "tight": "it may not fit", "does_not_fit": "it does not fit"}
    return f"{need}, of {size(plan['available_bytes'])}: {verdicts[plan['verdict']]}"


def does_not_fit(plan: dict[str, Any], *, model: str, can_force: bool = True) -> Problem:
    """Return the refusal of a run that needs more than each device has; `--force` cannot start a refused program."""
    target, over = plan["target"], plan["need_bytes"] - plan["available_bytes"]
    largest = ", ".join(f"{part['name']} {size(part['bytes'])}" for part in plan["parts"][:NAMED_PARTS])
    what = (
        f"The run needs about {size(plan['need_bytes'])} on each device, but {target['name']} has "
        f"{size(plan['available_bytes'])} ({target['memory_source']}), {size(over)} less."
    )
    fix = advice(plan["advice"]) + (" Or start it anyway with --force." if can_force else "")
    return problem_of("TP710", file=model, what=what, why=f"Largest parts: {largest}.", next=fix)


def advice(sets: list[dict[str, Any]]) -> str:
    """Return what to change as a sentence."""
    if not sets:
        return "Use a smaller model or a larger device."
    fitting, listed = [each for each in sets if each["verdict"] == "fits"], []
    for each in (fitting or sets)[:NAMED_PARTS]:
        settings = " ".join(f"--set {setting}" for setting in each["set"])
        listed.append(f"{settings} (frees {size(max(each['frees_bytes'], 0))})")
    return f"{'Use' if fitting else 'Combine'} {'; or '.join(listed)}."


def refuse_what_does_not_fit(plan: dict[str, Any], *, model: str) -> None:
    """Raise a ProblemError with exit code 3 for a run that does not fit and is not forced."""
    if plan["verdict"] == "does_not_fit" and not plan["forced"]:
        raise ProblemError([does_not_fit(plan, model=model)], exit_code=runtime.REFUSED)


def describe_offers(configs: Sequence[Config], offers: Sequence[Offer], *, force: bool) -> list[tuple[str, str]]:
    """Return what runs take together on the machine that is offered to each, as names and texts.

    Raises:
        ProblemError: One does not fit, or all take more hours than are left, and they are not forced (exit code 3).
    """
    if not offers:
        return []
    offer, files = offers[0], dict.fromkeys(name for each in offers for name in each.files)
    uploads = ", ".join(["the wheel of trainproof", "config.yaml", *files])
    if offer.target is None:
        machine = f"{offer.machine}: not in the table of machines, so it is planned when it starts there"
        return [("machine", machine), ("account", offer.account), ("uploads", uploads)]
    target = load_target(offer.target)
    target = replace(target, devices=offer.devices or target.devices)
    plans = [plan_config(resolve_shape(config, target), target, PlanOptions()) for config in configs]
    for config, each in zip(configs, plans, strict=True):
        refuse_what_does_not_fit({**each, "forced": force}, model=f"{config.name}: {config.model.name}")
    times: list[Any] = [(each["time"] or {}).get("hours") for each in plans]
    low, high = (None if None in times else sum(time[end] for time in times) for end in ("low", "high"))
    session = "" if offer.session_hours is None else f"; a session has {offer.session_hours:g} h"
    hours = "not known" if low is None else f"{low:.2g} to {high:.2g} h{session}"
    if low is not None and offer.left_hours is not None and low > offer.left_hours and not force:
        what = f"{quantity(len(configs), 'run')} together: at least {low:.2g} h, and {offer.left_hours:g} h are left."
        fix = "Lower limits.steps, wait for the next week, or start it with --force and continue it next week."
        raise ProblemError([problem_of("TP771", file="--to", what=what, next=fix)], exit_code=runtime.REFUSED)
    left = "not known" if offer.left_hours is None else f"{offer.left_hours:g} h left until {offer.refreshes_at[:10]}"
    return [
        ("machine", offer.machine or target.title),
        ("memory", in_words(max(plans, key=lambda each: each["need_bytes"]))),
        ("time", hours),
        ("account", offer.account),
        ("quota", left),
        ("uploads", uploads),
    ]


def record_plan(recorder: Recorder, plan: dict[str, Any], session: SessionLimit | None, *, steps: int) -> None:
    """Write plan.json, and log the plan and how its steps fit into a session."""
    recorder.document(layout.PLAN, plan)
    level = "warning" if plan["verdict"] in ("tight", "does_not_fit") else "info"
    recorder.log(level, "planned", in_words(plan), need_bytes=plan["need_bytes"])
    if session is not None:
        said = session.describe(plan, steps=steps)
        recorder.log("info", "session", said, name=session.name, left_seconds=session.left_seconds)


@dataclass(frozen=True, kw_only=True)
class PlannedRun:
    """A run on a target, for the findings below. A rule is skipped if a figure that it needs is unknown."""

    subject: Subject
    target: Target
    train: ProgramMemory
    """Memory of the train step."""
    step: PredictedStep
    parts: Sequence[SessionPart] = ()
    """Parts of the session, or empty if the time of a step is unknown."""
    checkpoint_bytes: int = 0
    host: tuple[int, str] | None = None
    """Bytes that the host of the devices needs, and for what."""
    hours_stated: float | None = None

    @cached_property
    def seconds(self) -> Band | None:
        """Time of the whole run."""
        return duration.total_seconds(self.parts) if self.parts else None

    def problem(self, code: str, what: str, pointer: str | None = None, **more: Any) -> Problem:
        """Return a problem of this run."""
        return problem_of(code, file=self.subject.task.config.name, what=what, pointer=pointer, **more)


def findings(run: PlannedRun) -> tuple[Problem, ...]:
    """Return what a run would waste: hours, tokens, parts of the device (TP712, TP73x and TP74x); worst first."""
    checks = [_check_session, _check_steps, _check_intensity, _check_padding, _check_shapes, _check_group_size]
    return worst_first(problem for check in [*checks, _check_state, _check_machine] for problem in check(run))


def _check_session(run: PlannedRun) -> Iterator[Problem]:
    target, config, step, whole = run.target, run.subject.task.config, run.step.band, run.seconds
    session, week, max_minutes = target.session_seconds, target.week_seconds, config.limits.max_minutes
    if step is not None and session is not None and (max_minutes is None or max_minutes * 60 >= session):
        # 500 steps of 100 to 150 s between checkpoints are 14 to 21 hours, more than any session.
        saved, steps = config.checkpoint.save_every_steps, config.limits.steps
        every = min(saved or steps, steps)
        interval, fewer = step.times(every), max(1, int(session / 4 / step.high))
        how = f"every {every:,} steps" if saved else f"only at the end, after {every:,} steps"
        hours, is_lost = _range(interval, HOUR), interval.likely >= session
        if interval.likely >= session / 2:
            yield run.problem(
                "TP731",
                f"A checkpoint is written {how}, which takes {hours} hours; a session of {target.name} has "
                f"{session / HOUR:g}.",
                "/checkpoint/save_every_steps",
                severity="error" if is_lost else "warning",
                why=None if is_lost else f"An interrupted session loses up to {hours} of its {session / HOUR:g} hours.",
                next=f"Use --set checkpoint.save_every_steps={fewer}, which is at most {fewer * step.high / HOUR:.2g} "
                "hours; or set limits.max_minutes so that the run saves before the session ends.",
            )
    if whole is not None and session is not None and whole.high > session:
        is_likely, sessions = whole.likely > session, duration.sessions_needed(run.parts, session)[1]
        count = f" in about {sessions} sessions" if sessions and is_likely else ""
        yield run.problem(
            "TP732",
            f"The run takes {_range(whole, HOUR)} hours{count}; a session of {target.name} has {session / HOUR:g}.",
            severity="warning" if is_likely else "note",
            next=f"Use --set limits.max_minutes={int(session / 60) - 30} and `trainproof train --resume` in the next "
            "session, or train fewer steps.",
        )
    if whole is not None and week is not None and whole.high > week:
        what = f"The run takes {_range(whole, HOUR)} hours; {target.name} has {week / HOUR:g} a week."
        yield run.problem("TP733", what, severity="warning" if whole.likely > week else "note")


def _check_steps(run: PlannedRun) -> Iterator[Problem]:
    target, limits, step, stated = run.target, run.subject.task.config.limits, run.step.band, run.hours_stated
    if step is None:
        return
    training, max_minutes = step.times(limits.steps), limits.max_minutes
    # 2,500 steps of 100 to 150 s are 69 to 104 hours, not 40.
    if stated is not None and not training.low * 0.9 <= stated * HOUR <= training.high * 1.1:
        hours = f"{_range(training, HOUR)} hours"
        what = f"{limits.steps:,} steps of {_range(step)} s on {target.name} are {hours}, not {stated:g}."
        yield run.problem("TP734", what, expected=hours)
    # 400 steps of 8 to 19 s, likely 12, are 80 minutes; 60 minutes end at step 300.
    if max_minutes is not None and training.high > max_minutes * 60:
        is_likely = training.likely > max_minutes * 60
        reached = int(max_minutes * 60 / (step.likely if is_likely else step.high))
        what = (
            f"{limits.steps:,} steps on {target.name} take {_range(training, 60)} minutes; limits.max_minutes is "
            f"{max_minutes:g}, which is enough for {'about' if is_likely else 'as few as'} {reached:,}."
        )
        yield run.problem("TP742", what, "/limits/max_minutes", severity="warning" if is_likely else "note")


def _check_intensity(run: PlannedRun) -> Iterator[Problem]:
    """Check that a microbatch has enough tokens for the target's full speed (Williams et al., CACM 52(4), 2009)."""
    task, target, step = run.subject.task, run.target, run.step
    peak = target.peak_flops.get(task.config.precision.compute)
    if not peak or not target.memory_bandwidth or not step.moved_bytes:
        return
    ridge = peak / target.memory_bandwidth  # a TPU v5e does 197e12 operations while it moves 819e9 bytes
    intensity = step.flops / step.moved_bytes
    if (share := intensity / ridge) >= 1:
        return
    tokens = task.tokens_per_step // task.config.batch.accumulation_steps
    over = f" over {task.mesh.size} devices" if task.mesh.size > 1 else ""
    enough = 1
    while enough < tokens / share:
        enough *= 2
    what = (
        f"A microbatch of {tokens:,} tokens{over} gives {target.name} {intensity:.3g} operations per byte of memory "
        f"traffic. It needs {ridge:.3g} to reach full speed, so at most {share:.0%} is used. About {enough:,} tokens "
        "would be enough."
    )
    yield run.problem("TP735", what, "/batch/microbatch_size", severity="warning" if share < 0.5 else "note")


def _check_padding(run: PlannedRun) -> Iterator[Problem]:
    """Check that few tokens of a batch are padding."""
    fraction = run.subject.tokens[0]
    if fraction is None or fraction > 0.75:
        return
    what = f"{1 - fraction:.0%} of the tokens of a batch are padding"
    if fraction:
        what += f", so a step on {run.target.name} takes {1 / fraction:.3g} times as long as without padding"
    pointer, fix = "/data/packing", "Use --set data.packing=true."
    if run.subject.task.config.data.packing:
        pointer, fix = "/data/max_length", "Use longer rows or a smaller data.max_length."
    yield run.problem("TP736", f"{what}.", pointer, severity="warning" if fraction <= 0.5 else "note", next=fix)


def _check_shapes(run: PlannedRun) -> Iterator[Problem]:
    """Check that compiling the step once for each shape of a batch takes little time."""
    task = run.subject.task
    if (shapes := len(task.lengths)) <= 1:
        return
    seconds = shapes * duration.COMPILE_LAYER.likely * duration.compiled_layers(task)
    is_much = run.seconds is not None and seconds > run.seconds.likely * 0.1
    what = (
        f"Batches have {shapes} shapes, so the step is compiled {shapes} times for {run.target.name}, which takes "
        f"{seconds / 60:.3g} minutes."
    )
    yield run.problem("TP737", what, "/data/max_length", severity="warning" if is_much else "note")


def _check_group_size(run: PlannedRun) -> Iterator[Problem]:
    """Check that a group has enough completions for advantages that say more than their order."""
    group = run.subject.task.objective.sequences_each
    if run.step.drawing is not None and group < 4:
        yield run.problem("TP748", f"objective.group_size is {group}.", "/objective/group_size")


def _check_state(run: PlannedRun) -> Iterator[Problem]:
    """Check donation, optimizer state and division of the state as the compiled step has them."""
    task, target, train = run.subject.task, run.target, run.train
    config, shapes = task.config, state_shapes(task)
    leaves = jax.tree.leaves(shapes)
    state = sum(math.prod(leaf.sharding.shard_shape(leaf.shape)) * leaf.dtype.itemsize for leaf in leaves)
    donates = config.memory.donate
    reused = train.aliased_fraction
    if reused is None:
        reused = 1.0 if donates else 0.0
    if reused < 0.98:  # scalars and counters may be copied
        missing = size(round(state * (1 - reused)))
        what = (
            f"The step copies {missing} of the {size(state)} of state that it replaces on each device of "
            f"{target.name}; memory.donate is {'true' if donates else 'false'}."
        )
        fix = f"Use --set memory.donate=true, which frees {missing}."
        fix = "Report this as a bug: the compiled step does not use the declared donation." if donates else fix
        severity = "error" if donates else "warning"
        yield run.problem("TP738", what, "/memory/donate", severity=severity, next=fix)
    declared = sum(part.bytes for part in train.parts if part.name == "opt_state")
    found = declared if train.opt_state_ratio is None else round(train.opt_state_ratio * declared)
    # A TPU stores the smallest array as a tile of 8 × 128 four-byte numbers; Adafactor has many small arrays.
    padding = 4096 * max(len(jax.tree.leaves(shapes.opt_state)), 1)
    if abs(found - declared) > max(declared * 0.02, state * 0.01, padding):
        what = (
            f"The compiled step for {target.name} takes {size(found)} of optimizer state; {config.optimizer.name} "
            f"needs {size(declared)} for these parameters."
        )
        yield run.problem("TP739", what, "/optimizer/name", expected=size(declared))
    fair = tree_bytes(shapes) / task.mesh.size
    # Parameters that cannot be divided evenly stay on every device; they are small.
    if config.mesh.shard_params and state > fair * 1.1:
        what = (
            f"Each of {task.mesh.size} devices of {target.name} has {size(state)} of the state; an equal share is "
            f"{size(round(fair))}."
        )
        yield run.problem("TP740", what, "/mesh/shard_params")


def _check_machine(run: PlannedRun) -> Iterator[Problem]:
    task, target = run.subject.task, run.target
    kept = max_checkpoints(task.config)
    if target.disk_bytes is not None and run.checkpoint_bytes * kept > target.disk_bytes:
        sizes = (run.checkpoint_bytes, run.checkpoint_bytes * kept, target.disk_bytes)
        each, need, there = (f"{number / 1e9:.3g} GB" for number in sizes)
        what = f"{kept} checkpoints of {each} are {need}; {target.name} has {there}."
        yield run.problem("TP741", what, "/checkpoint/keep")
    if run.host is not None and target.host_memory_bytes is not None and run.host[0] > target.host_memory_bytes:
        need, there = (f"{number / 1e9:.3g} GB" for number in (run.host[0], target.host_memory_bytes))
        yield run.problem("TP743", f"{run.host[1]} is {need}; the host of {target.name} has {there} of memory.")
    if target.platform == "cpu" and task.model.decoder.quantised and not task.is_scanned:
        what = f"method.base is {task.config.method.base}, and {target.device_kinds[0]} is a CPU."
        yield run.problem("TP712", what, "/method/base")


def _range(band: Band, unit: float = 1.0) -> str:
    """Return a band as text: `14 to 21`, or one number if both ends are written alike."""
    low, high = f"{band.low / unit:.3g}", f"{band.high / unit:.3g}"
    return low if low == high else f"{low} to {high}"

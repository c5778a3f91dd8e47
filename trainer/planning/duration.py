"""Time of a run as bands: a step by the roofline of its device, and the other parts of a session.

A step is not faster than its arithmetic at peak, its bytes at memory bandwidth, or its exchange at link bandwidth
(Williams et al., CACM 52(4), 2009). Real steps take longer: until a run is measured, the band spans a factor of 4.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, reduce
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from jax.interpreters.partial_eval import dce_jaxpr

from evidence import layout
from evidence.grade import check_run
from evidence.run import Run, read_existing_run
from evidence.targets import Target, find_target
from schemas.formats import quantity
from schemas.problems import ProblemError
from trainer.config.tree import Config, MeshConfig, build_config
from trainer.data.answers import EvalShape
from trainer.generate.decode import padded, prompt_rows, prompts_at_a_time
from trainer.loop.chain import chain_interval
from trainer.loop.compilation import Compiled, inner_programs
from trainer.loop.programs import train_program
from trainer.loop.rollouts import rollout_size
from trainer.loop.task import Task, shapes_mesh
from trainer.model.decoder import parameter_count
from trainer.model.source import ModelSource, resolve_for_planning
from trainer.planning.formula import ITEM_BYTES, bit_width, params_bytes
from trainer.planning.memory import Estimator, ProgramMemory
from trainer.planning.subject import Subject
from trainer.recorder.sensors import BY_DEVICE


class Band(NamedTuple):
    """An estimate in seconds: `low <= likely <= high`."""

    low: float
    likely: float
    high: float

    def times(self, factor: float) -> Band:
        """Multiply the band."""
        return Band(*(factor * end for end in self))

    def plus(self, other: Band) -> Band:
        """Add two bands."""
        return Band(*map(sum, zip(self, other, strict=True)))

    def document(self) -> dict[str, float]:
        """Return the band as in plan.json, rounded to four digits."""
        return {name: float(f"{end:.4g}") for name, end in self._asdict().items()}


def exactly(seconds: float) -> Band:
    """Return a known duration."""
    return Band(seconds, seconds, seconds)


def at_rate(size: float, rate: Band) -> Band:
    """Return the time to move bytes at a rate in bytes per second."""
    return Band(size / rate.high, size / rate.likely, size / rate.low)


EFFICIENCY = 0.4
"""Likely share of the roofline. Published fine-tuning steps reach 37 % (GPT-J, TPU v3-8) to 67 % (MaxText, v5e) where
batches are large, and 8 % where they are not (LLaMA-7B on v3-8, EasyLM issue 61)."""
WITHIN = 2.0
"""Until a step is measured it may take half or twice the likely time."""
MEASURED_WITHIN = 0.1
"""The same after a calibration."""
HOST_STEP_SECONDS = 350e-6
"""Time in which the host starts a step and fetches its loss, whatever the device computes."""
NOMINAL_FLOPS = 1e9
"""Assumed speed of unknown devices; only the ratio to a measured time means something."""
PASSES = 3
"""A layer's parameters are gathered for the forward pass, its repetition, and the backward pass."""

INSTALL = Band(30, 90, 240)
"""Seconds to install the wheel and the dependencies that a platform's image lacks."""
NETWORK = Band(20e6, 50e6, 150e6)
DISK = Band(100e6, 300e6, 1e9)
HASHING = Band(0.4e9, 1.1e9, 2e9)
COPYING = Band(1e9, 4e9, 12e9)
"""Bytes per second: a download of weights, a session's disk, hashing on one core, and device to host (PCIe 3.0)."""
ENCODING = Band(0.1e-3, 0.25e-3, 1e-3)
"""Seconds to read, encode and pack one row."""
COMPILE_LAYER = Band(1, 3, 10)
"""Seconds to compile one layer of a train step: 18 layers of Gemma-2B take 44 s on idle cores, 330 s on busy ones."""
FURTHER_PROGRAM = 0.5
"""Compilation time of decoding relative to the train step: 44 % on a T4, 60 % on a CPU."""
ONCE_A_SESSION = ("install", "compile", "load")
HOUR = 3600.0
UNKNOWN_SPEED = "the device's speed is unknown"


class Work(NamedTuple):
    """Floating-point operations of matrix products, and the bytes of their factors and results."""

    flops: float
    moved: float

    def plus(self, other: Work, times: float = 1.0) -> Work:
        """Add other work, multiplied."""
        return Work(self.flops + times * other.flops, self.moved + times * other.moved)


def step_work(task: Task, config: Config | None = None) -> Work:
    """Return the work of one device in a step, with recomputation, of a task or another configuration of its model.

    Layers are alike, so traces of one and two layers are enough.
    """
    config, source = replace(config or task.config, name="", mesh=MeshConfig()), task.model.source
    one, others = _traced_work(config, source, 1), source.spec.layers - 1
    return one.plus(_traced_work(config, source, 2).plus(one, -1.0), others) if others else one


def useful_flops(task: Task) -> float:
    """Return the operations of one device in an optimizer step without recomputation and unpacking."""
    memory = {"remat": "none", "loss_chunk_tokens": None, "mlp_chunk_tokens": None}
    return step_work(task, task.config.changed(memory=memory, method={"base": "plain"})).flops


def ideal_seconds(task: Task, target: Target) -> float | None:
    """Return the time of the useful operations of a step at the device's peak, or None if that is unknown."""
    peak = target.peak_flops.get(task.config.precision.compute)
    return None if peak is None else useful_flops(task) / peak


def compiled_work(jaxpr: Any, task: Task) -> Work:
    """Return the work of one device in a step that was traced for all devices."""
    whole, devices = _needed_work(jaxpr), task.mesh.size
    return Work(flops=whole.flops / devices, moved=whole.moved / devices + exchanged_bytes(task, divided=True))


@lru_cache(maxsize=128)
def _traced_work(config: Config, source: ModelSource, layers: int) -> Work:
    fewer = replace(source, spec=replace(source.spec, blocks=source.spec.blocks[:layers]))
    program = train_program(Task.of(config, fewer, shapes_mesh(1)))
    return _needed_work(program.function.trace(*program.arguments, **program.settings).jaxpr)


def _needed_work(jaxpr: Any) -> Work:
    """Return the work of a traced program without dead code, such as gradients of frozen weights."""
    inside = jaxpr.jaxpr
    return count_work(dce_jaxpr(inside, [True] * len(inside.outvars))[0])


def count_work(jaxpr: Any) -> Work:
    """Return the work of all matrix products in a traced program and the programs that it calls.

    `[2 3] @ [3 5]` is 2 · 2 · 3 · 5 = 60 operations on 6 + 15 + 10 numbers; in a loop of 4 rounds, 4 times that.
    """
    total = Work(0.0, 0.0)
    for equation in getattr(jaxpr, "jaxpr", jaxpr).eqns:
        if equation.primitive.name == "dot_general":
            (contracted, _), _ = equation.params["dimension_numbers"]
            left, result = equation.invars[0].aval.shape, equation.outvars[0].aval.shape
            flops = 2.0 * float(math.prod(result) * math.prod(left[axis] for axis in contracted))
            arrays = [each.aval for each in (*equation.invars, *equation.outvars)]
            moved = sum(math.prod(array.shape) * bit_width(array) / 8 for array in arrays)
            total = total.plus(Work(flops, moved))
        rounds = int(equation.params.get("length", 1)) if equation.primitive.name == "scan" else 1
        for inner in inner_programs(equation):
            total = total.plus(count_work(inner), rounds)
    return total


def exchanged_bytes(task: Task, *, divided: bool) -> float:
    """Return the bytes that one of n devices receives in an optimizer step.

    Divided parameters are gathered in each pass, and their gradients reduced and scattered: (n - 1)/n each. Gradients
    of replicated parameters are all-reduced: 2 (n - 1)/n (Patarasuk and Yuan, JPDC 69(2), 2009).
    """
    devices, item = task.mesh.size, ITEM_BYTES[task.config.precision.compute]
    weights, gradients = item * parameter_count(task.model.base), item * parameter_count(task.model.trained)
    others = (devices - 1) / devices
    if not divided:
        return 2 * others * gradients
    passes = PASSES if task.config.memory.remat != "none" else PASSES - 1
    return others * (passes * task.config.batch.accumulation_steps * weights + gradients)


@dataclass(frozen=True, kw_only=True)
class PredictedStep:
    """Time of one optimizer step on one device, and operations and bytes of its update."""

    update: Band | None
    """Time without drawing completions, or None if the device's speed is unknown."""
    flops: float
    moved_bytes: float
    because: str
    drawing: Band | None = None
    """Time in which completions are drawn, or None if none are."""
    drawing_because: str = ""

    @property
    def band(self) -> Band | None:
        """Time of the whole step, or None if unknown."""
        return self.update if self.update is None or self.drawing is None else self.update.plus(self.drawing)

    def rollout_document(self) -> dict[str, Any] | None:
        """Return the drawing as in plan.json, or None if nothing is drawn."""
        if self.drawing is None or self.update is None:
            return None
        share = self.drawing.likely / (self.drawing.likely + self.update.likely)
        return {
            "seconds": self.drawing.document(),
            "update_seconds": self.update.document(),
            "fraction": round(share, 3),
            "because": f"Sampling takes {self.drawing.likely:.3g} s of a step ({share:.0%}): {self.drawing_because}; "
            f"the update takes {self.update.likely:.3g} s",
        }


def predict_step(
    task: Task, target: Target, train: ProgramMemory, *, step_ratio: float | None = None, work: Work | None = None
) -> PredictedStep:
    """Predict the time of an optimizer step, with the measured over predicted time of earlier steps on this device.

    By default, `work` is counted in a traced step instead of the compiled one.
    """
    work = work or step_work(task)
    # Parameters and optimizer state are read and written once.
    moved = work.moved + 2 * sum(part.bytes for part in train.parts if part.name in ("params", "opt_state"))
    limits = _limits(task, target, work.flops, moved, exchanged_bytes(task, divided=task.config.mesh.shard_params))
    update: Band | None = None
    because = UNKNOWN_SPEED
    if limits is not None:
        name = max(limits, key=lambda each: limits[each])
        listed = ", ".join(f"{each} {seconds:.3g} s" for each, seconds in limits.items())
        because = f"limited by {name} (at peak rates: {listed}); {EFFICIENCY:.0%} of the peak is likely"
        update = _band(limits[name])
    if step_ratio is not None:
        likely = (update or _band(work.flops / NOMINAL_FLOPS)).likely * step_ratio
        update = Band(likely * (1 - MEASURED_WITHIN), likely, likely * (1 + MEASURED_WITHIN))
        because = f"{because}; corrected by measured runs"
    drawing, why = _drawing(task, target) if update is not None else (None, "")
    if why and drawing is None:
        update, because = None, why
    return PredictedStep(
        update=update, flops=work.flops, moved_bytes=moved, because=because, drawing=drawing, drawing_because=why
    )


def _limits(task: Task, target: Target, flops: float, moved: float, linked: float) -> dict[str, float] | None:
    """Return the seconds of each limit of the roofline, or None if the device's speed is unknown."""
    peak, bandwidth = target.peak_flops.get(task.config.precision.compute), target.memory_bandwidth
    if peak is None or bandwidth is None:
        return None
    limits = {"arithmetic": flops / peak, "memory": moved / bandwidth}
    if linked and target.interconnect is not None:
        limits["exchange"] = linked / target.interconnect
    return limits


def _band(floor: float, *, host: float = HOST_STEP_SECONDS) -> Band:
    """Return the band of a duration that is at least `floor` by the roofline."""
    likely = max(floor / EFFICIENCY, host)
    return Band(max(likely / WITHIN, host), likely, likely * WITHIN)


def _drawing(task: Task, target: Target) -> tuple[Band | None, str]:
    """Return the time of drawing completions in an optimizer step and its components, at their greatest length.

    Prompts are read once a group. Each further token reads the parameters and all keys and values.
    """
    if (size := rollout_size(task)) is None:
        return None, ""
    item, spec, devices = ITEM_BYTES[task.config.precision.compute], task.model.source.spec, task.mesh.size
    weights = sum(int(value.size) * min(bit_width(value) / 8, item) for value in task.model.shapes.values())
    cache = size.rows * size.slots * 2 * spec.layers * spec.kv_heads * spec.head_dim * item / devices
    flops = 2.0 * parameter_count(task.model.base) + 4.0 * spec.layers * spec.heads * spec.head_dim * size.slots
    linked = weights * (devices - 1) / devices if task.config.mesh.shard_params else 0.0
    reading = _limits(task, target, flops * size.prompts * size.width / devices, weights, linked)
    token = _limits(task, target, flops * size.rows / devices, weights + cache, linked)
    if reading is None or token is None:
        return None, UNKNOWN_SPEED
    each = _band(max(token.values()), host=0.0)
    seconds = _band(max(reading.values())).plus(each.times(size.new_tokens)).times(1 / size.updates)
    because = f"{size.rows:,} completions of {size.new_tokens:,} tokens at {1000 * each.likely:.3g} ms per token"
    return seconds, because + (f", for {size.updates} updates" if size.updates > 1 else "")


class SessionPart(NamedTuple):
    """One part of a session: install, compile, load, train, save, evaluate or export."""

    name: str
    seconds: Band
    because: str


def session_parts(
    subject: Subject,
    target: Target,
    step: Band | None,
    programs: Sequence[ProgramMemory],
    checkpoint_bytes: int,
    compiled: Sequence[Compiled],
) -> list[SessionPart]:
    """Return the parts of a run's time in order, or none if the time of a step is unknown."""
    if step is None:
        return []
    config, model, rows = subject.task.config, subject.task.model, subject.rows
    size, steps = params_bytes(model.base), config.limits.steps
    loading, because = ENCODING.times(rows), f"encode {quantity(rows, 'row')}, {ENCODING.likely * 1000:g} ms each"
    if model.reads_weights:
        loading = loading.plus(at_rate(size, NETWORK))
        because = f"download {size / 1e9:.3g} GB at {NETWORK.likely / 1e6:.3g} MB/s; {because}"
    parts = [
        SessionPart("install", INSTALL, "trainproof and missing packages"),
        compile_part(subject.task, programs, compiled),
        SessionPart("load", loading, because),
        SessionPart("train", step.times(steps), f"{steps:,} steps × {step.likely:.3g} s"),
        save_part(config, checkpoint_bytes, asynchronous=target.platform != "cpu"),
    ]
    if subject.eval_shape is not None and target.memory_bandwidth is not None:
        parts.append(evaluate_part(subject, subject.eval_shape, target))
    parts.append(SessionPart("export", at_rate(size, DISK), f"write {size / 1e9:.3g} GB"))
    return parts[target.session_seconds is None :]


def compile_part(task: Task, programs: Sequence[ProgramMemory], compiled: Sequence[Compiled]) -> SessionPart:
    """Return the time to compile all programs: measured if they are compiled, or by layers of the train step."""
    if compiled:
        cached = sum(each.is_kept for each in compiled)
        because = f"{cached} of {quantity(len(compiled), 'program')} from the compilation cache"
        return SessionPart("compile", exactly(sum(each.seconds for each in compiled)), because)
    layers = compiled_layers(task)
    further = FURTHER_PROGRAM * sum(program.name in ("decode", "rollout") for program in programs)
    because = f"{quantity(layers, 'layer')} × {COMPILE_LAYER.likely:g} s"
    because += f", and {further:.0%} more for other programs" if further else ""
    return SessionPart("compile", COMPILE_LAYER.times(layers * (1 + further)), because)


def compiled_layers(task: Task) -> int:
    """Return the number of layers that are compiled; equal layers of a scanned model are compiled once."""
    return len(task.model.layer_groups) if task.is_scanned else task.model.source.spec.layers


def save_part(config: Config, checkpoint_bytes: int, *, asynchronous: bool) -> SessionPart:
    """Return how long devices wait for checkpoints and hashes; asynchronously only for copies, except the last one."""
    last, every = config.limits.steps, config.checkpoint.save_every_steps
    saved = {*range(every, last, every), last} if every else {last}
    hashed = len({*range(0, last, chain_interval(config)), *saved})
    writes, hashes = (1, 1) if asynchronous else (len(saved), hashed)
    seconds = at_rate(checkpoint_bytes * writes, DISK).plus(at_rate(checkpoint_bytes * hashes, HASHING))
    because = f"write {len(saved)} × {checkpoint_bytes / 1e9:.3g} GB, hash {hashed}"
    if asynchronous:
        seconds = seconds.plus(at_rate(checkpoint_bytes * hashed, COPYING))
        because += "; in the background except the last"
    return SessionPart("save", seconds, because)


def evaluate_part(subject: Subject, eval_shape: EvalShape, target: Target) -> SessionPart:
    """Return the time of all evaluations: prefill of each batch, then all parameters are read for each token."""
    task = subject.task
    config, model, of, devices = task.config, task.model, task.config.evaluation, task.mesh.size
    at_a_time = prompts_at_a_time(of.batch_size, of.samples, devices)
    rows = prompt_rows(at_a_time, eval_shape.prompts, devices) // devices
    share = devices if config.mesh.shard_params else 1
    count, item = parameter_count(model.base), ITEM_BYTES[config.precision.compute]
    reading = _limits(task, target, 2.0 * count * rows * padded(eval_shape.longest_tokens), count * item / share, 0.0)
    token = _band(params_bytes(model.base) / share / (target.memory_bandwidth or math.inf), host=0.0)
    points = config.limits.steps // of.every_steps if of.every_steps else 0
    batches = (1 + of.baseline) * math.ceil(eval_shape.prompts / at_a_time)
    batches += points * math.ceil(min(of.during_items, eval_shape.prompts) / at_a_time)
    seconds = token.times(batches * of.max_new_tokens)
    if reading is not None:
        seconds = seconds.plus(_band(max(reading.values())).times(batches))
    because = f"{batches} batches × {of.max_new_tokens} tokens × {token.likely * 1000:.3g} ms, and prefill"
    return SessionPart("evaluate", seconds, because)


def total_seconds(parts: Iterable[SessionPart]) -> Band:
    """Return the sum of all parts."""
    return reduce(Band.plus, (part.seconds for part in parts), exactly(0.0))


def _split_session(parts: Sequence[SessionPart]) -> tuple[Band, Band]:
    """Return the time that each session takes again, and the time that is spent once."""
    again, once = ([part for part in parts if (part.name in ONCE_A_SESSION) is each] for each in (True, False))
    return total_seconds(again), total_seconds(once)


def sessions_needed(parts: Sequence[SessionPart], session_seconds: float) -> list[int | None]:
    """Return the number of sessions: at least, likely, at most; None if no number is enough.

    Each session installs, compiles and loads again. With 1 hour for these and 25 hours of work, sessions of 12 hours
    have 11 hours each:

    >>> begin, work = SessionPart("load", exactly(HOUR), ""), SessionPart("train", exactly(25 * HOUR), "")
    >>> sessions_needed([begin, work], 12 * HOUR)
    [3, 3, 3]
    """
    return [
        None if again >= session_seconds else max(1, math.ceil(work / (session_seconds - again)))
        for again, work in zip(*_split_session(parts), strict=True)
    ]


def weeks_needed(parts: Sequence[SessionPart], *, session_seconds: float, week_seconds: float) -> int | None:
    """Return the likely number of weeks of quota, or None if sessions are too short."""
    sessions, (again, work) = sessions_needed(parts, session_seconds)[1], _split_session(parts)
    return sessions and max(1, math.ceil((work.likely + sessions * again.likely) / week_seconds))


def time_document(
    subject: Subject, target: Target, step: PredictedStep, parts: Sequence[SessionPart]
) -> dict[str, Any] | None:
    """Return the group `time` of plan.json, or None if the time of a step is unknown."""
    if step.band is None:
        return None
    total, tokens = total_seconds(parts), subject.task.tokens_per_step
    fraction, source = subject.tokens
    session, week = target.session_seconds, target.week_seconds
    return {
        "step_seconds": step.band.document(),
        "hours": total.times(1 / HOUR).document(),
        "because": step.because,
        "tokens": tokens,
        "real_tokens": None if fraction is None else round(tokens * fraction, 1),
        "tokens_source": source,
        "flops": step.flops,
        "moved_bytes": step.moved_bytes,
        "rollout": step.rollout_document(),
        "session": [part._asdict() | {"seconds": part.seconds.document()} for part in parts],
        "session_seconds": session,
        "session_fraction": total.times(1 / session).document() if session else None,
        "week_seconds": week,
        "week_fraction": total.times(1 / week).document() if week else None,
        "sessions": sessions_needed(parts, session) if session else None,
        "weeks": weeks_needed(parts, session_seconds=session, week_seconds=week) if session and week else None,
    }


FEWEST_ROWS = 3
"""Rows of metrics.jsonl, without the first slow one, that a step time needs."""
GRADES = ("verified", "consistent", "measured")


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """A measured run."""

    run: str
    kind: str
    """Kind of device, as JAX names it."""
    device: str
    """The same, or the CPU's model."""
    step_ratio: float
    """Median step time over the likely one."""
    memory_ratio: float | None
    """Observed peak over the planned one, or None if no device allocator reported it."""


def calibrate_from_run(folder: Path) -> Calibration | str:
    """Compare a run with its prediction, or return why it cannot be used; raise `ProblemError` without a folder."""
    run = read_existing_run(folder)
    grade, findings = (report := check_run(run)).grade.name, report.findings
    if grade not in GRADES or run.manifest is None or run.config is None:
        return f"its grade is {grade}" + (f": {findings[0].what}" if findings else "")
    config, devices = build_config(run.config), run.manifest["devices"]
    # Where completions are drawn, only the update is predicted from the compiled step.
    rows = run.rows(layout.METRICS).values[1:]
    times = [float(row.get("update_seconds") or row["step_seconds"]) for row in rows]
    if len(times) < FEWEST_ROWS:
        return f"it has fewer than {FEWEST_ROWS} rows of metrics.jsonl after the first"
    if config.data.buckets > 1:
        return "its steps have several lengths (data.buckets)"
    target = find_target(devices["kind"], devices["count"]) or Target(
        name=devices["kind"],
        title=devices["kind"],
        platform=devices["platform"],
        device_kinds=(devices["kind"],),
        devices=devices["count"],
        memory_bytes=devices["memory_bytes"],
        memory_source="the run's manifest",
        memory_bandwidth=None,
        peak_flops={},
        element_types=(),
    )
    try:
        source = resolve_for_planning(config.model.name, config.model.revision)
        task = Task.of(config, source, shapes_mesh(target.devices), platform=target.platform)
    except ProblemError as error:
        return error.problems[0].what
    programs = Estimator(platform=target.platform, available_bytes=None).programs(task, None)
    train = next(program for program in programs if program.name == "train")
    # Relative to the prediction, or to a nominal speed if the device's is unknown.
    predicted = predict_step(task, target, train, step_ratio=1.0).update
    assert predicted is not None, "a ratio makes the time known"
    cpu = run.manifest["environment"].get("cpu") if target.platform == "cpu" else None
    return Calibration(
        run=run.manifest["run_id"],
        kind=devices["kind"],
        device=cpu or devices["kind"],
        step_ratio=round(median(times) / predicted.likely, 6),
        memory_ratio=_memory_ratio(run),
    )


def _memory_ratio(run: Run) -> float | None:
    """Return observed over planned memory of the same program; the growth of a CPU process is not comparable."""
    observed = (run.manifest or {})["result"].get("observed_memory")
    if observed is None or observed["source"] != BY_DEVICE:
        return None
    peaks = {program["name"]: program["peak_bytes"] for program in (run.plan or {}).get("programs", ())}
    peak = peaks.get(observed["part"])
    return None if peak is None else float(round(observed["bytes"] / peak, 6))

"""The parts of a run's time, each with what it is made of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from evidence.targets import Target
from schemas.formats import quantity
from trainer.config.tree import Config
from trainer.generate.decode import padded, prompt_rows, prompts_at_a_time
from trainer.loop.chain import chain_interval
from trainer.loop.task import Task
from trainer.planning.calibration import Measured
from trainer.planning.duration.roofline import dispatch_seconds, floor_seconds, step_band
from trainer.planning.duration.session import SessionPart, copy_part, evaluate_part, train_part
from trainer.planning.estimate.workload import ITEM_BYTES, bytes_of, count_of
from trainer.planning.program_memory import ProgramMemory
from trainer.planning.spending_rules import Band, exactly
from trainer.planning.subject import Subject

INSTALL = Band(low=30, likely=90, high=240)
"""Seconds to install the program from a wheel, its dependencies beside what a platform's image holds."""
NETWORK = Band(low=20e6, likely=50e6, high=150e6)
"""Bytes a second of a download of weights."""
DISK = Band(low=100e6, likely=300e6, high=1e9)
"""Bytes a second of a session's disk."""
HASHED = Band(low=0.4e9, likely=1.1e9, high=2e9)
"""Bytes a second of a state that is copied to the host and hashed by one core: 0.9 processor seconds a GiB."""
COPIED = Band(low=1e9, likely=4e9, high=12e9)
"""Bytes a second of a state from devices to the host: PCIe 3.0 with 8 to 16 lanes."""
ENCODED = Band(low=0.1e-3, likely=0.25e-3, high=1e-3)
"""Seconds to read, encode and pack one row: 0.23 ms on one core, short rows."""
COMPILE_A_LAYER = Band(low=1, likely=3, high=10)
"""Seconds to compile one layer of a train step to machine code: Gemma-2B's 18 take 44 s on quiet cores, 330 on busy."""
COMPILE_WITHIN = 2.0
"""Where runs on a kind of device were measured, another compiles so much faster or slower: hosts differ, and load."""
FURTHER_PROGRAM = 0.5
"""Of a step's time to compile, where the compiler was not asked: decoding took 44 % on a T4, 60 % on a CPU."""


def step_compile_seconds(task: Task, measured: Sequence[Measured] = ()) -> Band:
    """Return how long compiling a train step takes, narrowed by runs on the same kind of device."""
    layers = len(task.model.runs) if task.is_scanned else task.model.source.spec.layers
    known = [each.layer_compile_seconds for each in measured if each.layer_compile_seconds is not None]
    if not known or task.is_scanned:
        return COMPILE_A_LAYER.times(layers)
    low, high = min(known) / COMPILE_WITHIN, max(known) * COMPILE_WITHIN
    return Band(low=low, likely=sorted(known)[len(known) // 2], high=high).times(layers)


class CompileTime(NamedTuple):
    """What compiling the programs of a run took."""

    seconds: float
    programs: int
    kept: int
    """How many of them were compiled before and only read."""

    @property
    def because(self) -> str:
        """The figure in words; a start is warm where every program was kept."""
        start = "warm" if self.kept == self.programs else "cold"
        before = f"{self.kept} of {quantity(self.programs, 'program')} compiled before"
        return f"a {start} start: {self.seconds:.3g} s, {before}"


def compile_part(
    task: Task, programs: Sequence[ProgramMemory], *, measured: Sequence[Measured] = (), took: CompileTime | None = None
) -> SessionPart:
    """Return what compiling all programs takes: the step, and the others in proportion to what a compiler took.

    Args:
        task: the run.
        programs: of the run, with the seconds of their compiler where it was asked.
        measured: runs on the same kind of device.
        took: that it took. None: nothing was compiled for the device yet.
    """
    if took is not None:
        return SessionPart(name="compile", seconds=exactly(took.seconds), because=took.because)
    step, asked = step_compile_seconds(task, measured), {each.name: each.seconds for each in programs}
    of_step = asked.get("train")
    others = [name for name in ("start", "decode", "rollout") if name in asked]
    if of_step and all(asked[name] is not None for name in others):
        share = sum(asked[name] or 0.0 for name in others) / of_step
    else:
        share = FURTHER_PROGRAM * sum(name != "start" for name in others)
    layers = task.model.source.spec.layers
    because = (
        f"a cold start: {step.likely:.3g} s for the step of {layers} layers, {share:.0%} of that for the other programs"
    )
    return SessionPart(name="compile", seconds=step.times(1 + share), because=because)


def session_parts(
    subject: Subject, target: Target, step: Band, checkpoint: int, *, compiling: SessionPart
) -> list[SessionPart]:
    """Return what the time of a run goes to, in order.

    Args:
        subject: the run.
        target: where.
        step: the time of one.
        checkpoint: bytes of one.
        compiling: what that takes.
    """
    config, model = subject.task.config, subject.task.model
    parts = []
    if target.session_seconds is not None:
        parts.append(SessionPart(name="install", seconds=INSTALL, because="a wheel and what an image lacks"))
    saving = save_part(config, checkpoint, beside=target.platform != "cpu")
    parts += [compiling, load_part(subject), train_part(step, config.limits.steps), saving]
    if subject.asked is not None and target.memory_bandwidth is not None:
        parts.append(answers_part(subject, target))
    parts.append(copy_part("export", bytes_each=bytes_of(model.base), bytes_per_second=DISK))
    return parts


def load_part(subject: Subject) -> SessionPart:
    """Return what a session begins with besides compiling: weights that are fetched, and rows that are encoded."""
    rows, model = subject.rows, subject.task.model
    encoding = ENCODED.times(rows)
    because = f"{quantity(rows, 'row')} × {ENCODED.likely * 1000:g} ms to encode"
    if not model.reads_weights:
        return SessionPart(name="load", seconds=encoding, because=because)
    weights = copy_part("load", bytes_each=bytes_of(model.base), bytes_per_second=NETWORK)
    return SessionPart(name="load", seconds=weights.seconds.plus(encoding), because=f"{weights.because}; {because}")


def save_part(config: Config, checkpoint: int, *, beside: bool) -> SessionPart:
    """Return how long the devices wait for evidence: checkpoints are written, entries of the chain are hashed.

    Args:
        config: the run.
        checkpoint: bytes of one.
        beside: whether a thread writes and hashes while the devices go on: they wait for a copy of each state, and at
            the end for the last one.
    """
    last, every = config.limits.steps, config.checkpoint.save_every_steps
    saved = {*range(every, last, every), last} if every else {last}
    entries = len({*range(0, last, chain_interval(config)), *saved})
    written = copy_part("save", bytes_each=checkpoint, bytes_per_second=DISK, times=1 if beside else len(saved))
    hashed = copy_part("save", bytes_each=checkpoint, bytes_per_second=HASHED, times=1 if beside else entries)
    seconds, because = written.seconds.plus(hashed.seconds), f"{written.because}; {entries} entries of the chain "
    if not beside:
        return SessionPart(name="save", seconds=seconds, because=f"{because}hashed at {HASHED.likely / 1e9:g} GB/s")
    copied = copy_part("save", bytes_each=checkpoint, bytes_per_second=COPIED, times=entries)
    because += f"copied at {COPIED.likely / 1e9:g} GB/s, hashed and written beside the devices but the last"
    return SessionPart(name="save", seconds=seconds.plus(copied.seconds), because=because)


def answers_part(subject: Subject, target: Target) -> SessionPart:
    """Return what answering the evaluation set takes: prompts are read at once, then tokens are written one by one.

    Devices share the prompts. Each reads all parameters for a token, or its part of them where they are divided.
    """
    task, asked = subject.task, subject.asked
    assert asked is not None, "the caller has looked"
    assert target.memory_bandwidth is not None, "the caller has looked"
    config, model, of = task.config, task.model, task.config.evaluation
    divided = task.mesh.size > 1 and config.mesh.shard_params
    share = task.mesh.size if divided else 1
    weights = bytes_of(model.base) / share
    started = dispatch_seconds(
        target.platform, layers=model.source.spec.layers, passes=1, gathers=int(divided), calls=0
    )
    peak = target.peak_flops.get(config.precision.compute)
    devices = task.mesh.size
    at_a_time = prompts_at_a_time(of.batch_size, of.samples, devices)
    rows = prompt_rows(at_a_time, asked.prompts, devices) // devices
    flops = 2.0 * count_of(model.base) * rows * padded(asked.longest_tokens)
    item = ITEM_BYTES[config.precision.compute]
    reading = floor_seconds(
        flops=flops if peak else 0.0,
        peak_flops=peak or 1.0,
        moved_bytes=count_of(model.base) * item / share,
        bandwidth=target.memory_bandwidth,
    )
    return evaluate_part(
        prompts=asked.prompts,
        batch_size=at_a_time,
        tokens=of.max_new_tokens,
        token_seconds=step_band(max(weights / target.memory_bandwidth, started)),
        reading_seconds=step_band(max(reading, started)),
        times=2 if of.baseline else 1,
        during=during_of(config, asked.prompts),
    )


def during_of(config: Config, prompts: int) -> tuple[int, int]:
    """Return how often items are asked during training, and how many: every 10 of 25 steps is twice."""
    every = config.evaluation.every_steps
    return (config.limits.steps // every if every else 0), min(config.evaluation.during_items, prompts)

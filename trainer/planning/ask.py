"""What one program of a run needs on a target: asked of its compiler where there is one, else added up."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from trainer.data.prompts import Asked
from trainer.loop.task import Task
from trainer.methods.model import model_of
from trainer.planning.compile.ahead import Answer, Compiler, CompilerError, Question
from trainer.planning.compile.buffers import Buffer
from trainer.planning.compile.cache import keep, kept, key_of
from trainer.planning.compile.machines import Machine, to_install
from trainer.planning.estimate import Part, error_of, estimates, total_bytes
from trainer.planning.estimate.workload import bytes_of, workload_of
from trainer.planning.verdict import Verdict, Way, verdict

COMPILED_ERROR = 0.02
"""The public failure: 28.12 GiB by the compiler, 28.59 on the chip."""
EXTRAPOLATED_ERROR = 0.23
"""Beyond the compiler's own: what few layers beside occupied memory say of the whole.

Large models on one chip were within 5 %, the step of SmolLM2-135M 10 % and small decoding 24 % apart, and of several
devices few layers keep 20 % less: these run ahead of each other over as many layers as there are.
"""
CARD_ERROR = 0.05
"""A card's compiler cannot time its kernels without the card, and may choose others there."""

FEW_LAYERS = 3
NAMED_BUFFERS = 8


@dataclass(frozen=True, kw_only=True)
class ProgramAnswer:
    """What one program of a run needs of each device."""

    name: str
    way: Way
    peak_bytes: int
    available_bytes: int | None
    error_fraction: float
    because: str
    seconds: float | None
    """How long the compiler took. None: it was not asked."""
    parts: tuple[Part, ...]
    buffers: tuple[Buffer, ...] = ()
    aliased_fraction: float | None = None
    """Of the state that a compiled step replaces, what it reuses. None: not seen, or another program."""
    opt_state_ratio: float | None = None
    """Optimizer state among a compiled step's arguments over what the declared optimizer keeps. None: as above."""

    @property
    def verdict(self) -> Verdict:
        """Whether the program fits."""
        return verdict(self.peak_bytes, self.available_bytes, self.error_fraction, self.way)

    def document(self) -> dict[str, Any]:
        """Return the program as plan.json has it."""
        return {
            "name": self.name,
            "on": "device",
            "verdict": self.verdict,
            "method": self.way,
            "peak_bytes": self.peak_bytes,
            "available_bytes": self.available_bytes,
            "error_fraction": self.error_fraction,
            "because": self.because,
            "seconds": self.seconds,
            "parts": parts_document(self.parts),
            "buffers": [asdict(buffer) for buffer in self.buffers],
        }


def parts_document(parts: tuple[Part, ...]) -> list[dict[str, Any]]:
    """Return parts as plan.json has them, largest first."""
    ordered = sorted((part for part in parts if part.bytes), key=lambda part: -part.bytes)
    return [{"name": part.name, "bytes": part.bytes, "because": part.because} for part in ordered]


@dataclass(frozen=True, kw_only=True)
class Asking:
    """Whom to ask about programs, and how thoroughly."""

    platform: str
    available_bytes: int | None
    machine: Machine | None = None
    """None: there is no compiler for the target here, and sums answer."""
    compiler: Compiler | None = None
    exact: bool = False
    """Compile every program whole."""
    limit_seconds: float = 600.0
    say: Callable[[str], None] = field(default=lambda line: None)
    why_not: str = ""
    """Why no compiler is asked."""
    sure_fraction: float = 0.0
    """Below this share of the memory a sum is sure enough, and no compiler is asked. 0: it always is."""

    def quick(self) -> Asking:
        """Return the asking that compiles nothing."""
        return replace(self, machine=None, why_not=self.why_not or "only formulas were asked for")

    def programs(self, task: Task, asked: Asked | None) -> list[ProgramAnswer]:
        """Return what every program of a run needs, in the order in which they run."""
        sums = {**estimates(task, platform=self.platform, asked=asked), "export": export_parts(task, self.platform)}
        return [
            self.program(name, task, asked, sums[name])
            for name in ("start", "train", "decode", "export")
            if name in sums
        ]

    def program(self, name: str, task: Task, asked: Asked | None, parts: tuple[Part, ...]) -> ProgramAnswer:
        """Return what one program needs."""
        if self.machine is None or self.compiler is None:
            return self._summed(name, parts, self.why_not)
        if total_bytes(parts) <= self.sure_fraction * (self.available_bytes or 0):
            return self._summed(name, parts, f"below {self.sure_fraction:.0%} of the memory a sum is sure")
        answer = None
        try:
            layers = task.model.source.spec.layers
            if not self.exact and layers > 2 * FEW_LAYERS:
                answer = self.extrapolated(name, task, asked, parts)
            if answer is None or answer.verdict == "tight":
                answer = self._compiled(name, task, asked, parts)
        except CompilerError as error:
            if answer is not None:
                return answer
            return self._summed(name, parts, one_line(str(error)))
        return answer

    def _summed(self, name: str, parts: tuple[Part, ...], why_not: str) -> ProgramAnswer:
        """Return what the closed form says."""
        return ProgramAnswer(
            name=name,
            way="closed_form",
            peak_bytes=total_bytes(parts),
            available_bytes=self.available_bytes,
            error_fraction=error_of(parts, self.available_bytes),
            because=f"added up: {why_not}",
            seconds=None,
            parts=parts,
        )

    def _compiled(self, name: str, task: Task, asked: Asked | None, parts: tuple[Part, ...]) -> ProgramAnswer:
        """Return what the compiler says of the whole program."""
        beside = resident_bytes(name, parts)
        answer = self._answer(name, task, asked, layers=0, occupied=beside)
        found = self._of(name, answer, parts, "compiler", "the whole program was compiled")
        return with_step_read(found, answer, parts, occupied=beside)

    def extrapolated(self, name: str, task: Task, asked: Asked | None, parts: tuple[Part, ...]) -> ProgramAnswer:
        """Return what the compiler says of the first layers, beside memory occupied as the others would."""
        source = task.model.source
        few = replace(source, spec=replace(source.spec, blocks=source.spec.blocks[:FEW_LAYERS]))
        fewer = replace(task, model=model_of(task.config, few))
        if name == "export":
            less = export_parts(fewer, self.platform)
        else:
            less = estimates(fewer, platform=self.platform, asked=asked)[name]
        others = total_bytes(parts) - total_bytes(less)
        occupied = others + resident_bytes(name, less)
        answer = self._answer(name, task, asked, layers=FEW_LAYERS, occupied=occupied)
        layers = source.spec.layers
        because = f"{FEW_LAYERS} of {layers} layers were compiled beside {others:,} bytes that the others take"
        found = self._of(name, answer, parts, "extrapolated", because)
        return with_step_read(found, answer, less, occupied=occupied)

    def _of(self, name: str, answer: Answer, parts: tuple[Part, ...], way: Way, because: str) -> ProgramAnswer:
        """Return an answer of the compiler, its bytes divided into parts as the sums divide them."""
        error = COMPILED_ERROR if self.platform == "tpu" else CARD_ERROR
        if way == "extrapolated":
            error += EXTRAPOLATED_ERROR
        return ProgramAnswer(
            name=name,
            way=way,
            peak_bytes=answer.peak_bytes,
            available_bytes=self.available_bytes,
            error_fraction=error,
            because=because,
            seconds=round(answer.seconds, 2),
            parts=divided(answer.peak_bytes, parts),
            buffers=() if answer.memory is None else answer.memory.largest[:NAMED_BUFFERS],
        )

    def _answer(self, name: str, task: Task, asked: Asked | None, *, layers: int, occupied: int) -> Answer:
        """Return the compiler's answer, kept from an earlier plan or asked for now.

        Raises:
            CompilerError: there is none; that too is remembered for as long as this process lives.
        """
        assert self.machine is not None, "the caller has looked"
        assert self.compiler is not None, "the caller has looked"
        question = Question(
            program=name,
            config=task.config,
            machine=self.machine,
            asked=asked if name == "decode" else None,
            layers=layers,
            occupied_bytes=occupied,
        )
        key = key_of({**question.document(), "spec": repr(task.model.source.spec)})
        if (known := kept(key)) is not None:
            return Answer.from_document(known)
        whole = "" if not layers else f", {layers} of {task.model.source.spec.layers} layers"
        self.say(f"compiling {name}{whole}")
        answer = self.compiler.ask(question, limit_seconds=self.limit_seconds)
        keep(key, answer.document())
        return answer


def with_step_read(found: ProgramAnswer, answer: Answer, parts: tuple[Part, ...], *, occupied: int) -> ProgramAnswer:
    """Return the answer of a train step with what its arguments say of donation and optimizer; others as they are.

    Args:
        found: what is known of the program.
        answer: what the compiler said of as many layers as it was given.
        parts: what is summed for these layers.
        occupied: bytes of the argument that stands for everything else; it is donated too.
    """
    if found.name != "train" or answer.memory is None:
        return found
    held = {part.name: part.bytes for part in parts}
    state = held.get("params", 0) + held.get("opt_state", 0)
    others = occupied + sum(held.get(name, 0) for name in ("params", "frozen", "batch"))
    if not state or not held.get("opt_state"):
        return found
    return replace(
        found,
        aliased_fraction=max(answer.memory.aliased_bytes - occupied, 0) / state,
        opt_state_ratio=max(answer.memory.arguments_bytes - others, 0) / held["opt_state"],
    )


def resident_bytes(name: str, parts: tuple[Part, ...]) -> int:
    """Return what lies beside a program and is no argument of it: opt_state while answers are made, a frozen base."""
    beside = {"decode": ("opt_state", "reference"), "start": ("frozen", "reference")}.get(name, ())
    return sum(part.bytes for part in parts if part.name in beside)


def export_parts(task: Task, platform: str) -> tuple[Part, ...]:
    """Return what making the plain model needs: its parameters, and adapters until they are merged into them."""
    work = workload_of(task, platform=platform)
    plain = bytes_of(task.model.base) // work.shards
    merged = max(math.prod(shape.shape) * 4 for shape in task.model.base.values()) if task.model.adapters else 0
    return (
        Part(name="params", bytes=plain, because="the plain model"),
        Part(name="adapters", bytes=bytes_of(task.model.trained) // work.shards if merged else 0, because="adapters"),
        Part(name="merging", bytes=merged // work.shards, because="the largest array in float32 while it is merged"),
    )


KEPT_WHOLE = ("params", "frozen", "opt_state", "batch", "adapters")
"""Parts that are exact: arrays of known shape that are there from begin to end."""


def divided(peak: int, parts: tuple[Part, ...]) -> tuple[Part, ...]:
    """Return parts that add up to a compiled peak: arrays of known shape as they are, the rest in proportion.

    A peak of 100 with params of 60 and temporaries summed as 30 and 20 has 60, 24 and 16.
    """
    exact = [part for part in parts if part.name in KEPT_WHOLE]
    loose = [part for part in parts if part.name not in KEPT_WHOLE and part.bytes]
    left = peak - total_bytes(tuple(exact))
    if left < 0 or not loose:
        rest = Part(name="temporaries", bytes=max(left, 0), because="what the compiler keeps besides")
        whole = tuple(_fitted(peak, exact)) if left < 0 else (*exact, rest)
        return tuple(part for part in whole if part.bytes)
    summed = total_bytes(tuple(loose))
    shared = [replace(part, bytes=part.bytes * left // summed) for part in loose]
    lost = left - sum(part.bytes for part in shared)
    shared[0] = replace(shared[0], bytes=shared[0].bytes + lost)
    return tuple(part for part in (*exact, *shared) if part.bytes)


def _fitted(peak: int, parts: list[Part]) -> Iterator[Part]:
    """Yield parts cut so that they add up to a peak below their sum."""
    left = peak
    for part in parts:
        taken = min(part.bytes, left)
        left -= taken
        yield replace(part, bytes=taken)


def one_line(text: str) -> str:
    """Return a text as one line that fits into a document."""
    return " ".join(text.split())[:400] or "no reason was given"


def no_compiler(platform: str) -> str:
    """Return why a platform's compiler is not asked, and what brings it."""
    if platform == "cpu":
        return "a CPU's memory is added up"
    return f"the {platform.upper()} compiler is not installed ({to_install(platform)})"

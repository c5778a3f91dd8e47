"""The memory of a program on a target: from its compiler where there is one, else by the closed form."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from schemas.formats import size
from trainer.data.answers import EvalShape
from trainer.loop.rollouts import rollout_programs
from trainer.loop.task import Task
from trainer.model.model import build_model
from trainer.planning.compile.ahead import Compiler, CompilerAnswer, CompileRequest, CompilerError
from trainer.planning.compile.cache import keep, kept, key_of
from trainer.planning.compile.machines import Machine, Processors, to_install
from trainer.planning.estimate.part import Part, error_of, total_bytes
from trainer.planning.estimate.plain_model import export_parts
from trainer.planning.estimate.programs import estimates
from trainer.planning.extrapolate import FEW_LAYERS, Anchor, anchor_of, whole_from
from trainer.planning.program_memory import COMPILED_ERROR, ProgramMemory, Way, divided

CARD_ERROR = 0.05
"""A card's compiler cannot time its kernels without the card, and may choose others there."""

FAR_TOO_LARGE = 2.0
"""Times the memory that a device has: from there on the sums refuse alone. Their largest error is a quarter."""

SURE_FRACTION = {"cpu": 0.45, "gpu": 0.7, "tpu": 0.7}
"""Below this share of the memory a sum is sure enough; the largest errors of sums are 26 %, and of a CPU's a half."""

NOT_RUN = {
    "start": "the state comes from a checkpoint",
    "save": "saving is no program",
    "export": "exporting is a command of its own",
}
"""Why a program is summed and not compiled, where the compiler of the run's own device was at hand."""

NAMED_BUFFERS = 8


@dataclass(frozen=True, kw_only=True)
class Estimator:
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
    settles: bool = True
    """Whether the whole of a program is compiled where few layers leave open whether it fits."""
    anchors: dict[str, Anchor] = field(default_factory=dict)
    """Programs whose whole was compiled: what is said of the same programs of changed runs is corrected by them."""
    longest: int | None = None
    """Tokens of the longest sequences that the rows need. None: as long as they may be."""

    @property
    def compiled_error(self) -> float:
        """How far what the compiler says of a whole program may be off."""
        return CARD_ERROR if self.platform == "gpu" else COMPILED_ERROR

    def brief(self) -> Estimator:
        """Return the asking that compiles only what a sum is not sure of."""
        return replace(self, sure_fraction=SURE_FRACTION[self.platform])

    def open_ended(self) -> Estimator:
        """Return the asking that leaves open what few layers leave open."""
        return replace(self, settles=False)

    def quick(self) -> Estimator:
        """Return the asking that compiles nothing."""
        return replace(self, machine=None, why_not=self.why_not or "only formulas were asked for")

    def programs(self, task: Task, asked: EvalShape | None) -> list[ProgramMemory]:
        """Return what every program of a run needs, in the order in which they run."""
        sums = {**estimates(task, platform=self.platform, asked=asked), "export": export_parts(task, self.platform)}
        return [
            self.program(name, task, asked, sums[name])
            for name in ("start", "train", "decode", "rollout", "save", "export")
            if name in sums
        ]

    def program(self, name: str, task: Task, asked: EvalShape | None, parts: tuple[Part, ...]) -> ProgramMemory:
        """Return what one program needs."""
        if why_not := self._why_not_asked(name, parts):
            return self._summed(name, parts, why_not)
        answer = whole = None
        try:
            layers = task.model.source.spec.layers
            # On this machine the whole is what `train` compiles, and a CPU's compiler keeps much of every layer.
            few = layers > 2 * FEW_LAYERS and not task.is_scanned and not isinstance(self.machine, Processors)
            if few and not self.exact:
                answer = self.extrapolated(name, task, asked, parts)
            if answer is None or (answer.verdict == "tight" and self.settles):
                whole = self._compiled(name, task, asked, parts)
        except CompilerError as error:
            return answer or self._summed(name, parts, one_line(str(error)))
        if answer is not None and whole is not None:
            self.anchors.setdefault(name, anchor_of(answer, whole, parts))
        return whole or answer or self._summed(name, parts, "no compiler was asked")

    def _why_not_asked(self, name: str, parts: tuple[Part, ...]) -> str:
        """Return why the compiler is not asked about a program, an empty text where it is."""
        need, available = total_bytes(parts), self.available_bytes or 0
        if self.machine is None or self.compiler is None:
            return self.why_not or "no compiler was asked"
        if need <= self.sure_fraction * available:
            return f"below {self.sure_fraction:.0%} of the memory a sum is sure"
        if isinstance(self.machine, Processors):
            if name in NOT_RUN and name != "start":
                return NOT_RUN[name]
            if need > FAR_TOO_LARGE * available:
                return f"more than {FAR_TOO_LARGE:g} times the memory is not compiled"
        return ""

    def _summed(self, name: str, parts: tuple[Part, ...], why_not: str) -> ProgramMemory:
        """Return what the closed form says."""
        return ProgramMemory(
            name=name,
            way="closed_form",
            peak_bytes=total_bytes(parts),
            available_bytes=self.available_bytes,
            error_fraction=error_of(parts, self.available_bytes),
            because=f"added up: {why_not}",
            seconds=None,
            parts=parts,
        )

    def _compiled(self, name: str, task: Task, asked: EvalShape | None, parts: tuple[Part, ...]) -> ProgramMemory:
        """Return what the compiler says of the whole program."""
        beside = resident_bytes(name, parts)
        answers = [self._answer(each, task, asked, layers=0, occupied=beside) for each in self._compiled_as(name, task)]
        answer = max(answers, key=lambda each: each.peak_bytes)
        found = self._of(name, answer, parts, "compiler", "the whole program was compiled")
        return with_step_read(found, answer, parts, occupied=beside)

    def _compiled_as(self, name: str, task: Task) -> tuple[str, ...]:
        """Return the names in `loop/programs.py` of what `train` compiles for a program, on this machine as it does."""
        if name == "rollout":  # half the rows need no more than all of them
            return tuple(each for each in rollout_programs(task) if each != "rollout_half")
        if not isinstance(self.machine, Processors):
            return (name,)
        if name == "start" and (task.model.adapters or not task.model.reads_weights):
            return ("draw", "start")
        if name == "train" and self.longest in task.lengths[:-1]:
            return (f"train_{self.longest}",)
        return (name,)

    def extrapolated(self, name: str, task: Task, asked: EvalShape | None, parts: tuple[Part, ...]) -> ProgramMemory:
        """Return what the compiler says of the first layers, beside memory occupied as the others would."""
        source = task.model.source
        few = replace(source, spec=replace(source.spec, blocks=source.spec.blocks[:FEW_LAYERS]))
        fewer = replace(task, model=build_model(task.config, few))
        if name == "export":
            less = export_parts(fewer, self.platform)
        else:
            less = estimates(fewer, platform=self.platform, asked=asked)[name]
        others = total_bytes(parts) - total_bytes(less)
        occupied = others + resident_bytes(name, less)
        answers = [
            self._answer(each, task, asked, layers=FEW_LAYERS, occupied=occupied)
            for each in self._compiled_as(name, task)
        ]
        answer = max(answers, key=lambda each: each.peak_bytes)
        layers = source.spec.layers
        whole = whole_from(answer.peak_bytes, parts, self.anchors.get(name))
        because = (
            f"{FEW_LAYERS} of {layers} layers were compiled, with {size(others)} set aside for the others: "
            f"{size(answer.peak_bytes)} together"
        )
        found = self._of(name, answer, parts, "extrapolated", because + whole.because)
        found = replace(
            found,
            peak_bytes=whole.bytes,
            error_fraction=round((0.0 if whole.is_sum else found.error_fraction) + whole.error_fraction, 4),
            parts=divided(whole.bytes, parts),
            few_bytes=answer.peak_bytes,
        )
        return with_step_read(found, answer, less, occupied=occupied)

    def _of(self, name: str, answer: CompilerAnswer, parts: tuple[Part, ...], way: Way, because: str) -> ProgramMemory:
        """Return an answer of the compiler, its bytes divided into parts as the sums divide them."""
        return ProgramMemory(
            name=name,
            way=way,
            peak_bytes=answer.peak_bytes,
            available_bytes=self.available_bytes,
            error_fraction=self.compiled_error,
            because=because,
            seconds=round(answer.seconds, 2),
            parts=divided(answer.peak_bytes, parts),
            buffers=() if answer.memory is None else answer.memory.largest[:NAMED_BUFFERS],
        )

    def _answer(self, name: str, task: Task, asked: EvalShape | None, *, layers: int, occupied: int) -> CompilerAnswer:
        """Return the compiler's answer, kept from an earlier plan or asked for now.

        Raises:
            CompilerError: there is none; that too is remembered for as long as this process lives.
        """
        assert self.machine is not None, "the caller has looked"
        assert self.compiler is not None, "the caller has looked"
        question = CompileRequest(
            program=name,
            config=task.config,
            machine=self.machine,
            asked=asked if name == "decode" else None,
            layers=layers,
            occupied_bytes=occupied,
        )
        key = key_of({**question.document(), "spec": repr(task.model.source.spec)})
        if (known := kept(key)) is not None:
            return CompilerAnswer.from_document(known)
        whole = "" if not layers else f", {layers} of {task.model.source.spec.layers} layers"
        self.say(f"compiling {name}{whole}")
        answer = self.compiler.ask(question, limit_seconds=self.limit_seconds)
        keep(key, answer.document())
        return answer


def with_step_read(
    found: ProgramMemory, answer: CompilerAnswer, parts: tuple[Part, ...], *, occupied: int
) -> ProgramMemory:
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


ANSWERING = ("opt_state", "reference")
"""Parts that are there while the model writes, and are nothing to it."""


def resident_bytes(name: str, parts: tuple[Part, ...]) -> int:
    """Return what lies beside a program and is no argument of it: opt_state while answers are made, a frozen base."""
    beside = {"decode": ANSWERING, "rollout": ANSWERING, "start": ("frozen", "reference")}.get(name, ())
    return sum(part.bytes for part in parts if part.name in beside)


def one_line(text: str) -> str:
    """Return a text as one line that fits into a document."""
    return " ".join(text.split())[:400] or "no reason was given"


def no_compiler(platform: str) -> str:
    """Return why a platform's compiler is not asked, and what brings it."""
    if platform == "cpu":
        return "a CPU of another machine is not compiled for"
    return f"the {platform.upper()} compiler is not installed ({to_install(platform)})"

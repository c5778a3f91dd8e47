"""The memory of a run's programs: compiled, or estimated by formula far from the limit and without a compiler."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

from trainer.data.answers import EvalShape
from trainer.loop.rollouts import rollout_programs
from trainer.loop.task import Task
from trainer.model.stacks import Remat
from trainer.planning.compile.ahead import LIMIT_SECONDS, Compiler, CompilerError
from trainer.planning.compile.buffers import Buffer
from trainer.planning.compile.machines import Machine, Processors, to_install
from trainer.planning.formula import FORMULA_ERROR, Part, Parts, count_params, estimate, params_bytes, total_bytes

Verdict = Literal["fits", "tight", "does_not_fit", "unsupported", "unknown"]
Method = Literal["closed_form", "compiler"]
WORST_FIRST: tuple[Verdict, ...] = ("unsupported", "does_not_fit", "tight", "unknown", "fits")

COMPILED_ERROR = 0.02
"""The public failure: 28.12 GiB by the compiler, 28.59 GiB on the chip."""
GPU_COMPILED_ERROR = 0.05
"""Without the GPU its compiler cannot time kernels, and may choose others there."""

FAR_BELOW, FAR_ABOVE = 0.6, 2.0
"""Shares of the memory outside which the formula decides without the compiler."""

REMATS: tuple[Remat, ...] = ("none", "dots", "layer")
"""Candidates of `memory.remat: auto`, fastest first."""

EXACT = ("params", "frozen", "reference", "opt_state", "batch", "adapters", "second_state")
"""Parts whose arrays have known shapes; the other parts of a compiled program are scaled to its peak."""
BUFFERS = 8
NOT_COMPILED = {
    "start": "the state comes from a checkpoint",
    "save": "saving is not a compiled program",
    "export": "exporting is a separate command",
}
"""Why programs are estimated although a compiler for this machine is used."""

WEIGHTS_READING = 704 * 2**20
"""Most memory that a CPU process keeps after reading weights: freed copies that its allocator holds."""


def verdict(need_bytes: int, available_bytes: int | None, error: float, method: str = "closed_form") -> Verdict:
    """Compare a need, give or take its relative error, with the memory.

    `tight` means that the memory lies within the band. A compiler refuses programs above the limit, so the band of a
    compiled program has no lower half.

    >>> [verdict(need, 100, 0.08) for need in (92, 95, 108, 109)]
    ['fits', 'tight', 'tight', 'does_not_fit']
    >>> [verdict(need, 100, 0.08, "compiler") for need in (92, 95, 101)]
    ['fits', 'tight', 'does_not_fit']
    """
    if available_bytes is None:
        return "unknown"
    if need_bytes * (1 + error) <= available_bytes:
        return "fits"
    least = need_bytes if method == "compiler" else need_bytes * (1 - error)
    return "tight" if least <= available_bytes else "does_not_fit"


def worst(verdicts: Iterable[Verdict]) -> Verdict:
    """Return the worst verdict."""
    return min(verdicts, key=WORST_FIRST.index)


@dataclass(frozen=True, kw_only=True)
class ProgramMemory:
    """Memory of one program on each device.

    Attributes:
        because: How the figure was found.
        seconds: Compilation time, or None if it was not compiled.
        aliased_fraction: Share of its state that a compiled train step reuses, or None if unknown.
        opt_state_ratio: Optimizer state of a compiled train step relative to the declared one, or None if unknown.
    """

    name: str
    method: Method
    peak_bytes: int
    available_bytes: int | None
    error_fraction: float
    because: str
    seconds: float | None
    parts: Parts
    buffers: tuple[Buffer, ...] = ()
    aliased_fraction: float | None = None
    opt_state_ratio: float | None = None

    @property
    def verdict(self) -> Verdict:
        """Whether the program fits."""
        return verdict(self.peak_bytes, self.available_bytes, self.error_fraction, self.method)

    def document(self) -> dict[str, Any]:
        """Return the program as in plan.json."""
        return {
            "name": self.name,
            "on": "device",
            "verdict": self.verdict,
            "method": self.method,
            "peak_bytes": self.peak_bytes,
            "available_bytes": self.available_bytes,
            "error_fraction": self.error_fraction,
            "because": self.because,
            "seconds": self.seconds,
            "parts": parts_document(self.parts),
            "buffers": [asdict(buffer) for buffer in self.buffers],
        }


def parts_document(parts: Parts) -> list[dict[str, Any]]:
    """Return parts as in plan.json, largest first."""
    ordered = sorted((part for part in parts if part.bytes), key=lambda part: -part.bytes)
    return [asdict(part) for part in ordered]


def deciding(programs: Sequence[ProgramMemory]) -> ProgramMemory:
    """Return the program that decides: the worst verdict, then the largest need."""
    return min(programs, key=lambda program: (WORST_FIRST.index(program.verdict), -program.peak_bytes))


def split_peak(peak: int, parts: Parts) -> Parts:
    """Scale estimated parts so that they add up to a compiled peak; parts of known shape keep their size.

    A peak of 100 with params of 60 and temporaries estimated at 30 and 20 becomes 60, 24 and 16.
    """
    loose = [part for part in parts if part.name not in EXACT and part.bytes]
    left = peak - sum(part.bytes for part in parts if part.name in EXACT)
    if left < 0:
        loose, left = list(parts), peak
    elif not loose:
        loose = [Part(name="temporaries", bytes=1, because="everything else in the compiled program")]
    total = max(total_bytes(tuple(loose)), 1)
    scaled = [replace(part, bytes=part.bytes * left // total) for part in loose]
    scaled[0] = replace(scaled[0], bytes=scaled[0].bytes + left - total_bytes(tuple(scaled)))
    exact = [part for part in parts if part not in loose and part.name in EXACT]
    return tuple(part for part in (*exact, *scaled) if part.bytes)


def resident_bytes(name: str, parts: Parts) -> int:
    """Return the memory of arrays that exist while a program runs and are not its arguments."""
    resident = {"start": ("frozen", "reference")}.get(name, ("opt_state", "reference"))
    return sum(part.bytes for part in parts if part.name in resident) if name in ("start", "decode", "rollout") else 0


def weights_kept_bytes(task: Task) -> int:
    """Return what a CPU process keeps after reading weights (docs/decisions/memory-estimate.md)."""
    return min(count_params(task.model.base) * 4 * 27 // 20, WEIGHTS_READING) if task.model.reads_weights else 0


def reading_parts(task: Task) -> Parts:
    """Estimate reading the weights on a CPU: each array, and its file and float32 copy as far as not kept anyway."""
    base = task.model.base
    copies = max(count_params(base) * 5 - weights_kept_bytes(task), 0)
    return (
        Part(name="params", bytes=params_bytes(base), because=f"{count_params(base):,} parameters"),
        Part(name="reading", bytes=copies, because="pages of the weight files, and float32 copies of arrays"),
    )


@dataclass(frozen=True, kw_only=True)
class Estimator:
    """Estimates program memory by compiling, or by formula if no compiler is available.

    Attributes:
        available_bytes: Memory of each device, or None if unknown.
        machine: The devices as their compiler knows them, or None to use the formula.
        exact: Compile programs far from the limit too.
        why_not: Why nothing is compiled.
        longest: Longest sequence of the data, or None if the data was not read.
    """

    platform: str
    available_bytes: int | None
    machine: Machine | None = None
    compiler: Compiler | None = None
    exact: bool = False
    limit_seconds: float = LIMIT_SECONDS
    say: Callable[[str], None] = field(default=lambda line: None)
    why_not: str = "nothing was compiled"
    longest: int | None = None

    def formula_only(self) -> Estimator:
        """Return an estimator that compiles nothing."""
        return Estimator(platform=self.platform, available_bytes=self.available_bytes, why_not=self.why_not)

    def programs(self, task: Task, asked: EvalShape | None) -> list[ProgramMemory]:
        """Return the memory of every program of a run, in the order in which they run."""
        estimates = estimate(task, platform=self.platform, asked=asked)
        found = [self.program(name, task, asked, parts) for name, parts in estimates.items()]
        if self.platform == "cpu" and task.model.reads_weights:
            reading = self._formula("start", reading_parts(task), "reading the weights")
            found = [max(each, reading, key=_peak) if each.name == "start" else each for each in found]
        return found

    def program(self, name: str, task: Task, asked: EvalShape | None, parts: Parts) -> ProgramMemory:
        """Return the memory of one program."""
        need, limit = total_bytes(parts), self.available_bytes
        if self.machine is None or self.compiler is None:
            return self._formula(name, parts, self.why_not)
        if isinstance(self.machine, Processors) and name in ("save", "export"):
            return self._formula(name, parts, NOT_COMPILED[name])
        if limit is not None and not self.exact and not FAR_BELOW * limit <= need <= FAR_ABOVE * limit:
            side = f"below {FAR_BELOW:.0%}" if need < limit else f"above {FAR_ABOVE:.0%}"
            return self._formula(name, parts, f"{side} of the memory, not compiled")
        try:
            return self._compiled(name, task, asked, parts, self.machine, self.compiler)
        except CompilerError as error:
            return self._formula(name, parts, " ".join(str(error).split())[:400])

    def _formula(self, name: str, parts: Parts, why: str) -> ProgramMemory:
        return ProgramMemory(
            name=name,
            method="closed_form",
            peak_bytes=total_bytes(parts),
            available_bytes=self.available_bytes,
            error_fraction=FORMULA_ERROR,
            because=f"estimated by formula: {why}",
            seconds=None,
            parts=parts,
        )

    def _compiled(
        self, name: str, task: Task, asked: EvalShape | None, parts: Parts, machine: Machine, compiler: Compiler
    ) -> ProgramMemory:
        """Compile a program, or the largest of the programs that a run has for it.

        Raises:
            CompilerError: The compiler has no answer.
        """
        self.say(f"compiling {name}")
        answers = [
            compiler.ask(
                each,
                task.config,
                machine,
                asked=asked if name == "decode" else None,
                limit_seconds=self.limit_seconds,
            )
            for each in self._names_in_run(name, task)
        ]
        answer = max(answers, key=lambda each: each.peak_bytes)
        peak = answer.peak_bytes + resident_bytes(name, parts)
        found = ProgramMemory(
            name=name,
            method="compiler",
            peak_bytes=peak,
            available_bytes=self.available_bytes,
            error_fraction=GPU_COMPILED_ERROR if self.platform == "gpu" else COMPILED_ERROR,
            because="the program was compiled",
            seconds=round(sum(each.seconds for each in answers), 2),
            parts=split_peak(peak, parts),
            buffers=() if answer.memory is None else answer.memory.largest[:BUFFERS],
        )
        held = {part.name: part.bytes for part in parts}
        if name != "train" or answer.memory is None or not held["opt_state"]:
            return found
        others = sum(held.get(each, 0) for each in ("params", "frozen", "reference", "batch"))
        return replace(
            found,
            aliased_fraction=answer.memory.aliased_bytes / (held["params"] + held["opt_state"]),
            opt_state_ratio=max(answer.memory.arguments_bytes - others, 0) / held["opt_state"],
        )

    def _names_in_run(self, name: str, task: Task) -> tuple[str, ...]:
        """Return the names in `loop/programs.py` of what a run compiles for a program."""
        if name == "rollout":  # half the rows need no more than all of them
            return tuple(each for each in rollout_programs(task) if each != "rollout_half")
        if isinstance(self.machine, Processors):
            if name == "start" and (task.model.adapters or not task.model.reads_weights):
                return ("draw", "start")
            if name == "train" and self.longest in task.lengths[:-1]:
                return (f"train_{self.longest}",)
        return (name,)

    def resolve_remat(self, task: Task) -> Task:
        """Resolve `memory.remat: auto` to the first candidate whose train step fits, or to `layer`."""
        found = task
        for found in remat_candidates(task, self.available_bytes):
            if found is task or found.config.memory.remat == REMATS[-1]:
                break
            self.say(f"trying memory.remat={found.config.memory.remat}")
            parts = estimate(found, platform=self.platform)["train"]
            if self.program("train", found, None, parts).verdict == "fits":
                break
        return found


def _peak(program: ProgramMemory) -> int:
    return program.peak_bytes


def remat_candidates(task: Task, available_bytes: int | None) -> Iterator[Task]:
    """Yield the task with each candidate of `memory.remat: auto`, or the task itself if it is not auto.

    A quantised base is never kept whole, because its unpacked kernels would be. Without a known memory only `layer` is
    a candidate.
    """
    if task.config.memory.remat != "auto":
        yield task
        return
    for remat in REMATS[task.config.method.base != "plain" :] if available_bytes is not None else REMATS[-1:]:
        changed = task.changed(replace(task.config, memory=replace(task.config.memory, remat=remat)))
        yield replace(changed, is_remat_open=True)


def missing_compiler(platform: str) -> str:
    """Return why a platform's compiler cannot be used, and how to install it."""
    if platform == "cpu":
        return "another machine's CPU cannot be compiled for"
    return f"the {platform.upper()} compiler is not installed ({to_install(platform)})"

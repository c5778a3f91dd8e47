"""The memory of a run's programs: compiled, or estimated by formula far from the limit and without a compiler."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

from evidence.targets import Target
from trainer.data.answers import EvalShape
from trainer.loop.compilation import Compiled, donation
from trainer.loop.rollouts import rollout_programs
from trainer.loop.state import state_shapes
from trainer.loop.task import Task
from trainer.model.decoder import parameter_count
from trainer.model.stacks import Remat
from trainer.planning.compile.ahead import Buffer, CompilerAnswer, CompilerError, ask_compiler
from trainer.planning.compile.machines import Machine
from trainer.planning.formula import FORMULA_ERROR, Part, Parts, estimate, params_bytes, total_bytes
from trainer.runtime import available_bytes

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
GENERATING = ("opt_state", "reference")
RESIDENT = {"start": ("frozen", "reference"), "decode": GENERATING, "rollout": GENERATING}
"""Parts that exist while a program runs and are not among its arguments."""
BUFFERS = 8
NOT_COMPILED = {
    "start": "the state comes from a checkpoint",
    "save": "saving is not a compiled program",
    "export": "exporting is a separate command",
}
"""Why programs are estimated although a compiler for this machine is used."""

WEIGHTS_READING = 704 * 2**20
"""Most memory that a CPU process keeps after reading weights: freed copies that its allocator holds."""


def verdict(need_bytes: int, available_bytes: int | None, error: float, method: Method = "closed_form") -> Verdict:
    """Compare a need and its relative error with the memory; `tight` means that the memory is within the band.

    A compiler refuses programs above the limit, so the band of a compiled program has no lower half.
    """
    if available_bytes is None:
        return "unknown"
    if need_bytes * (1 + error) <= available_bytes:
        return "fits"
    least = need_bytes if method == "compiler" else need_bytes * (1 - error)
    return "tight" if least <= available_bytes else "does_not_fit"


@dataclass(frozen=True, kw_only=True)
class ProgramMemory:
    """Memory of one program on each device."""

    name: str
    method: Method = "closed_form"
    peak_bytes: int
    available_bytes: int | None
    error_fraction: float
    because: str
    seconds: float | None = None
    """Compilation time, or None if it was not compiled."""
    parts: Parts
    buffers: tuple[Buffer, ...] = ()
    aliased_fraction: float | None = None
    """Share of its state that a compiled train step reuses, or None if unknown."""
    opt_state_ratio: float | None = None
    """Optimizer state of a compiled train step relative to the declared one, or None if unknown."""

    @property
    def verdict(self) -> Verdict:
        """Whether the program fits."""
        return verdict(self.peak_bytes, self.available_bytes, self.error_fraction, self.method)

    def document(self) -> dict[str, Any]:
        """Return the program as in plan.json."""
        names = ("name", "method", "peak_bytes", "available_bytes", "error_fraction", "because", "seconds")
        return {
            **{name: getattr(self, name) for name in names},
            "on": "device",
            "verdict": self.verdict,
            "parts": parts_document(self.parts),
            "buffers": [asdict(buffer) for buffer in self.buffers],
        }


def parts_document(parts: Parts) -> list[dict[str, Any]]:
    """Return parts as in plan.json, largest first."""
    return [part._asdict() for part in sorted(parts, key=lambda part: -part.bytes) if part.bytes]


def deciding(programs: Sequence[ProgramMemory]) -> ProgramMemory:
    """Return the program that decides: the worst verdict, then the largest need."""
    return min(programs, key=lambda program: (WORST_FIRST.index(program.verdict), -program.peak_bytes))


def split_peak(peak: int, parts: Parts) -> Parts:
    """Scale estimated parts so that they add up to a compiled peak; parts of known shape keep their size.

    A peak of 100 with params of 60 and temporaries estimated at 30 and 20 becomes 60, 24 and 16.
    """
    exact = tuple(part for part in parts if part.name in EXACT)
    loose = tuple(part for part in parts if part.name not in EXACT and part.bytes)
    left = peak - total_bytes(exact)
    if left < 0:
        exact, loose, left = (), parts, peak
    loose = loose or (Part("temporaries", 1, "everything else in the compiled program"),)
    total = max(total_bytes(loose), 1)
    first, *others = (part._replace(bytes=part.bytes * left // total) for part in loose)
    first = first._replace(bytes=left - total_bytes(tuple(others)))
    return tuple(part for part in (*exact, first, *others) if part.bytes)


def limit_bytes(task: Task, target: Target) -> int | None:
    """Return the memory of one device for arrays; on a CPU less what the process keeps after reading weights."""
    there = available_bytes(target)
    if there is None or target.platform != "cpu":
        return there
    return max(there - weights_kept_bytes(task) // task.mesh.size, 0)


def weights_kept_bytes(task: Task) -> int:
    """Return what a CPU process keeps after reading weights (docs/decisions/memory.md)."""
    return min(parameter_count(task.model.base) * 4 * 27 // 20, WEIGHTS_READING) if task.model.reads_weights else 0


def reading_parts(task: Task) -> Parts:
    """Estimate reading the weights on a CPU: each array, and its file and float32 copy as far as not kept anyway."""
    base = task.model.base
    copies = max(parameter_count(base) * 5 - weights_kept_bytes(task), 0)
    return (
        Part("params", params_bytes(base), f"{parameter_count(base):,} parameters"),
        Part("reading", copies, "pages of the weight files, and float32 copies of arrays"),
    )


@dataclass(frozen=True, kw_only=True)
class Estimator:
    """Estimates program memory from compiled programs, by compiling, or by formula."""

    platform: str
    available_bytes: int | None
    """Memory of each device, or None if unknown."""
    machine: Machine | None = None
    """The devices as their compiler knows them, or None to compile nothing; `why_not` says why."""
    compiled: Mapping[str, Sequence[Compiled]] | None = None
    """Programs that a run has compiled for its own devices, by the names of a plan."""
    exact: bool = False
    """Whether to compile programs far from the limit too."""
    say: Callable[[str], None] = field(default=lambda line: None)
    why_not: str = "nothing was compiled"
    longest: int | None = None
    """Longest sequence of the data, or None if the data was not read."""
    ask: Callable[..., CompilerAnswer] = ask_compiler

    def formula_only(self) -> Estimator:
        """Return an estimator that compiles nothing."""
        return replace(self, machine=None, compiled=None)

    def programs(self, task: Task, eval_shape: EvalShape | None) -> list[ProgramMemory]:
        """Return the memory of every program of a run, in the order in which they run."""
        estimates = estimate(task, platform=self.platform, eval_shape=eval_shape)
        found = [self.program(name, task, eval_shape, parts) for name, parts in estimates.items()]
        if self.platform == "cpu" and task.model.reads_weights:
            reading = self._estimated("start", reading_parts(task), "reading the weights")
            if found[0].peak_bytes < reading.peak_bytes:
                found[0] = reading
        return found

    def program(self, name: str, task: Task, eval_shape: EvalShape | None, parts: Parts) -> ProgramMemory:
        """Return the memory of one program."""
        need, limit = total_bytes(parts), self.available_bytes
        if self.compiled is not None:
            return self._of_run(name, task, parts, self.compiled.get(name, ()))
        if self.machine is None or (self.platform == "cpu" and name in ("save", "export")):
            return self._estimated(name, parts, self.why_not if self.machine is None else NOT_COMPILED[name])
        if limit is not None and not self.exact and not FAR_BELOW * limit <= need <= FAR_ABOVE * limit:
            side = f"below {FAR_BELOW:.0%}" if need < limit else f"above {FAR_ABOVE:.0%}"
            return self._estimated(name, parts, f"{side} of the memory, not compiled")
        try:
            return self._compile(name, task, eval_shape, parts)
        except CompilerError as error:
            return self._estimated(name, parts, " ".join(str(error).split())[:400])

    def _estimated(self, name: str, parts: Parts, why: str) -> ProgramMemory:
        figures: dict[str, Any] = {"peak_bytes": total_bytes(parts), "available_bytes": self.available_bytes}
        because = f"estimated by formula: {why}"
        return ProgramMemory(name=name, error_fraction=FORMULA_ERROR, because=because, parts=parts, **figures)

    def _measured(self, name: str, parts: Parts, peak: int, **more: Any) -> ProgramMemory:
        peak += sum(part.bytes for part in parts if part.name in RESIDENT.get(name, ()))
        more |= {"peak_bytes": peak, "available_bytes": self.available_bytes, "parts": split_peak(peak, parts)}
        return ProgramMemory(name=name, method="compiler", **more)

    def _of_run(self, name: str, task: Task, parts: Parts, programs: Sequence[Compiled]) -> ProgramMemory:
        """Return the memory of the largest of a run's own programs with a name; they never run together."""
        peaks = [each.peak_bytes for each in programs if each.peak_bytes is not None]
        if not programs:
            return self._estimated(name, parts, NOT_COMPILED.get(name, self.why_not))
        if len(peaks) < len(programs):
            return self._estimated(name, parts, "the device's compiler does not report the memory of a program")
        aliased = None
        if name == "train":
            read = donation(programs[peaks.index(max(peaks))].executable, state_shapes(task))
            if read["aliased_bytes"] is not None and read["state_bytes"]:
                aliased = read["aliased_bytes"] / read["state_bytes"]
        return self._measured(
            name,
            parts,
            max(peaks),
            error_fraction=COMPILED_ERROR,
            because="the compiled program that the run calls",
            seconds=round(sum(each.seconds for each in programs), 2),
            aliased_fraction=aliased,
        )

    def _compile(self, name: str, task: Task, eval_shape: EvalShape | None, parts: Parts) -> ProgramMemory:
        """Compile a program, or the largest one if a run has several under this name."""
        self.say(f"compiling {name}")
        shape = eval_shape if name == "decode" else None
        names = self._names_in_run(name, task)
        answers = [self.ask(each, task.config, self.machine, eval_shape=shape) for each in names]
        answer = max(answers, key=lambda each: each.peak_bytes)
        found = self._measured(
            name,
            parts,
            answer.peak_bytes,
            error_fraction=GPU_COMPILED_ERROR if self.platform == "gpu" else COMPILED_ERROR,
            because="the program was compiled",
            seconds=round(sum(each.seconds for each in answers), 2),
            buffers=() if answer.memory is None else answer.memory.largest[:BUFFERS],
        )
        sizes = {part.name: part.bytes for part in parts}
        if name != "train" or answer.memory is None or not sizes["opt_state"]:
            return found
        others = sum(sizes.get(each, 0) for each in ("params", "frozen", "reference", "batch"))
        return replace(
            found,
            aliased_fraction=answer.memory.aliased_bytes / (sizes["params"] + sizes["opt_state"]),
            opt_state_ratio=max(answer.memory.arguments_bytes - others, 0) / sizes["opt_state"],
        )

    def _names_in_run(self, name: str, task: Task) -> tuple[str, ...]:
        """Return the names in `loop/programs.py` of the programs that a run compiles for one of a plan."""
        if name == "rollout":  # half the rows need no more than all of them
            return tuple(each for each in rollout_programs(task) if each != "rollout_half")
        if self.platform == "cpu" and name == "start" and (task.model.adapters or not task.model.reads_weights):
            return ("draw", "start")
        if self.platform == "cpu" and name == "train" and self.longest in task.lengths[:-1]:
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


def remat_candidates(task: Task, available_bytes: int | None) -> Iterator[Task]:
    """Yield the task with each candidate of `memory.remat: auto`, or the task itself if it is not auto.

    A quantised base is never kept whole, because its unpacked kernels would be. Without a known memory only `layer` is
    a candidate.
    """
    if task.config.memory.remat != "auto":
        yield task
        return
    for remat in REMATS[task.config.method.base != "plain" :] if available_bytes is not None else REMATS[-1:]:
        yield replace(task.changed(task.config.changed(memory={"remat": remat})), is_remat_open=True)

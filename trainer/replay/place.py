"""Where and with what a run is repeated: its devices, its program and its files, found to be the run's own.

What decides the bits of every number must be equal, or the repetition is refused, since a difference would state
nothing about the run. What may change the last bits only (another processor of the same kind) is reported, and the
repetition is then compared with a measured tolerance.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from evidence.effective import effective_settings
from evidence.scores.reading import read_scoring
from schemas.problems import Problem, ProblemError, problem_of
from trainer.config.names import no_eval_set
from trainer.config.tree import Config
from trainer.data.conversations import rendered_at
from trainer.data.rows import RowFile
from trainer.evaluation.recorded import logged_scoring, recorded_items
from trainer.inputs import read_inputs
from trainer.loop.task import Task
from trainer.model.source import hint_model_path
from trainer.objectives.data import Data
from trainer.recorder.code import code_identity
from trainer.recorder.environment import NATIVE, Level, environment, level_of
from trainer.replay.recorded import RecordedRun, ReplayRequest
from trainer.runtime import Devices, choose_devices, init_runtime

DECISIVE = ("jax", "jaxlib", "numpy", "optax", "flax", "libtpu", "jax-cuda12-plugin", "jax-cuda13-plugin")
"""Packages that decide the bits of a step."""

FLAGS = ("XLA_FLAGS", "LIBTPU_INIT_ARGS", "JAX_ENABLE_X64", "JAX_DEFAULT_MATMUL_PRECISION")
"""Environment variables that do."""


OTHER_PROCESSOR = "another processor"
OTHER_VERSIONS = "other versions"


@dataclass(frozen=True, kw_only=True)
class Fitness:
    """How this place differs from the one where a run was recorded."""

    refusals: tuple[Problem, ...]
    """What decides the bits, and differs."""
    remarks: tuple[str, ...]
    """What may change the last bits, or nothing, as sentences."""
    elsewhere: str
    """What else may give other last bits. Empty: all that is known to change a bit is equal, so that every bit must be.
    """

    @property
    def is_exact(self) -> bool:
        """Whether every bit must be equal."""
        return not self.elsewhere


def fitness_of(manifest: Mapping[str, Any], devices: Devices, *, cpu_isa: str, file: str) -> Fitness:
    """Return how this process and these devices differ from those of a run.

    Args:
        manifest: of the run.
        devices: that would repeat it.
        cpu_isa: what the run's configuration compiles a CPU's programs for.
        file: the run, for problems.
    """
    level = level_of(cpu_isa) if devices.platform == "cpu" else None
    there, here = manifest["environment"], environment(level.name if level else None)
    refusals = [*_other_software(there, here, file), *_other_devices(manifest["devices"], devices, file)]
    lesser = [
        (name, there["packages"].get(name), here["packages"].get(name))
        for name in sorted({*there["packages"], *here["packages"]} - {*DECISIVE})
    ]
    lesser += [("python", there["python"], here["python"]), ("operating system", there["os"], here["os"])]
    code = code_identity()
    lesser += [("trainproof's commit", _short(manifest["code"]["commit"]), _short(code["commit"]))]
    remarks = [_remark(*each) for each in lesser if each[1] != each[2]]
    processors, is_alike = _processors(there, here, level) if level else ([], True)
    elsewhere = OTHER_VERSIONS if refusals else "" if is_alike else OTHER_PROCESSOR
    return Fitness(refusals=tuple(refusals), remarks=(*remarks, *processors), elsewhere=elsewhere)


def _processors(there: Mapping[str, Any], here: Mapping[str, Any], level: Level) -> tuple[list[str], bool]:
    """Return how another CPU differs, as sentences, and whether it must give the same bits.

    Programs that are compiled for a stated level give them on every processor that has it. Others request the same
    instructions, and as many processors to divide the work among. A name alone means nothing: "AMD EPYC" has AVX-512 on
    one machine and not on the next.
    """
    before, now = there.get("processor", {}), here["processor"]
    pairs = [
        ("processor", there.get("cpu"), here.get("cpu")),
        ("number of processors", there["cpu_count"], here["cpu_count"]),
        *((f"processor's {key}", before.get(key), now.get(key)) for key in ("family", "model", "stepping")),
        ("instructions", _join_names(before), _join_names(now)),
        ("compiled for", before.get("compiled_for"), level.name + (f" ({level.why})" if level.why else "")),
    ]
    # A level that could not be had is reported with its reason, which no run states.
    remarks = [_remark(*each) for each in pairs if each[1] != each[2]]
    if before.get("compiled_for") == level.name != NATIVE:
        return remarks, True
    return remarks, not remarks


def _join_names(processor: Mapping[str, Any]) -> str | None:
    instructions = processor.get("instructions")
    return None if instructions is None else " ".join(instructions) or "none"


def _other_software(there: Mapping[str, Any], here: Mapping[str, Any], file: str) -> list[Problem]:
    found = []
    for group, names in (("packages", DECISIVE), ("flags", FLAGS)):
        for name in names:
            before, now = there[group].get(name), here[group].get(name)
            if before != now:
                what = f"The run used {name} {before or '(none)'}; here it is {now or '(none)'}."
                pointer = f"/environment/{group}/{name}"
                found.append(problem_of("TP761", file=file, pointer=pointer, what=what))
    return found


def _other_devices(there: Mapping[str, Any], devices: Devices, file: str) -> list[Problem]:
    before = f"{there['count']} × {there['kind']} ({there['platform']})"
    now = f"{len(devices.list)} × {devices.kind} ({devices.platform})"
    if before == now:
        return []
    what = f"The run used {before}; here there is {now}."
    force = f'XLA_FLAGS="--xla_force_host_platform_device_count={there["count"]}"'
    if there["platform"] == devices.platform == "cpu":
        then = f"Set {force}, which gives a CPU that many devices."
        return [problem_of("TP762", file=file, pointer="/devices", what=what, next=then)]
    return [problem_of("TP762", file=file, pointer="/devices", what=what)]


def _remark(name: str, before: Any, now: Any) -> str:
    return f"{name}: {_as_text(before)} there, {_as_text(now)} here"


def _as_text(value: Any) -> str:
    return "not stated" if value is None else str(value)


def _short(commit: str | None) -> str | None:
    return None if commit is None else commit[:12]


REFUSED = 3


@dataclass(frozen=True, kw_only=True)
class ReplaySetup:
    """Where and with what a run is repeated."""

    devices: Devices
    task: Task
    data: Data
    fitness: Fitness


def place_of(run: RecordedRun, request: ReplayRequest) -> ReplaySetup:
    """Return where and with what the run is repeated.

    Raises:
        ProblemError: exit code 3; something that decides the numbers is not here or is another one.
    """
    if run.manifest["status"] == "running":
        what = "The run is not sealed: it is under way, or was killed."
        then = "Wait for its end, or continue it with trainproof train --resume."
        raise ProblemError([problem_of("TP760", file=str(run.folder), what=what, next=then)], exit_code=2)
    init_runtime(run.config)
    config = config_here(run, request)
    devices = choose_devices(config.mesh.device, config.mesh.devices)
    fitness = fitness_of(run.manifest, devices, cpu_isa=config.precision.cpu_isa, file=str(run.folder))
    if refused := [each for each in fitness.refusals if not (request.anyway and each.code == "TP761")]:
        raise ProblemError(refused, exit_code=REFUSED)
    try:
        task, data = read_inputs(config, devices, asked=repeated_set(run), rendered_at=rendered_at(run.manifest))
    except ProblemError as error:
        unread = error if request.model else hint_model_path(error)
        raise ProblemError(unread.problems, exit_code=REFUSED) from error
    if problems := other_data(run, data):
        raise ProblemError(problems, exit_code=REFUSED)
    version = (logged_scoring(run.folder) or read_scoring(run.summary)).version
    data = replace(data, scoring=replace(data.scoring, version=version))
    return ReplaySetup(devices=devices, task=task, data=data, fitness=fitness)


def config_here(run: RecordedRun, request: ReplayRequest) -> Config:
    """Return the run's configuration: what was left open as it was, its number of devices, the files named."""
    effective, memory = effective_settings(run.manifest), run.config.memory
    layers, attention = effective.get("memory.layers", "unrolled"), effective.get("memory.attention", "plain")
    remat = effective["memory.remat"] if memory.remat == "auto" else memory.remat
    config = replace(run.config, memory=replace(memory, layers=layers, attention=attention, remat=remat))
    if request.dataset is not None:
        config = replace(config, data=replace(config.data, dataset=request.dataset))
    if request.model is not None:
        config = replace(config, model=replace(config.model, name=request.model))
    here = len(choose_devices(config.mesh.device, None).list)
    there = run.manifest["devices"]["count"]
    return replace(config, mesh=replace(config.mesh, devices=min(there, here)))


def repeated_set(run: RecordedRun) -> RowFile | None:
    """Return the evaluation set as the run's answers repeat it, if its file is not here; else None.

    Ids, prompts and expected answers in them are compared with the hashes of the summary like those of every run.
    """
    name = run.config.evaluation.eval_set
    if run.summary is None or name is None or no_eval_set(name) is None:
        return None
    stated = run.summary["eval_set"]
    return (
        replace(recorded_items(run.summary, run.answers), sha256=stated["sha256"])
        if stated["name"] == Path(name).name
        else None
    )


def other_data(run: RecordedRun, data: Data) -> list[Problem]:
    """Return what is another file than the run's: its dataset, its evaluation set."""
    stated = run.manifest["dataset"]
    found = []
    if data.dataset.sha256 != stated["sha256"]:
        what = f"{data.dataset.name} has the SHA-256 {data.dataset.sha256}; the run learned from {stated['sha256']}."
        found.append(problem_of("TP763", file=str(run.folder), pointer="/dataset/sha256", what=what))
    if run.summary is not None and data.items is not None:
        asked, items = run.summary["eval_set"], data.items.file
        if items.sha256 != asked["sha256"]:
            what = f"{items.name} has the SHA-256 {items.sha256}; the run was asked {asked['sha256']}."
            then = "Have the run's own evaluation set where its configuration names it."
            found.append(problem_of("TP763", file=str(run.folder), pointer="/eval_set/sha256", what=what, next=then))
    return found

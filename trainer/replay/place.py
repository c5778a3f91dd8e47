"""Where and with what a run is repeated: its devices, its program and its files, found to be the run's own."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from evidence.records.effective import effective_of
from schemas.names import no_eval_set
from schemas.problems.problem import Problem, ProblemError
from schemas.problems.rule import problem_of
from trainer.config.tree import Config
from trainer.data.rows import RowFile
from trainer.evaluation.regenerate import set_of
from trainer.inputs import read_inputs
from trainer.loop.task import Task
from trainer.model.files.source import of_somebody_else
from trainer.objectives.data import Data
from trainer.planning.devices import Devices, choose_devices
from trainer.replay.fitness import OTHER_DATA, OTHER_SOFTWARE, Fitness, fitness_of
from trainer.replay.recorded import NOTHING_TO_REPEAT, RecordedRun
from trainer.replay.request import ReplayRequest

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
        raise ProblemError([problem_of(NOTHING_TO_REPEAT, file=str(run.folder), what=what, next=then)], exit_code=2)
    config = config_here(run, request)
    devices = choose_devices(config.mesh.device, config.mesh.devices, config.precision.cpu_isa)
    fitness = fitness_of(run.manifest, devices, cpu_isa=config.precision.cpu_isa, file=str(run.folder))
    if refused := [each for each in fitness.refusals if not (request.anyway and each.code == OTHER_SOFTWARE.code)]:
        raise ProblemError(refused, exit_code=REFUSED)
    try:
        task, data = read_inputs(config, devices, asked=repeated_set(run))
    except ProblemError as error:
        unread = error if request.model else of_somebody_else(error)
        raise ProblemError(unread.problems, exit_code=REFUSED) from error
    if problems := other_data(run, data):
        raise ProblemError(problems, exit_code=REFUSED)
    return ReplaySetup(devices=devices, task=task, data=data, fitness=fitness)


def config_here(run: RecordedRun, request: ReplayRequest) -> Config:
    """Return the run's configuration with its layers as they lay, its own number of devices and the files named."""
    layers = effective_of(run.manifest).get("memory.layers", "unrolled")
    config = replace(run.config, memory=replace(run.config.memory, layers=layers))
    if request.dataset is not None:
        config = replace(config, data=replace(config.data, dataset=request.dataset))
    if request.model is not None:
        config = replace(config, model=replace(config.model, name=request.model))
    here = len(choose_devices(config.mesh.device, None, config.precision.cpu_isa).list)
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
        replace(set_of(run.summary, run.answers), sha256=stated["sha256"])
        if stated["name"] == Path(name).name
        else None
    )


def other_data(run: RecordedRun, data: Data) -> list[Problem]:
    """Return what is another file than the run's: its dataset, its evaluation set."""
    stated = run.manifest["dataset"]
    found = []
    if data.dataset.sha256 != stated["sha256"]:
        what = f"{data.dataset.name} has the SHA-256 {data.dataset.sha256}; the run learned from {stated['sha256']}."
        found.append(problem_of(OTHER_DATA, file=str(run.folder), pointer="/dataset/sha256", what=what))
    if run.summary is not None and data.items is not None:
        asked, items = run.summary["eval_set"], data.items.file
        if items.sha256 != asked["sha256"]:
            what = f"{items.name} has the SHA-256 {items.sha256}; the run was asked {asked['sha256']}."
            then = "Have the run's own evaluation set where its configuration names it."
            found.append(problem_of(OTHER_DATA, file=str(run.folder), pointer="/eval_set/sha256", what=what, next=then))
    return found

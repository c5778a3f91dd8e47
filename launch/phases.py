"""Phase files: runs that build on each other, trained in order or in parallel, then merged and packed.

Each phase is an ordinary run. Its manifest records the hash of its settings and its parents' settings, by which a
repeated command finds it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from evidence.hashes import sha256_json
from evidence.layout import CONFIG, EXPORT, MANIFEST, TRAINED_PARAMS
from evidence.run import Run, read_run
from launch.jobs import LOCAL, Job, jobs, read_bytes, read_object
from launch.queue import can_resume, find_resumable, resume, start
from schemas.catalog import MODELS
from schemas.problems import Problem, ProblemError, collect_problems, pointer_to, problem_of
from schemas.reading import get_path, get_str, write_yaml
from schemas.validate import read_document

ADAPTER_KEYS = ("kind", "rank", "alpha", "rslora", "targets")
"""Settings of `method` that two phases share if one can continue the adapter of the other."""


@dataclass(frozen=True, kw_only=True)
class Phase:
    """A phase, its parent, and its configuration without what the parent provides."""

    name: str
    parent: Phase | None
    config: dict[str, Any]

    @property
    def sha256(self) -> str:
        """Hash of its configuration and the configurations of all parents."""
        return sha256_json([self.config, self.parent.sha256 if self.parent else None])

    @property
    def continues_adapter(self) -> bool:
        """Whether it continues the adapter of its parent; otherwise it starts from the parent's exported model."""
        both = [[each.config["method"][key] for key in ADAPTER_KEYS] for each in (self, self.parent) if each]
        objective = self.config["objective"]
        compares = objective["kind"] == "dpo" or objective["kl_beta"] > 0  # with the model before training
        return len(both) == 2 and both[0] == both[1] and both[0][0] == "lora" and not compares

    @property
    def base(self) -> Phase | None:
        """The phase whose exported model its adapter is for, or None for the model of the configuration."""
        return self.parent.base if self.parent and self.continues_adapter else self.parent

    def start_config(self, file: Path, parent: Path | None) -> dict[str, Any]:
        """Return the configuration of its run, which starts from the run of its parent."""
        config = deepcopy(self.config)
        if parent and self.continues_adapter:
            config["method"]["adapter"] = str(parent / TRAINED_PARAMS)
        elif parent:
            config["model"] |= {"name": str(parent / EXPORT), "revision": None, "weights": None}
        config["recording"]["phase"] = f"{self.name} {self.sha256} {parent.name if parent else '-'} {file.name}"
        return config


def read_phases(
    path: Path, load: Callable[[Any, list[str]], dict[str, Any]], *, place: str = LOCAL
) -> tuple[dict[str, Any], list[Phase]]:
    """Return a phase file with its shared configuration included, and its phases, parents first.

    `load` returns the whole configuration of a file, or of its content, with options of `--set`.

    Raises:
        ProblemError: With all problems of the file and of each phase's configuration (exit code 2).
    """
    read = read_document(path, "phases")
    document, problems, phases = read.value or {}, list(read.problems), dict[str, Phase]()
    if any(each.code != "TP123" for each in problems):  # unknown keys do not hide other problems
        raise ProblemError(problems, exit_code=2)
    shared = path.parent / document["config"] if isinstance(document["config"], str) else document["config"]
    configs = dict[str, dict[str, Any]]()
    for name, entry in document["phases"].items():
        settings, found = {"name": f"{document['name']}-{name}", **entry.get("set", {})}, list[Problem]()
        with collect_problems(found):
            configs[name] = load(shared, [f"{key}={json.dumps(value)}" for key, value in settings.items()])
        at: dict[str, Any] = {"file": str(path), "line": read.lines(pointer_to(["phases", name]))}
        problems += [replace(each, **at) if each.file == "--set" else each for each in found]
    parents = {name: entry.get("parent") for name, entry in document["phases"].items()}
    while ready := [name for name in configs if name not in phases and parents[name] in {None, *phases}]:
        phases[ready[0]] = Phase(name=ready[0], parent=phases.get(parents[ready[0]]), config=configs[ready[0]])
    weights = get_path(document, "merge", "weights") or {}
    for keys, what in _find_problems(parents, weights, phases, place):
        pointer = pointer_to(keys)
        problems.append(problem_of("TP779", file=str(path), line=read.lines(pointer), pointer=pointer, what=what))
    if problems:
        raise ProblemError(dict.fromkeys(problems), exit_code=2)
    content = read_document(shared, "train_config").value if isinstance(shared, Path) else shared
    return {**document, "config": content}, list(phases.values())


def _find_problems(
    parents: dict[str, str | None], weights: dict[str, float], phases: dict[str, Phase], place: str
) -> Iterator[tuple[list[str], str]]:
    """Yield keys and text of each problem with parents and merged adapters; `phases` are those that can be loaded."""
    used = [(["phases", name, "parent"], parent) for name, parent in parents.items()]
    merged = [(["merge", "weights", name], name) for name in weights]
    yield from (
        (keys, f"{'.'.join(keys)} refers to the phase {name}, but the phases are {', '.join(parents)}.")
        for keys, name in (*used, *merged)
        if name not in {None, *parents}
    )
    for keys, _ in used:
        chain = [keys[1]]
        while chain[-1] in parents and chain[-1] not in chain[:-1]:
            chain.append(str(parents[chain[-1]]))
        phase = phases.get(chain[0])
        if chain[-1] == chain[0]:
            yield keys, f"Phase {chain[0]} starts from itself: {' from '.join(chain)}."
        elif phase and phase.parent and phase.config["model"] != phase.parent.config["model"]:
            yield keys, f"Phase {phase.name} has a different model than {phase.parent.name}, from which it starts."
        elif phase and phase.parent and place != LOCAL and not phase.continues_adapter:
            what = f"needs the whole model of {phase.parent.name}; only adapters are sent to {place}."
            yield keys, f"Phase {phase.name} {what}"
    bases = dict[str, str]()
    for phase in (phases[name] for name in weights if name in phases):
        keys, model = ["merge", "weights", phase.name], phase.config["model"]
        if phase.config["method"]["kind"] != "lora":
            yield keys, f"Phase {phase.name} trains no adapter: its method.kind is not lora."
            continue
        model_name = " ".join(filter(None, (model["name"], model["revision"])))
        bases[f"phase {phase.base.name}" if phase.base else model_name] = phase.name
        if not phase.base and (model["name"] in MODELS or model["weights"] == "random" or model["shape"] != "own"):
            yield keys, f"Phase {phase.name} cannot be merged: its model {model['name']} is not read from weight files."
    if len(bases) > 1:
        models = ", ".join(f"{name} adapts {base}" for base, name in bases.items())
        yield ["merge", "weights"], f"Only adapters for the same model can be merged: {models}."


def find_runs(root: Path, phases: list[Phase]) -> dict[str, Run]:
    """Return for each phase the newest run that succeeded after its parent's run, or one that can be resumed."""
    manifests = {path.parent: read_object(path) for path in root.glob(f"*/{MANIFEST}")}
    keys = (("mode",), ("phase", "sha256"), ("phase", "parent"))
    found = dict[str, Run]()
    for phase in phases:
        parent = found.get(phase.parent.name) if phase.parent else None
        if phase.parent and not (parent and parent.succeeded):
            continue
        wanted = [phase.config["mode"], phase.sha256, parent.path.name if parent else "-"]
        runs = [read_run(path) for path, each in manifests.items() if wanted == [get_str(each, *key) for key in keys]]
        if usable := [run for run in runs if run.succeeded or can_resume(run)]:
            found[phase.name] = max(usable, key=lambda run: (run.succeeded, get_str(run.manifest, "started_at") or ""))
    return found


def queue_phases(
    root: Path, path: Path, document: dict[str, Any], phases: list[Phase], *, force: bool, place: str
) -> list[Job]:
    """Queue the phases without a run that succeeded, and a job that merges and packs all; those in the queue stay."""
    root, parallel, queued = root.resolve(), document.get("parallel", 1), dict[str, Job]()
    known = [
        (job, read_bytes((root / job.resumes if job.resumes else job.folder) / CONFIG).decode("utf-8", "replace"))
        for job in jobs(root)
        if not job.has_ended
    ]
    found = find_runs(root, phases)
    runs = {name: run.path for name, run in found.items() if run.succeeded}
    for phase in (phase for phase in phases if phase.name not in runs):
        before, ids = phase.parent.name if phase.parent else "", [job.job_id for job in queued.values()]
        after = {ids[-parallel]: False} if len(ids) >= parallel else {}
        after |= {queued[before].job_id: True} if before in queued else {}
        job = next((job for job, text in known if phase.sha256 in text), None)
        if job is None and phase.name in found:
            run, stopped = find_resumable(root, found[phase.name].path)
            job = resume(root, run, stopped=stopped, after=after)
        config = phase.start_config(path, runs.get(before))
        queued[phase.name] = job or start(root, config, force=force, place=place, after=after)
        runs[phase.name] = root / queued[phase.name].run
    ends, whole = {job.job_id: True for job in queued.values()}, write_yaml(document)
    last = next((job for job, text in known if text == whole and job.after.items() >= ends.items()), None)
    return [*queued.values(), last or start(root, document, force=force, after=ends)]

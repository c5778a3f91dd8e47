"""Phase files: runs that build on each other, trained in order or side by side, then merged and packed.

Each phase is an ordinary run. Its manifest has the hash of its settings and those of its parents, by which a repeated
command finds it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from evidence.hashes import sha256_json
from evidence.layout import CONFIG, EXPORT, MANIFEST, TRAINED_PARAMS
from evidence.run import Run, read_run
from launch.jobs import LOCAL, Job, jobs, read_bytes, read_object
from launch.queue import can_resume, find_resumable, resume, start
from schemas.catalog import MODELS
from schemas.problems import ProblemError, pointer_to, problem_of
from schemas.reading import get_path, get_str, write_yaml
from schemas.validate import read_document

ADAPTER_KEYS = ("kind", "rank", "alpha", "rslora", "targets")
"""Settings of `method` that two phases share if one can continue the adapter of the other."""


@dataclass(frozen=True, kw_only=True)
class Phase:
    """A phase, its configuration without what its parent provides, and the hash of both and of all parents."""

    name: str
    parent: Phase | None
    config: dict[str, Any]
    sha256: str

    @property
    def continues_adapter(self) -> bool:
        """Whether it continues the adapter of its parent; otherwise it starts from the parent's exported model."""
        both = [[each.config["method"][key] for key in ADAPTER_KEYS] for each in (self, self.parent) if each]
        objective = self.config["objective"]
        compares = objective["kind"] == "dpo" or objective["kl_beta"] > 0  # with the model before training
        return len(both) == 2 and both[0] == both[1] and both[0][0] == "lora" and not compares

    @property
    def first(self) -> Phase:
        """The phase with which its adapter began."""
        return self.parent.first if self.parent and self.continues_adapter else self

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
    """Return a phase file that needs no other file, and its phases, parents first.

    `load` returns the whole configuration of a file, or of its content, with options of `--set`.

    Raises:
        ProblemError: With all problems of the file and of each phase's configuration (exit code 2).
    """
    read = read_document(path, "phases")
    document, problems, phases = read.value or {}, list(read.problems), dict[str, Phase]()
    if not {"name", "config", "phases"} <= document.keys() or any(each.code == "TP120" for each in problems):
        raise ProblemError(problems, exit_code=2)
    entries, shared = document["phases"], document["config"]
    shared = path.parent / shared if isinstance(shared, str) else shared
    configs = dict[str, dict[str, Any]]()
    for name, entry in entries.items():
        stated = {"name": f"{document['name']}-{name}", **entry.get("set", {})}
        try:
            configs[name] = load(shared, [f"{key}={json.dumps(value)}" for key, value in stated.items()])
        except ProblemError as error:
            at: dict[str, Any] = {"file": str(path), "line": read.lines(pointer_to(["phases", name]))}
            found = [replace(each, **at) if each.file == "--set" else each for each in error.problems]
            problems += [each for each in found if each not in problems]
    parents = {name: entry.get("parent") for name, entry in entries.items()}
    while ready := [name for name in entries if name not in phases and parents[name] in {None, *phases}]:
        parent, config = phases.get(parents[ready[0]]), configs.get(ready[0], {})
        sha256 = sha256_json([config, parent.sha256 if parent else None])
        phases[ready[0]] = Phase(name=ready[0], parent=parent, config=config, sha256=sha256)
    known = {name: phase for name, phase in phases.items() if configs.keys() >= {name, parents[name] or name}}
    weights = get_path(document, "merge", "weights") or {}
    for pointer, what in (*_parent_problems(parents, known, place), *_merge_problems(weights, parents, known)):
        line = read.lines(pointer_to(pointer))
        problems.append(problem_of("TP779", file=str(path), line=line, pointer=pointer_to(pointer), what=what))
    if problems:
        raise ProblemError(problems, exit_code=2)
    content = read_document(shared, "train_config").value if isinstance(shared, Path) else shared
    return {**document, "config": content}, list(phases.values())


def _parent_problems(
    parents: Mapping[str, str | None], known: Mapping[str, Phase], place: str
) -> Iterator[tuple[list[str], str]]:
    """Yield place and text of what is wrong with the parents of phases."""
    for name, before in parents.items():
        chain, phase = [name], known.get(name)
        while (above := parents.get(chain[-1])) in parents and above not in chain:
            chain.append(str(above))
        what = ""
        if before not in {None, *parents}:
            what = f"starts from {before}, which is no phase.{_did_you_mean(before, parents)}"
        elif above == name:
            what = f"starts from itself: {' from '.join([*chain, name])}."
        elif phase and phase.parent and phase.config["model"] != phase.parent.config["model"]:
            what = f"has another model than {before}, from which it starts."
        elif phase and phase.parent and place != LOCAL and not phase.continues_adapter:
            what = f"needs the whole model of {before}; only adapters are sent to {place}."
        if what:
            yield ["phases", name, "parent"], f"Phase {name} {what}"


def _merge_problems(
    weights: Mapping[str, float], parents: Mapping[str, Any], known: Mapping[str, Phase]
) -> Iterator[tuple[list[str], str]]:
    """Yield place and text of what is wrong with the adapters to merge."""
    bases = dict[str, str]()
    for name in weights:
        phase, at = known.get(name), ["merge", "weights", name]
        if name not in parents:
            yield at, f"{name}, which is to be merged, is no phase.{_did_you_mean(name, parents)}"
        elif phase and phase.config["method"]["kind"] != "lora":
            yield at, f"Phase {name} trains no adapter: its method.kind is not lora."
        elif phase:
            model, parent = phase.config["model"], phase.first.parent
            bases[f"phase {parent.name}" if parent else f"{model['name']} {model['revision'] or ''}".strip()] = name
            if not parent and (model["name"] in MODELS or model["weights"] == "random" or model["shape"] != "own"):
                yield at, f"The model of phase {name} has no weights in files, so nothing can be merged into it."
    if len(bases) > 1:
        (base, name), (other_base, other), *_ = bases.items()
        what = f"The adapter of {name} is for the model {base}, that of {other} for {other_base}."
        yield ["merge", "weights"], f"Only adapters for one model can be merged. {what}"


def _did_you_mean(name: Any, names: Mapping[str, Any]) -> str:
    return "".join(f" Did you mean {each}?" for each in get_close_matches(str(name), names, n=1))


def find_runs(root: Path, phases: list[Phase]) -> dict[str, Run]:
    """Return for each phase the newest run that succeeded after that of its parent, or else one that can be resumed."""
    manifests = {path.parent: read_object(path) for path in root.glob(f"*/{MANIFEST}")}
    found = dict[str, Run]()
    for phase in phases:
        parent = found.get(phase.parent.name) if phase.parent else None
        if phase.parent and not (parent and parent.succeeded):
            continue
        wanted = (phase.config["mode"], phase.sha256, parent.path.name if parent else "-")
        keys = (("mode",), ("phase", "sha256"), ("phase", "parent"))
        own = [path for path, stated in manifests.items() if wanted == tuple(get_str(stated, *key) for key in keys)]
        runs = sorted(map(read_run, own), key=lambda run: get_str(run.manifest, "started_at") or "")
        if usable := [run for run in runs if run.succeeded] or [run for run in runs if can_resume(run)]:
            found[phase.name] = usable[-1]
    return found


def queue_phases(
    root: Path, path: Path, document: dict[str, Any], phases: list[Phase], *, force: bool, place: str
) -> list[Job]:
    """Queue the phases without a run that succeeded, and a job that merges and packs all; those in the queue stay."""
    root, parallel, queued = root.resolve(), document.get("parallel", 1), dict[str, Job]()
    known, found = [job for job in jobs(root) if not job.has_ended], find_runs(root, phases)
    runs = {name: run.path for name, run in found.items() if run.succeeded}
    for phase in (phase for phase in phases if phase.name not in runs):
        before, ids = phase.parent.name if phase.parent else "", [job.job_id for job in queued.values()]
        after = dict.fromkeys(ids[-parallel:][:1] if len(ids) >= parallel else [], False)
        after |= {queued[before].job_id: True} if before in queued else {}
        job = next((job for job in known if phase.sha256 in _config_text(job)), None)
        if job is None and phase.name in found:
            run, stopped = find_resumable(root, found[phase.name].path)
            job = resume(root, run, stopped=stopped, after=after)
        config = phase.start_config(path, runs.get(before))
        queued[phase.name] = job or start(root, config, force=force, place=place, after=after)
        runs[phase.name] = root / queued[phase.name].run
    ends, text = {job.job_id: True for job in queued.values()}, write_yaml(document)
    last = next((job for job in known if _config_text(job) == text and job.after.items() >= ends.items()), None)
    return [*queued.values(), last or start(root, document, force=force, after=ends)]


def _config_text(job: Job) -> str:
    """Return the configuration of a job, or of the run that it resumes."""
    paths = [job.folder / CONFIG, job.root / (job.resumes or ".") / CONFIG]
    return "".join(read_bytes(path).decode("utf-8", "replace") for path in paths)

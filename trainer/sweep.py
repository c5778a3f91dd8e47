"""Search settings with many runs: Optuna suggests the settings of each trial, and the queue trains it.

The folder of a sweep holds `sweep.json` with all trials, the journal of Optuna, and the evaluation items in two halves:
one scores the trials, the other only the best. The process may be killed at any time: journal and queue say how to
continue. What is suggested and pruned depends on results, not on when they are read.
"""

from __future__ import annotations

import json
import math
import random
import re
import subprocess
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.storages.journal import JournalFileBackend
from optuna.trial import FrozenTrial, Trial, TrialState

from evidence import lock
from evidence.hashes import sha256_json
from evidence.index.summary import summarize
from evidence.layout import CHOOSING, HELD_BACK, MANIFEST, METRICS, SWEEP, SWEEPS
from evidence.proof.verification import grade_run
from evidence.run import read_run
from evidence.scores.intervals import find_clusters
from evidence.writing import RowWriter, write_json, write_text
from launch import queue
from launch.jobs import OUTPUT, Job, JobReader, tail
from launch.places import get_place
from launch.places.place import RemotePlace
from launch.process import PROGRAM
from schemas.catalog import VERSION, node_types, resolve_node, schema
from schemas.problems import Problem, ProblemError, collect_problems, problem_of
from schemas.reading import get_path, get_str, read_rows
from schemas.validate import read_document
from trainer.config.load import load_config, set_path
from trainer.config.tree import to_document
from trainer.data.rows import read_eval_set
from trainer.objectives import find_contradictions

Document = Mapping[str, Any]

POLL_SECONDS = 1.0
_DURING = {"score": "held_out_score", "held_out_loss": "held_out_loss"}  # field of a metric row, by metric of a sweep
_STATES = {"RUNNING": "running", "COMPLETE": "succeeded", "PRUNED": "pruned", "FAIL": "failed"}
_RANDOM_TRIALS = 5  # first trials, whose settings are drawn at random


def load_sweep(root: Path, file: Path, say: Callable[[str], None]) -> Sweep:
    """Load a sweep file, and check everything that its trials read before anything is queued.

    Raises:
        ProblemError: All problems of the file, the settings and the configuration together (exit code 2).
    """
    read, known = read_document(file, "sweep_config"), schema("sweep_config")["properties"]
    if read.value is None or any(problem.severity == "error" for problem in read.problems):
        raise ProblemError(read.problems, exit_code=2)
    settings = {key: node["default"] for key, node in known.items() if "default" in node} | read.value
    path, found, first = file.parent / settings["config"], list[Problem](), dict[str, str]()
    config = load_config(path)
    with collect_problems(found):
        get_place(settings["place"]).check(to_document(config))
    for key, values in settings["search"].items():
        for value in values if isinstance(values, list) else (values["low"], values["high"]):
            setting, wrong = f"{key}={json.dumps(value)}", list[Problem]()
            first.setdefault(key, setting)
            with collect_problems(wrong):
                wrong += find_contradictions(load_config(path, settings=[setting]))
            found += (replace(problem, file=str(file), pointer=f"/search/{key}") for problem in wrong)
    base = to_document(config)
    found += (problem_of("TP785", file=str(file), pointer=at, what=what) for at, what in find_problems(settings, base))
    if found:
        located = [replace(problem, line=read.lines(problem.pointer or "")) for problem in found]
        raise ProblemError(dict.fromkeys(located), exit_code=2)
    chosen = [part for setting in first.values() for part in ("--set", setting)]
    checked = [*PROGRAM, "train", "--config", str(path), "--check", *chosen]
    if code := subprocess.run(checked, stdout=subprocess.DEVNULL, check=False).returncode:
        raise SystemExit(code)
    return Sweep(root, settings, base, read_eval_set(base["evaluation"]["eval_set"]).rows, say)


def find_problems(settings: Document, base: Document) -> Iterator[tuple[str, str]]:
    """Yield pointer and text of each problem of a sweep and its configuration, except in values of settings."""
    search, prune, evaluation = settings["search"], settings["prune"], base["evaluation"]
    for key, values in search.items():
        if key in {"name", "mode", "schema_version"} or key.startswith("evaluation."):
            yield f"/search/{key}", f"{key} cannot be searched: all trials must be scored alike."
        try:
            _distribution(key, values)
        except ValueError as error:
            yield f"/search/{key}", f"{key}: {error}"
    if not search:
        yield "/search", "search names no setting."
    if evaluation["eval_set"] is None:
        yield "/config", "The configuration names no evaluation.eval_set to compare trials with."
    if evaluation["every_steps"] == 0 and (prune or settings["metric"] != "score"):
        yield "/config", "Set evaluation.every_steps: prune and held_out_loss need evaluations during training."
    if prune and "limits.steps" not in search and prune["min_steps"] >= base["limits"]["steps"]:
        yield "/prune/min_steps", f"No trial is pruned: a trial has only {base['limits']['steps']} steps."


def _distribution(key: str, values: Any) -> BaseDistribution:
    if isinstance(values, list):
        return CategoricalDistribution(values)
    node = schema("train_config")
    for part in key.split("."):
        node = resolve_node(node.get("properties", {}).get(part, {}), schema("train_config"))
    kind = IntDistribution if "integer" in node_types(node) else FloatDistribution
    return kind(values["low"], values["high"], log=values.get("log", False))


def split_items(items: Sequence[Document]) -> tuple[list[Document], list[Document]]:
    """Split evaluation items by hash into two halves; items of one group or prompt stay together."""
    clusters, _ = find_clusters(items)  # each has the number of one of its items
    order = sorted(set(clusters), key=lambda number: sha256_json(items[number]["id"]))
    is_first = {number: place % 2 == 0 for place, number in enumerate(order)}
    pairs = list(zip(items, clusters, strict=True))
    return [one for one, number in pairs if is_first[number]], [one for one, number in pairs if not is_first[number]]


class Sweep:
    """A sweep of a runs folder: its file with defaults, the configuration that it varies, and its evaluation items.

    Raises:
        ProblemError: The sweep exists with other settings or is running, or it has too few items (exit code 2).
    """

    def __init__(
        self, root: Path, settings: Document, base: Document, items: Sequence[Document], say: Callable[[str], None]
    ) -> None:
        self.root, self.settings, self.say, self.folder = root, settings, say, root / SWEEPS / settings["name"]
        self.base, place, prune = deepcopy(dict(base)), get_place(settings["place"]), settings["prune"] is not None
        self.base["evaluation"]["eval_set"] = (self.folder / CHOOSING).as_posix()
        self.parallel = settings["parallel"] if place.has_own_queue else 1
        self.prunes = prune and not isinstance(place, RemotePlace)
        limits = {
            f"{settings['place']} runs one trial at a time.": self.parallel < settings["parallel"],
            f"Nothing is pruned: {settings['place']} returns a run when it has ended.": prune and not self.prunes,
        }
        self.halves = dict(zip((CHOOSING, HELD_BACK), split_items(items), strict=True))
        counts = {Path(name).stem: len(half) for name, half in self.halves.items()}
        fixed = {key: value for key, value in settings.items() if key not in {"trials", "parallel"}}
        self.document = {
            "schema_version": VERSION,
            "name": settings["name"],
            "status": "running",
            "started_at": _now(),
            "finished_at": None,
            "settings": settings,
            "sha256": sha256_json([fixed, base, list(items)]),
            "eval_set": {"name": base["evaluation"]["eval_set"], **counts},
            "direction": "maximize" if settings["metric"] == "score" else "minimize",
            "notes": [text for text, holds in limits.items() if holds],
            "trials": None,
            "importance": None,
            "best": None,
        }
        self.before: Document = read_document(self.folder / SWEEP, "sweep").value or {}
        what = None if all(self.halves.values()) else "The evaluation set has too few different items to split it."
        if lock.is_alive(self.folder):
            what = f"The sweep {settings['name']} is running in another process."
        elif self.before.get("sha256", self.document["sha256"]) != self.document["sha256"]:
            what = f"The sweep {settings['name']} exists with other settings, configuration or evaluation items."
        if what is not None:
            raise ProblemError([problem_of("TP786", file=str(self.folder), what=what)], exit_code=2)
        self.jobs, self.trials = JobReader(root.resolve()), dict[int, Trial]()

    def run(self) -> Document:
        """Run the trials that are missing, evaluate the best again, and return the content of sweep.json."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with lock.RunLock(self.folder):
            for name, half in self.halves.items():
                write_text(self.folder / name, "".join(json.dumps(item, ensure_ascii=False) + "\n" for item in half))
            self._open()
            while self._advance():
                time.sleep(POLL_SECONDS)
            self.document |= {"best": self._evaluate_best(), "status": "finished", "finished_at": _now()}
            write_json(self.folder / SWEEP, self.document)
        return self.document

    def _open(self) -> None:
        """Open the study, and continue trials that stopped with this machine."""
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        journal, prune = self.folder / "journal.log", self.settings["prune"] or {"min_steps": 1}
        # A killed process may leave a torn line and a lock of Optuna, whose work `RunLock` does here.
        RowWriter(journal).close()
        journal.with_name("journal.log.lock").unlink(missing_ok=True)
        self.study = optuna.create_study(
            storage=optuna.storages.JournalStorage(JournalFileBackend(str(journal))),
            study_name=self.folder.name,
            direction=self.document["direction"],
            pruner=optuna.pruners.SuccessiveHalvingPruner(prune["min_steps"], prune.get("factor", 3)),
            load_if_exists=True,
        )
        if "started_at" not in self.study.user_attrs:
            self.study.set_user_attr("started_at", self.document["started_at"])
        self.document["started_at"] = self.study.user_attrs["started_at"]
        for frozen in self._running():
            trial, job = self._suggest(frozen.number, frozen), self._jobs().get(frozen.number)
            if job is not None and job.state in {"interrupted", "lost"} and "step" not in trial.user_attrs:
                run = read_run(self.root / job.run)
                again = (
                    queue.resume(self.root, run, stopped=job) if queue.can_resume(run) else queue.retry(self.root, job)
                )
                trial.set_user_attr("run", again.run)

    def _running(self) -> list[FrozenTrial]:
        return self.study.get_trials(deepcopy=False, states=(TrialState.RUNNING,))

    def _jobs(self) -> dict[int, Job]:
        """Return the newest job of each trial, whose number is in the name of its run."""
        form, since = re.compile(re.escape(self.folder.name) + r"-(\d+)-\d{8}-\d{6}-\w{4}"), self.document["started_at"]
        found = [job for job in self.jobs.jobs() if job.is_own and job.created_at >= since]
        named = [(form.fullmatch(job.run), job) for job in sorted(found, key=lambda job: job.created_at)]
        return {int(match[1]): job for match, job in named if match}

    def _advance(self) -> bool:
        """Follow the running trials, begin others, and return whether any is running."""
        jobs = self._jobs()
        for frozen in self._running():
            self._follow(self.trials[frozen.number], jobs.get(frozen.number))
        while len(self._running()) < self.parallel and len(self.study.trials) < self.settings["trials"]:
            self._queue(self._suggest(len(self.study.trials)))
        self._write()
        if self._running() and not queue.has_worker(self.root):
            queue.start_worker(self.root)
        return bool(self._running())

    def _suggest(self, number: int, begun: FrozenTrial | None = None) -> Trial:
        """Begin a trial, or one again that a killed process has begun, and suggest its settings."""

        def seed(key: str) -> None:  # generators of their own, so that an interruption changes no suggestion
            bits = random.Random(f"{self.settings['seed']} {number} {key}").getrandbits(32)  # noqa: S311 - no secret
            self.study.sampler = optuna.samplers.TPESampler(seed=bits, n_startup_trials=_RANDOM_TRIALS)

        seed("")
        trial = self.trials[number] = self.study.ask() if begun is None else Trial(self.study, begun._trial_id)
        for key, values in self.settings["search"].items():
            seed(key)
            trial._suggest(key, _distribution(key, values))
        return trial

    def _queue(self, trial: Trial) -> None:
        document = deepcopy(self.base) | {"name": f"{self.folder.name}-{trial.number:03}"}
        for key, value in trial.params.items():
            set_path(document, key, value)
        trial.set_user_attr("run", queue.start(self.root, document, place=self.settings["place"]).run)

    def _follow(self, trial: Trial, job: Job | None) -> None:
        """Stop a trial that is pruned, and record the end of a trial."""
        if job is None:  # this process was killed before it queued the trial
            return self._queue(trial)
        if job.run != trial.user_attrs.get("run"):  # the place started it again
            trial.set_user_attr("run", job.run)
        is_pruned = self._is_pruned(trial, job)
        if is_pruned and job.state in {"waiting", "running"}:
            queue.cancel(job)
        if job.has_ended:
            value, reason = (None, None) if is_pruned else self._outcome(job)
            trial.set_user_attr("reason", reason)
            ended = TrialState.PRUNED if is_pruned else TrialState.FAIL if value is None else TrialState.COMPLETE
            self.study.tell(trial.number, value, state=ended)
            self.say(f"trial {trial.number} {_STATES[ended.name]}: {trial.params} {reason or value or ''}".rstrip())
        return None

    def _is_pruned(self, trial: Trial, job: Job) -> bool:
        """Report new values of the metric, and return whether one was too bad to go on."""
        last = self.study.trials[trial.number].last_step or 0
        steps = trial.params.get("limits.steps", self.base["limits"]["steps"])
        if self.prunes and "step" not in trial.user_attrs:
            for step, value in self._values(self.root / job.run):
                if last < step < steps:
                    trial.report(value, step)
                    if trial.should_prune():
                        trial.set_user_attr("step", step)
                        break
        return "step" in trial.user_attrs

    def _values(self, folder: Path) -> list[tuple[int, float]]:
        """Return steps and values of the metric during training."""
        name, rows = _DURING[self.settings["metric"]], read_rows(folder / METRICS, "metric_row").values
        return [(row["step"], math.nan if row[name] is None else row[name]) for row in rows if name in row]

    def _outcome(self, job: Job) -> tuple[float | None, str | None]:
        """Return the value of an ended trial, or why its value is missing."""
        run, metric = read_run(self.root / job.run), self.settings["metric"]
        if job.state != "succeeded":
            said = get_str(run.raw(MANIFEST), "exit", "message") or tail(job.folder / OUTPUT, 1)
            return None, f"{job.state}: {said}"
        last = dict(self._values(run.path)[-1:]).values()
        value = summarize(run, grade_run(run)).score if metric == "score" else next(iter(last), None)
        is_known = value is not None and math.isfinite(value)
        return (value, None) if is_known else (None, f"{metric} is missing, not finite, or contradicted.")

    def _write(self) -> None:
        """Write sweep.json if a trial has changed."""
        trials = [
            {"number": trial.number, "settings": trial.params, "state": _STATES[trial.state.name]}
            | {key: trial.user_attrs.get(key) for key in ("run", "step", "reason")}
            | {"value": trial.value if trial.value is not None and math.isfinite(trial.value) else None}
            for trial in self.study.trials
        ]
        if trials != self.document["trials"]:
            has_differences = len({trial["value"] for trial in trials if trial["state"] == "succeeded"}) > 1
            with warnings.catch_warnings(action="ignore"):  # of few trials, which the page shows
                importance = optuna.importance.get_param_importances(self.study) if has_differences else None
            self.document |= {"trials": trials, "importance": importance}
            write_json(self.folder / SWEEP, self.document)

    def _evaluate_best(self) -> Document | None:
        """Ask the best trial the items that did not choose it, or return None if no trial succeeded."""
        if not self.study.get_trials(states=(TrialState.COMPLETE,)):
            return None
        number, before = self.study.best_trial.number, self.before.get("best") or {}
        best = {"number": number, "run": self.study.best_trial.user_attrs["run"], "of": len(self.study.trials)}
        if before.get("held_back") and before.get("run") == best["run"]:
            return {**before, **best}
        folders = map(str, (self.root / best["run"], "--items", self.folder / HELD_BACK))
        command = [*PROGRAM, "challenge", *folders, "--again", "0", "--json"]
        asked = subprocess.run(command, capture_output=True, text=True, check=False)
        score = (get_path(json.loads(asked.stdout), "score") if asked.stdout.startswith("{") else None) or {}
        reason = None if score else asked.stderr[-500:]
        return {**best, "choosing": score.get("stated"), "held_back": score.get("found"), "reason": reason}


def _now() -> str:
    return datetime.now(UTC).isoformat()

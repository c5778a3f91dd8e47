"""Read a recorded run and prepare its replay: compare the environment, load the inputs, compare the start.

Anything that changes every number must be equal, or the replay is refused, because a difference would prove nothing.
Another processor of the same kind may change the last bits only; rows are then compared within a measured tolerance.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from pathlib import Path
from typing import Any

from evidence import layout
from evidence.effective import effective_settings, flatten
from evidence.hashes import sha256_file
from evidence.proof.signatures import problem_error
from evidence.run import read_existing_run
from evidence.scores.reading import read_scoring
from schemas.formats import format_value
from schemas.problems import Problem, ProblemError, problem_of
from schemas.validate import read_document
from trainer.config.load import load_config
from trainer.config.names import missing_eval_set
from trainer.config.tree import Config
from trainer.data.answers import scoring_document
from trainer.data.conversations import rendered_at
from trainer.data.rows import RowFile
from trainer.evaluation.answers import Sampler
from trainer.evaluation.recorded import logged_scoring, recorded_items
from trainer.inputs import read_inputs
from trainer.loop.chain import Segment, split_segments
from trainer.loop.compilation import Steps, model_group, training_group
from trainer.loop.state import REFUSED
from trainer.loop.step import TrainState
from trainer.loop.task import Task, drop_reference_params
from trainer.model.source import hint_model_path
from trainer.model.stacks import Params
from trainer.objectives.data import Data
from trainer.recorder.code import code_identity
from trainer.recorder.environment import NATIVE, environment, select_level
from trainer.runtime import Devices, choose_devices, init_runtime

DECISIVE = {
    "packages": ("jax", "jaxlib", "numpy", "optax", "flax", "libtpu", "jax-cuda12-plugin", "jax-cuda13-plugin"),
    "flags": ("XLA_FLAGS", "LIBTPU_INIT_ARGS", "JAX_ENABLE_X64", "JAX_DEFAULT_MATMUL_PRECISION"),
}
"""Packages and environment variables that change the bits of a training step."""

PROCESSOR = frozenset(
    {"cpu", "cpu_count", "CPU family", "CPU model", "CPU stepping", "CPU instructions", "CPU compiled_for"}
)
"""Facts about a CPU that may change the last bits."""

NOT_COMPARED = frozenset(
    {"training.steps_done", "training.forced", "model.name", "model.revision", "dataset.name"}
    | {"generation.sha256", "scoring.sha256"}
)
"""Entries that are known at the end only, follow from others, or name files and options of the recording machine."""

BACKEND_PREFIX = "training.donation."
"""Entries that only some kinds of device report."""


@dataclass(frozen=True, kw_only=True)
class ReplayRequest:
    """Arguments of `trainproof replay`."""

    folder: Path
    whole: bool = False
    """Replay every segment from the first step and regenerate every answer."""
    segments: int = 4
    """Parts to draw between the first and the last."""
    items: int = 10
    """Answers of each model to regenerate; the others are checked in one forward pass."""
    minutes: float | None = None
    """Time to spend on as many segments as possible, or None to replay the drawn ones however long they take."""
    seed: int | None = None
    """Seed of the draw, or None to choose one."""
    states: Path | None = None
    """Folder with the states that the author sent for this seed, or None."""
    anyway: bool = False
    """Replay with other package versions too."""
    dataset: str | None = None
    model: str | None = None
    """Dataset and model on this machine, or None for the configured ones."""

    def with_seed(self) -> ReplayRequest:
        """Return the request with its seed, or with a random one of at most six digits."""
        return self if self.seed is not None else replace(self, seed=secrets.randbelow(10**6))

    def document(self) -> dict[str, Any]:
        """Return the arguments for the receipt."""
        return {name: getattr(self, name) for name in ("whole", "segments", "items", "minutes", "seed")}


@dataclass(frozen=True, kw_only=True)
class RecordedRun:
    """A run folder, read; `sha256` is the hash of its manifest, `answers` and `baseline` are prediction rows."""

    folder: Path
    sha256: str
    config: Config
    manifest: Mapping[str, Any]
    rows: Mapping[int, dict[str, Any]]
    """Rows of metrics.jsonl by step."""
    states: Mapping[int, str]
    """Hash of the train state by step, from the chain."""
    params: Mapping[int, str]
    """Hash of all parameters by step, from chain, manifest and evaluation."""
    segments: tuple[Segment, ...]
    summary: Mapping[str, Any] | None
    """eval_summary.json, or None if the run was not evaluated."""
    answers: Sequence[dict[str, Any]]
    baseline: Sequence[dict[str, Any]]

    @property
    def first_step(self) -> int:
        """Step after which the run begins: 0, or the step it was resumed from."""
        return self.segments[0].first_step

    @property
    def last_step(self) -> int:
        """Last step of the run."""
        return self.segments[-1].last_step


def read_recorded(folder: Path) -> RecordedRun:
    """Read a run folder; raise `ProblemError` with exit code 2 if it lacks something that a replay needs."""
    run = read_existing_run(folder)
    manifest = run.manifest
    files = {layout.MANIFEST: manifest, layout.CONFIG: run.config, layout.METRICS: run.metrics}
    missing = [name for name, value in files.items() if value is None]
    if missing or manifest is None:
        what = f"{' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} missing or cannot be read."
        raise problem_error(folder, "TP760", what=what, next=f"Run `trainproof check {folder}` to see what is wrong.")
    rows = {row["step"]: row for row in run.metrics or []}
    if not rows or manifest["model"] is None:
        raise problem_error(folder, "TP760", what="The run stopped before its first step was recorded.")
    config = load_config(folder / layout.CONFIG)
    if max(rows) > config.limits.steps:
        what = f"metrics.jsonl has a row of step {max(rows):,}, but config.yaml ends at step {config.limits.steps:,}."
        raise problem_error(folder, "TP760", what=what)
    states = {entry["step"]: entry["state_sha256"] for entry in run.chain or []}
    params = {entry["step"]: entry["params_sha256"] for entry in run.chain or [] if entry["params_sha256"]}
    first = manifest["parent"]["step"] if manifest["parent"] else 0
    params[first] = manifest["model"]["weights_sha256"]
    if run.eval_summary is not None:
        checkpoint = run.eval_summary["checkpoint"]
        params[checkpoint["step"]] = checkpoint["params_sha256"]
    return RecordedRun(
        folder=folder,
        sha256=sha256_file(folder / layout.MANIFEST),
        config=config,
        manifest=manifest,
        rows=rows,
        states=states,
        params=params,
        segments=split_segments(first, max(rows), states),
        summary=run.eval_summary,
        answers=run.predictions or [],
        baseline=run.baseline_predictions or [],
    )


@dataclass(frozen=True, kw_only=True)
class EnvironmentComparison:
    """Differences between this environment and the one of a run."""

    refusals: tuple[Problem, ...]
    """Differences that change every number."""
    notes: tuple[str, ...]
    """Differences that may change the last bits, or nothing."""
    tolerance_reason: str
    """Why the last bits may differ, or an empty string if every bit must be equal."""

    @property
    def is_exact(self) -> bool:
        """Whether every bit must be equal."""
        return not self.tolerance_reason


def compare_environment(
    manifest: Mapping[str, Any], devices: Devices, *, cpu_isa: str, file: str
) -> EnvironmentComparison:
    """Compare software, devices and processor with those in the manifest of a run.

    `cpu_isa` is the run's setting `precision.cpu_isa`, and `file` names the run in problems.
    """
    level = select_level(cpu_isa) if devices.platform == "cpu" else None
    recorded = _facts(manifest["environment"], manifest["code"])
    here = _facts(environment(level.name if level else None), code_identity())
    if level and level.why:  # the reason is not recorded, so that an unsupported level always counts as a difference
        here["CPU compiled_for"] = f"{level.name} ({level.why})"
    differing = {name for name in {**recorded, **here} if recorded.get(name) != here.get(name)}
    refusals = []
    for group, names in DECISIVE.items():
        for name in (each for each in names if each in differing):
            what = f"The run used {name} {recorded.get(name, '(none)')}; here it is {here.get(name, '(none)')}."
            refusals.append(problem_of("TP761", file=file, pointer=f"/environment/{group}/{name}", what=what))
    there = manifest["devices"]
    before = f"{there['count']} × {there['kind']} ({there['platform']})"
    now = f"{len(devices.list)} × {devices.kind} ({devices.platform})"
    if before != now:
        what, advice = f"The run used {before}; this machine has {now}.", None
        if there["platform"] == devices.platform == "cpu":
            advice = f'Set XLA_FLAGS="--xla_force_host_platform_device_count={there["count"]}" for as many CPU devices.'
        refusals.append(problem_of("TP762", file=file, pointer="/devices", what=what, next=advice))
    # Programs compiled for a named level give the same bits on every CPU that supports it. Others depend on the CPU's
    # instructions and the number of threads. The name of a CPU is not enough: some "AMD EPYC" have AVX-512.
    is_portable = level is not None and recorded.get("CPU compiled_for") == level.name != NATIVE
    is_alike = level is None or is_portable or differing.isdisjoint(PROCESSOR)
    ignored = {*DECISIVE["packages"], *DECISIVE["flags"], *(PROCESSOR if level is None else ())}
    return EnvironmentComparison(
        refusals=tuple(refusals),
        notes=tuple(_note(name, recorded.get(name), here.get(name)) for name in sorted(differing - ignored)),
        tolerance_reason="other versions" if refusals else "" if is_alike else "another processor",
    )


def _facts(environment: Mapping[str, Any], code: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of an environment by name, without empty ones."""
    facts = {name: value for name, value in environment.items() if not isinstance(value, dict)}
    facts |= {f"CPU {name}": value for name, value in environment.get("processor", {}).items()}
    facts |= environment["packages"] | environment["flags"] | {"trainproof commit": (code["commit"] or "")[:12]}
    return {name: value for name, value in facts.items() if name != "memory_bytes" and value not in (None, "")}


def _note(name: str, recorded: Any, here: Any) -> str:
    before, now = (" ".join(value) or "none" if isinstance(value, list) else value for value in (recorded, here))
    return f"{name} {'not' if before is None else before} recorded, {'none' if now is None else now} here"


@dataclass(frozen=True, kw_only=True)
class ReplaySetup:
    """Devices and inputs of a replay."""

    devices: Devices
    task: Task
    data: Data
    environment: EnvironmentComparison


def prepare_replay(run: RecordedRun, request: ReplayRequest) -> ReplaySetup:
    """Choose the devices and load the inputs of a run.

    Raises `ProblemError` with exit code 2 if the run is not sealed, and 3 if something that changes every number is
    missing or differs.
    """
    if run.manifest["status"] == "running":
        what = "The run is not sealed: it is still running, or was killed."
        advice = "Wait for its end, or resume it with `trainproof train --resume`."
        raise problem_error(run.folder, "TP760", what=what, next=advice)
    init_runtime(run.config)
    config = replay_config(run, request)
    devices = choose_devices(config.mesh.device, config.mesh.devices)
    compared = compare_environment(run.manifest, devices, cpu_isa=config.precision.cpu_isa, file=str(run.folder))
    if refused := [each for each in compared.refusals if not (request.anyway and each.code == "TP761")]:
        raise ProblemError(refused, exit_code=REFUSED)
    try:
        items, date = _recorded_eval_set(run), rendered_at(run.manifest)
        task, data = read_inputs(config, devices, eval_set=items, rendered_at=date)
    except ProblemError as error:
        unread = error if request.model else hint_model_path(error)
        raise ProblemError(unread.problems, exit_code=REFUSED) from error
    if problems := list(_data_problems(run, data)):
        raise ProblemError(problems, exit_code=REFUSED)
    version = (logged_scoring(run.folder) or read_scoring(run.summary)).version
    data = replace(data, scoring=replace(data.scoring, version=version))
    return ReplaySetup(devices=devices, task=task, data=data, environment=compared)


def replay_config(run: RecordedRun, request: ReplayRequest) -> Config:
    """Return the configuration of a run with its automatic settings resolved as recorded, and the requested files."""
    config, effective = run.config, effective_settings(run.manifest)
    layers, attention = effective.get("memory.layers", "unrolled"), effective.get("memory.attention", "plain")
    remat = effective["memory.remat"] if config.memory.remat == "auto" else config.memory.remat
    available = len(choose_devices(config.mesh.device, None).list)
    return config.changed(
        memory={"layers": layers, "attention": attention, "remat": remat},
        data={"dataset": request.dataset or config.data.dataset},
        model={"name": request.model or config.model.name},
        mesh={"devices": min(run.manifest["devices"]["count"], available)},
    )


def _recorded_eval_set(run: RecordedRun) -> RowFile | None:
    """Return the evaluation set as the run's answers repeat it if its file is missing here, else None.

    Its ids, prompts and expected answers are compared with the hashes in the summary as in every run.
    """
    name = run.config.evaluation.eval_set
    if run.summary is None or name is None or missing_eval_set(name) is None:
        return None
    recorded = run.summary["eval_set"]
    if recorded["name"] != Path(name).name:
        return None
    return replace(recorded_items(run.summary, run.answers), sha256=recorded["sha256"])


def _data_problems(run: RecordedRun, data: Data) -> Iterator[Problem]:
    """Yield problems if dataset or evaluation set are not the run's."""
    files = [("/dataset", "trained", data.dataset, run.manifest["dataset"]["sha256"])]
    if run.summary is not None and data.items is not None:
        files.append(("/eval_set", "evaluated", data.items.file, run.summary["eval_set"]["sha256"]))
    for pointer, used, found, expected in files:
        if found.sha256 != expected:
            what = f"{found.name} has the SHA-256 {found.sha256}; the run was {used} on {expected}."
            fix = "Put the run's evaluation set at the path in its configuration." if pointer == "/eval_set" else None
            yield problem_of("TP763", file=str(run.folder), pointer=f"{pointer}/sha256", what=what, next=fix)


def start_differences(
    run: RecordedRun, setup: ReplaySetup, steps: Steps, state: TrainState, frozen: Params
) -> Iterator[str]:
    """Yield the recorded facts about model, program and data that differ in the state before the first step."""
    task, data = setup.task, setup.data
    of_model, weights = drop_reference_params(frozen), run.manifest["model"]["weights"]
    here = {
        "model": model_group(task, steps.longest, state, of_model, weights=weights),
        "training": training_group(task, steps.longest, state, of_model, forced=False),
        "dataset": data.document(),
    }
    yield from _differing_values(run.manifest, here)
    if run.summary is not None and data.items is not None:
        sampler = Sampler.for_task(task, data)
        here = {"generation": sampler.document(), "scoring": scoring_document(data.scoring)}
        yield from _differing_values(run.summary, here)
    if (recorded := read_document(run.folder / layout.FIRST_EXAMPLES, "first_examples").value) is None:
        return
    replayed = data.first_examples(run.config.recording.first_examples, run_id=run.manifest["run_id"])
    for number, (one, other) in enumerate(zip_longest(recorded["examples"], replayed["examples"]), start=1):
        if one is None or other is None or any(other.get(key) != value for key, value in one.items()):
            yield f"{layout.FIRST_EXAMPLES}: example {number} is not the one that training sees first here"
            break
    for text in _differing_values(recorded, {"counts": replayed["counts"]}):
        yield f"{layout.FIRST_EXAMPLES}: {text}"


def _differing_values(recorded: Mapping[str, Any], here: Mapping[str, Any]) -> Iterator[str]:
    """Describe each recorded value that differs here, group by group; values that are not recorded are not compared."""
    for group, values in here.items():
        now = flatten(dict(values))
        for key, value in flatten(dict(recorded.get(group) or {})).items():
            name = f"{group}.{key}"
            if value != now.get(key) and name not in NOT_COMPARED and not name.startswith(BACKEND_PREFIX):
                yield f"{name} is {format_value(value)} in the run and {format_value(now.get(key))} here"

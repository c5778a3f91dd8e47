"""Read what a finished run recorded, to evaluate, challenge, export or play it: settings, answers, parameters."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax.numpy as jnp

from evidence import layout
from evidence.proof.signatures import problem_error
from evidence.run import read_existing_run
from evidence.scores.reading import Scoring, read_scoring
from schemas.catalog import EVAL_SETS, MODELS
from schemas.formats import size
from schemas.problems import ProblemError
from schemas.reading import read_rows
from schemas.validate import read_document
from trainer.config.load import load_config
from trainer.config.tree import Config
from trainer.data.answers import SCORING, infer_scoring
from trainer.data.conversations import FORM, PromptForm, infer_form, rendered_at
from trainer.data.rows import AS_WRITTEN, WITH_NEWLINE, RowFile, read_eval_set
from trainer.evaluation.answers import Sampler, item_fields
from trainer.loop.checkpoints import latest_step, missing_checkpoint, restored_state
from trainer.loop.compilation import tree_bytes
from trainer.loop.state import REFUSED, initial_params, load_trained_params
from trainer.loop.task import Task, add_shardings, drop_reference_params
from trainer.model.decoder import params_sha256
from trainer.model.layers import lora_names
from trainer.model.load import load_params
from trainer.model.model import combine
from trainer.model.peft import projections_by_module, read_adapter
from trainer.model.source import ModelSource, hint_model_path, resolve
from trainer.model.stacks import Params
from trainer.objectives.data import read_training_rows
from trainer.recorder.recorder import explain_full_device

EVALUATED = "evaluated"
"""Log event of a complete evaluation."""


def read_config(folder: Path) -> Config:
    """Return the configuration of a run folder."""
    read_existing_run(folder)
    return load_config(folder / layout.CONFIG)


def read_manifest(folder: Path) -> dict[str, Any]:
    """Return the manifest of a run folder; raise `ProblemError` with exit code 2 if it is missing or not valid."""
    read = read_document(folder / layout.MANIFEST, "run_manifest")
    if read.value is None or any(problem.severity == "error" for problem in read.problems):
        raise ProblemError(read.problems, exit_code=2)
    return read.value


def require_checkpoint(folder: Path) -> None:
    """Raise `ProblemError` with exit code 2 if a run folder lacks a checkpoint."""
    if latest_step(folder) is None:
        raise ProblemError([missing_checkpoint(folder)], exit_code=2)


def read_summary(folder: Path) -> dict[str, Any] | None:
    """Return eval_summary.json, empty if it is not a JSON object, or None if the file does not exist."""
    document = read_document(folder / layout.EVAL_SUMMARY, "eval_summary")
    return document.value or {} if (folder / layout.EVAL_SUMMARY).exists() else None


def is_evaluated(folder: Path) -> bool:
    """Return whether a run has an evaluation that may not be replaced.

    A partial one may be completed, unless the log already states its score, which the completed one would contradict.
    """
    summary = read_summary(folder)
    return summary is not None and (summary.get("status") != "partial" or _logged(folder, EVALUATED) is not None)


def read_answers(folder: Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return summary and prediction rows of a run's evaluation; without a valid one raise `ProblemError` (code 2)."""
    if not (folder / layout.EVAL_SUMMARY).is_file():
        raise problem_error(folder, "TP083", what="The run was not evaluated.")
    summary = read_document(folder / layout.EVAL_SUMMARY, "eval_summary")
    rows = read_rows(folder / layout.PREDICTIONS, "prediction_row")
    errors = [each for each in (*summary.problems, *rows.problems) if each.severity == "error"]
    if summary.value is None or errors:
        raise ProblemError(errors, exit_code=2)
    return summary.value, list(rows.values)


def read_sampler(folder: Path, task: Task, items: RowFile | None, scoring: Scoring | None = None) -> Sampler:
    """Return the sampler of a run's model, with the prompt form that the run recorded, and the scoring unless given."""
    config = task.config
    if (scoring := scoring or logged_scoring(folder)) is None:
        rows = read_training_rows(config)[1] if config.evaluation.answer is None else ()
        scoring = infer_scoring(config.evaluation, rows, () if items is None else items.rows)
    tokenizer = task.model.source.tokenizer(rendered_at(read_manifest(folder)))
    form = read_form(folder, config)
    return Sampler(task=task, settings=config.evaluation, form=form, scoring=scoring, tokenizer=tokenizer)


def read_form(folder: Path, config: Config) -> PromptForm:
    """Return how prompts were rendered in training, from the run's log or else from its training rows."""
    return logged_form(folder) or infer_form(read_training_rows(config)[1], config.data.template)


def logged_form(folder: Path) -> PromptForm | None:
    """Return how prompts were rendered according to the run's log, or None if the log does not say."""
    if (logged := _logged(folder, FORM)) is None:
        return None
    conversation, system, thinks = logged.get("conversation") is True, logged.get("system"), logged.get("thinks")
    template = logged.get("template", AS_WRITTEN if conversation else WITH_NEWLINE)
    return PromptForm(
        conversation=conversation,
        system=system if isinstance(system, str) else None,
        template=template if isinstance(template, str) else AS_WRITTEN,
        thinks=thinks if isinstance(thinks, bool) else None if conversation else False,
    )


def logged_scoring(folder: Path) -> Scoring | None:
    """Return how answers are read according to the run's log, or None if the log does not say."""
    logged = _logged(folder, SCORING)
    return None if logged is None else read_scoring({"scoring": logged})


def _logged(folder: Path, event: str) -> dict[str, Any] | None:
    """Return the fields of the last event of a kind in the log, or None if it is not logged."""
    rows = read_rows(folder / layout.LOG, "log_record").values
    return next((row["fields"] for row in reversed(rows) if row["event"] == event), None)


def recorded_items(summary: Mapping[str, Any], rows: Sequence[dict[str, Any]]) -> RowFile:
    """Return the evaluation set of a run: the built-in one, or the items that its prediction rows repeat."""
    name = summary["eval_set"]["name"]
    if name in EVAL_SETS:
        return read_eval_set(name)
    items = tuple({key: value for key, value in item_fields(row).items() if value is not None} for row in rows)
    lines = tuple(range(1, len(items) + 1))
    return RowFile(name=name, path=Path(layout.PREDICTIONS), rows=items, lines=lines, sha256="", warnings=())


def find_model(folder: Path, config: Config, model: str | None) -> ModelSource:
    """Return the model files of a run: a given folder, the run's own export, or the model that it was trained from.

    Raises `ProblemError` with exit code 2 if they are missing or cannot be read.
    """
    exported = folder / layout.EXPORT
    if model is None and config.model.name not in MODELS and config.method.kind == "full" and exported.is_dir():
        model = str(exported)
    if model is not None:
        return resolve(model, with_weights=False)
    try:
        return resolve(config.model.name, config.model.revision, with_weights=False)
    except ProblemError as error:
        raise hint_model_path(error) from error


def load_run_params(folder: Path, task: Task, *, sha256: str | None) -> tuple[Params, str]:
    """Load the parameters that gave a run's answers, and return them with the name of their file or folder.

    `sha256` is their hash according to the evaluation, or None to accept the first that are found.

    Raises `ProblemError` with exit code 3 if the parameters are missing, 1 if only parameters with another hash were
    found, 2 if a file cannot be read, and 4 if the device ran out of memory.
    """
    others = []
    with explain_full_device(str(folder)):
        for name, read in param_readers(folder, task):
            params = read()
            found = params_sha256(params)
            if sha256 in (None, found):
                return params, name
            others.append(f"{name} has {found[:12]}…")
    if not others:
        raise missing_params(folder, task)
    what = f"The answers were given by parameters with SHA-256 {str(sha256)[:12]}…; {', '.join(others)}."
    raise problem_error(folder, "TP058", what=what, exit_code=1)


def missing_params(folder: Path, task: Task) -> ProblemError:
    """Return the error for a run folder without parameters."""
    what = (
        f"The run folder lacks parameters: it contains no {layout.TRAINED_PARAMS}, {layout.CHECKPOINTS}/, "
        f"{layout.EXPORT}/ or {layout.ADAPTER}/. The trained parameters take {size(tree_bytes(task.model.trained))}."
    )
    return problem_error(folder, "TP057", what=what, exit_code=REFUSED)


def param_readers(folder: Path, task: Task) -> Iterator[tuple[str, Callable[[], Params]]]:
    """Yield each file or folder of a run with its parameters, and a function that loads them, smallest first."""
    adapter, exported = folder / layout.ADAPTER, folder / layout.EXPORT
    if (folder / layout.TRAINED_PARAMS).is_file():
        yield layout.TRAINED_PARAMS, lambda: _add_frozen(load_trained_params(folder, task) or {}, task)
    if task.model.adapters and adapter.is_dir():
        yield f"{layout.ADAPTER}/", lambda: _add_frozen(_adapter_params(adapter, task), task)
    if not task.model.adapters and exported.is_dir():
        yield f"{layout.EXPORT}/", lambda: load_params(resolve(str(exported)), add_shardings(task.model.base, task))
    if latest_step(folder) is not None:
        yield f"{layout.CHECKPOINTS}/", lambda: _checkpoint_params(folder, task)


def _add_frozen(trained: Params, task: Task) -> Params:
    trained_only = task.model.method.is_trained
    frozen = initial_params(task, wanted=lambda name: not trained_only(name)) if task.model.frozen else {}
    return combine(trained, frozen)


def _adapter_params(folder: Path, task: Task) -> Params:
    """Load an adapter in PEFT's format; where one module has several projections, split it into theirs."""
    read = read_adapter(folder, task.model.source).params
    found: Params = {}
    for projections in projections_by_module(task.model.source).values():
        before = 0
        for name in (name for name in projections if name in task.model.adapters):
            rank, (first, second) = task.model.adapters[name].rank, lora_names(name)
            if first in read and second in read:
                start = before if read[first].shape[1] != rank else 0
                found |= {first: read[first][:, start : start + rank], second: read[second][start : start + rank]}
            before += rank
    return {name: jnp.asarray(value) for name, value in found.items()}


def _checkpoint_params(folder: Path, task: Task) -> Params:
    [state], frozen = restored_state(folder, task)
    return combine(state.trained, drop_reference_params(frozen))

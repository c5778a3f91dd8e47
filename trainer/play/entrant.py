"""One model that plays: found in what a run keeps, loaded once its memory was planned, asked as its run was asked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from evidence import layout
from schemas.reading import read_rows
from schemas.validate import read_document
from trainer.challenge_run import form_stated
from trainer.config.tree import Config
from trainer.data.answers import scoring_from
from trainer.data.chat_template import has_template, rendered_at
from trainer.data.render import PromptForm
from trainer.data.rows import RowFile, read_eval_set
from trainer.evaluate_run import scoring_for
from trainer.evaluation.bundled_params import no_params, param_readers, shipped_params, source_of
from trainer.evaluation.evaluable import config_of_run
from trainer.evaluation.late_evaluation import manifest_of
from trainer.evaluation.regenerate import set_of
from trainer.evaluation.sampler import Sampler
from trainer.loop.base import refuse_other_base, refuse_other_tokenizer
from trainer.loop.mesh import build_mesh
from trainer.loop.state import initial_params
from trainer.loop.task import Task
from trainer.model.files.source import resolve
from trainer.model.params import Params
from trainer.recorder.failure import explain_full_device
from trainer.runtime import Devices


@dataclass(frozen=True, kw_only=True)
class Entrant:
    """A model that plays, before its parameters are loaded."""

    name: str
    folder: Path
    """Of its run; nothing is written into it."""
    task: Task
    sampler: Sampler
    items: RowFile | None
    """The set that its run was asked. None: it was asked none."""
    where: str
    """What its parameters are read from."""
    load: Callable[[], Params]

    def likes(self, items: RowFile | None) -> list[list[int]]:
        """Return the prompts of a set that leave room for an output, in token ids; none of no set."""
        prompts = [] if items is None else self.sampler.prompts_of(items)
        return [prompt for prompt in prompts if self.sampler.has_room(prompt)]


def trained_entrant(folder: Path, devices: Devices) -> Entrant:
    """Return the model that a run trained.

    Raises:
        ProblemError: exit code 2; the run, its model or its rows cannot be read. Exit code 3: it holds no parameters,
            or the tokenizer here is another one.
    """
    config, manifest = config_of_run(folder), manifest_of(folder)
    source = source_of(folder, config, None)
    refuse_other_tokenizer(manifest, source, file=str(folder))
    task = Task.of(config, source, build_mesh(devices.list))
    places = [where for where, _ in param_readers(folder, task)]
    if not places:
        raise no_params(folder, task)
    stated, items = asked_of(folder, config)

    def load() -> Params:
        if stated is None:
            refuse_other_base(manifest, task, file=str(folder), trains=False)
        return shipped_params(folder, task, manifest, stated_sha256=stated).params

    return Entrant(
        name=folder.resolve().name,
        folder=folder,
        task=task,
        sampler=sampler_of(folder, config, task, items),
        items=items,
        where=places[0],
        load=load,
    )


def untrained_entrant(trained: Entrant) -> Entrant:
    """Return the model that a run began with: drawn from its seed, or read from the files that it names.

    Raises:
        ProblemError: exit code 2; the files are not there.
    """
    config, manifest = trained.task.config, manifest_of(trained.folder)
    # Not the run's own export, which stands for its base where the base is not here.
    source = resolve(config.model.name, config.model.revision)
    task = Task.of(config, source, trained.task.mesh)
    where = source.name if task.model.reads_weights else f"seed {config.seed}"

    def load() -> Params:
        refuse_other_base(manifest, task, file=str(trained.folder), trains=not task.model.frozen)
        with explain_full_device(str(trained.folder)):
            return initial_params(task)

    return replace(trained, name=f"{trained.name}, untrained", task=task, where=where, load=load)


def bare_entrant(config: Config, devices: Devices) -> Entrant:
    """Return a model that no run trained; one whose tokenizer has a chat template is asked in a user's turn.

    Raises:
        ProblemError: exit code 2; its files are not there, or it is of no family that is known here.
    """
    source = resolve(config.model.name, config.model.revision)
    task, tokenizer = Task.of(config, source, build_mesh(devices.list)), source.tokenizer()

    def load() -> Params:
        with explain_full_device(config.model.name):
            return initial_params(task)

    sampler = Sampler(
        settings=config.evaluation,
        form=PromptForm(conversation=has_template(tokenizer), thinks=None),
        scoring=scoring_from(config.evaluation, (), ()),
        tokenizer=tokenizer,
        graphdef=task.model.graphdef,
        max_positions=source.spec.max_positions,
        seed=config.seed,
        options=task.compiler_options,
    )
    where = source.name if task.model.reads_weights else f"seed {config.seed}"
    name, folder = Path(source.name).name, Path(config.model.name)
    return Entrant(name=name, folder=folder, task=task, sampler=sampler, items=None, where=where, load=load)


def asked_of(folder: Path, config: Config) -> tuple[str | None, RowFile | None]:
    """Return the hash of the parameters that gave a run's stated answers, and the set it was asked; None for each."""
    summary, rows = stated_answers(folder)
    if summary is not None and rows:
        return summary["checkpoint"]["params_sha256"], set_of(summary, rows)
    name = config.evaluation.eval_set
    return None, None if name is None else read_eval_set(name)


def stated_answers(folder: Path) -> tuple[dict[str, Any] | None, Sequence[dict[str, Any]]]:
    """Return the summary of a run's evaluation and its answers, as far as they are valid."""
    if not (folder / layout.EVAL_SUMMARY).is_file():
        return None, ()
    summary = read_document(folder / layout.EVAL_SUMMARY, "eval_summary")
    rows = read_rows(folder / layout.PREDICTIONS, "prediction_row")
    if any(each.severity == "error" for each in (*summary.problems, *rows.problems)):
        return None, ()
    return summary.value, tuple(rows.values)


def sampler_of(folder: Path, config: Config, task: Task, items: RowFile | None) -> Sampler:
    """Return how a run's model is asked and read."""
    nothing = RowFile(name="", path=folder, rows=(), lines=(), sha256="", warnings=())
    return Sampler(
        settings=config.evaluation,
        form=form_stated(folder, config),
        scoring=scoring_for(folder, config, items or nothing),
        tokenizer=task.model.source.tokenizer(rendered_at(manifest_of(folder))),
        graphdef=task.model.graphdef,
        max_positions=task.model.source.spec.max_positions,
        seed=config.seed,
        options=task.compiler_options,
    )

"""What a run states before its first step, compared with what its configuration gives here: model, program, data."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import zip_longest
from typing import Any

from evidence import layout
from evidence.effective import flatten
from schemas.formats import format_value
from schemas.validate import read_document
from trainer.data.answers import scoring_document
from trainer.evaluation.answers import Sampler
from trainer.loop.programs import Steps
from trainer.loop.record import model_group, training_group
from trainer.loop.step import TrainState
from trainer.loop.task import Task, without_reference
from trainer.model.params import Params
from trainer.objectives.data import Data
from trainer.replay.recorded import RecordedRun

OF_THE_END = frozenset({"training.steps_done", "training.forced", "model.name", "model.revision", "dataset.name"})
"""What is known only afterwards, or states how the run was started and what its files were called."""

OF_THE_BACKEND = ("training.donation.",)
"""What one kind of device states and another does not."""


def start_differences(
    run: RecordedRun, task: Task, data: Data, steps: Steps, state: TrainState, frozen: Params
) -> list[str]:
    """Return what the run states of its start and is not so here, as sentences with both values.

    Args:
        run: what it states.
        task: what it trains.
        data: what it learns from.
        steps: its compiled steps.
        state: before the first step.
        frozen: the parameters that do not learn.
    """
    of_model = without_reference(frozen)
    program = steps.longest
    weights = run.manifest["model"]["weights"]
    here = {
        "model": model_group(task, program, state, of_model, weights=weights),
        "training": training_group(task, program, state, of_model, forced=False),
        "dataset": data.document(),
    }
    said = [
        f"{name} is {format_value(stated)} in the run and {format_value(found)} here"
        for name, stated, found in _differing(run.manifest, here)
    ]
    if run.summary is not None and data.items is not None:
        here = {
            "generation": Sampler.for_task(
                task, form=data.form, scoring=data.scoring, tokenizer=data.tokenizer
            ).document(),
            "scoring": scoring_document(data.scoring),
        }
        said += [
            f"{group}.{name} is {format_value(stated)} in the run and {format_value(found)} here"
            for group, how in here.items()
            for name, stated, found in _unequal(run.summary.get(group, {}), how)
            if name != "sha256"
        ]
    examples = read_document(run.folder / layout.FIRST_EXAMPLES, "first_examples").value
    count = run.config.recording.first_examples
    found = data.first_examples(count, run_id=run.manifest["run_id"])
    return said if examples is None else [*said, *_other_examples(examples, found)]


def _other_examples(stated: Mapping[str, Any], found: Mapping[str, Any]) -> Iterator[str]:
    numbered = enumerate(zip_longest(stated["examples"], found["examples"]), start=1)
    other = [number for number, (one, another) in numbered if not _is_same(one, another)]
    if other:
        yield f"{layout.FIRST_EXAMPLES}: example {other[0]} is not the one that training sees first here"
    for name, one, another in _unequal(stated["counts"], found["counts"]):
        yield f"{layout.FIRST_EXAMPLES}: {name} is {format_value(one)} in the run and {format_value(another)} here"


def _is_same(stated: Mapping[str, Any] | None, found: Mapping[str, Any] | None) -> bool:
    """Return whether two examples are one; what an earlier version did not state is not compared."""
    if stated is None or found is None:
        return False
    return all(found.get(key) == value for key, value in stated.items())


def _differing(manifest: Mapping[str, Any], here: Mapping[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    for group, values in here.items():
        stated = manifest[group]
        for name, one, other in _unequal(stated or {}, values):
            whole = f"{group}.{name}"
            if whole not in OF_THE_END and not whole.startswith(OF_THE_BACKEND):
                yield whole, one, other


def _unequal(stated: Mapping[str, Any], found: Mapping[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    """Yield the values that the run states and that differ here.

    What an earlier version did not state is not compared.
    """
    one, other = flatten(dict(stated)), flatten(dict(found))
    yield from ((name, value, other.get(name)) for name, value in one.items() if value != other.get(name))

"""Whether the base model that lies here is the one that a run was trained from, by the hashes that the run states.

With another base every number differs, and the difference would state nothing about the run; so it is refused, before
anything is computed, with both hashes and what to fetch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from schemas.problems import Problem, ProblemError, problem_of
from trainer.loop.state import initial_params, some_params
from trainer.loop.task import Task
from trainer.model.decoder import params_sha256
from trainer.model.source import ModelSource

REFUSED = 3


def refuse_other_base(manifest: Mapping[str, Any], task: Task, *, file: str, trains: bool) -> None:
    """Refuse a base model of other hashes than a run states.

    Args:
        manifest: of the run.
        task: what it trains, with the model that lies here.
        file: the run, for problems.
        trains: whether it is trained again, so that all first parameters count; else those alone that did not learn.

    Raises:
        ProblemError: exit code 3; with both hashes.
    """
    found = [*_of_tokenizer(manifest, task.model.source, file), *_of_weights(manifest, task, file, trains=trains)]
    if found:
        raise ProblemError(found, exit_code=REFUSED)


def refuse_other_tokenizer(manifest: Mapping[str, Any], source: ModelSource, *, file: str) -> None:
    """Refuse a tokenizer of another hash than a run states.

    Raises:
        ProblemError: exit code 3; with both hashes.
    """
    if found := list(_of_tokenizer(manifest, source, file)):
        raise ProblemError(found, exit_code=REFUSED)


def other_base(manifest: Mapping[str, Any], what: str, stated: str, found: str, file: str) -> Problem:
    """Return the problem of a base model of which something has another hash."""
    name, revision = manifest["model"]["name"], manifest["model"]["revision"]
    at = f" at revision {revision}" if revision else ""
    have = "have" if what == "weights" else "has"
    said = f"The {what} of the base model here {have} the SHA-256 {found}; the run states {stated}."
    then = f"Fetch {name}{at}, as the run had it, and give its folder with --model."
    return problem_of("TP765", file=file, pointer="/model", what=said, next=then)


def _of_tokenizer(manifest: Mapping[str, Any], source: ModelSource, file: str) -> Iterator[Problem]:
    stated, found = manifest["model"].get("tokenizer_sha256"), source.tokenizer_sha256()
    if stated is not None and stated != found:
        yield other_base(manifest, "tokenizer", stated, found, file)


def _of_weights(manifest: Mapping[str, Any], task: Task, file: str, *, trains: bool) -> Iterator[Problem]:
    model = manifest["model"]
    if model["weights"] != "pretrained" or not task.model.reads_weights:
        return
    if "frozen_sha256" in model and task.model.frozen:
        stated = model["frozen_sha256"]
        found = params_sha256(some_params(task, lambda name: not task.model.method.is_trained(name)))
    elif trains and manifest["parent"] is None:
        stated, found = model["weights_sha256"], params_sha256(initial_params(task))
    else:
        return
    if stated != found:
        yield other_base(manifest, "weights", stated, found, file)

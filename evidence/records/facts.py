"""The part of a run that can be reasoned about: documents and rows of the right shape, and nothing else.

Rules take `Facts`, so that none of them has to check what type a value has. What is not of the right shape is None
here; its own problems report why.

A rule states its meaning and its fix once, in its `Rule`; a problem adds what was found, with names and numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evidence.records.ours import Run
from evidence.run import layout
from schemas.problems import Problem, problem_of
from schemas.reading import Columns

Document = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Facts:
    """What a run states, where it states it in the right shape; None: absent, or not of the right shape.

    Attributes:
        run: The run that states it.
        folder: The run folder.
        files: As in `Run`.
        status: The status in effect, as in `Run`.
        manifest: Valid value of run_manifest.json; so for the other documents.
        config: config.yaml.
        plan: plan.json.
        first_examples: first_examples.json.
        eval_summary: eval_summary.json.
        withheld: Files of rows that are not to be reasoned about, because something is wrong with them.
    """

    run: Run = field(repr=False)
    folder: Path
    files: tuple[str, ...]
    status: str | None
    manifest: Document | None
    config: Document | None
    plan: Document | None
    first_examples: Document | None
    eval_summary: Document | None
    withheld: frozenset[str] = frozenset()

    @cached_property
    def metrics(self) -> Sequence[Document] | None:
        """All rows of metrics.jsonl, each valid; a torn tail is left out. Read at the first question, as all rows."""
        return self._rows(layout.METRICS)

    @cached_property
    def log(self) -> Sequence[Document] | None:
        """The rows of log.jsonl."""
        return self._rows(layout.LOG)

    @cached_property
    def chain(self) -> Sequence[Document] | None:
        """The rows of chain.jsonl."""
        return self._rows(layout.CHAIN)

    @cached_property
    def rollouts(self) -> Sequence[Document] | None:
        """The rows of rollouts.jsonl."""
        return self._rows(layout.ROLLOUTS)

    @cached_property
    def answers_over_steps(self) -> Sequence[Document] | None:
        """The rows of answers_over_steps.jsonl."""
        return self._rows(layout.ANSWERS_OVER_STEPS)

    @cached_property
    def predictions(self) -> Sequence[Document] | None:
        """The rows of predictions.jsonl."""
        return self._rows(layout.PREDICTIONS)

    @cached_property
    def baseline_predictions(self) -> Sequence[Document] | None:
        """The rows of baseline_predictions.jsonl."""
        return self._rows(layout.BASELINE_PREDICTIONS)

    @cached_property
    def columns(self) -> Columns:
        """The metrics as arrays, without rows if the file is missing: what rules look at first, of whatever length."""
        return Columns(self.metrics or [])

    @property
    def model(self) -> Document | None:
        """The manifest's group `model`; None before the model was built."""
        return self.manifest["model"] if self.manifest is not None else None

    @property
    def training(self) -> Document | None:
        """The manifest's group `training`; None before the train step was compiled."""
        return self.manifest["training"] if self.manifest is not None else None

    @property
    def trains_all(self) -> bool:
        """Whether the stated method trains every parameter of the model."""
        return self.training is not None and self.training["method"] == "full"

    @property
    def has_adapters(self) -> bool:
        """Whether the stated method trains parameters that were added to the model."""
        return self.training is not None and self.training["method"] in {"lora", "qlora"}

    @property
    def is_supervised(self) -> bool:
        """Whether the objective is cross-entropy of each row's completion, as in every run before there were others."""
        return bool(((self.config or {}).get("objective") or {}).get("kind", "supervised") == "supervised")

    @property
    def draws_completions(self) -> bool:
        """Whether it learned from what the model wrote itself, and not from its rows."""
        return bool(((self.config or {}).get("objective") or {}).get("kind") == "grpo")

    @property
    def is_sealed(self) -> bool:
        """Whether the run recorded its end; until then results and hashes are not expected."""
        return self.manifest is not None and self.manifest["status"] != "running"

    @property
    def succeeded(self) -> bool:
        """Whether the run states that it did all it was to do."""
        return self.manifest is not None and self.manifest["status"] == "succeeded"

    def _rows(self, name: str) -> Sequence[Document] | None:
        read = self.run.rows(name)
        return None if name not in self.files or name in self.withheld or _has_errors(read.problems) else read.values


def facts_of(run: Run) -> Facts:
    """Return the facts of a run."""
    unsound = {problem.file for problem in run.problems if problem.severity == "error"}

    def sound(name: str, value: Document | None) -> Document | None:
        return None if unsound and str(run.path / name) in unsound else value

    return Facts(
        run=run,
        folder=run.path,
        files=run.files,
        status=run.status,
        manifest=sound(layout.MANIFEST, run.manifest),
        config=sound(layout.CONFIG, run.config),
        plan=sound(layout.PLAN, run.plan),
        first_examples=sound(layout.FIRST_EXAMPLES, run.first_examples),
        eval_summary=sound(layout.EVAL_SUMMARY, run.eval_summary),
    )


def _has_errors(problems: tuple[Problem, ...]) -> bool:
    return any(problem.severity == "error" for problem in problems)


TOLERANCE = 1e-9
"""Largest difference, relative for numbers above 1, between a stated number and the same number computed again."""


def finding(folder: Path, code: str, name: str, what: str, **more: Any) -> Problem:
    """Return the problem that a rule found in one file of a run folder, or in the folder itself where name is empty."""
    return problem_of(code, file=str(folder / name), what=what, **more)


def value_at(document: Any, pointer: str) -> Any:
    """Return the value at a pointer like `/training/steps_done` of a valid document.

    Raises:
        KeyError: The key is left out, or a group above it is null.
    """
    for part in pointer.split("/")[1:]:
        if document is None:
            raise KeyError(pointer)
        document = document[part]
    return document


def same(one: Any, other: Any) -> bool:
    """Return whether two values state the same: counts and the like exactly, other numbers within `TOLERANCE`."""
    if type(one) is int and type(other) is int:
        return one == other
    if _is_number(one) and _is_number(other):
        return bool(abs(one - other) <= TOLERANCE * max(1.0, abs(one), abs(other)))
    return type(one) is type(other) and bool(one == other)


def where(flags: NDArray[np.bool_]) -> list[int]:
    """Return the indices of the rows for which something holds, `[rows]` flags, in order."""
    return np.flatnonzero(flags).tolist() if flags.any() else []


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)

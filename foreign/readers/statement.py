"""One statement: what a source states of one fact, so that every two statements of the same fact can be compared.

Anyone who reads a folder gives statements and compares nothing; the comparison is written once
(`foreign.checks.pairs`). A statement may state less than a value: that a figure lies in a range, or that it is
one of several.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from schemas.problems import key_path

Scalar = str | int | float | bool
How = Literal["stated", "inferred"]
"""stated: the source states it in so many words. inferred: it follows from what the source states; a note states
how."""

Kind = Literal["declared", "effective", "measured", "remark"]
"""declared: what was requested. effective: what a program states it used. measured: what a run gave. remark: what a
person wrote about it."""


@dataclass(frozen=True, kw_only=True)
class Citation:
    """Where something stands."""

    file: str
    """Path inside the folder, with forward slashes."""
    line: int | None = None
    """Line, counted from 1. None: the file has no lines (event files), or the value's line is not known."""
    pointer: str | None = None
    """JSON Pointer inside a document, or the tag inside an event file. None: the line states enough."""

    def __str__(self) -> str:
        """Return the source as messages show it: `trainer_state.json at /max_steps (line 9)`, `train.log line 3`."""
        if self.pointer is None:
            return f"{self.file} line {self.line}" if self.line else self.file
        return f"{self.file} at {key_path(self.file, self.pointer)}" + (f" (line {self.line})" if self.line else "")


@dataclass(frozen=True, kw_only=True)
class Fact:
    """One thing that a source states about the run."""

    name: str
    """What it is about, in our words: `model.name`, `training.steps_planned`, `result.mean_loss`."""
    value: Scalar
    """The value, as the source has it."""
    source: Citation
    """Where it stands."""
    how: How = "stated"
    """Whether it is stated or inferred."""
    note: str | None = None
    """How it was inferred, or what must be known to read it. None: nothing."""


@dataclass(frozen=True, kw_only=True)
class Scope:
    """What a score, or a number of items, is of. Two of them are of different things where any field differs."""

    words: frozenset[str] = frozenset()
    """Words of groups, files and folders that distinguish one evaluation from another: a task, `baseline`."""
    split: str = ""
    """train, eval or test. Empty: the source does not state it."""
    best: bool = False
    """Whether it is the best of several evaluations."""
    when: str = ""
    """Time of the evaluation, from the file's name. Empty: the source does not state it; so for the fields below."""
    of_set: str = ""
    """Name of the set of items."""
    model: str = ""
    """Name of the model that answered."""
    items: float | None = None
    """Number of items."""
    checkpoint: str = ""
    """Checkpoint or step."""

    def may_be(self, other: Scope) -> bool:
        """Return whether both can be of the same evaluation, as far as both state it."""
        said_by_both = (
            (self.when, other.when),
            (self.of_set, other.of_set),
            (self.model, other.model),
            (self.items, other.items),
            (self.checkpoint, other.checkpoint),
        )
        same = (self.words, self.split, self.best) == (other.words, other.split, other.best)
        return same and all(not one or not two or one == two for one, two in said_by_both)


@dataclass(frozen=True, kw_only=True)
class Statement:
    """What one source states of one fact."""

    fact: str
    """What it is about: `model.name`, `result.mean_loss`, `score.accuracy`."""
    value: Scalar | None
    """The value; of a range, one end. None: the source states null."""
    source: Citation
    """Where it stands."""
    kind: Kind = "effective"
    """Who states it."""
    how: How = "stated"
    """Whether the source states it in so many words."""
    scope: Scope = field(default_factory=Scope)
    """What it is of; of settings, of the run."""
    low: float | None = None
    """Least value that agrees with the source. None: no range."""
    high: float | None = None
    """Largest one. None: no range."""
    series: str = ""
    """Statements of one series are one source, of which any may be meant. Empty: each place is a source."""
    told: str = ""
    """The statement as the end of a sentence, where fact, value and source do not state it it."""

    @property
    def is_range(self) -> bool:
        """Whether the source gives a range, not a value."""
        return self.low is not None or self.high is not None


def state(fact: Fact, kind: Kind = "effective") -> Statement:
    """Return what a fact states."""
    return Statement(fact=fact.name, value=fact.value, source=fact.source, how=fact.how, kind=kind)


def infer(
    fact: str,
    value: Scalar,
    source: Citation,
    told: str = "",
    *,
    scope: Scope | None = None,
    low: float | None = None,
    high: float | None = None,
    series: str = "",
) -> Statement:
    """Return what follows from measured figures; the arguments are the fields of a statement."""
    return Statement(
        fact=fact,
        value=value,
        source=source,
        kind="measured",
        how="inferred",
        scope=scope or Scope(),
        low=low,
        high=high,
        series=series,
        told=told,
    )

"""What a run states of itself, in the form in which a repetition is compared with it."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from evidence import layout
from evidence.hashes import sha256_file
from evidence.run import Run, read_existing_run
from schemas.problems import ProblemError, problem_of
from trainer.config.load import load_config
from trainer.config.tree import Config
from trainer.loop.chain import Segment, split_segments

LARGEST_NUMBER = 10**6
"""Below which a number lies that is drawn where the judge gives none: six digits, easily written down."""


@dataclass(frozen=True, kw_only=True)
class ReplayRequest:
    """A request."""

    folder: Path
    whole: bool = False
    """Every segment from the seed, and every answer."""
    segments: int = 4
    """Parts drawn between the first and the last."""
    items: int = 10
    """Answers that are written anew, of each model; the others are followed in one pass."""
    minutes: float | None = None
    """Time to spend: as many segments as it allows. None: those requested, however long they take."""
    seed: int | None = None
    """The judge's number, which decides what is drawn. None: one is drawn now."""
    states: Path | None = None
    """Folder with the states that the run's maker sent for this number. None: none were requested."""
    anyway: bool = False
    """Repeat it although versions differ."""
    dataset: str | None = None
    """Where the run's dataset lies here."""
    model: str | None = None
    """Where its model lies here."""

    def numbered(self) -> ReplayRequest:
        """Return it with a number of the judge: the one given, or one that no one could know before."""
        return self if self.seed is not None else replace(self, seed=secrets.randbelow(LARGEST_NUMBER))

    def document(self) -> dict[str, Any]:
        """Return the receipt's group `asked`."""
        return {
            "whole": self.whole,
            "segments": self.segments,
            "items": self.items,
            "minutes": self.minutes,
            "seed": self.seed,
        }


@dataclass(frozen=True, kw_only=True)
class RecordedRun:
    """A run as it is recorded."""

    folder: Path
    sha256: str
    """Of its manifest."""
    config: Config
    manifest: Mapping[str, Any]
    rows: Mapping[int, dict[str, Any]]
    """Rows of metrics.jsonl by step."""
    states: Mapping[int, str]
    """Hash of the train state by step, where the chain states one."""
    params: Mapping[int, str]
    """Hash of all parameters by step, where chain, manifest or evaluation states one."""
    segments: tuple[Segment, ...]
    """The training in parts, from one place of the chain to the next."""
    summary: Mapping[str, Any] | None
    """eval_summary.json. None: nothing was evaluated."""
    answers: Sequence[dict[str, Any]]
    """Rows of predictions.jsonl."""
    baseline: Sequence[dict[str, Any]]
    """Rows of baseline_predictions.jsonl."""

    @property
    def first_step(self) -> int:
        """The step from which the run begins: 0, or that of the checkpoint it goes on from."""
        return self.segments[0].first_step

    @property
    def last_step(self) -> int:
        """The step with which it ends."""
        return self.segments[-1].last_step


def read_recorded(folder: Path) -> RecordedRun:
    """Return what a run folder records.

    Raises:
        ProblemError: exit code 2; there is no such folder, or it states too little to be repeated.
    """
    facts = read_existing_run(folder)
    manifest = facts.manifest
    missing = [
        name
        for name, value in ((layout.MANIFEST, manifest), (layout.CONFIG, facts.config), (layout.METRICS, facts.metrics))
        if value is None
    ]
    if missing or manifest is None:
        what = f"{' and '.join(missing)} cannot be read, or {'is' if len(missing) == 1 else 'are'} not there."
        then = f"`trainproof check {folder}` says what is wrong with it."
        raise ProblemError([problem_of("TP760", file=str(folder), what=what, next=then)], exit_code=2)
    rows = {row["step"]: row for row in facts.metrics or []}
    if not rows or manifest["model"] is None:
        what = "The run was stopped before its first step was recorded."
        raise ProblemError([problem_of("TP760", file=str(folder), what=what)], exit_code=2)
    config = load_config(folder / layout.CONFIG)
    if max(rows) > config.limits.steps:
        what = f"metrics.jsonl has a row of step {max(rows):,}; config.yaml ends at step {config.limits.steps:,}."
        raise ProblemError([problem_of("TP760", file=str(folder), what=what)], exit_code=2)
    states = {entry["step"]: entry["state_sha256"] for entry in facts.chain or []}
    first = manifest["parent"]["step"] if manifest["parent"] else 0
    return RecordedRun(
        folder=folder,
        sha256=sha256_file(folder / layout.MANIFEST),
        config=config,
        manifest=manifest,
        rows=rows,
        states=states,
        params=params_stated(facts, first),
        segments=split_segments(first, max(rows), states),
        summary=facts.eval_summary,
        answers=facts.predictions or [],
        baseline=facts.baseline_predictions or [],
    )


def params_stated(facts: Run, first: int) -> dict[int, str]:
    """Return the hash of all parameters at each step for which the run states one."""
    found = {entry["step"]: entry["params_sha256"] for entry in facts.chain or [] if entry["params_sha256"]}
    if facts.model is not None:
        found[first] = facts.model["weights_sha256"]
    if facts.eval_summary is not None:
        checkpoint = facts.eval_summary["checkpoint"]
        found[checkpoint["step"]] = checkpoint["params_sha256"]
    return found

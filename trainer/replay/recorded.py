"""Read a recorded run in the form in which a replay is compared with it."""

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

MAX_SEED = 10**6
"""Seeds that are chosen here are below this, so that they are easy to write down."""


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
    """Dataset on this machine, or None for the configured path."""
    model: str | None = None
    """Model on this machine, or None for the configured one."""

    def with_seed(self) -> ReplayRequest:
        """Return the request with its seed, or with a random one."""
        return self if self.seed is not None else replace(self, seed=secrets.randbelow(MAX_SEED))

    def document(self) -> dict[str, Any]:
        """Return the arguments for the receipt."""
        return {name: getattr(self, name) for name in ("whole", "segments", "items", "minutes", "seed")}


@dataclass(frozen=True, kw_only=True)
class RecordedRun:
    """A run folder, read."""

    folder: Path
    sha256: str
    """Hash of the manifest."""
    config: Config
    manifest: Mapping[str, Any]
    rows: Mapping[int, dict[str, Any]]
    """Rows of metrics.jsonl by step."""
    states: Mapping[int, str]
    """Hash of the train state by step, from the chain."""
    params: Mapping[int, str]
    """Hash of all parameters by step, from chain, manifest and evaluation."""
    segments: tuple[Segment, ...]
    """The training between entries of the chain."""
    summary: Mapping[str, Any] | None
    """eval_summary.json, or None if the run was not evaluated."""
    answers: Sequence[dict[str, Any]]
    """Rows of predictions.jsonl."""
    baseline: Sequence[dict[str, Any]]
    """Rows of baseline_predictions.jsonl."""

    @property
    def first_step(self) -> int:
        """Step after which the run begins: 0, or the step it was resumed from."""
        return self.segments[0].first_step

    @property
    def last_step(self) -> int:
        """Last step of the run."""
        return self.segments[-1].last_step


def read_recorded(folder: Path) -> RecordedRun:
    """Read a run folder.

    Raises:
        ProblemError: exit code 2; the folder does not exist, or lacks a file that a replay needs.
    """

    def unreadable(what: str, then: str | None = None) -> ProblemError:
        return ProblemError([problem_of("TP760", file=str(folder), what=what, next=then)], exit_code=2)

    run = read_existing_run(folder)
    manifest = run.manifest
    files = {layout.MANIFEST: manifest, layout.CONFIG: run.config, layout.METRICS: run.metrics}
    missing = [name for name, value in files.items() if value is None]
    if missing or manifest is None:
        what = f"{' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} missing or cannot be read."
        raise unreadable(what, f"Run `trainproof check {folder}` to see what is wrong.")
    rows = {row["step"]: row for row in run.metrics or []}
    if not rows or manifest["model"] is None:
        what = "The run stopped before its first step was recorded."
        raise unreadable(what)
    config = load_config(folder / layout.CONFIG)
    if max(rows) > config.limits.steps:
        what = f"metrics.jsonl has a row of step {max(rows):,}, but config.yaml ends at step {config.limits.steps:,}."
        raise unreadable(what)
    states = {entry["step"]: entry["state_sha256"] for entry in run.chain or []}
    first = manifest["parent"]["step"] if manifest["parent"] else 0
    return RecordedRun(
        folder=folder,
        sha256=sha256_file(folder / layout.MANIFEST),
        config=config,
        manifest=manifest,
        rows=rows,
        states=states,
        params=_params_hashes(run, first),
        segments=split_segments(first, max(rows), states),
        summary=run.eval_summary,
        answers=run.predictions or [],
        baseline=run.baseline_predictions or [],
    )


def _params_hashes(run: Run, first: int) -> dict[int, str]:
    hashes = {entry["step"]: entry["params_sha256"] for entry in run.chain or [] if entry["params_sha256"]}
    if run.model is not None:
        hashes[first] = run.model["weights_sha256"]
    if run.eval_summary is not None:
        checkpoint = run.eval_summary["checkpoint"]
        hashes[checkpoint["step"]] = checkpoint["params_sha256"]
    return hashes

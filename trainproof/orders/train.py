"""From the flags of `trainproof train` to an order: which configuration, which folder, what it was called with."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from evidence.layout import CONFIG, new_run_id
from schemas.problems import Problem, ProblemError, problem_of
from trainer.config.load import load_config
from trainer.config.tree import Config
from trainer.loop.session import session_limit
from trainer.planning.smoke_shape import resolve_shape_here
from trainer.resume import AUTO
from trainer.run import RunRequest
from trainer.runtime import init_runtime

RUNS = Path("submission_runs")


@dataclass(frozen=True, kw_only=True)
class TrainFlags:
    """Flags of the command line; None where a flag was not given."""

    config: Path | None = None
    resume: Path | None = None
    output: Path | None = None
    smoke_config: Path | None = None
    smoke_steps: int | None = None
    dataset: str | None = None
    device: str | None = None
    save_every_steps: int | None = None
    seed: int | None = None
    settings: Sequence[str] = ()
    force: bool = False
    profile: int | None = None
    session: str | None = None

    @property
    def is_smoke(self) -> bool:
        """Whether a few steps are meant to prove the pipeline."""
        return self.smoke_config is not None or self.smoke_steps is not None

    @property
    def is_rehearsal(self) -> bool:
        """Whether it is a smoke run of the very configuration, not of a smaller one that a file describes."""
        return self.smoke_steps is not None and self.smoke_config is None and self.resume is None

    def overrides(self) -> dict[str, Any]:
        """Return the values of single flags by the key that each sets. A smoke run has a row for each of its steps."""
        return {
            "mode": "smoke" if self.is_smoke else None,
            "recording.log_every_steps": 1 if self.is_smoke else None,
            "limits.steps": self.smoke_steps,
            "model.shape": "auto" if self.is_rehearsal else None,
            "data.dataset": self.dataset,
            "mesh.device": self.device,
            "checkpoint.save_every_steps": self.save_every_steps,
            "seed": self.seed,
        }


def order_of(flags: TrainFlags) -> RunRequest:
    """Return the request of the flags.

    Raises:
        ProblemError: exit code 2; no configuration is named, or it cannot be used.
    """
    config = resolved_config(flags)
    folder = flags.output or RUNS / new_run_id(config.name, datetime.now(UTC))
    return RunRequest(
        config=config,
        folder=folder,
        command=["trainproof", *sys.argv[1:]],
        forced=flags.force,
        resume=flags.resume,
        profile_steps=flags.profile,
        session=None if flags.session is None else session_limit(flags.session),
    )


def resolved_config(flags: TrainFlags) -> Config:
    """Return the configuration that the flags name, or that of the run to resume."""
    if flags.config is None and flags.resume in (None, Path(AUTO)):
        raise ProblemError([nothing_named()], exit_code=2)
    path = flags.config or Path(flags.resume or "") / CONFIG
    config = load_config(path, overlay=flags.smoke_config, flags=flags.overrides(), settings=flags.settings)
    if config.model.shape == "auto":
        init_runtime(config)
    return resolve_shape_here(config, device_is_stated=flags.device is not None)


def nothing_named() -> Problem:
    """Return the problem of a command without a configuration."""
    return problem_of(
        "TP003",
        file="--config",
        what="No configuration is named.",
        expected="--config FILE, or --resume RUN_FOLDER; with --resume auto too, --config FILE",
        why=None,
    )

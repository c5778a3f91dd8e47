"""Carry out `challenge`: the run found, its model questioned, the receipt sealed and kept."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evidence.bundle.unpacked import unpacked_run
from evidence.proof.receipts import save_receipt
from evidence.writing import write_error, write_json
from schemas.problems import ProblemError, problem_of
from schemas.render import render_json
from trainer.evaluation.challenge import ChallengeRequest, challenge_run
from trainer.recorder.progress import Watch

QUESTIONS = 50
"""Drawn where no number is given."""


@dataclass(frozen=True, kw_only=True)
class ChallengeFlags:
    """The command's flags."""

    items: Path | None
    generate: int | None
    seed: int | None
    again: int
    run_id: str | None
    model: Path | None


def run_challenge(
    path: Path, flags: ChallengeFlags, *, output: Path | None, quiet: bool, lines: bool
) -> dict[str, Any]:
    """Question the model of a run or bundle, keep the receipt among this user's own, and return it.

    Args:
        path: run folder or bundle.
        flags: of the command line.
        output: where the receipt is written too. None: nowhere.
        quiet: show no progress.
        lines: write events to stderr, one JSON object a line.

    Raises:
        ProblemError: exit code 2, 3 or 1; see `challenge_run`.
    """

    def tell(event: dict[str, Any]) -> None:
        if lines:
            sys.stderr.write(json.dumps(event, ensure_ascii=False) + "\n")
            sys.stderr.flush()

    try:
        refuse_two_kinds(path, flags)
        with unpacked_run(path, flags.run_id) as folder, Watch(quiet=quiet) as watch:
            request = ChallengeRequest(
                folder=folder,
                items=flags.items,
                generate=flags.generate or QUESTIONS,
                seed=flags.seed,
                again=flags.again,
                model=None if flags.model is None else str(flags.model),
            )
            receipt = challenge_run(request, watch, tell)
        keep(receipt, output)
    except ProblemError as error:
        tell({"event": "refused", "problems": render_json(error.problems)})
        raise
    verdict = 1 if receipt["result"] == "different" else 0
    tell({"event": "done", "result": receipt["result"], "said": receipt["said"], "exit_code": verdict})
    return receipt


def refuse_two_kinds(path: Path, flags: ChallengeFlags) -> None:
    """Refuse questions that are to be read and drawn."""
    if flags.items is not None and flags.generate is not None:
        what = f"Both --items {flags.items} and --generate {flags.generate} were given."
        raise ProblemError([problem_of("TP084", file=str(path), what=what)], exit_code=2)


def keep(receipt: dict[str, Any], output: Path | None) -> None:
    """Seal a receipt, keep it among this user's own, and write it where it was requested.

    Raises:
        ProblemError: exit code 2; it cannot be written.
    """
    where = Path("this user's receipts") if output is None else output
    try:
        save_receipt(receipt)
        if output is not None:
            output.parent.mkdir(parents=True, exist_ok=True)
            write_json(output, receipt)
    except OSError as error:
        raise write_error(error, Path(error.filename or where), what="The receipt") from error

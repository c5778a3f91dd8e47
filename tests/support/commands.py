"""The command line in this process."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest
import typer

from trainproof.cli import train
from trainproof.cli.app import main

if TYPE_CHECKING:
    from trainer.run import RunRequest


def run_command(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    """Return exit code, standard output and standard error of `trainproof ARGUMENTS`."""
    capsys.readouterr()
    with pytest.raises(SystemExit) as ended:
        main([str(argument) for argument in arguments])
    printed = capsys.readouterr()
    return int(ended.value.code or 0), printed.out, printed.err


def train_request(**options: Any) -> RunRequest:
    """Return what `trainproof train` would carry out with these options."""
    requests: list[RunRequest] = []
    with pytest.MonkeyPatch.context() as patch, suppress(typer.Exit):
        patch.setattr("trainer.run.run_or_resume", lambda request, watch: requests.append(request) or 0)
        train.train(**options)
    return requests[0]

"""The command line in this process."""

import pytest

from trainproof.cli.app import main


def run_command(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    """Return exit code, standard output and standard error of `trainproof ARGUMENTS`."""
    capsys.readouterr()
    with pytest.raises(SystemExit) as ended:
        main([str(argument) for argument in arguments])
    printed = capsys.readouterr()
    return int(ended.value.code or 0), printed.out, printed.err

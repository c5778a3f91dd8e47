"""Which code ran: commit, branch, and whether it differs from the commit.

The code is trainproof's own: the git checkout that holds this package, or else the installation that does. A user's
repository around an installed copy means nothing about the trainer.
"""

from __future__ import annotations

from importlib.metadata import distribution
from pathlib import Path
from typing import Any

from trainer.recorder.checkout import checkout_identity
from trainer.recorder.installed import holds, installed_identity

SOURCE = Path(__file__).resolve().parents[2]
"""The folder that holds the packages."""


def code_identity(source: Path = SOURCE) -> dict[str, Any]:
    """Return the manifest's group `code`; the fields about the commit are None if no one states it."""
    installed = distribution("trainproof")
    version = installed.version
    if identity := checkout_identity(source):
        return {"version": version, **identity, "source": "checkout"}
    if holds(installed):
        return {"version": version, **installed_identity(installed)}
    unknown = dict.fromkeys(("commit", "committed_at", "branch", "dirty", "diff_sha256", "source"))
    return {"version": version, **unknown}

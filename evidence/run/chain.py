"""The chain of a run: at one step after another what it was, each entry holding the hash of the one before.

So no entry can be changed, left out or put in afterwards without changing all that follow, and the last one's hash, the
head, stands for the whole run. Anyone who repeats the run can hold his own states against it, one stretch at a time.
"""

from __future__ import annotations

import hashlib
from typing import Any

from evidence.run.hashes import sha256_json


class Chain:
    """The entries of one run, in the order in which it makes them."""

    def __init__(self, before: str | None = None) -> None:
        """Begin a chain.

        Args:
            before: link of the entry of another run from which this one goes on. None: it begins afresh.
        """
        self.entries: list[dict[str, Any]] = []
        self._before = before
        self._rows = 0
        self._lines = hashlib.sha256()

    def row(self, line: bytes) -> None:
        """Take a line that was written into metrics.jsonl, newline included."""
        self._rows += 1
        self._lines.update(line)

    def entry(
        self, *, step: int, data_position: int, state_sha256: str, params_sha256: str | None = None
    ) -> dict[str, Any]:
        """Return the next entry, a line of chain.jsonl; its fields are described in the schema `chain_entry`."""
        entry = {
            "step": step,
            "data_position": data_position,
            "state_sha256": state_sha256,
            "params_sha256": params_sha256,
            "rows": self._rows,
            "rows_sha256": self._lines.hexdigest(),
            "previous": self.head,
        }
        self.entries.append(entry)
        return entry

    @property
    def head(self) -> str | None:
        """Link of the last entry; before the first, of that from which the run goes on."""
        return link_of(self.entries[-1]) if self.entries else self._before

    def document(self) -> dict[str, Any]:
        """Return the manifest's group `chain`. There is at least one entry."""
        return {"entries": len(self.entries), "head": self.head}


def link_of(entry: dict[str, Any]) -> str:
    """Return the hash of an entry, which the one after it holds as `previous`."""
    return sha256_json(entry)

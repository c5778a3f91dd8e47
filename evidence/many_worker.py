"""A process that reads runs for `evidence.many`: folders come in on standard input, what was read goes out."""

from __future__ import annotations

import pickle
import sys
from pathlib import Path

from evidence.many import read_entry

if __name__ == "__main__":
    folders = pickle.loads(sys.stdin.buffer.read())  # noqa: S301 - the process that started this one wrote it
    entries = [read_entry(Path(folder)) for folder in folders]
    sys.stdout.buffer.write(pickle.dumps(entries, protocol=pickle.HIGHEST_PROTOCOL))

"""Start the command line: `trainproof`, `python -m trainproof`, or `python FOLDER/trainproof` from any folder."""

from __future__ import annotations

import atexit
import gc
import sys
from pathlib import Path

if not __package__:
    # Started by path: the packages are next to this folder, not in it.
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from trainproof.neighbours import find_foreign_package

GC_THRESHOLD = 50_000
"""JAX creates half a million objects. Collecting garbage after every 700 objects takes half a second."""


def main() -> None:
    """Run the command line."""
    if message := find_foreign_package():
        sys.stderr.write(f"{message}\n")
        raise SystemExit(2)
    gc.set_threshold(GC_THRESHOLD)
    atexit.register(gc.freeze)
    from trainproof.cli.app import main as run

    run()


if __name__ == "__main__":
    main()

"""The start of the command: `trainproof`, `python -m trainproof`, and `python FOLDER/trainproof`.

The last form is for processes that are started from any folder: no package of that folder can replace this one.
"""

from __future__ import annotations

import atexit
import gc
import sys
from pathlib import Path

if not __package__:
    # Started by its path: the packages are beside this folder, and not in it.
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from trainproof.neighbours import refuse_strangers

OBJECTS_BETWEEN_LOOKS = 50_000


def main() -> None:
    """Run the command, unless Python would take another project's packages for its own."""
    refuse_strangers()
    # JAX and what stands on it are half a million objects: looking through them for cycles at every 700th, and once
    # more at the end, takes half a second of every command that trains.
    gc.set_threshold(OBJECTS_BETWEEN_LOOKS)
    atexit.register(gc.freeze)
    from trainproof import command

    command.main()


if __name__ == "__main__":
    main()

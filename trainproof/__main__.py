"""`python -m trainproof`, and `python FOLDER/trainproof` for a start that no other folder can stand in for."""

from __future__ import annotations

import sys
from pathlib import Path

if not __package__:
    # Started by its path: the names of this folder are not to be found as packages of their own.
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from trainproof.command import main

if __name__ == "__main__":
    main()

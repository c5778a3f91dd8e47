"""Has PEFT load adapters that this project writes, and keeps what its models compute with them.

Adapters of small models of all families (`tests/support/our_adapters.py`) are written here, and loaded by the `peft` of
another environment, which has torch, transformers 5 and peft (`in_peft.py`). Written: `expected.npz` with its tokens
and float32 logits, and `versions.json` with the SHA-256 of each adapter that was loaded.

    PYTHONPATH=.:tests/support python tests/cases/our_adapters/make.py PYTHON_OF_THE_OTHER_ENVIRONMENT
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from our_adapters import METHODS, MODELS, write

HERE = Path(__file__).parent


def main(python: str) -> None:
    """Write the adapters and have them loaded."""
    with TemporaryDirectory() as folder:
        for name in METHODS:
            write(name, Path(folder) / name)
        subprocess.run([python, HERE / "in_peft.py", MODELS, folder, HERE], check=True)


if __name__ == "__main__":
    main(sys.argv[1])

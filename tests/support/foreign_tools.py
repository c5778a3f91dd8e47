"""Honest folders as other tools write them, by path and content: tests change one thing in each.

They are in tests/cases/honest_tools, whose README.md says what is special about each.
"""

import json
import math
from pathlib import Path
from typing import Any

Folder = dict[str, str | bytes]

HONEST = Path(__file__).parents[1] / "cases" / "honest_tools"
MLFLOW = "mlruns/606783375233873416/1c6b2d5b909041df93e6e00b960de019"
WANDB = "wandb/run-20260102_050412-ab12cd34/files"


def write(folder: Path, files: Folder) -> Path:
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return folder


def stored(name: str) -> Folder:
    """Return the files of an honest folder."""
    files = {path.relative_to(HONEST / name).as_posix(): path for path in (HONEST / name).rglob("*") if path.is_file()}
    return {name: path.read_bytes() if "tfevents" in name else path.read_text("utf-8") for name, path in files.items()}


def losses(count: int) -> list[float]:
    """Return losses that fall unevenly, as measured ones do."""
    return [round(0.9 + 1.5 * math.exp(-3 * i / count) + 0.03 * math.sin(7 * i), 4) for i in range(count)]


def document(value: Any) -> str:
    return json.dumps(value, indent=2)

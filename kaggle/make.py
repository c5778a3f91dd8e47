"""Makes the Kaggle kernels of kaggle/kernel.py: `python kaggle/make.py --user NAME --output FOLDER`.

It writes script, notebook and metadata of each machine for one account, beside a dataset with this checkout's wheel:
what `kaggle datasets create` and `kaggle kernels push` send. Without a folder it makes the notebooks anew that are
committed for who uploads them by hand; a test holds them current.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
SOURCE = HERE / "kernel.py"
DATASET = "trainproof-wheel"
WEIGHTS = "google/gemma/transformers/2b/2"
"""Kaggle's own copy of Gemma-2B: its terms are accepted once on its page, and no other login is needed."""

MACHINES: dict[str, dict[str, str]] = {
    "t4x2": {"target": "kaggle-t4x2", "machine_shape": "NvidiaTeslaT4", "enable_gpu": "true", "enable_tpu": "false"},
    "tpu-v5e-8": {
        "target": "kaggle-tpu-v5e-8",
        "machine_shape": "TpuV5E8",
        "enable_gpu": "false",
        "enable_tpu": "true",
    },
}
"""By folder: the target of `trainproof plan --on`, and what Kaggle calls the machine."""

TARGET_LINE = 'TARGET = "kaggle-tpu-v5e-8"'


def made(user: str | None) -> dict[str, str]:
    """Return every file by its path; for no account, those that are committed."""
    files = {}
    for folder, machine in MACHINES.items():
        source = SOURCE.read_text("utf-8")
        assert source.count(TARGET_LINE) == 1, "kernel.py names its target once"
        source = source.replace(TARGET_LINE, f'TARGET = "{machine["target"]}"')
        files[f"{folder}/kernel.ipynb"] = as_json(notebook(source))
        if user is not None:
            files[f"{folder}/kernel.py"] = source
            files[f"{folder}/kernel-metadata.json"] = as_json(metadata(folder, machine, user))
    return files


def metadata(folder: str, machine: dict[str, str], user: str) -> dict[str, Any]:
    """Return `kernel-metadata.json`: keys as Kaggle/kaggle-cli docs/kernels_metadata.md states them."""
    slug = f"trainproof-{folder}"
    return {
        "id": f"{user}/{slug}",
        "title": slug,
        "code_file": "kernel.py",
        "language": "python",
        "kernel_type": "script",
        "is_private": "true",
        "enable_gpu": machine["enable_gpu"],
        "enable_tpu": machine["enable_tpu"],
        "enable_internet": "true",
        "machine_shape": machine["machine_shape"],
        "dataset_sources": [f"{user}/{DATASET}"],
        "competition_sources": [],
        "kernel_sources": [],
        "model_sources": [WEIGHTS],
    }


def notebook(source: str) -> dict[str, Any]:
    """Return the script as a notebook: `# %%` begins a cell, `# %% [markdown]` one of text."""
    cells = [cell(number, block) for number, block in enumerate(source.split("# %%")[1:])]
    return {
        "cells": cells,
        "metadata": {
            "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
            "language_info": {"name": "python"},
        },
        "nbformat": 4,
        "nbformat_minor": 5,
    }


def cell(number: int, block: str) -> dict[str, Any]:
    """Return one cell: what follows its `# %%`."""
    first, _, body = block.partition("\n")
    is_text = first.strip() == "[markdown]"
    lines = body.strip("\n").splitlines(keepends=True)
    if is_text:
        text = [line.removeprefix("#").removeprefix(" ") for line in lines]
        return {"cell_type": "markdown", "id": f"cell-{number}", "metadata": {}, "source": text}
    return {
        "cell_type": "code",
        "id": f"cell-{number}",
        "metadata": {},
        "execution_count": None,
        "outputs": [],
        "source": lines,
    }


def as_json(value: Any) -> str:
    """Return a JSON file's text."""
    return json.dumps(value, indent=1, ensure_ascii=False) + "\n"


def write(user: str | None, folder: Path) -> None:
    """Write every file below a folder."""
    for name, text in made(user).items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def write_dataset(user: str, folder: Path) -> None:
    """Write the private dataset: the wheel of this checkout, and what Kaggle has to know of it."""
    folder.mkdir(parents=True, exist_ok=True)
    describes = {"title": DATASET, "id": f"{user}/{DATASET}", "licenses": [{"name": "apache-2.0"}]}
    (folder / "dataset-metadata.json").write_text(as_json(describes), encoding="utf-8")
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(folder), str(HERE.parent)]
    subprocess.run(build, check=True)


def main() -> None:
    """Make what is committed, or what one account sends."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--user", default="YOUR_USERNAME", help="Kaggle account")
    parser.add_argument("--output", type=Path, help="folder to write to; without it, what is committed is made anew")
    given = parser.parse_args()
    write(given.user if given.output else None, given.output or HERE)
    if given.output:
        write_dataset(given.user, given.output / "dataset")


if __name__ == "__main__":
    main()

"""What is sent to a place: a configuration, the files that it names, and the wheel of this trainproof."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Mapping
from importlib.metadata import distribution
from io import BytesIO
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

from filelock import FileLock

from evidence.bundle.secrets import SECRET, find_secrets, scan_file
from evidence.writing import write_json, write_text
from launch.places.place import Request, refuse
from schemas.problems import ProblemError, problem_of
from schemas.reading import get_path, write_yaml


def collect_files(request: Request) -> tuple[dict[str, Path], Any]:
    """Return the files and folders that a configuration names by their names at the place, and it with these names."""
    files: dict[str, Path] = {}

    def rename(value: Any, key: str) -> Any:
        if isinstance(value, Mapping):
            return {name: rename(each, f"{key}.{name}") for name, each in value.items()}
        if isinstance(value, list):
            return [rename(each, key) for each in value]
        is_word = key.endswith((".name", ".mode", ".kind")) and not key.endswith(".model.name")
        text, colon, rest = value.partition(":") if isinstance(value, str) and not is_word else ("", "", "")
        path = request.working_folder / text
        if not text or not os.path.exists(path):  # noqa: PTH110 - pathlib raises for a text longer than any path
            return value
        name = path.resolve().name
        while files.get(name, path) != path or name in {"config.yaml", "request.json"}:
            name = f"other-{name}"
        files[name] = path
        return name + colon + rest

    config = rename(request.config, "")
    return files, config


def check_files(request: Request) -> dict[str, Path]:
    """Return the files of a request; raise `ProblemError` (exit code 3) if they or the configuration hold secrets."""
    files, _ = collect_files(request)
    problems = []
    for name, path in files.items():
        for each in sorted(path.rglob("*")) if path.is_dir() else [path]:
            if each.is_file() and each.suffix not in {".safetensors", ".gguf", ".parquet"}:
                problems += scan_file(each, name if each == path else f"{name}/{each.relative_to(path)}")
    for pattern, line, shown in find_secrets(BytesIO(write_yaml(dict(request.config)).encode())):
        what = f"Line {line} holds {pattern.kind}: {shown}."
        problems.append(problem_of(pattern.code, file="config.yaml", what=what))
    if secrets := [problem for problem in problems if problem.code == SECRET]:
        raise ProblemError(secrets, exit_code=3)
    return files


def write_input(request: Request, folder: Path, asked: Mapping[str, Any]) -> None:
    """Write what `session.py` reads: `config.yaml`, the files that it names, the wheel and `request.json`."""
    files, config = collect_files(request)
    write_text(folder / "config.yaml", write_yaml(config))
    for name, path in files.items():
        (shutil.copytree if path.is_dir() else shutil.copyfile)(path, folder / name)
    build_wheel(folder)
    write_json(folder / "request.json", {"run": request.run, **asked})


def build_wheel(folder: Path) -> None:
    """Write the wheel of this trainproof: `TRAINPROOF_WHEEL`, or built from its checkout, or packed as installed."""
    if given := os.environ.get("TRAINPROOF_WHEEL"):
        shutil.copy(given, folder)
        return
    installed = distribution("trainproof")
    origin = json.loads(installed.read_text("direct_url.json") or "{}")
    if get_path(origin, "dir_info", "editable"):
        source = unquote(urlparse(origin["url"]).path)
        build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(folder), source]
        (scratch := Path(source) / "build").mkdir(exist_ok=True)
        with FileLock(scratch / "wheel.lock"):  # two builds at once would share their files
            done = subprocess.run(build, capture_output=True, text=True, check=False)
        if done.returncode:
            refuse("TP770", source, f"The wheel of {source} cannot be built: {first_line(done.stderr)}")
        return
    target = folder / f"trainproof-{installed.version}-py3-none-any.whl"
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as wheel:
        for file in installed.files or ():
            if ".." not in file.parts and file.suffix != ".pyc" and file.name not in {"direct_url.json", "INSTALLER"}:
                wheel.write(file.locate(), str(file))


def first_line(said: str) -> str:
    """Return the first line of an output."""
    return next((line.strip() for line in said.splitlines() if line.strip()), "no message")

"""What is sent to a place: a configuration, the files that it names, and the wheel of this trainproof."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from importlib.metadata import distribution
from io import BytesIO
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

from filelock import FileLock

from evidence.bundle.secrets import SECRET, find_secrets, hide_secrets, scan_file
from evidence.writing import write_json, write_text
from launch.places.place import Request
from schemas.problems import Problem, ProblemError, problem_of
from schemas.reading import get_path, write_yaml


def find_upload_secrets(request: Request, files: Mapping[str, Path]) -> list[Problem]:
    """Return the secrets in the configuration and the files of a request."""
    problems = [problem for name, path in files.items() for problem in _scan(path, name)]
    for pattern, line, shown in find_secrets(BytesIO(write_yaml(dict(request.config)).encode())):
        what = f"Line {line} holds {pattern.kind}: {shown}."
        problems += [problem_of(SECRET, file="config.yaml", what=what)] if pattern.code == SECRET else []
    return problems


def write_input(request: Request, folder: Path, asked: Mapping[str, Any]) -> None:
    """Write what `session.py` reads: `config.yaml`, the files that it names, the wheel and `request.json`."""
    files = find_files(request)
    names = {str(path): name for name, path in files.items()}
    write_text(folder / "config.yaml", write_yaml(rename_files(request, names)))
    for name, path in files.items():
        (shutil.copytree if path.is_dir() else shutil.copyfile)(path, folder / name)
    build_wheel(folder)
    write_json(folder / "request.json", dict(asked))


def find_files(request: Request) -> dict[str, Path]:
    """Return the files and folders that a configuration names, by their names in the dataset."""
    found: dict[str, Path] = {}
    for text in _texts(request.config):
        path = request.working_folder / text.partition(":")[0]
        if text and _exists(path) and path not in found.values():
            name = path.resolve().name
            while name in found or name in {"config.yaml", "request.json"}:
                name = f"other-{name}"
            found[name] = path
    return found


def _exists(path: Path) -> bool:
    """Return whether a path exists. A text that is too long for a path, such as a system prompt, does not."""
    try:
        return path.exists()
    except OSError:
        return False


def _texts(value: Any) -> Iterator[str]:
    """Yield every text in a configuration that can be a path."""
    if isinstance(value, Mapping):
        for key, each in value.items():
            yield from () if key in {"name", "mode", "kind"} and not isinstance(each, Mapping) else _texts(each)
        if isinstance(value.get("model"), Mapping):
            yield from _texts(value["model"].get("name"))
    elif isinstance(value, list):
        for each in value:
            yield from _texts(each)
    elif isinstance(value, str):
        yield value


def rename_files(request: Request, names: Mapping[str, str]) -> Any:
    """Return the configuration with the names that its files have in the dataset."""

    def rename(value: Any) -> Any:
        if isinstance(value, Mapping):
            return {key: rename(each) for key, each in value.items()}
        if isinstance(value, list):
            return [rename(each) for each in value]
        if isinstance(value, str) and value:
            text, colon, rest = value.partition(":")
            new = names.get(str(request.working_folder / text))
            return value if new is None else new + colon + rest
        return value

    return rename(request.config)


def _scan(path: Path, name: str) -> Iterator[Any]:
    """Yield the secrets in a file, or in the files of a folder."""
    for each in sorted(path.rglob("*")) if path.is_dir() else [path]:
        if each.is_file() and each.suffix not in {".safetensors", ".gguf", ".parquet"}:
            found = scan_file(each, name if each == path else f"{name}/{each.relative_to(path)}")
            yield from (problem for problem in found if problem.code == SECRET)


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
            what = f"The wheel of {source} cannot be built: {first_line(done.stderr)}"
            raise ProblemError([problem_of("TP770", file=source, what=what)], exit_code=2)
        return
    import zipfile

    target = folder / f"trainproof-{installed.version}-py3-none-any.whl"
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as wheel:
        for file in installed.files or ():
            if ".." not in file.parts and file.suffix != ".pyc" and file.name not in {"direct_url.json", "INSTALLER"}:
                wheel.write(file.locate(), str(file))


def first_line(said: str) -> str:
    """Return the first line of an output."""
    return hide_secrets(next((line.strip() for line in said.splitlines() if line.strip()), "no message"))

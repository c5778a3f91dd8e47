"""Resolve names of models, datasets and files, and explain why one cannot be used."""

from __future__ import annotations

import difflib
import json
import re
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from importlib.resources import files
from pathlib import Path
from typing import TypeVar

from schemas.catalog import DATASETS, EVAL_SETS, GYM, MODELS
from schemas.problems import Problem, ProblemError, problem_of

EVAL_SETS_BY_DATASET = dict(zip(DATASETS, ("eval_v2", "eval_stories_v1", "eval_countdown_v2"), strict=True))
"""Evaluation set of each built-in dataset."""

_TABLE = tomllib.loads(files("trainer").joinpath("formats.toml").read_text(encoding="utf-8"))
OTHER_FORMATS = {suffix: (each["what"], each["advice"]) for each in _TABLE["formats"] for suffix in each["suffixes"]}
"""Description of files that are not models, and advice, by suffix."""


def missing_dataset(name: str) -> Problem | None:
    """Return the problem of an unknown dataset, or None if it is built in, generated, a file or a folder."""
    return None if name.startswith(GYM) else _missing_rows(name, DATASETS, "dataset", "--dataset")


def missing_eval_set(name: str) -> Problem | None:
    """Return the problem of an unknown evaluation set, or None if it is built in or a file."""
    return _missing_rows(name, EVAL_SETS, "evaluation set", "--set evaluation.eval_set")


def _missing_rows(name: str, builtin: tuple[str, ...], what: str, flag: str) -> Problem | None:
    if name in builtin or (name and Path(name).exists()):
        return None
    near = difflib.get_close_matches(name, builtin, n=1)
    text = f"There is no {what} {name!r}: it is not built in, and no such file exists."
    expected = f"a built-in name ({', '.join(builtin)}) or the path of a file or folder of rows"
    fix = f"Did you mean {near[0]}? Otherwise pass {flag} with a path." if near else f"Pass {flag} with a name or path."
    return problem_of("TP010", file=name, what=text, why=None, expected=expected, next=fix)


def missing_model(name: str) -> Problem | None:
    """Return the problem of an unknown model, or None if it is built in, a local path, or named like one on the hub."""
    path = model_path(name)
    if path is not None and (form := describe_other_format(path)) is not None:
        kind, advice = form
        what = f"{name} is {kind}." if path.is_file() else f"{name} has no config.json; it contains {kind}."
        why = "A model is a folder with config.json and safetensors, or a GGUF file."
        return problem_of("TP040", file=name, what=what, why=why, next=advice)
    if name in MODELS or path is not None or re.fullmatch(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?", name):
        return None
    return problem_of("TP040", file=name, what=f"There is no model {name}.", next=suggest_models(name))


def suggest_models(name: str) -> str:
    """Return advice on valid model names, with the most similar built-in model."""
    near = difflib.get_close_matches(name, MODELS, n=1)
    question = f"Did you mean {near[0]}? " if near else ""
    local = "a local folder with config.json, safetensors and tokenizer, or a GGUF file."
    return f"{question}Name a built-in model ({', '.join(MODELS)}), {local}"


def model_path(name: str) -> Path | None:
    """Return the model folder or file that a name refers to, or None."""
    with suppress(RuntimeError):  # `~user` does not exist on this machine
        path = Path(name).expanduser()
        return path if path.is_dir() or (path.is_file() and path.suffix.lower() in (".gguf", *OTHER_FORMATS)) else None
    return None


def gguf_file(path: Path) -> Path | None:
    """Return the GGUF file at a path, or the only one in a folder without config.json, or None."""
    if path.is_file():
        return path if path.suffix.lower() == ".gguf" else None
    return found[0] if len(found := _gguf_files(path)) == 1 else None


def _gguf_files(folder: Path) -> list[Path]:
    if (folder / "config.json").exists():
        return []
    return sorted(path for path in folder.iterdir() if path.suffix.lower() == ".gguf")


def describe_other_format(path: Path) -> tuple[str, str] | None:
    """Describe a file or folder that is not a model, with advice, or return None if it is one."""
    if path.is_file():
        return OTHER_FORMATS.get(path.suffix.lower())
    if (path / "config.json").exists() or len(found := _gguf_files(path)) == 1:
        return None
    if (path / "run_manifest.json").is_file():
        export = path / "export"
        fix = f"Run `trainproof export {path}`, then name {export}."
        return "a run of trainproof", f"Name {export}." if (export / "config.json").is_file() else fix
    if (adapter := path / "adapter_config.json").is_file():
        base = "its base model"
        with suppress(OSError, ValueError, AttributeError):
            base = str(json.loads(adapter.read_text(encoding="utf-8")).get("base_model_name_or_path") or base)
        merge = f"`trainproof export {base} --merge {path} --output merged`"
        return f"a LoRA adapter of {base}", f"Name {base}, or merge both: {merge}."
    if below := folders_below(path):
        names = ", ".join(map(str, below[:3]))
        return f"a model in {names}", f"Name {names if len(below) == 1 else 'one of these folders'}."
    if found:
        return f"{len(found)} GGUF files ({', '.join(each.name for each in found[:3])})", "Name one of the files."
    forms = (OTHER_FORMATS.get(each.suffix.lower()) for each in sorted(path.iterdir()))
    return next(filter(None, forms), None)


def folders_below(path: Path) -> list[Path]:
    """Return the model folders in a folder, at most four levels down, as in a hub cache or a Kaggle mount."""
    level, found = [path], list[Path]()
    for _ in range(4):
        below: list[Path] = []
        for folder in level[:200]:
            with suppress(OSError):
                below += sorted(child for child in folder.iterdir() if child.is_dir())
        level, found = below, found + [folder for folder in below if (folder / "config.json").is_file()]
    current = path / "refs" / "main"  # in a hub cache: the snapshot that the name refers to
    commit = current.read_text(encoding="utf-8").strip() if current.is_file() else None
    return [folder for folder in found if folder.name == commit] or found


T = TypeVar("T")
max_tokenizer_bytes: ContextVar[int | None] = ContextVar("max_tokenizer_bytes", default=None)
"""Maximum size of a tokenizer file in bytes, or None. It is set for untrusted models."""


@contextmanager
def override(variable: ContextVar[T], value: T) -> Iterator[None]:
    """Set a context variable inside the block."""
    token = variable.set(value)
    try:
        yield
    finally:
        variable.reset(token)


def refuse_other_content(path: Path, code: str) -> None:
    """Raise `ProblemError` with the given code for a file that is a pointer, a web page or an archive."""
    if not path.is_file():
        return
    limit, length = max_tokenizer_bytes.get(), path.stat().st_size
    if code == "TP046" and limit is not None and length > limit:
        what = f"{path.name} has {length:,} bytes; at most {limit:,} are read from the tokenizer of another's run."
        raise ProblemError([problem_of(code, file=str(path), what=what, why=None)], exit_code=2)
    with path.open("rb") as file:
        head = file.read(32).lower()
    for each in _TABLE["contents"]:
        begins = each["begins"].encode("latin-1")
        if head.startswith(begins) and not (begins.startswith(b"<") and path.suffix.lower() == ".txt"):
            what, fix = f"{path.name} is {each['what']}.", each["advice"]
            raise ProblemError([problem_of(code, file=str(path), what=what, why=None, next=fix)], exit_code=2)

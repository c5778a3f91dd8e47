"""The names of data and models in a configuration: built in, a file, a folder, or on the hub.

The trainer finds things by these rules; the launch form, which never imports it, states the same when one is missing.
"""

from __future__ import annotations

import difflib
import json
import re
from contextlib import suppress
from pathlib import Path

from schemas.problems.problem import Problem
from schemas.problems.rule import problem_of

DATASETS = ("dev-reasoning-v2", "dev-stories-v1", "countdown-v1", "countdown-solved-v1")
EVAL_SETS = ("eval_v1", "eval_v2", "eval_stories_v1", "eval_countdown_v1")
EVAL_SET_OF = dict(zip(DATASETS, ("eval_v2", "eval_stories_v1", "eval_countdown_v1", "eval_countdown_v1"), strict=True))
"""The evaluation set that belongs to each built-in dataset."""
GYM = "reasoning-gym:"
"""Begins the name of a dataset that reasoning-gym generates: `reasoning-gym:leg_counting?size=500&seed=1`."""
MODELS = ("demo", "tiny-gpt2")

GGUF = ".gguf"

_PICKLE = (
    "a PyTorch pickle, which can run code when it is read",
    (
        "If you trust it, let transformers write it anew, `AutoModelForCausalLM.from_pretrained(folder)` and "
        "`.save_pretrained(other)`, and name that folder."
    ),
)
_GRAPH = ("a compiled graph, made to be run and not to be trained", "Name the model that it was made from.")
_OTHER_FRAMEWORK = (
    "a checkpoint of TensorFlow or Flax",
    (
        "Let transformers 4 write it anew, `from_pretrained(folder, from_tf=True)` or `from_flax=True` and "
        "`.save_pretrained(other)`, and name that folder."
    ),
)
OTHER_FORMATS = {
    ".safetensors": ("weights without a config.json", "Name the folder that has them with config.json and tokenizer."),
    **dict.fromkeys((".bin", ".pt", ".pth", ".ckpt"), _PICKLE),
    **dict.fromkeys((".onnx", ".tflite", ".mlmodel", ".mlpackage", ".pte", ".engine"), _GRAPH),
    **dict.fromkeys((".h5", ".msgpack"), _OTHER_FRAMEWORK),
    ".npz": (
        "arrays of NumPy, as MLX keeps models",
        "Write it as safetensors, `mlx_lm.convert --dequantize`, and name that folder.",
    ),
    ".ggml": ("a file of llama.cpp before GGUF", "Take the model's GGUF file."),
}
"""What files that are not read as a model are, by the ends of their names, and a way to one that is."""

HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?")


def no_dataset(name: str) -> Problem | None:
    """Return why a dataset cannot be found, None where it is built in, a file or a folder.

    Whether reasoning-gym has a task is known where it is installed, and not here.
    """
    if name.startswith(GYM):
        return None
    return _no_rows(name, builtin=DATASETS, what="dataset", flag="--dataset")


def no_eval_set(name: str) -> Problem | None:
    """Return why an evaluation set cannot be found, None where it is built in or a file."""
    return _no_rows(name, builtin=EVAL_SETS, what="evaluation set", flag="--set evaluation.eval_set")


def no_model(name: str) -> Problem | None:
    """Return why nothing can have this name, None for a built-in model, one on this machine, or a hub name.

    A file of another format, or a folder with nothing else in it, is distinguished by what it is and by a way out.
    """
    path = model_path(name)
    if path is not None and (form := other_format(path)) is not None:
        kind, way = form
        what = f"{name} is {kind}." if path.is_file() else f"{name} has no config.json; what it holds is {kind}."
        why = "A model is a folder with config.json and safetensors, or a GGUF file."
        return problem_of("TP040", file=name, what=what, why=why, next=way)
    if name in MODELS or path is not None or is_hub_name(name):
        return None
    return problem_of("TP040", file=name, what=f"There is no model {name}.", next=other_models(name))


def model_path(name: str) -> Path | None:
    """Return the folder or the file that a model's name means, None where it is neither."""
    with suppress(RuntimeError):  # the `~user` does not exist on this machine
        path = Path(name).expanduser()
        return path if path.is_dir() or (path.is_file() and path.suffix.lower() in (GGUF, *OTHER_FORMATS)) else None
    return None


def gguf_file(path: Path) -> Path | None:
    """Return the GGUF file that a path means: itself, or the only one in a folder without config.json; else None."""
    if path.is_file():
        return path if path.suffix.lower() == GGUF else None
    return found[0] if len(found := gguf_files(path)) == 1 else None


def gguf_files(folder: Path) -> list[Path]:
    """Return the GGUF files of a folder without config.json."""
    if (folder / "config.json").exists():
        return []
    return sorted(path for path in folder.iterdir() if path.suffix.lower() == GGUF)


def other_format(path: Path) -> tuple[str, str] | None:
    """Return what is at a path where that is not read as a model, and a way to a model that is; else None."""
    if path.is_file():
        return OTHER_FORMATS.get(path.suffix.lower())
    if (path / "config.json").exists() or len(found := gguf_files(path)) == 1:
        return None
    if (path / "run_manifest.json").is_file():
        export = path / "export"
        there = (export / "config.json").is_file()
        return "a run of trainproof", f"Name {export}." if there else f"Write {export}: `trainproof export {path}`."
    if (path / "adapter_config.json").is_file():
        base = _base_of(path / "adapter_config.json")
        way = f"Name {base}, or the two in one: `trainproof merge {base} {path} --output merged`."
        return f"a LoRA adapter of {base}", way
    if below := folders_below(path):
        return (
            f"a model in {', '.join(map(str, below[:3]))}",
            f"Name {'that folder' if len(below) == 1 else 'one of them'}.",
        )
    if found:
        return f"{len(found)} GGUF files ({', '.join(each.name for each in found[:3])})", "Name one of the files."
    forms = [form for each in sorted(path.iterdir()) if (form := OTHER_FORMATS.get(each.suffix.lower())) is not None]
    return forms[0] if forms else None


def _base_of(file: Path) -> str:
    """Return the model that an adapter states it is for."""
    with suppress(OSError, ValueError, AttributeError):
        return str(json.loads(file.read_text(encoding="utf-8")).get("base_model_name_or_path") or "its base model")
    return "its base model"


def folders_below(path: Path) -> list[Path]:
    """Return the model folders below a folder, as caches of the hub and mounts of Kaggle have them."""
    level, found = [path], list[Path]()
    for _ in range(4):
        below: list[Path] = []
        for folder in level[:200]:
            with suppress(OSError):
                below += sorted(child for child in folder.iterdir() if child.is_dir())
        level, found = below, found + [folder for folder in below if (folder / "config.json").is_file()]
    current = path / "refs" / "main"  # of a cache, the snapshot that the name stands for
    commit = current.read_text(encoding="utf-8").strip() if current.is_file() else None
    return [folder for folder in found if folder.name == commit] or found


def is_hub_name(name: str) -> bool:
    """Return whether the name is written like one on the hub: `owner/model`, or `model` alone as `gpt2`."""
    return HUB_NAME.fullmatch(name) is not None


def other_models(name: str) -> str:
    """Return what to name instead: the nearest built-in model as a question, then everything that works offline."""
    near = difflib.get_close_matches(name, MODELS, n=1)
    question = f"Did you mean {near[0]}? " if near else ""
    return (
        f"{question}Name a built-in model ({', '.join(MODELS)}), "
        "a local folder with config.json, safetensors and tokenizer, or a GGUF file."
    )


def _no_rows(name: str, *, builtin: tuple[str, ...], what: str, flag: str) -> Problem | None:
    if name in builtin or (name and Path(name).exists()):
        return None
    near = difflib.get_close_matches(name, builtin, n=1)
    hint = f"Did you mean {near[0]}? Else give" if near else "Give"
    return problem_of(
        "TP010",
        file=name,
        what=f"There is no {what} {name!r}: it is not built in, and no such file exists.",
        why=None,
        expected=f"a built-in name ({', '.join(builtin)}) or the path of a file or folder of rows",
        next=f"{hint} {flag} one of these.",
    )

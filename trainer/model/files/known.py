"""Well-known public models whose `config.json` ships here, so that planning them needs no login and no network.

Shapes alone: there are no weights and no tokenizer. A run never takes these; it reads the model's own files.
"""

from __future__ import annotations

from pathlib import Path

from evidence.registry import known_model_folder
from schemas.catalog import MODELS
from schemas.problems import ProblemError
from trainer.config.names import model_path
from trainer.model.files.source import ModelSource, find_source, resolve


def planned_source(name: str, revision: str | None = None) -> ModelSource:
    """Return a model for planning: its own files where they are on this machine, else its shipped shapes, else the hub.

    Raises:
        ProblemError: exit code 2; nothing has this name, or it is neither here nor can it be fetched.
    """
    if name in MODELS or model_path(name) is not None:
        return resolve(name, revision, with_weights=False)
    known = known_source(name) if revision is None else None
    if known is None:
        return resolve(name, revision, with_weights=False)
    return cached_source(name) or known


def known_source(name: str) -> ModelSource | None:
    """Return the shapes that ship of a model, None where it is not known. Case does not matter, as on the hub."""
    folder = known_model_folder(name)
    return None if folder is None else find_source(name, None, folder, folder, "pretrained")


def cached_source(name: str) -> ModelSource | None:
    """Return a model whose files the hub's cache on this machine holds, tokenizer included; None where it does not."""
    from huggingface_hub import try_to_load_from_cache

    config = try_to_load_from_cache(name, "config.json")
    if not isinstance(config, str) or not (Path(config).parent / "tokenizer.json").is_file():
        return None
    folder = Path(config).parent
    try:
        return find_source(name, folder.name, folder, folder, "pretrained")
    except ProblemError:
        return None

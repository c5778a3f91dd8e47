"""From a model's name to its files: folder, config, spec, tokenizer.

A name refers to a built-in model, a local folder or GGUF file, or a repository on the Hugging Face hub, tried in this
order. Parameters are read in `load.py`. No code from a model's folder or repository is ever run.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Mapping
from contextlib import AbstractContextManager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from tokenizers.models import WordLevel, WordPiece

from evidence.registry import known_model_folder
from schemas.catalog import MODELS
from schemas.problems import ProblemError, problem_of
from trainer.config.names import gguf_file, missing_model, model_path, override, refuse_other_content, suggest_models
from trainer.model.families import FAMILIES, Family, spec_from_config
from trainer.model.gguf import Gguf, GgufError, config_from_gguf, read_gguf
from trainer.model.gguf_tokenizer import build_tokenizer
from trainer.model.spec import ModelSpec

CONFIG = "config.json"
GENERATION_CONFIG = "generation_config.json"  # decoding defaults of other tools; an export copies it
WEIGHTS = "model.safetensors"
WEIGHTS_INDEX = "model.safetensors.index.json"  # which file contains which tensor, if there are several
WEIGHTS_PATTERN = "model{suffix}.safetensors"  # pattern of huggingface_hub for the files of a split model
TOKENIZER_FILES = (
    *("tokenizer*.json", "tokenizer.model", "special_tokens_map.json", "added_tokens.json", "vocab.json", "merges.txt"),
    *("chat_template.jinja", "additional_chat_templates/*.jinja"),
)
VOCABULARY = ("tokenizer.json", "tokenizer.model", "vocab.json")
"""Files with the tokens; a tokenizer needs one or more."""
BUILTIN = Path(__file__).parent / "builtin"  # a folder with a config.json for each built-in model
BUILTIN_TOKENIZER = Path(__file__).parent / "tokenizer"
"""Tokenizer of the built-in models, byte-level BPE with a token for each digit (`tests/support/train_tokenizer.py`)."""


@dataclass(frozen=True, kw_only=True)
class ModelSource:
    """A model's files and architecture, before any parameter exists."""

    name: str  # as the user wrote it
    revision: str | None = None  # commit on the hub, or None if the model is local
    folder: Path  # the file itself for a GGUF
    tokenizer_folder: Path
    config: Mapping[str, Any] = field(hash=False)  # its config.json, or the equivalent of a GGUF's metadata
    spec: ModelSpec
    weights: Literal["builtin", "pretrained"]  # built-in models have no files and are initialised randomly
    gguf: Gguf | None = field(default=None, compare=False)
    full_spec: ModelSpec | None = None  # the original architecture if the shape was made smaller (`shrink`)

    @property
    def family(self) -> Family:
        """The model's family."""
        return FAMILIES[self.spec.family]

    def tokenizer(self, rendered_at: str | None = None) -> Any:
        """Load the tokenizer through transformers.

        `rendered_at` is the time for chat templates that write one (default: now). A tokenizer that cannot be read, has
        ids beyond the model's vocabulary, or no token for unknown words, raises a ProblemError with exit code 2.
        """
        tokenizer = self._read_tokenizer()
        text, largest = max(tokenizer.get_vocab().items(), key=lambda token: token[1], default=("", -1))
        if largest >= self.spec.vocab:  # ids may have gaps
            what = f"gives {text!r} the id {largest}, but the model has {self.spec.vocab} tokens."
            raise self._tokenizer_problem(what=what)
        model = getattr(getattr(tokenizer, "backend_tokenizer", None), "model", None)
        unknown = model.unk_token if isinstance(model, WordLevel | WordPiece) else None
        if unknown is not None and unknown not in tokenizer.get_vocab():
            what = f"replaces unknown words by {unknown!r}, which is not one of its tokens."
            raise self._tokenizer_problem(what=what)
        tokenizer.rendered_at = rendered_at
        return tokenizer

    @property
    def has_tokenizer(self) -> bool:
        """Whether the files contain a vocabulary."""
        if self.gguf is not None:
            return bool(self.gguf.metadata.get("tokenizer.ggml.tokens"))
        return any((self.tokenizer_folder / name).is_file() for name in VOCABULARY)

    def _read_tokenizer(self) -> Any:
        # transformers otherwise advises to install torch, which tokenizers do not need.
        os.environ.setdefault("TRANSFORMERS_NO_ADVISORY_WARNINGS", "1")
        if self.gguf is not None:
            try:
                return build_tokenizer(self.gguf)
            except GgufError as error:
                raise self._tokenizer_problem(what=f"cannot be built: {error}.") from error
        if not self.has_tokenizer:
            # transformers 5 would make a tokenizer without tokens from config.json alone.
            raise self._tokenizer_problem(what=f"is missing: none of {', '.join(VOCABULARY)} exists.")
        for pattern in TOKENIZER_FILES:
            for path in self.tokenizer_folder.glob(pattern):
                refuse_other_content(path, "TP046")
        from transformers import AutoTokenizer

        try:
            # Texts that are too long are reported with their line, not by the tokenizer.
            limits = {"local_files_only": True, "model_max_length": sys.maxsize}
            return AutoTokenizer.from_pretrained(self.tokenizer_folder, **limits)
        except (OSError, ValueError, KeyError, TypeError, AttributeError, ImportError, RecursionError) as error:
            raise self._tokenizer_problem(what=f"cannot be loaded: {_describe(error)}.") from error

    def tokenizer_sha256(self) -> str:
        """Return the SHA-256 over the names and contents of the files with tokens and merges."""
        digest = hashlib.sha256()
        for name in (*VOCABULARY, "merges.txt"):
            if (path := self.tokenizer_folder / name).is_file():
                content = path.read_bytes()
                digest.update(f"{name} {len(content)}\n".encode())
                digest.update(content)
        return digest.hexdigest()

    def _tokenizer_problem(self, *, what: str) -> ProblemError:
        folder = f"the folder of {self.name}" if self.gguf is None else "a folder with the model's safetensors"
        fix = f"Put the tokenizer that the model was trained with into {folder}."
        what = f"The tokenizer of {self.name} {what}"
        return ProblemError([problem_of("TP046", file=str(self.tokenizer_folder), what=what, next=fix)], exit_code=2)


def resolve(name: str, revision: str | None = None, *, with_weights: bool = True) -> ModelSource:
    """Find a model by the name of a built-in model, a local folder, a GGUF file, or a name on the hub.

    `revision` is a branch, tag or commit on the hub. Without `with_weights` parameters are not downloaded. A model that
    does not exist, cannot be downloaded or is not supported raises a ProblemError with exit code 2.
    """
    path = None if name in MODELS else model_path(name)
    if name not in MODELS and (problem := missing_model(name)) is not None:
        raise ProblemError([problem], exit_code=2)
    if revision is not None and (name in MODELS or path is not None):
        kind = "a built-in model" if path is None else "a local folder" if path.is_dir() else "a local file"
        what = f"model.revision is {revision}, but {name} is {kind}."
        fix = "Remove model.revision, or name a model on the hub."
        raise ProblemError([problem_of("TP040", file=name, what=what, why=None, next=fix)], exit_code=2)
    if name in MODELS:
        return read_source(name, BUILTIN / name, weights="builtin")
    if path is None:
        snapshot = _download(name, revision, with_weights=with_weights)
        return read_source(name, snapshot, revision=snapshot.name)  # the cache names snapshots by commit
    if (file := gguf_file(path)) is None:
        return read_source(name, path)
    gguf = read_gguf(file)
    config = config_from_gguf(gguf)
    spec = spec_from_config(config, file=str(file))
    return ModelSource(
        name=name, folder=file, tokenizer_folder=file, config=config, spec=spec, weights="pretrained", gguf=gguf
    )


def read_json(file: Path, code: str, *, fix: str | None = None) -> dict[str, Any]:
    """Read a JSON object, or refuse the file with a problem of this code."""
    refuse_other_content(file, code)
    try:
        document = json.loads(file.read_text(encoding="utf-8"))
        reason = "it is not a JSON object"
    except OSError as error:
        document, reason = None, error.strerror or _describe(error)
    except (ValueError, RecursionError) as error:
        document, reason = None, _describe(error)
    if isinstance(document, dict):
        return document
    what = f"{file.name} cannot be read: {reason}."
    raise ProblemError([problem_of(code, file=str(file), what=what, why=None, next=fix)], exit_code=2)


def read_source(
    name: str, folder: Path, *, revision: str | None = None, weights: Literal["builtin", "pretrained"] = "pretrained"
) -> ModelSource:
    """Return the model in a folder, with its config read."""
    file = folder / CONFIG
    config = read_json(file, "TP040", fix=suggest_models(name))
    return ModelSource(
        name=name,
        revision=revision,
        folder=folder,
        tokenizer_folder=BUILTIN_TOKENIZER if weights == "builtin" else folder,
        config=config,
        spec=spec_from_config(config, file=str(file)),
        weights=weights,
    )


def resolve_for_planning(name: str, revision: str | None = None) -> ModelSource:
    """Find a model for planning: local files, else the shipped config of a well-known model, else as `resolve`."""
    known = None if name in MODELS or model_path(name) or revision else known_source(name)
    if known is None:
        return resolve(name, revision, with_weights=False)
    from huggingface_hub import try_to_load_from_cache

    config = try_to_load_from_cache(name, CONFIG)
    if isinstance(config, str) and (Path(config).parent / "tokenizer.json").is_file():
        try:
            return read_source(name, Path(config).parent, revision=Path(config).parent.name)
        except ProblemError:
            return known
    return known


def known_source(name: str) -> ModelSource | None:
    """Return the shipped config of a well-known public model, or None; a run reads the model's own files instead."""
    folder = known_model_folder(name)
    return None if folder is None else read_source(name, folder)


def hint_model_path(error: ProblemError) -> ProblemError:
    """Replace the advice for a missing model: another person's run may name a path of another machine."""
    fix = "Get the model from the author of the run, or from where it is published, and name its folder with --model."
    problems = [replace(each, next=fix) if each.code == "TP040" else each for each in error.problems]
    return ProblemError(problems, exit_code=error.exit_code)


def _describe(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0].rstrip('.')}" if lines else type(error).__name__


# Hub

_local_only: ContextVar[bool] = ContextVar("local_only", default=False)


def local_models_only(*, unless: bool) -> AbstractContextManager[None]:
    """Disable downloads inside the context, so that a name from a stranger's run is not looked up on the hub."""
    return override(_local_only, not unless)


def _download(name: str, revision: str | None, *, with_weights: bool) -> Path:
    """Return the snapshot of a model on the hub, downloaded unless the local cache has it."""
    from huggingface_hub import errors, snapshot_download

    patterns = [CONFIG, GENERATION_CONFIG, *TOKENIZER_FILES]
    patterns += [WEIGHTS, "model-*.safetensors", WEIGHTS_INDEX] if with_weights else []
    local_only, other = _local_only.get(), suggest_models(name)
    version = f"{name} at revision {revision}" if revision else name
    try:
        return Path(snapshot_download(name, revision=revision, allow_patterns=patterns, local_files_only=local_only))
    except (errors.HfHubHTTPError, errors.LocalEntryNotFoundError, OSError) as error:
        match error:
            case errors.GatedRepoError():
                what = f"The hub denies access to {name}."
                fix = f"Accept the terms on the page of {name}, log in with `hf auth login`, and try again."
            case errors.RevisionNotFoundError():
                what = f"{name} has no revision {revision}."
                fix = "Name a branch, tag or commit from the model's page, or remove model.revision."
            case errors.RepositoryNotFoundError():
                what = f"The hub has no model {name}."
                fix = f"{other} Or check the name on the hub; for a private one log in with `hf auth login`."
            case errors.LocalEntryNotFoundError() if local_only:
                what, fix = f"{version} is not on this machine.", f"{other} Or pass --fetch to download it."
            case errors.LocalEntryNotFoundError():
                what = f"{version} is not on this machine and could not be downloaded."
                fix = f"{other} Or try again with a connection."
            case _:
                what = f"{version} could not be downloaded: {_describe(error)}."
                fix = f"Try again, or download {name} by other means and name its folder."
        raise ProblemError([problem_of("TP045", file=name, what=what, next=fix)], exit_code=2) from error


# Smaller shapes for smoke runs

MIN_LAYERS = 2
SMALL_EMBED = 128
SMALL_KV_HEADS = 2
MLP_UNIT = 64  # MLP widths are multiples of 64, since nf4 needs blocks of 64


def shrink(source: ModelSource) -> ModelSource:
    """Return the model with a smaller shape: same family, tokenizer and kinds of layers, for smoke runs.

    No size increases. The parameters are random, since no file has them.
    """
    if source.full_spec is not None:
        return source
    key, spec = source.family.text_key, source.spec
    config = dict(source.config if key is None else source.config[key])
    sizes = small_sizes(spec)
    for name, value in config.items():
        if isinstance(value, list) and len(value) == spec.layers:  # per layer: layer_types, no_rope_layers
            config[name] = value[: sizes["layers"]]
    config |= {stated: sizes[size] for size, stated in source.family.size_keys.items() if size in sizes}
    if not spec.learned_positions:
        config["head_dim"] = spec.head_dim
    whole = config if key is None else {**source.config, key: config}
    small = spec_from_config(whole, file=str(source.folder))
    return replace(source, config=whole, spec=small, weights="builtin", full_spec=spec)


def small_sizes(spec: ModelSpec) -> dict[str, int]:
    """Return reduced sizes that preserve the ratio of heads and every kind of layer.

    Gemma-2B with 18 layers, 8 query heads, 1 key head, width 2,048 and MLP width 16,384 gets 2 layers, 8 heads, 1 key
    head, width 128 and MLP width 1,024. Gemma 3, where every sixth layer has no window, keeps 6 layers.
    """
    kinds = set(spec.blocks)
    first = next(count for count in range(1, spec.layers + 1) if set(spec.blocks[:count]) == kinds)
    kv_heads = min(spec.kv_heads, SMALL_KV_HEADS)
    heads = spec.heads // spec.kv_heads * kv_heads
    # transformers refuses a width that is not a multiple of the number of heads.
    embed = heads * spec.head_dim if spec.learned_positions else min(spec.embed, SMALL_EMBED) // heads * heads
    mlp = min(spec.mlp, max(MLP_UNIT, spec.mlp * embed // spec.embed // MLP_UNIT * MLP_UNIT))
    layers = min(spec.layers, max(first, MIN_LAYERS))
    return {"layers": layers, "embed": embed, "heads": heads, "kv_heads": kv_heads, "mlp": mlp}


def describe_shrinking(source: ModelSource) -> list[dict[str, Any]]:
    """Return the sizes that were reduced, for the manifest."""
    full = source.full_spec or source.spec
    pairs = {size: (getattr(full, size), getattr(source.spec, size)) for size in small_sizes(full)}
    return [{"size": size, "own": before, "made": after} for size, (before, after) in pairs.items() if before != after]

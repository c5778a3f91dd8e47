"""From the name of a model to what there is of it: folder, spec, family, tokenizer.

A name is that of a built-in model, a local folder or GGUF file, or a repository on the Hugging Face hub (`hub.py`),
tried in this order. Parameters are not read here (`loading.py`), nor drawn (`build.py`).
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from tokenizers.models import WordLevel, WordPiece

from schemas.catalog import MODELS
from schemas.problems import ProblemError, problem_of
from trainer.config.names import gguf_file, model_path, no_model, other_models
from trainer.config.other_content import refuse_other_content
from trainer.model import files
from trainer.model.families import FAMILIES, spec_from_config
from trainer.model.families.layout import Family
from trainer.model.files.hub import download
from trainer.model.gguf.description import config_of
from trainer.model.gguf.header import Gguf, read_gguf
from trainer.model.gguf.tokenizer import GgufTokenizerError, tokenizer_of
from trainer.model.gguf.tokenizer import has_tokenizer as has_tokens
from trainer.model.spec import ModelSpec
from trainer.model.tokenizer import FOLDER as BUILTIN_TOKENIZER

BUILTIN = Path(__file__).parents[1] / "builtin"
"""A folder with a config.json for each built-in model."""


@dataclass(frozen=True, kw_only=True)
class ModelSource:
    """A model that was found, before any parameter exists."""

    name: str
    """As the user wrote it."""

    revision: str | None
    """Commit on the hub. None: the model is not from there."""

    folder: Path
    """Where its files are; of a GGUF the file itself."""

    tokenizer_folder: Path
    """Where its tokenizer is."""

    config: Mapping[str, Any] = field(hash=False)
    """The document in its config.json, or what a GGUF states as one."""

    spec: ModelSpec
    """What to build."""

    weights: Literal["builtin", "pretrained"]
    """builtin: there are no files, parameters can only be drawn. pretrained: the folder is meant to hold them."""

    gguf: Gguf | None = field(default=None, compare=False)
    """The file that is the whole model. None: it is a folder of Hugging Face's kind."""

    full_spec: ModelSpec | None = None
    """Before its shape was made small (`shrinking.py`). None: it has its own shape."""

    @property
    def family(self) -> Family:
        """How its files name things."""
        return FAMILIES[self.spec.family]

    def tokenizer(self, rendered_at: str | None = None) -> Any:
        """Load the tokenizer through transformers; never runs code from the model's folder.

        Args:
            rendered_at: the time that its chat template writes where it writes one. None: the present.

        Raises:
            ProblemError: it is missing, it cannot be read, it has ids beyond the model's vocabulary, or no token for
                unknown words.
        """
        # The advice that torch is missing is true and of no use: only tokenizers are taken from transformers.
        os.environ.setdefault("TRANSFORMERS_NO_ADVISORY_WARNINGS", "1")
        try:
            tokenizer = self.read_tokenizer() if self.gguf is None else tokenizer_of(self.gguf)
        except GgufTokenizerError as error:
            what = f"The tokenizer of {self.name} cannot be built: {error}."
            raise self.tokenizer_problem(what, "A GGUF file holds tokens, merges and special ids itself.") from error
        self.refuse_ids_beyond(tokenizer.get_vocab())
        self.refuse_absent_unknown(tokenizer)
        tokenizer.rendered_at = rendered_at
        return tokenizer

    @property
    def has_tokenizer(self) -> bool:
        """Whether there are tokens to build one of."""
        if self.gguf is not None:
            return has_tokens(self.gguf)
        return any((self.tokenizer_folder / name).is_file() for name in files.VOCABULARY)

    def read_tokenizer(self) -> Any:
        """Load the tokenizer in a folder."""
        if not self.has_tokenizer:
            # transformers 5 would make one without any tokens out of config.json alone.
            what = f"The tokenizer of {self.name} is missing: there is none of {', '.join(files.VOCABULARY)}."
            raise self.tokenizer_problem(what, "The tokens are in these files.")
        for pattern in files.TOKENIZER:
            for path in self.tokenizer_folder.glob(pattern):
                refuse_other_content(path, "TP046")
        from transformers import AutoTokenizer

        try:
            # Which text is too long is told with the row's line, not by the tokenizer.
            return AutoTokenizer.from_pretrained(
                self.tokenizer_folder, local_files_only=True, model_max_length=sys.maxsize
            )
        except (OSError, ValueError, KeyError, TypeError, AttributeError, ImportError, RecursionError) as error:
            what = f"The tokenizer of {self.name} cannot be loaded: {first_line(error)}"
            raise self.tokenizer_problem(
                what, "transformers reads tokenizer.json, or the family's own files."
            ) from error

    def tokenizer_sha256(self) -> str:
        """Return the SHA-256 over the names and contents of the tokenizer's files with its tokens and merges."""
        digest = hashlib.sha256()
        for name in (*files.VOCABULARY, files.MERGES):
            if (path := self.tokenizer_folder / name).is_file():
                content = path.read_bytes()
                digest.update(f"{name} {len(content)}\n".encode())
                digest.update(content)
        return digest.hexdigest()

    def refuse_ids_beyond(self, ids: dict[str, int]) -> None:
        """Refuse a tokenizer with an id for which the model has no row; ids may have gaps."""
        text, largest = max(ids.items(), key=lambda token: token[1], default=("", -1))
        if largest >= self.spec.vocab:
            vocab, of_model = self.spec.vocab, "config.json" if self.gguf is None else "token table"
            what = f"The tokenizer of {self.name} gives {text!r} the id {largest}; its {of_model} says {vocab} tokens."
            raise self.tokenizer_problem(what, f"Ids are counted from 0; the model has no row for {vocab} and beyond.")

    def refuse_absent_unknown(self, tokenizer: Any) -> None:
        """Refuse a tokenizer of whole words without the token for all other words, on which it breaks down."""
        model = getattr(getattr(tokenizer, "backend_tokenizer", None), "model", None)
        text = model.unk_token if isinstance(model, WordLevel | WordPiece) else None
        if text is not None and text not in tokenizer.get_vocab():
            what = f"The tokenizer of {self.name} takes what it does not know for {text!r}, and has no such token."
            raise self.tokenizer_problem(what, "The first unknown word would end the run.")

    def tokenizer_problem(self, what: str, why: str) -> ProblemError:
        """Return the refusal of a tokenizer."""
        advice = (
            f"Put the tokenizer that {self.name} was trained with into its folder (tokenizer.json and "
            "tokenizer_config.json)."
        )
        if self.gguf is not None:
            advice = "Take a GGUF file with a tokenizer that is read, or name the folder with the model's safetensors."
        problem = problem_of("TP046", file=str(self.tokenizer_folder), what=what, why=why, next=advice)
        return ProblemError([problem], exit_code=2)


def resolve(name: str, revision: str | None = None, *, with_weights: bool = True) -> ModelSource:
    """Find a model by name.

    Args:
        name: built-in model, local folder with config.json, GGUF file, or hub name.
        revision: branch, tag or commit on the hub; only for hub names.
        with_weights: whether its parameters are to be read; else they are not fetched from the hub.

    Raises:
        ProblemError: nothing has this name, the hub cannot be reached, or the model is of a kind not implemented here.
    """
    if name in MODELS:
        if revision is not None:
            raise no_revision(name, revision, "a built-in model")
        return find_source(name, None, BUILTIN / name, BUILTIN_TOKENIZER, "builtin")
    if (problem := no_model(name)) is not None:
        raise ProblemError([problem], exit_code=2)
    if (path := model_path(name)) is not None:
        if revision is not None:
            raise no_revision(name, revision, f"a local {'folder' if path.is_dir() else 'file'}")
        file = gguf_file(path)
        return find_source(name, None, path, path, "pretrained") if file is None else found_gguf(name, file)
    snapshot = download(name, revision, with_weights=with_weights, otherwise=other_models(name))
    # The hub's cache names a snapshot's folder by its commit, whatever branch was requested.
    return find_source(name, snapshot.name, snapshot, snapshot, "pretrained")


def find_source(
    name: str, revision: str | None, folder: Path, tokenizer_folder: Path, weights: Literal["builtin", "pretrained"]
) -> ModelSource:
    """Return the source in `folder`, its config read."""
    file = folder / files.CONFIG
    config = read_config(file, name)
    return ModelSource(
        name=name,
        revision=revision,
        folder=folder,
        tokenizer_folder=tokenizer_folder,
        config=config,
        spec=spec_from_config(config, file=str(file)),
        weights=weights,
    )


def found_gguf(name: str, file: Path) -> ModelSource:
    """Return the source in a GGUF file, its header read."""
    gguf = read_gguf(file)
    config = config_of(gguf)
    return ModelSource(
        name=name,
        revision=None,
        folder=file,
        tokenizer_folder=file,
        config=config,
        spec=spec_from_config(config, file=str(file)),
        weights="pretrained",
        gguf=gguf,
    )


def read_config(file: Path, name: str) -> dict[str, Any]:
    """Return the document in config.json.

    Raises:
        ProblemError: it is absent, unreadable or no JSON object.
    """
    refuse_other_content(file, "TP040")
    try:
        config = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        what = f"The config.json of {name} cannot be read: {first_line(error)}."
        why = "It says what the model is: family, sizes, activation."
        raise config_problem(name, file, what, why) from error
    if not isinstance(config, dict):
        what = f"The config.json of {name} is not a JSON object."
        raise config_problem(name, file, what, "Its keys describe the model.")
    return config


def config_problem(name: str, file: Path, what: str, why: str) -> ProblemError:
    """Return the refusal of a config.json."""
    problem = problem_of("TP040", file=str(file), what=what, why=why, next=other_models(name))
    return ProblemError([problem], exit_code=2)


def of_somebody_else(error: ProblemError) -> ProblemError:
    """Return the refusal of a model that another person's run names: this machine may have it in another place."""
    then = "Get the model from whoever made the run, or from where it is published, and name its folder with --model."
    problems = [replace(each, next=then) if each.code == "TP040" else each for each in error.problems]
    return ProblemError(problems, exit_code=error.exit_code)


def no_revision(name: str, revision: str, kind: str) -> ProblemError:
    """Return the refusal of a revision where there is only one."""
    problem = problem_of(
        "TP040",
        file=name,
        what=f"Revision {revision} was asked for, but {name} is {kind}.",
        why="Only models on the hub have revisions.",
        next="Leave model.revision out, or name a model on the hub.",
    )
    return ProblemError([problem], exit_code=2)


def first_line(error: BaseException) -> str:
    """Return an error's kind and the first line of its text."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0].rstrip('.')}" if lines else type(error).__name__

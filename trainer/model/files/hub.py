"""Brings a model's files from the Hugging Face hub, or states plainly why it could not.

What is in the files is read elsewhere (`source.py`, `loading.py`). No code of a repository is fetched or run.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

from schemas.problems import ProblemError, problem_of
from trainer.model import files

DESCRIPTIONS = (files.CONFIG, files.GENERATION_CONFIG, *files.TOKENIZER)
"""Patterns of what is always brought."""

WEIGHTS = (files.WEIGHTS, "model-*.safetensors", files.WEIGHTS_INDEX)
"""Patterns of what is brought where the parameters are to be read."""


_here_only: ContextVar[bool] = ContextVar("here_only", default=False)


@contextmanager
def nothing_fetched(*, unless: bool) -> Iterator[None]:
    """Take models from this machine only while it is open: a name that a stranger wrote then goes nowhere."""
    token = _here_only.set(not unless)
    try:
        yield
    finally:
        _here_only.reset(token)


def download(name: str, revision: str | None, *, with_weights: bool, otherwise: str) -> Path:
    """Return the folder with the model's files, fetched if the local cache lacks them; it is named by their commit.

    Args:
        name: hub name.
        revision: branch, tag or commit. None: the main branch.
        with_weights: bring the parameters too, which are nearly all of it.
        otherwise: what else could be named, as a sentence, for the advice.

    Raises:
        ProblemError: no such model or revision, no permission, or the hub cannot be reached.
    """
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import (
        GatedRepoError,
        HfHubHTTPError,
        LocalEntryNotFoundError,
        RepositoryNotFoundError,
        RevisionNotFoundError,
    )

    at = f" at revision {revision}" if revision else ""
    here_only = _here_only.get()
    fetched = [*DESCRIPTIONS, *(WEIGHTS if with_weights else ())]
    try:
        return Path(snapshot_download(name, revision=revision, allow_patterns=fetched, local_files_only=here_only))
    except GatedRepoError as error:
        why = "Its owner asks everyone to accept terms first."
        advice = f"Accept them on the page of {name}, log in with `hf auth login`, and try again."
        raise refusal(name, f"The hub does not give {name} to you.", why, advice) from error
    except RevisionNotFoundError as error:
        advice = "Name a branch, tag or commit from the model's page, or leave model.revision out."
        raise refusal(name, f"{name} has no revision {revision}.", "The hub knows the model.", advice) from error
    except RepositoryNotFoundError as error:
        why = "It does not exist, or it is private and you are not logged in."
        advice = f"{otherwise} Or check the name on the hub; for a private model log in with `hf auth login`."
        raise refusal(name, f"The hub has no model {name}.", why, advice) from error
    except LocalEntryNotFoundError as error:
        if here_only:
            why = "A run names it that somebody else may have written, so the hub was not asked."
            advice = f"{otherwise} Or have it fetched with --fetch."
            raise refusal(name, f"{name}{at} is not on this machine.", why, advice) from error
        why = "It is not in the local cache, and the hub cannot be reached or is switched off (HF_HUB_OFFLINE)."
        advice = f"{otherwise} Or try again with a connection."
        raise refusal(name, f"{name}{at} is not on this machine and could not be fetched.", why, advice) from error
    except (HfHubHTTPError, OSError) as error:
        why = f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error).strip() else 'no details'}"
        advice = f"Try again, or download {name} by other means and name its folder."
        raise refusal(name, f"Fetching {name}{at} failed.", why, advice) from error


def refusal(name: str, what: str, why: str, advice: str) -> ProblemError:
    """Return the error for a model that did not come."""
    return ProblemError([problem_of("TP045", file=name, what=what, why=why, next=advice)], exit_code=2)

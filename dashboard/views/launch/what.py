"""What is trained: facts about the model and the data, uploads, and the first examples."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import streamlit as st

from dashboard.shared.config import configs
from dashboard.shared.parts import config_form, gate, markup, token_rows
from dashboard.shared.parts.launching import trying
from dashboard.shared.session import state
from evidence.writing import write_bytes
from launch.jobs import launch_folder
from schemas.formats import count, short_count
from schemas.reading import get_number, get_objects, get_str


def show_data(source: str, checked: Mapping[str, Any] | None) -> None:
    """Draw facts about the model and the data, the upload, and the first examples.

    `checked` is the answer of `trainproof train --check`, or None.
    """
    facts = checked if checked is not None and checked.get("can_begin") is True else {}
    for fact in (*_model_facts(facts), *_data_facts(facts)):
        markup.note(fact)
    with st.container(horizontal=True):
        if gate.may_operate():
            with st.popover("Upload a dataset", icon=":material/upload:"):
                key = f"upload {source}"
                st.file_uploader(
                    "Dataset", type=configs.DATA_SUFFIXES, key=key, on_change=_use_upload, args=(source, key)
                )
    if examples := get_objects(facts, "first_examples", "examples"):
        rows = st.expander("First examples, as the model sees them", key="rows", on_change="rerun", bind="query-params")
        if rows.open:
            with rows:
                token_rows.show_examples(examples)


def save_upload(root: Path, name: str, content: bytes) -> Path:
    """Save an uploaded file among the jobs of a root and return its path; the same content is saved once.

    Raises:
        OSError: The file cannot be written.
    """
    stem = re.sub("[^A-Za-z0-9._-]", "-", Path(name).stem).lstrip("._-")[:60] or "rows"
    digest = hashlib.sha256(content).hexdigest()[:8]
    path = launch_folder(root) / config_form.UPLOADS / f"{stem}-{digest}{Path(name).suffix.lower()}"
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.is_file() or path.read_bytes() != content:
        write_bytes(path, content)
    return path


def _use_upload(source: str, key: str) -> None:
    upload = st.session_state.get(key)
    if upload is not None and gate.may_operate():
        with trying("The file could not be saved"):
            path = save_upload(state.root(), upload.name, upload.getvalue())
            config_form.put(source, {("data", "dataset"): str(path)})


def _model_facts(facts: Mapping[str, Any]) -> Iterator[str]:
    total, trained = get_number(facts, "model", "parameters"), get_number(facts, "model", "trained_parameters")
    if total is not None and trained is not None:
        some = "all" if trained == total else short_count(trained)
        weights = "pretrained" if get_str(facts, "model", "origin") == "pretrained" else "random weights"
        family = get_str(facts, "model", "family")
        yield f"Model: {short_count(total)} parameters, {some} trainable; {family}, {weights}."


def _data_facts(facts: Mapping[str, Any]) -> Iterator[str]:
    examples, tokens = get_number(facts, "training_rows"), get_number(facts, "dataset", "tokens")
    if examples is not None and tokens is not None:
        generated, items = get_number(facts, "dataset", "generated_rows"), get_number(facts, "evaluation_items")
        more = f" ({count(generated)} generated)" if generated else ""
        evaluated = "no evaluation" if items is None else f"{count(items)} evaluation items"
        yield f"Data: {count(examples)} examples{more}, {short_count(tokens)} tokens; {evaluated}."

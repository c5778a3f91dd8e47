"""Kinds of documents, their JSON Schemas, and the fields of a metric row.

The schemas are package data in `documents/`, one folder for each major version.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

DOCUMENTS = (
    "run_manifest", "train_config", "plan", "first_examples", "eval_summary", "bundle_manifest", "import", "notes",
    "target", "receipt", "export_receipt", "stamps", "session", "trust", "phases", "sweep_config", "sweep",
)  # fmt: skip
ROWS = (
    "metric_row", "log_record", "system_row", "chain_entry", "rollout_row", "answer_over_step", "prediction_row",
    "dataset_row", "eval_item",
)  # fmt: skip
KINDS = (*DOCUMENTS, *ROWS)

YAML_KINDS = ("train_config", "target", "phases", "sweep_config")  # documents written as YAML

WRITTEN_BY_PEOPLE = ("target", "train_config", "phases", "sweep_config", "dataset_row", "eval_item", "notes")
"""Documents that people write; only the program writes the others."""

APPENDED = ("metric_row", "log_record", "system_row", "rollout_row", "answer_over_step", "prediction_row")
"""Rows that a run appends to a file; the last line is torn if the run is killed."""

VERSIONS = ("1.0", "1.1", "1.2")  # every `schema_version` that can be read, oldest first
VERSION = VERSIONS[-1]  # `schema_version` of new documents
LARGEST_EXACT = 2**53 - 1  # largest integer that a 64-bit float holds exactly; bound of counts in the schemas
LARGEST_FLOAT = 1.7976931348623157e308  # largest 64-bit float; bound of numbers that only have to be finite
METRIC_ROW = "metric_row"  # kind of a line of metrics.jsonl
TIME = "time"  # only field of a metric row that is not a number
DATASETS = ("dev-reasoning-v2", "dev-stories-v1", "countdown-v2")  # built-in datasets
EVAL_SETS = ("eval_v1", "eval_v2", "eval_stories_v1", "eval_countdown_v2")  # built-in evaluation sets
MODELS = ("demo", "tiny-gpt2")  # built-in models
GYM = "reasoning-gym:"  # prefix of generated datasets: `reasoning-gym:leg_counting?size=500&seed=1`

_KINDS_BY_FILE = {
    "run_manifest.json": "run_manifest",
    "config.yaml": "train_config",
    "plan.json": "plan",
    "metrics.jsonl": METRIC_ROW,
    "log.jsonl": "log_record",
    "system.jsonl": "system_row",
    "chain.jsonl": "chain_entry",
    "rollouts.jsonl": "rollout_row",
    "answers_over_steps.jsonl": "answer_over_step",
    "first_examples.json": "first_examples",
    "predictions.jsonl": "prediction_row",
    "baseline_predictions.jsonl": "prediction_row",
    "eval_summary.json": "eval_summary",
    "bundle_manifest.json": "bundle_manifest",
    "import.json": "import",
    "notes.json": "notes",
    "stamps.json": "stamps",
    "session.json": "session",
    "sweep.json": "sweep",
}


def document_kind(file_name: str) -> str | None:
    """Return the kind of document in a file of this name, or None if it is unknown."""
    return "export_receipt" if file_name.endswith(".receipt.json") else _KINDS_BY_FILE.get(file_name)


def is_rows(kind: str) -> bool:
    """Return whether documents of this kind are lines of a JSONL file."""
    return kind in ROWS


@cache
def schema(kind: str, version: str = VERSION) -> dict[str, Any]:
    """Load the JSON Schema of a kind, or of `types`, which the others refer to. Do not change it."""
    path = files("schemas") / "documents" / f"v{version.partition('.')[0]}" / f"{kind}.schema.json"
    document: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return document


def all_schemas() -> dict[str, dict[str, Any]]:
    """Load every schema by kind, with `types`."""
    return {kind: schema(kind) for kind in (*KINDS, "types")}


def resolve(document: dict[str, Any], reference: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the document and the node that a `$ref` in `document` points to: `types.schema.json#/$defs/time`."""
    file_name, _, pointer = reference.partition("#")
    if file_name:
        document = schema(file_name.removesuffix(".schema.json"))
    node = document
    for part in pointer.split("/")[1:]:
        node = node[part]
    return document, node


def resolve_node(node: dict[str, Any], document: dict[str, Any]) -> dict[str, Any]:
    """Follow every `$ref` of a node of `document`."""
    while "$ref" in node:
        document, node = resolve(document, node["$ref"])
    return node


def node_types(node: dict[str, Any]) -> list[str]:
    """Return the types of a schema node as a list."""
    names = node.get("type", [])
    return [names] if isinstance(names, str) else names


@dataclass(frozen=True, kw_only=True)
class RowField:
    """A field of a metric row, as the schema describes it.

    Attributes:
        name: Key in the row, `tokens_seen`.
        title: Heading, `Tokens seen`.
        meaning: What is measured, as sentences.
        unit: Unit of the value; empty for plain numbers and the time.
        is_axis: Whether it can be the x axis.
        panel: How it is drawn over the steps (the keys `large`, `log` and `exactly`), or None if it is not.
    """

    name: str
    title: str
    meaning: str
    unit: str
    is_axis: bool
    panel: Mapping[str, Any] | None


@cache
def row_fields() -> tuple[RowField, ...]:
    """Return the fields of a metric row in the order of the schema."""
    return tuple(
        RowField(
            name=name,
            title=node["title"],
            meaning=node["description"],
            unit=node.get("x-unit", ""),
            is_axis=node.get("x-axis", False),
            panel=node.get("x-panel"),
        )
        for name, node in schema(METRIC_ROW)["properties"].items()
    )


@cache
def number_names() -> tuple[str, ...]:
    """Return the names of a metric row's numeric fields in the order of the schema."""
    return tuple(field.name for field in row_fields() if field.name != TIME)

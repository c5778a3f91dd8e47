"""Which documents there are, which schema each follows, and which file holds which.

The schemas are data inside this package, so that they are found in a checkout and in an installed wheel alike.
"""

from __future__ import annotations

import json
from functools import cache
from importlib.resources import files
from typing import Any

DOCUMENTS = (
    "run_manifest",
    "train_config",
    "plan",
    "first_examples",
    "eval_summary",
    "bundle_manifest",
    "import",
    "notes",
    "target",
    "receipt",
    "export_receipt",
    "stamps",
    "trust",
)
ROWS = (
    "metric_row",
    "log_record",
    "system_row",
    "chain_entry",
    "rollout_row",
    "answer_over_step",
    "prediction_row",
    "dataset_row",
    "eval_item",
)
KINDS = (*DOCUMENTS, *ROWS)

VERSIONS = ("1.0", "1.1", "1.2")
"""Every `schema_version` that this program reads, oldest first. A later one may hold more, and drops nothing."""

VERSION = VERSIONS[-1]
"""The `schema_version` of documents that this program writes."""

LARGEST_EXACT = 2**53 - 1
"""The largest whole number that every reader of JSON holds exactly; the bound of counts in the schemas."""

_KIND_OF_FILE = {
    "run_manifest.json": "run_manifest",
    "config.yaml": "train_config",
    "plan.json": "plan",
    "metrics.jsonl": "metric_row",
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
}
_EXPORTED = ".receipt.json"
"""What the receipt of an exported file has behind the file's name."""


def kind_of(file_name: str) -> str | None:
    """Return the kind of the document that a file of this name holds: `metrics.jsonl` holds `metric_row`s."""
    return "export_receipt" if file_name.endswith(_EXPORTED) else _KIND_OF_FILE.get(file_name)


def is_rows(kind: str) -> bool:
    """Return whether documents of this kind are lines of a JSONL file."""
    return kind in ROWS


@cache
def schema(kind: str, version: str = VERSION) -> dict[str, Any]:
    """Return the JSON Schema of a kind, or of `types`, which the others refer to; read once, not to be changed."""
    return _read(f"{kind}.schema.json", version)


def schemas_of() -> dict[str, dict[str, Any]]:
    """Return every schema, with `types`, by kind."""
    return {kind: schema(kind) for kind in (*KINDS, "types")}


def resolve(document: dict[str, Any], reference: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the document and the node that a `$ref` in `document` means: `types.schema.json#/$defs/time`."""
    file_name, _, pointer = reference.partition("#")
    if file_name:
        document = schema(file_name.removesuffix(".schema.json"))
    node = document
    for part in pointer.split("/")[1:]:
        node = node[part]
    return document, node


def resolve_node(node: dict[str, Any], document: dict[str, Any]) -> dict[str, Any]:
    """Return the node that a node of `document` means in the end, every `$ref` followed."""
    while "$ref" in node:
        document, node = resolve(document, node["$ref"])
    return node


def types_of(node: dict[str, Any]) -> list[str]:
    """Return the types that a node names; its `type` is one name or a list of them."""
    names = node.get("type", [])
    return [names] if isinstance(names, str) else names


def folder_of(version: str) -> str:
    """Return the folder of a version's schemas inside `documents`: one for each major version."""
    return f"v{version.partition('.')[0]}"


def _read(file_name: str, version: str) -> dict[str, Any]:
    text = (files("schemas") / "documents" / folder_of(version) / file_name).read_text(encoding="utf-8")
    document: dict[str, Any] = json.loads(text)
    return document

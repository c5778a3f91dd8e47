"""What a configuration of an earlier schema version means where it lacks a key that came later.

A key whose default is not what earlier versions did states in `train_config.schema.json` what they did (`x-before`),
beside the version it came with (`x-since`). A document that states no version is a new one.
"""

from __future__ import annotations

from typing import Any

from schemas.catalog import VERSION, resolve_node, schema


def with_earlier_meaning(document: dict[str, Any]) -> dict[str, Any]:
    """Return a configuration with each key that came later set to what its version did, unless it states the key."""
    version = str(document.get("schema_version", VERSION))
    return document if version == VERSION else _complete(document, schema("train_config"), version)


def _complete(document: dict[str, Any], node: dict[str, Any], version: str) -> dict[str, Any]:
    result = dict(document)
    for key, item in node.get("properties", {}).items():
        inner = resolve_node(item, schema("train_config"))
        if "properties" in inner:
            if group := _complete(document.get(key, {}), inner, version):
                result[key] = group
        elif key not in document and "x-before" in inner and inner["x-since"] > version:
            result[key] = inner["x-before"]
    return result

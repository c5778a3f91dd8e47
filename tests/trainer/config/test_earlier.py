"""A configuration of an earlier version means what that version did."""

from typing import Any

import pytest

from schemas.catalog import VERSION
from trainer.config import tree

SCHEMA: dict[str, Any] = {
    "properties": {
        "data": {
            "properties": {
                "kind": {"x-since": "1.1", "default": "rows"},
                "template": {"x-since": "1.2", "default": "as-written", "x-before": "with-newline"},
            }
        }
    }
}


@pytest.fixture(autouse=True)
def _schema(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tree, "schema", lambda _kind: SCHEMA)


@pytest.mark.parametrize("version", ["1.0", "1.1"])
def test_a_missing_key_means_what_the_version_did(version: str) -> None:
    document = {"schema_version": version, "data": {"kind": "text"}}
    expected = {"schema_version": version, "data": {"kind": "text", "template": "with-newline"}}
    assert tree.add_newer_keys(document) == expected
    assert tree.add_newer_keys({"schema_version": version})["data"] == {"template": "with-newline"}


@pytest.mark.parametrize(
    "document", [{}, {"schema_version": VERSION}, {"schema_version": "1.0", "data": {"template": "as-written"}}]
)
def test_a_new_document_and_a_stated_key_stay(document: dict[str, Any]) -> None:
    assert tree.add_newer_keys(document) == document

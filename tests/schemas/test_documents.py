"""The schema documents themselves: valid, described, closed, anchored, finite, and all of them explainable."""

import re
from collections.abc import Iterator
from importlib.resources import files

import jsonschema
import jsonschema_rs
import pytest

from schemas.catalog import KINDS, all_schemas, node_types, resolve_node
from schemas.explain import SENTENCES
from schemas.reading import parse_json

SCHEMAS = all_schemas()

ANNOTATIONS = {"$schema", "$id", "$defs", "title", "description", "default", "examples"}
ANNOTATIONS |= {"x-unit", "x-panel", "x-axis", "x-since", "x-late", "x-before", "x-recorded"}
APPLICATORS = {"properties", "items", "if", "then", "else", "$ref", "additionalProperties", "unevaluatedProperties"}


def nodes(node: dict, where: str = "") -> Iterator[tuple[str, dict]]:
    """Yield every schema node of a document with the way to it."""
    yield where, node
    for group in ("properties", "$defs"):
        for name, inner in node.get(group, {}).items():
            yield from nodes(inner, f"{where}/{group}/{name}")
    for keyword in ("items", "if", "then", "else", "additionalProperties"):
        if isinstance(node.get(keyword), dict):
            yield from nodes(node[keyword], f"{where}/{keyword}")


ALL_NODES = [(kind, where, node) for kind, document in SCHEMAS.items() for where, node in nodes(document)]


@pytest.mark.parametrize("kind", SCHEMAS)
def test_the_document_follows_the_metaschema_and_has_no_duplicate_key(kind):
    jsonschema.Draft202012Validator.check_schema(SCHEMAS[kind])
    jsonschema_rs.meta.validate(SCHEMAS[kind])
    path = files("schemas") / "documents" / "v1" / f"{kind}.schema.json"
    assert parse_json(path.read_bytes(), file=kind).problems == ()


def test_every_property_is_described_there_or_by_its_type():
    silent = [
        f"{kind}{where}/{name}"
        for kind, where, node in ALL_NODES
        for name, inner in node.get("properties", {}).items()
        if not (inner.get("description") or resolve_node(inner, SCHEMAS[kind]).get("description"))
    ]
    assert silent == []


def test_every_null_says_what_it_means():
    for kind, where, node in ALL_NODES:
        for name, inner in node.get("properties", {}).items():
            if "null" in node_types(resolve_node(inner, SCHEMAS[kind])) and "Null" not in inner["description"]:
                # One sentence may speak for all fields of an object.
                assert "Null" in node["description"], f"{kind}{where}/{name}"


def test_every_object_is_closed_every_number_has_two_ends_and_descriptions_are_sentences():
    for kind, where, node in ALL_NODES:
        if "object" in node_types(node):
            assert node.get("unevaluatedProperties") is False or "additionalProperties" in node, f"{kind}{where}"
        if {"integer", "number"} & set(node_types(node)):
            assert {"minimum", "exclusiveMinimum"} & node.keys(), f"{kind}{where}"
            assert {"maximum", "exclusiveMaximum"} & node.keys(), f"{kind}{where}"
        if "description" in node:
            assert re.fullmatch(r"\S.*[.…]", node["description"]), f"{kind}{where}"


@pytest.mark.parametrize(
    ("kind", "where", "node"), [one for one in ALL_NODES if "pattern" in one[2]], ids=lambda value: str(value)[:40]
)
def test_a_trailing_newline_breaks_every_pattern(kind, where, node):
    examples = ["a", "run_started", "adapter/a.b", "2026-11-23", "2026-10-11T12:34:56Z", "7.5", "1x1x1", "17 4"]
    examples += [
        "2026-10-11T12:34:60.123456789+05:30",
        "0" * 64,
        "0" * 40,
        "SHA256:" + "0" * 64,
        f"code {'0' * 64} - a.yaml",
    ]
    schema = {"type": "string", "pattern": node["pattern"]}
    accepted = [text for text in examples if re.search(node["pattern"], text)]
    assert accepted
    for text in accepted:
        for ending in ("\n", "\r\n", "\r", "\n\n"):
            assert not re.search(node["pattern"], text + ending)
            assert not jsonschema.Draft202012Validator(schema).is_valid(text + ending)
            assert not jsonschema_rs.is_valid(schema, text + ending)
        assert jsonschema_rs.is_valid(schema, text)


def test_the_times_that_are_taken_are_times():
    pattern = SCHEMAS["types"]["$defs"]["time"]["pattern"]
    refused = ["2026-13-01T00:00:00Z", "2026-00-01T00:00:00Z", "2026-01-32T00:00:00Z", "2026-01-01T24:00:00Z"]
    refused += ["2026-01-01T00:60:00Z", "2026-01-01T00:00:61Z", "2026-01-01T00:00:00", "2026-01-01 00:00:00Z"]
    refused += ["2026-01-01T00:00:00.Z", "2026-01-01T00:00:00+24:00", "2026-01-01T00:00:00z", "２026-01-01T00:00:00Z"]
    assert [time for time in refused if re.search(pattern, time)] == []


def test_the_paths_that_are_taken_stay_inside():
    pattern = SCHEMAS["types"]["$defs"]["relative_path"]["pattern"]
    refused = ["/a", "..", "../a", "a/..", "a/../b", "a\\b", "a\x00b", "a\nb", ""]
    taken = ["a", "a/b.json", "..a", "a..", "a/..b", ".a", "é/ü"]
    assert [path for path in refused if re.search(pattern, path)] == []
    assert [path for path in taken if not re.search(pattern, path)] == []


def test_every_rule_can_be_explained():
    special = {"required", "unevaluatedProperties"}
    used = {keyword for _, _, node in ALL_NODES for keyword in node} - ANNOTATIONS - APPLICATORS
    assert used <= set(SENTENCES) | special


def test_what_explain_takes_for_granted():
    for kind, where, node in ALL_NODES:
        if "if" in node:
            # `known_keys` decides the branch from keys alone.
            assert set(node["if"]) == {"required"}, f"{kind}{where}"
        if "$ref" in node:
            # A message shows the expectation of the node behind the reference, and nothing beside it.
            assert set(node) <= {"$ref"} | ANNOTATIONS, f"{kind}{where}"
        if "enum" not in node and "const" not in node and where.rpartition("/")[2] not in ("if", "then", "else"):
            assert "$ref" in node or node_types(node) or kind == "types", f"{kind}{where}"


def test_every_kind_has_a_document_and_the_other_way_round():
    names = {path.name for path in (files("schemas") / "documents" / "v1").iterdir()}
    assert names == {f"{kind}.schema.json" for kind in (*KINDS, "types")}
    for kind, document in SCHEMAS.items():
        assert document["$id"].endswith(f"/v1/{kind}.schema.json")

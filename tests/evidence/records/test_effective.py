"""Declared and effective: one table for manifests of 1.0, a tree of the configuration's own keys from 1.1 on."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from synthetic import write_run

from evidence.effective import MANIFEST_PATHS, compare_settings, effective_settings, settings_in_manifest
from evidence.rules.contradiction.settings import declared_is_effective, effective_group_follows
from evidence.run import Run, read_run
from schemas.catalog import schema


def tree_of(flat: dict[str, Any]) -> dict[str, Any]:
    tree: dict[str, Any] = {}
    for key, value in flat.items():
        *groups, name = key.split(".")
        place = tree
        for group in groups:
            place = place.setdefault(group, {})
        place[name] = value
    return tree


@pytest.fixture
def facts(tmp_path: Path) -> Run:
    return read_run(write_run(tmp_path, "run"))


def with_group(facts: Run, **changed: Any) -> Run:
    manifest = facts.manifest or {}
    group = tree_of(settings_in_manifest(manifest) | {key.replace("__", "."): value for key, value in changed.items()})
    return replace(facts, manifest=manifest | {"effective": group})


def test_every_place_is_a_key_of_the_configuration_and_a_field_of_the_manifest(facts: Run):
    keys = schema("train_config")["properties"]
    for key in MANIFEST_PATHS:
        group, _, name = key.partition(".")
        assert name in keys[group]["properties"] if name else group in keys
    # A run of 1.0 stacks no layers, has one way of attention and of moments, and states nothing of them.
    later = {"memory.layers", "memory.attention", "optimizer.state"}
    assert settings_in_manifest(facts.manifest or {}).keys() == MANIFEST_PATHS.keys() - later


def test_a_run_did_what_it_was_asked_for_in_either_version(facts: Run):
    for version in (facts, with_group(facts)):
        found = compare_settings(version.config, version.manifest)
        assert {key for key, one in found.items() if one.state == "differs"} == set()
        assert found["batch.microbatch_size"].state == "same"
        assert list(declared_is_effective(version)) == []


def test_one_device_has_nothing_to_divide(facts: Run):
    divided = compare_settings({"mesh": {"shard_params": True}}, facts.manifest)["mesh.shard_params"]
    assert (divided.declared, divided.effective, divided.state) == (True, False, "open")
    assert divided.remark == "One device: there is nothing to divide."


def test_a_key_that_no_table_names_is_compared_in_the_tree(facts: Run):
    other = with_group(facts, optimizer__beta1=0.8)
    (problem,) = declared_is_effective(other)
    assert (problem.code, problem.pointer) == ("TP303", "/effective/optimizer/beta1")
    assert problem.what == "The manifest states 0.8; config.yaml states 0.9 at optimizer.beta1."


def test_the_group_states_what_the_other_groups_state(facts: Run):
    (problem,) = effective_group_follows(with_group(facts, batch__microbatch_size=99))
    assert (problem.code, problem.pointer) == ("TP377", "/effective/batch/microbatch_size")
    assert "/training/microbatch_size states" in problem.what


def test_before_the_step_is_compiled_other_groups_say_what_is_known(facts: Run):
    started = {"mode": "full", "devices": {"platform": "cpu", "count": 1}, "training": None, "model": None}
    assert effective_settings(started) == {"mode": "full", "mesh.device": "cpu", "mesh.devices": 1}
    assert compare_settings(facts.config, started)["limits.steps"].state == "open"

"""Answers and kept parameters are held against what stands beside them: tokens, fingerprints, hashes, the chain."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from copy import deepcopy
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from leaves import Forger, Forgery

from evidence import layout
from evidence.grade import find_problems
from evidence.hashes import link_of
from evidence.run import read_run

SMOKE = Path(__file__).parents[2] / "cases" / "earlier" / "demo-smoke"


@pytest.fixture
def forger(tmp_path: Path) -> Forger:
    return Forger(SMOKE, tmp_path / "demo-smoke")


def found(forger: Forger, change: Callable[[dict[str, Any]], None]) -> set[str]:
    """Return the codes that a change of the documents and rows gives, every hash made to fit."""
    values = deepcopy(forger.values)
    change(values)
    forger._reseal(values, Forgery(file="all", what="told"))
    return {each.code for each in find_problems(read_run(forger.folder)) if each.severity != "note"}


def test_the_run_itself_has_no_findings(forger: Forger) -> None:
    assert found(forger, lambda values: None) == set()


@pytest.mark.parametrize("field", ["output_token_ids", "fingerprint"])
def test_what_an_answer_is_followed_by_is_not_left_out(forger: Forger, field: str) -> None:
    def without(values: dict[str, Any]) -> None:
        for name in (layout.PREDICTIONS, layout.BASELINE_PREDICTIONS):
            for row in values[name]:
                del row[field]

    assert "TP525" in found(forger, without)


def test_prompts_are_put_as_the_log_says(forger: Forger) -> None:
    def other(values: dict[str, Any]) -> None:
        values[layout.EVAL_SUMMARY]["generation"]["prompt_template"] = "Q: {prompt}\nA:"

    assert "TP360" in found(forger, other)


@pytest.mark.parametrize(("key", "value"), [("duplicates", 3), ("split", "train")])
def test_a_built_in_dataset_is_stated_as_it_is(forger: Forger, key: str, value: object) -> None:
    assert "TP381" in found(forger, lambda values: values[layout.MANIFEST]["dataset"].update({key: value}))


def test_tokens_of_a_pass_are_those_of_the_rows(forger: Forger) -> None:
    assert "TP306" in found(forger, lambda values: values[layout.MANIFEST]["dataset"].update(tokens=99))


@pytest.mark.parametrize("key", ["tokens", "sequences"])
def test_the_size_of_a_pass_is_not_left_out(forger: Forger, key: str) -> None:
    """Left out alone it once ended the check with a KeyError."""
    assert found(forger, lambda values: values[layout.MANIFEST]["dataset"].pop(key)) == {"TP525"}


def test_compiling_took_as_long_as_the_plan_says(forger: Forger) -> None:
    def shorter(values: dict[str, Any]) -> None:
        values[layout.MANIFEST]["result"]["compile_seconds"] /= 10
        compiled = next(each for each in values[layout.LOG] if each["event"] == "compiled")
        compiled["fields"]["compile_seconds"] /= 10

    assert found(forger, shorter) == {"TP306"}


def chained(forger: Forger, change: Callable[[list[dict[str, Any]]], None]) -> set[str]:
    """Return the codes that a change of the chain gives, its links made anew."""
    path = forger.folder / layout.CHAIN
    entries = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    change(entries)
    for before, entry in pairwise(entries):
        entry["previous"] = link_of(before)
    path.write_text("".join(json.dumps(entry) + "\n" for entry in entries), "utf-8")
    stated = {"entries": len(entries), "head": link_of(entries[-1])}
    return found(forger, lambda values: values[layout.MANIFEST].update(chain=stated))


def test_a_chain_has_the_entries_that_the_recorder_writes(forger: Forger) -> None:
    assert chained(forger, lambda entries: entries.pop(1)) == {"TP525"}


def test_no_two_steps_leave_the_same_state(forger: Forger) -> None:
    assert chained(forger, lambda entries: entries[1].update(state_sha256=entries[0]["state_sha256"])) == {"TP324"}


def test_a_run_without_a_parent_does_not_go_on(forger: Forger) -> None:
    def continued(values: dict[str, Any]) -> None:
        record = {**values[layout.LOG][2], "event": "continued", "fields": {}}
        values[layout.LOG].insert(2, record)

    assert found(forger, continued) == {"TP365"}


def test_a_log_without_events_is_named(forger: Forger) -> None:
    """It once ended the check with an IndexError."""
    assert "TP365" in found(forger, lambda values: values[layout.LOG].clear())


def test_kept_parameters_are_those_of_the_end(forger: Forger) -> None:
    path = forger.folder / layout.TRAINED_PARAMS
    content = bytearray(path.read_bytes())
    content[-4:] = struct.pack("<f", 0.125)
    path.write_bytes(bytes(content))
    assert found(forger, lambda values: None) == {"TP328"}


@pytest.mark.parametrize("content", [b"", b"\x00" * 8, b"\xff" * 100, b"\x02\x00\x00\x00\x00\x00\x00\x00[]"])
def test_kept_parameters_in_another_form_are_named(forger: Forger, content: bytes) -> None:
    (forger.folder / layout.TRAINED_PARAMS).write_bytes(content)
    assert "TP328" in found(forger, lambda values: None)


def test_kept_parameters_of_another_number_are_named(forger: Forger) -> None:
    path = forger.folder / layout.TRAINED_PARAMS
    head = json.dumps({"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}).encode()
    path.write_bytes(len(head).to_bytes(8, "little") + head + bytes(8))
    assert "TP328" in found(forger, lambda values: None)


def test_small_parameters_are_not_left_out(forger: Forger) -> None:
    (forger.folder / layout.TRAINED_PARAMS).unlink()

    def unlisted(values: dict[str, Any]) -> None:
        listed = values[layout.MANIFEST]["artifacts"]
        listed[:] = [each for each in listed if each["path"] != layout.TRAINED_PARAMS]

    assert "TP525" in found(forger, unlisted)


def test_kept_parameters_of_any_size_are_not_read_beyond_what_was_trained(forger: Forger) -> None:
    """169,728 parameters: 8 bytes each at most, and 16 MiB for the head."""
    with (forger.folder / layout.TRAINED_PARAMS).open("wb") as file:
        file.truncate(64 << 20)
    assert "TP328" in found(forger, lambda values: None)
    [problem] = [each for each in find_problems(read_run(forger.folder)) if each.code == "TP328"]
    assert problem.what == "The file has 67,108,864 bytes; what the run trained takes 18,135,040 at most."


def test_a_token_of_thousands_of_digits_is_not_a_token(forger: Forger) -> None:
    def other(values: dict[str, Any]) -> None:
        values[layout.PREDICTIONS][0]["output_token_ids"] = "9" * 5000

    assert "TP124" in found(forger, other)

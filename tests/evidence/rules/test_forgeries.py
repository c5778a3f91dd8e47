"""Change values of real runs, make all hashes fit, and check that other documents contradict them.

The sweep tests every nineteenth change of `benchmarks/rules.py`; benchmarks/results/rules.json lists what is not found.
The lies of benchmarks/detection never make a run verified, and those with an error in the stored result keep it.
"""

import importlib.util
import json
import struct
import sys
from collections.abc import Callable
from copy import deepcopy
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from leaves import Forger, Forgery

from evidence import layout
from evidence.grade import check_run
from evidence.hashes import sha256_json
from evidence.run import read_run
from schemas.render import render_text

sys.path.append(FOLDER := str(Path(__file__).parents[3] / "benchmarks" / "detection"))  # for these imports only

from lies import LIES, VARIANTS, forge_run, tell

sys.path.remove(FOLDER)

REPOSITORY = Path(__file__).parents[3]
SMOKE = Path(__file__).parents[2] / "cases" / "earlier" / "demo-smoke"
Values = dict[str, Any]


@pytest.fixture
def forger(tmp_path: Path) -> Forger:
    return Forger(SMOKE, tmp_path / "demo-smoke")


def codes_after(forger: Forger, change: Callable[[Values], object] = lambda values: None) -> set[str]:
    values = deepcopy(forger.values)
    change(values)
    forger._reseal(values, Forgery(file="all", what="told"))
    return {each.code for each in check_run(read_run(forger.folder)).findings if each.severity != "note"}


def dataset(values: Values) -> dict[str, Any]:
    return values[layout.MANIFEST]["dataset"]


def remove_token_ids(values: Values) -> None:
    for name in (layout.PREDICTIONS, layout.BASELINE_PREDICTIONS):
        for row in values[name]:
            del row["output_token_ids"]


def shorten_compilation(values: Values) -> None:
    values[layout.MANIFEST]["result"]["compile_seconds"] /= 10
    event = next(each for each in values[layout.LOG] if each["event"] == "compiled")
    event["fields"]["compile_seconds"] /= 10


def log_continuation(values: Values) -> None:
    """Log that a run without a parent continues."""
    values[layout.LOG].insert(2, {**values[layout.LOG][2], "event": "continued", "fields": {}})


def change_template(values: Values) -> None:
    values[layout.EVAL_SUMMARY]["generation"]["prompt_template"] = "Q: {prompt}\nA:"


def write_a_huge_token(values: Values) -> None:
    values[layout.PREDICTIONS][0]["output_token_ids"] = "9" * 5000


def test_unchanged_run_has_no_findings(forger: Forger) -> None:
    assert codes_after(forger) == set()


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (remove_token_ids, "TP525"),
        (change_template, "TP360"),
        (shorten_compilation, "TP306"),
        (log_continuation, "TP365"),
        (lambda values: values[layout.LOG].clear(), "TP365"),
        (write_a_huge_token, "TP124"),
        (lambda values: dataset(values).update(duplicates=3), "TP381"),
        (lambda values: dataset(values).update(split="train"), "TP381"),
        (lambda values: dataset(values).update(tokens=99), "TP306"),
        (lambda values: dataset(values).pop("tokens"), "TP525"),
        (lambda values: dataset(values).pop("sequences"), "TP525"),
    ],
)
def test_changed_value(forger: Forger, change: Callable[[Values], object], code: str) -> None:
    assert code in codes_after(forger, change)


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (lambda entries: entries.pop(1), "TP525"),
        (lambda entries: entries[1].update(state_sha256=entries[0]["state_sha256"]), "TP324"),
    ],
)
def test_changed_chain_with_new_links(forger: Forger, change: Callable[[list[Any]], object], code: str) -> None:
    path = forger.folder / layout.CHAIN
    entries = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    change(entries)
    for before, entry in pairwise(entries):
        entry["previous"] = sha256_json(before)
    path.write_text("".join(json.dumps(entry) + "\n" for entry in entries), "utf-8")
    stated = {"entries": len(entries), "head": sha256_json(entries[-1])}
    assert codes_after(forger, lambda values: values[layout.MANIFEST].update(chain=stated)) == {code}


def replace_last_weight(content: bytes) -> bytes:
    return content[:-4] + struct.pack("<f", 0.125)


def two_weights(_: bytes) -> bytes:
    header = json.dumps({"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}).encode()
    return len(header).to_bytes(8, "little") + header + bytes(8)


@pytest.mark.parametrize(
    "change",
    [
        replace_last_weight,
        two_weights,
        lambda _: b"",
        lambda _: bytes(8),
        lambda _: b"\xff" * 100,
        lambda _: b"\x02\x00\x00\x00\x00\x00\x00\x00[]",
    ],
)
def test_changed_saved_parameters(forger: Forger, change: Callable[[bytes], bytes]) -> None:
    path = forger.folder / layout.TRAINED_PARAMS
    path.write_bytes(change(path.read_bytes()))
    assert codes_after(forger) == {"TP328"}


def test_removed_saved_parameters(forger: Forger) -> None:
    (forger.folder / layout.TRAINED_PARAMS).unlink()

    def unlist(values: Values) -> None:
        listed = values[layout.MANIFEST]["artifacts"]
        listed[:] = [each for each in listed if each["path"] != layout.TRAINED_PARAMS]

    assert "TP525" in codes_after(forger, unlist)


def test_saved_parameters_of_any_size_are_not_read(forger: Forger) -> None:
    """169,728 parameters: 8 bytes each at most, and 16 MiB for the header."""
    with (forger.folder / layout.TRAINED_PARAMS).open("wb") as file:
        file.truncate(64 << 20)
    assert "TP328" in codes_after(forger)
    [problem] = [each for each in check_run(read_run(forger.folder)).findings if each.code == "TP328"]
    assert problem.what == "The file has 67,108,864 bytes; 169,728 parameters take 18,135,040 at most."


FINISHED = REPOSITORY / "tests/corpus/v1/runs/finished"
EVERY = 19


@pytest.fixture
def finished(tmp_path: Path) -> Forger:
    return Forger(FINISHED, tmp_path / "finished")


def new_findings(finished: Forger, forgery: Forgery) -> str:
    """Return the findings except the one warning of the unchanged run."""
    finished.commit(forgery)
    return render_text([each for each in check_run(read_run(finished.folder)).findings if each.code != "TP410"])


def test_undetected_changes_are_listed(finished: Forger) -> None:
    swept = json.loads((REPOSITORY / "benchmarks/results/rules.json").read_text("utf-8"))["real_runs"]
    listed = swept["tests/corpus/v1/runs/finished"]["found_nowhere"]
    for forgery in list(finished.forgeries())[::EVERY]:
        assert new_findings(finished, forgery) or forgery.what in listed.get(forgery.place, ()), forgery


@pytest.mark.parametrize(
    ("line", "change", "what"),
    [
        (1, "row removed", "The log lacks run_started."),
        (4, "row removed", "The log lacks compiled."),
        (7, "row removed", "The log lacks evaluated."),
        (8, "row removed", "The log lacks run_sealed."),
        (5, "row removed", "No checkpoint was saved at the last step, 6."),
        (3, "row repeated", "The event planned was logged twice."),
        (2, "rows swapped", "The event planned comes before devices_chosen."),
    ],
)
def test_changed_log(finished: Forger, line: int, change: str, what: str) -> None:
    found = new_findings(finished, Forgery(file="log.jsonl", what=change, line=line))
    assert found.startswith("error TP365: ")
    assert f": {what}\n" in found


def test_seal_without_a_hash(finished: Forger) -> None:
    forgery = Forgery(file="log.jsonl", what="removed", path=("fields", "manifest_sha256"), line=8)
    assert "The event run_sealed lacks manifest_sha256." in new_findings(finished, forgery)


def test_detection_page_is_current() -> None:
    spec = importlib.util.spec_from_file_location("make_detection", REPOSITORY / "docs/make_detection.py")
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    page = (REPOSITORY / "docs/verify/limits.md").read_text(encoding="utf-8")
    assert page == made.page(), "run: python docs/make_detection.py"


STORED = json.loads((REPOSITORY / "benchmarks" / "results" / "adversary.json").read_text())


@pytest.fixture(scope="module")
def liar(tmp_path_factory: pytest.TempPathFactory) -> Forger:
    return Forger(REPOSITORY / STORED["run"], tmp_path_factory.mktemp("told") / "demo-smoke")


@pytest.mark.parametrize(("family", "name"), [(family, name) for family, lies in LIES.items() for name in lies])
def test_a_lie_is_found_as_the_benchmark_says(family: str, name: str, liar: Forger) -> None:
    report = check_run(read_run(tell(liar, LIES[family][name])))
    assert report.grade.name != "verified"
    expected = set(STORED["families"][family]["found_by"].get(name, ()))
    assert expected <= {each.code for each in report.findings}


@pytest.mark.parametrize("name", VARIANTS)
def test_a_forged_run_is_never_verified(name: str, tmp_path: Path) -> None:
    report = check_run(read_run(forge_run(tmp_path, name, VARIANTS[name])))
    assert report.grade.name != "verified"
    is_found = any(each.severity != "note" for each in report.findings)
    assert is_found == (name in STORED["families"]["forged"]["found_by"])

"""Reading run folders, whatever they contain, and comparing declared with effective settings."""

import hashlib
import os
import tracemalloc
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from mutations import apply
from refusals import catch_problems
from synthetic import write_run

from evidence import layout
from evidence.effective import (
    MANIFEST_PATHS,
    compare_settings,
    effective_settings,
    scalar_settings,
    settings_in_manifest,
)
from evidence.hashes import CHUNK_BYTES
from evidence.index.summary import collect_figures
from evidence.lock import RunLock
from evidence.rules.checker import check
from evidence.run import Run, read_existing_run, read_run
from evidence.writing import write_json
from schemas.catalog import schema
from schemas.problems import Problem


def find_code(run: Run, code: str) -> list[Problem]:
    return [problem for problem in check(run) if problem.code == code]


def test_run_is_read_whole(tmp_path: Path) -> None:
    run = read_run(folder := write_run(tmp_path, "run", steps=5, items=4))
    assert (run.problems, run.is_run, run.status) == ((), True, "succeeded")
    assert run.manifest["run_id"] == "run"
    assert run.config["limits"]["steps"] == 5
    assert [row["step"] for row in run.metrics] == [1, 2, 3, 4, 5]
    assert len(run.predictions) == len(run.baseline_predictions) == 4
    assert run.rows(layout.METRICS) is run.rows(layout.METRICS)
    assert run.files == tuple(sorted(path.name for path in folder.iterdir()))


def test_missing_folder_is_a_problem(tmp_path: Path) -> None:
    run = read_run(tmp_path / "absent")
    assert not run.is_run
    assert [problem.what for problem in run.problems] == ["The folder cannot be read: No such file or directory."]
    catch_problems(lambda: read_existing_run(tmp_path / "absent"))


def test_links_and_special_files_are_not_read(tmp_path: Path) -> None:
    folder = write_run(tmp_path, "run")
    secret = tmp_path / "secret.json"
    secret.write_text('{"secret": 1}')
    apply(folder, {"file": "run_manifest.json", "link_to": str(secret)})
    apply(folder, {"file": "plan.json", "make_folder": True})
    (folder / "log.jsonl").unlink()
    os.mkfifo(folder / "log.jsonl")
    run = read_run(folder)
    assert run.manifest is None
    assert run.plan is None
    assert run.rows(layout.LOG).values == []
    assert [problem.what for problem in run.problems] == [
        "log.jsonl is a special file, not a file; it was not read.",
        "plan.json is a folder, not a file; it was not read.",
        "run_manifest.json is a symbolic link, not a file; it was not read.",
    ]


def test_weight_folders_are_skipped(tmp_path: Path) -> None:
    folder = write_run(tmp_path, "run")
    for name in ("checkpoints/7", "export", "extra/deep"):
        (folder / name).mkdir(parents=True)
        (folder / name / "file").write_text("")
    (folder / "extra" / "outside").symlink_to(tmp_path)
    assert [name for name in read_run(folder).files if "/" in name] == ["extra/deep/file"]


def test_folder_that_cannot_be_listed_is_a_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write_run(tmp_path, "run")

    def refuse(path: Path) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr("evidence.run.os.scandir", refuse)
    [problem] = read_run(folder).problems
    assert (problem.code, problem.what) == ("TP209", "The folder cannot be read: Permission denied.")


def test_running_run_without_a_process_is_interrupted(tmp_path: Path) -> None:
    folder = write_run(tmp_path, "run", status="running")
    assert read_run(folder).status == "interrupted"
    with RunLock(folder):
        assert read_run(folder).status == "running"
    (tmp_path / "metrics.jsonl").touch()
    assert read_run(tmp_path).status is None
    (tmp_path / "run.lock").touch()  # killed before the manifest was written
    assert read_run(tmp_path).status == "interrupted"
    with RunLock(tmp_path):
        assert read_run(tmp_path).status is None


@pytest.mark.parametrize("before", range(CHUNK_BYTES - 2, CHUNK_BYTES + 2))
@pytest.mark.parametrize(("had", "has", "name"), [(b"\n", b"\r\n", "CRLF"), (b"\r\n", b"\n", "LF")])
def test_converted_line_ends_around_a_block(tmp_path: Path, before: int, had: bytes, has: bytes, name: str) -> None:
    folder = write_run(tmp_path, "one")
    wrote = b"a" * before + had + b"b" + had
    (folder / "other.txt").write_bytes(wrote.replace(had, has))
    run = read_run(folder)
    assert run.manifest is not None
    artifact = {"path": "other.txt", "bytes": len(wrote), "sha256": hashlib.sha256(wrote).hexdigest(), "role": "other"}
    write_json(folder / "run_manifest.json", {**run.manifest, "artifacts": [artifact]})
    found = [problem.what for problem in find_code(read_run(folder), "TP202")]
    assert found == [f"other.txt matches its hash after {name} conversion."]


def test_a_huge_file_without_line_ends_is_compared_in_blocks(tmp_path: Path) -> None:
    folder = write_run(tmp_path, "one")
    (folder / "other.txt").touch()
    os.truncate(folder / "other.txt", 64 << 20)
    run = read_run(folder)
    assert run.manifest is not None
    artifact = {"path": "other.txt", "bytes": 64 << 20, "sha256": "0" * 64, "role": "other"}
    write_json(folder / "run_manifest.json", {**run.manifest, "artifacts": [artifact]})
    run = read_run(folder)
    tracemalloc.start()
    [problem] = find_code(run, "TP201")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (Path(problem.file).name, peak < 16 << 20) == ("other.txt", True)


def nest(flat: dict[str, Any]) -> dict[str, Any]:
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


def add_effective_group(facts: Run, **changed: Any) -> Run:
    manifest = facts.manifest or {}
    group = nest(settings_in_manifest(manifest) | changed)
    return replace(facts, manifest=manifest | {"effective": group})


def test_manifest_paths_are_settings_and_fields(facts: Run):
    keys = schema("train_config")["properties"]
    for key in MANIFEST_PATHS:
        group, _, name = key.partition(".")
        assert name in keys[group]["properties"] if name else group in keys
    # A run of 1.0 stacks no layers, has one way of attention and of moments, and states nothing of them.
    later = {"memory.layers", "memory.attention", "optimizer.state"}
    assert settings_in_manifest(facts.manifest or {}).keys() == MANIFEST_PATHS.keys() - later


def test_honest_run_has_no_differences_in_either_version(facts: Run):
    for version in (facts, add_effective_group(facts)):
        found = compare_settings(version.config, version.manifest)
        assert {key for key, one in found.items() if one.state == "differs"} == set()
        assert found["batch.microbatch_size"].state == "same"
        assert find_code(version, "TP303") == []


def test_one_device_has_nothing_to_shard(facts: Run):
    divided = compare_settings({"mesh": {"shard_params": True}}, facts.manifest)["mesh.shard_params"]
    assert (divided.declared, divided.effective, divided.state) == (True, False, "open")


@pytest.mark.parametrize(
    ("code", "group", "name", "value"),
    [("TP303", "optimizer", "beta1", 0.8), ("TP377", "batch", "microbatch_size", 99)],
    ids=["without a field of the manifest", "with one"],
)
def test_changed_effective_setting_is_found(facts: Run, code: str, group: str, name: str, value: float):
    (problem,) = find_code(add_effective_group(facts, **{f"{group}.{name}": value}), code)
    assert problem.pointer == f"/effective/{group}/{name}"


def test_settings_before_the_step_is_compiled(facts: Run):
    started = {"mode": "full", "devices": {"platform": "cpu", "count": 1}, "training": None, "model": None}
    assert effective_settings(started) == {"mode": "full", "mesh.device": "cpu", "mesh.devices": 1}
    assert compare_settings(facts.config, started)["limits.steps"].state == "open"


def test_settings_and_figures_have_dotted_names(facts: Run):
    settings, figures = scalar_settings(facts), collect_figures(facts)
    assert settings["optimizer.learning_rate"] == facts.config["optimizer"]["learning_rate"]
    assert "model.name" in settings
    assert not [name for name, value in settings.items() if isinstance(value, list | dict)]
    assert figures["last.loss"] == facts.metrics[-1]["loss"]
    assert figures["result.mean_loss"] == facts.manifest["result"]["mean_loss"]
    assert figures["score.exact_match"] == facts.eval_summary["metrics"]["exact_match"]["value"]
    assert figures["baseline.exact_match"] == 0.0
    assert "last.device_memory_bytes" not in figures, "null is no figure"

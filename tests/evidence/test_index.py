"""Checking and listing many runs, with worker processes and a cache on disk."""

import json
import os
import shutil
import subprocess
import sys
from contextlib import nullcontext
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from mutations import apply, reseal
from refusals import catch_problems
from synthetic import STARTED, write_run

from evidence.grade import check_run, judge
from evidence.hashes import make_seal, sha256_manifest
from evidence.index import index as index_module
from evidence.index.index import (
    FolderState,
    IndexEntry,
    KnownRun,
    RunIndex,
    check_paths,
    folder_state,
    index_folder,
    iter_entries,
    load_cache,
    read_entry,
    save_cache,
)
from evidence.index.summary import MAX_POINTS, summarize
from evidence.lock import RunLock
from evidence.run import read_run
from schemas.problems import all_rules


def write_many(root: Path, count: int) -> list[Path]:
    return [
        write_run(root, f"run-{number:02d}", seed=number, started=STARTED + timedelta(minutes=number))
        for number in range(count)
    ]


def write_changed_copy(original: Path, copy: Path) -> Path:
    """Copy a run and let the copy state something else, without touching what is checked by a hash."""
    shutil.copytree(original, copy)
    apply(copy, {"file": "run_manifest.json", "pointer": "/dataset/split", "value": "validation"})
    return copy


def problems_in(report: object) -> list[tuple[str, str, str]]:
    return [(problem.code, problem.severity, problem.what) for problem in report.all_findings]


def test_other_folders_among_runs_are_noted_and_a_folder_without_runs_is_an_error(tmp_path: Path) -> None:
    run = write_run(tmp_path, "run")
    (tmp_path / "README.md").write_text("# Runs\n")
    (tmp_path / ".launch").mkdir()
    (tmp_path / "figures").mkdir()
    report = check_paths([tmp_path])
    assert report.ok
    assert [(run.path.name, run.grade.name) for run in report.runs] == [("figures", "not a run"), ("run", "consistent")]
    assert problems_in(report) == [("TP502", "note", "figures holds none of the files that a run writes.")]
    shutil.rmtree(run)
    for path in (tmp_path, tmp_path / "figures"):
        report = check_paths([path])
        assert problems_in(report) == [("TP501", "error", f"{path.name} holds none of the files that a run writes.")]
        assert report.runs[0].grade.name == "not a run"


def test_missing_and_unknown_files_are_refused_together(tmp_path: Path) -> None:
    (tmp_path / "bundle.zip").write_bytes(b"")
    (tmp_path / "notes.txt").write_text("")
    problems = catch_problems(lambda: check_paths([tmp_path / name for name in ("absent", "bundle.zip", "notes.txt")]))
    assert [problem.code for problem in problems] == ["TP091"] * 3
    assert problems[1].next == f"Use `trainproof verify {tmp_path}/bundle.zip`."


def test_single_documents_are_validated(tmp_path: Path) -> None:
    folder = write_run(tmp_path, "run")
    apply(folder, {"file": "metrics.jsonl", "line": 3, "pointer": "/step", "value": "3"})
    names = ("config.yaml", "metrics.jsonl", "run_manifest.json")
    report = check_paths([folder / name for name in names])
    assert report.runs == ()
    assert problems_in(report) == [("TP120", "error", '"3" is not a whole number.')]
    assert [len(entry["findings"]) for entry in report.to_json()["documents"]] == [0, 1, 0]


def test_manifest_changed_after_the_seal(tmp_path: Path) -> None:
    folder = write_run(tmp_path, "run")
    manifest = json.loads((folder / "run_manifest.json").read_text())
    fields = {"manifest_sha256": sha256_manifest(manifest)}
    event = {"time": manifest["finished_at"], "level": "info", "event": "run_sealed", "message": "", "fields": fields}
    apply(folder, {"file": "log.jsonl", "append": json.dumps(event) + "\n"})
    reseal(folder, [])
    before = {problem.code for problem in check_paths([folder]).all_findings}
    assert "TP212" not in before
    apply(folder, {"file": "run_manifest.json", "pointer": "/dataset/split", "value": "test"})
    report = check_paths([folder])
    assert {problem.code for problem in report.all_findings} - before == {"TP212"}
    assert report.runs[0].grade.name == "contradictory"


def test_changed_copy_and_original_contradict_each_other(tmp_path: Path) -> None:
    original, _ = write_many(tmp_path, 2)
    write_changed_copy(original, tmp_path / "copy")
    report = check_paths([tmp_path])
    assert [run.grade.name for run in report.runs] == ["contradictory", "contradictory", "consistent"]
    found_in = [(run.path.name, [problem.code for problem in run.findings]) for run in report.runs]
    assert found_in == [("copy", ["TP421", "TP309", "TP302"]), ("run-00", ["TP421", "TP309"]), ("run-01", [])]
    assert report.runs[0].grade.reasons == (
        "metrics.jsonl: Every row of copy has the time and the loss of the same row in run-00.",
        "run_manifest.json: copy has the same run id as run-00: run-00.",
    )


def test_unchanged_copy_is_only_noted(tmp_path: Path) -> None:
    original, _ = write_many(tmp_path, 2)
    shutil.copytree(original, tmp_path / "run-00-backup")
    what = "run-00-backup is an unchanged copy of run-00."
    report = check_paths([tmp_path])
    assert {run.grade.name for run in report.runs} == {"consistent"}
    assert [one for one in problems_in(report) if one[0] != "TP302"] == [("TP423", "note", what)] * 2
    # One changed number makes it another run's statement.
    apply(tmp_path / "run-00-backup", {"file": "predictions.jsonl", "line": 1, "pointer": "/output_text", "value": "?"})
    grades = {run.path.name: run.grade.name for run in check_paths([tmp_path]).runs}
    assert grades == {"run-00": "contradictory", "run-00-backup": "contradictory", "run-01": "consistent"}


def test_listed_file_that_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write_run(tmp_path, "run")

    def refuse(path: Path) -> str:
        raise OSError(5, "Input/output error", str(path))

    monkeypatch.setattr("evidence.rules.files.sha256_file", refuse)
    report = check_paths([folder])
    assert ("TP210", "error", "plan.json cannot be read: Input/output error.") in problems_in(report)
    assert report.runs[0].grade.name == "partial"


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ({"manifest": {"training": {"donation": {"aliased_bytes": 0, "effective": False}}}}, "TP304"),
        ({"eval_summary": {"status": "partial", "eval_set": {"items": 20}}}, "TP514"),
        ({"run_id": "other"}, "TP302"),
    ],
)
def test_warnings_and_notes_do_not_fail_a_check(tmp_path: Path, arguments: dict[str, Any], code: str) -> None:
    name = arguments.pop("run_id", "run")
    report = check_paths([write_run(tmp_path, name, **arguments).rename(tmp_path / "run")])
    assert report.ok
    assert {problem.code for problem in report.all_findings} == {code}


def test_every_code_has_a_case() -> None:
    cases = Path(__file__).parents[1] / "cases"
    text = "".join(path.read_text("utf-8") for path in cases.rglob("problem.txt"))
    text += "".join(path.read_text("utf-8") for path in Path(__file__).parents[1].rglob("test_*.py"))
    assert [code for code in all_rules() if code[2] in "23456" and code not in text] == []


def test_line_of_a_run(tmp_path: Path) -> None:
    device = {"kind": "TPU v5e", "list": [{"id": 0, "kind": "TPU v5e"}]}
    plan = {"target": {"name": "TPU v5e"}}
    folder = write_run(tmp_path, "run", steps=100, items=100, manifest={"devices": device}, plan=plan)
    (summary,) = index_folder(tmp_path)
    assert (summary.path, summary.run_id, summary.grade) == (folder, "run", "consistent")
    assert (summary.mode, summary.status, summary.model, summary.method) == ("full", "succeeded", "own-model", "full")
    assert (summary.steps_done, summary.steps_planned, summary.tokens_seen) == (100, 100, 204_800)
    assert 0 <= summary.score_low < summary.score < summary.score_high <= 1
    assert (summary.baseline_score, summary.device, summary.duration_seconds) == (0.0, "TPU v5e", 74.0)
    assert summary.started_at == "2026-11-20T12:00:00.000000+00:00"
    assert (summary.problem_count, summary.first_problem) == (0, None)


def test_loss_curve_keeps_the_extremes_and_leaves_out_null(tmp_path: Path) -> None:
    folder = write_run(tmp_path, "run", steps=1000)
    apply(folder, {"file": "metrics.jsonl", "line": 517, "pointer": "/loss", "value": 99.0})
    apply(folder, {"file": "metrics.jsonl", "line": 1000, "pointer": "/loss", "value": None})
    (summary,) = index_folder(tmp_path)
    assert len(summary.loss_points) == MAX_POINTS
    assert max(summary.loss_points) == 99.0
    assert summary.last_loss is None
    short = write_run(tmp_path / "short", "run", steps=7)
    assert len(index_folder(short.parent)[0].loss_points) == 7


def test_newest_run_is_first_and_broken_folders_have_their_problem(tmp_path: Path) -> None:
    for number, name in enumerate(("old", "new", "broken")):
        write_run(tmp_path, name, seed=number, started=STARTED + timedelta(days=number))
    (tmp_path / "broken" / "run_manifest.json").write_text("{")
    (tmp_path / "figures").mkdir()
    summaries = index_folder(tmp_path)
    assert [(summary.path.name, summary.grade) for summary in summaries] == [
        ("new", "consistent"),
        ("old", "consistent"),
        ("figures", "not a run"),
        ("broken", "partial"),
    ]
    assert summaries[2].first_problem is not None


def test_only_changed_folders_are_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folders = write_many(tmp_path, 4)
    index = RunIndex(tmp_path)
    first = index.refresh()
    read: list[str] = []

    def watched(folder: Path) -> object:
        read.append(folder.name)
        return read_run(folder)

    monkeypatch.setattr("evidence.index.index.read_run", watched)
    assert index.refresh() == first
    assert read == []
    apply(folders[2], {"file": "metrics.jsonl", "line": 1, "pointer": "/loss", "value": 1.0})
    assert {summary.path.name: summary.grade for summary in index.refresh()}["run-02"] == "contradictory"
    assert read == ["run-02"]
    shutil.rmtree(folders[0])
    assert [summary.path.name for summary in index.refresh()] == ["run-03", "run-02", "run-01"]
    assert read == ["run-02"]


def test_folder_of_a_run_lists_that_run_and_a_missing_folder_is_refused(tmp_path: Path) -> None:
    run = write_run(tmp_path, "run")
    (run / "receipts").mkdir()
    (run / "receipts" / "replay.json").write_text("{}")
    assert index_folder(run) == index_folder(tmp_path)
    assert RunIndex(tmp_path / "absent").refresh() == []
    catch_problems(lambda: index_folder(tmp_path / "absent"))


def test_absurd_values_do_not_stop_the_list(tmp_path: Path) -> None:
    write_run(
        tmp_path,
        "run",
        manifest={"started_at": "yesterday", "devices": {"count": 10**400, "kind": 7}, "training": {"steps_done": "x"}},
        eval_summary={"metrics": {"exact_match": {"value": 10**400}}},
    )
    (summary,) = index_folder(tmp_path)
    assert (summary.steps_done, summary.device, summary.score) == (None, None, None)
    assert summary.problem_count > 0


@pytest.mark.parametrize("is_at_work", [True, False], ids=["at work", "at its end"])
def test_running_run_is_throttled_only_on_request(tmp_path, monkeypatch, is_at_work):
    folder = write_run(tmp_path, "run")
    monkeypatch.setattr("evidence.index.index.REST", 1e9)
    index = RunIndex(tmp_path)
    with RunLock(folder) if is_at_work else nullcontext():
        assert [summary.grade for summary in index.refresh(rest=True)] == ["consistent"]
        monkeypatch.setattr("evidence.index.index.LONG_SECONDS", -1.0)
        assert index.is_current(folder)
        apply(folder, {"file": "metrics.jsonl", "line": 1, "pointer": "/loss", "value": 1.0})
        assert index.is_current(folder) == is_at_work
        grades = [summary.grade for summary in index.refresh(rest=True)]
        assert grades == ["consistent" if is_at_work else "contradictory"]
        assert [summary.grade for summary in index.refresh()] == ["contradictory"]
        assert index.is_current(folder)
    shutil.rmtree(folder)
    assert not index.is_current(folder)
    assert not index.is_current(tmp_path / "absent")


def test_long_runs_are_read_last_and_a_requested_one_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number, name in enumerate(("short", "long-1", "long-2", "long-3")):
        write_run(tmp_path, name, seed=number, steps=2)
    monkeypatch.setattr("evidence.index.index.LONG_BYTES", 100_000)
    for number, name in enumerate(("long-3", "long-2", "long-1")):
        (tmp_path / name / "large.txt").write_bytes(bytes(200_000))
        os.utime(tmp_path / name / "large.txt", (number + 3e9, number + 3e9))
    index, order, changed = RunIndex(tmp_path), list[str](), list[str]()
    monkeypatch.setattr("evidence.index.index.iter_entries", lambda folders: map(read, folders))

    def read(folder: Path) -> IndexEntry:
        order.append(folder.name)
        if folder.name == "long-1" and index.latest:
            changed.extend(name for name in index.names() if not index.is_current(tmp_path / name))
        if folder.name == "long-1":
            index.asked = frozenset({"long-3"})
        return IndexEntry(judged=judge(run := read_run(folder)), summary=summarize(run, check_run(run)))

    index.refresh()
    assert order == ["short", "long-1", "long-3", "long-2"]
    (tmp_path / "short" / "notes.json").write_text("{")
    (tmp_path / "long-1" / "notes.json").write_text("{")
    index.refresh()
    assert changed == ["long-1"], "the short run is judged again before the long one is read"


def test_a_requested_run_comes_first_in_a_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_many(tmp_path, 3)
    monkeypatch.setattr("evidence.index.index.WORTH_A_PROCESS", 1)
    batches, read_all = list[list[str]](), iter_entries

    def read(folders: list[Path]) -> Any:
        batches.append([folder.name for folder in folders])
        monkeypatch.setattr("evidence.index.index.WORTH_A_PROCESS", 99)  # no worker
        return read_all(folders)

    monkeypatch.setattr("evidence.index.index.iter_entries", read)
    index = RunIndex(tmp_path)
    index.asked = frozenset({"run-00"})  # written before the others
    index.refresh()
    assert batches == [["run-00", "run-02", "run-01"]]


def test_links_are_ignored_on_request(tmp_path: Path) -> None:
    outside = write_run(tmp_path / "outside", "run")
    root = tmp_path / "root"
    root.mkdir()
    (root / "link").symlink_to(outside)
    assert [summary.path.name for summary in RunIndex(root).refresh()] == ["link"]
    assert RunIndex(root, follow_links=False).refresh() == []


def test_partial_results_start_with_the_runs_written_last(tmp_path: Path) -> None:
    names = [f"run-{number:02}" for number in range(30)]
    for number, name in enumerate(names):
        for file in write_run(tmp_path, name, seed=number, steps=2).iterdir():
            os.utime(file, (number, number))
    long = tmp_path / names[-1] / "metrics.jsonl"
    long.write_bytes(long.read_bytes() * 20_000)
    os.utime(long, (99, 99))
    index = RunIndex(tmp_path)
    seen: list[set[str]] = []
    index.refresh(progress=lambda done, total: seen.append({run.path.name for run in index.partial()}))
    assert [len(some) for some in seen] == list(range(1, 31))
    order = [next(iter(now - before)) for before, now in zip([set[str](), *seen], seen, strict=False)]
    newest_first = names[::-1]
    assert order == [*newest_first[1:], newest_first[0]], "a long run lets all others go first"
    assert {run.path.name for run in index.partial()} == set(names)
    (tmp_path / "run-07" / "notes.json").write_text("{")
    index.refresh(progress=lambda done, total: seen.append({run.path.name for run in index.partial()}))
    assert seen[-1] == set(names), "what is known already is there from the first moment"


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(index_module, "WORTH_SAVING_SECONDS", 0.0)
    write_many(tmp_path / "runs", 3)
    apply(tmp_path / "runs" / "run-01", {"file": "metrics.jsonl", "line": 1, "pointer": "/loss", "value": 1.0})
    (tmp_path / "runs" / "damaged").mkdir()
    (tmp_path / "runs" / "damaged" / "run_manifest.json").write_text("{")
    return tmp_path / "runs"


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the names of the folders that were really read."""
    names: list[str] = []

    def watched(folder: Path) -> IndexEntry:
        names.append(folder.name)
        return read_entry(folder)

    monkeypatch.setattr("evidence.index.index.read_entry", watched)
    return names


def test_cached_runs_are_not_read_again(root: Path, read: list[str], tmp_path: Path) -> None:
    first = RunIndex(root, cached_in=tmp_path / "kept")
    summaries = first.refresh()
    assert sorted(read) == ["damaged", "run-00", "run-01", "run-02"]
    read.clear()
    second = RunIndex(root, cached_in=tmp_path / "kept")
    assert second.refresh() == summaries
    assert read == []
    assert [second.report(one.path) for one in summaries] == [first.report(one.path) for one in summaries]
    assert {one.path.name: one.grade for one in summaries}["run-01"] == "contradictory"


def test_interrupted_refresh_is_cached(root: Path, read: list[str], tmp_path: Path) -> None:
    def stop(done: int, total: int) -> None:
        assert total == 4
        if done == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        RunIndex(root, cached_in=tmp_path / "kept").refresh(progress=stop)
    before, read[:] = set(read), []
    assert len(RunIndex(root, cached_in=tmp_path / "kept").refresh()) == 4
    assert read == sorted({"damaged", "run-00", "run-01", "run-02"} - before)
    assert len(read) == 1


def test_first_reading_is_cached_on_the_way(root: Path, tmp_path: Path) -> None:
    folder, cached = tmp_path / "kept", list[int]()
    states = {path.name: folder_state(str(path)) for path in root.iterdir()}
    index = RunIndex(root, cached_in=folder)
    index.refresh(progress=lambda done, total: cached.append(len(load_cache(folder, root, states))))
    assert cached == [1, 2, 2, 4], "written again whenever the number of runs has doubled"


def test_cache_replaces_those_of_earlier_versions_and_has_a_seal_of_its_own(root, read, tmp_path):
    folder = tmp_path / "kept"
    folder.mkdir()
    (folder / "0123.jsonl").write_text("{}\n")
    RunIndex(root, cached_in=folder).refresh()
    (file,) = folder.iterdir()
    content = file.read_bytes()[64:]
    file.write_bytes(make_seal(index_module._code_digest() + content).encode() + content)
    read.clear()
    RunIndex(root, cached_in=folder).refresh()
    assert len(read) == 4


def test_reset_mtime_does_not_hide_a_change(root: Path, read: list[str], tmp_path: Path) -> None:
    RunIndex(root, cached_in=tmp_path / "kept").refresh()
    read.clear()
    metrics = root / "run-00" / "metrics.jsonl"
    before = metrics.stat()
    text = metrics.read_bytes()
    metrics.write_bytes(text.replace(b'"step": 1,', b'"step": 7,', 1))
    os.utime(metrics, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert metrics.stat().st_size == before.st_size
    grades = {one.path.name: one.grade for one in RunIndex(root, cached_in=tmp_path / "kept").refresh()}
    assert grades["run-00"] == "contradictory"
    assert read == ["run-00"]


def test_other_code_reads_again(root: Path, read: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    RunIndex(root, cached_in=tmp_path / "kept").refresh()
    read.clear()
    monkeypatch.setattr(index_module, "_code_digest", lambda: b"a release that judges otherwise")
    RunIndex(root, cached_in=tmp_path / "kept").refresh()
    assert len(read) == 4


@pytest.mark.parametrize("damage", [b"", b"\x00", b"not an entry", None])
def test_damaged_cache_is_ignored(root: Path, read: list[str], tmp_path: Path, damage: bytes | None) -> None:
    folder = tmp_path / "kept"
    summaries = RunIndex(root, cached_in=folder).refresh()
    (file,) = folder.iterdir()
    file.write_bytes(file.read_bytes()[:-100] if damage is None else damage)
    read.clear()
    assert RunIndex(root, cached_in=folder).refresh() == summaries
    assert len(read) == 4


def test_entry_is_valid_for_one_state_of_one_folder_and_keeps_odd_values(root: Path, tmp_path: Path) -> None:
    entry = read_entry(root / "run-00")
    huge = replace(entry, summary=replace(entry.summary, steps_done=10**30))
    half = replace(entry, summary=replace(entry.summary, model="\ud800", last_loss=float("inf")))
    state, later = FolderState(False, (("a", 1, 2, 3),)), FolderState(False, (("a", 1, 3, 3),))
    known = {
        name: KnownRun(state=state, entry=one) for name, one in {"huge": huge, "half": half, "run-0": entry}.items()
    }
    save_cache(tmp_path / "kept", root, known)
    assert load_cache(tmp_path / "kept", root, dict.fromkeys(known, state)) == known
    assert load_cache(tmp_path / "kept", root, {"run-0": later}) == {}
    assert load_cache(tmp_path / "kept", root.parent, {"run-0": state}) == {}


def test_folder_names_that_are_not_utf_8(root: Path, tmp_path: Path) -> None:
    folder = root / os.fsdecode(b"run-\xff")
    (root / "run-00").rename(folder)
    found = RunIndex(root, cached_in=tmp_path / "kept").refresh()
    assert RunIndex(root, cached_in=tmp_path / "kept").refresh() == found
    assert folder in {one.path for one in found}


@pytest.fixture
def folders(tmp_path: Path) -> list[Path]:
    found = write_many(tmp_path, 7)
    (found[3] / "run_manifest.json").write_text("{")
    return found


@pytest.fixture
def helpers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_module, "WORTH_A_PROCESS", 2)
    monkeypatch.setattr(index_module, "FIRST", 1)
    monkeypatch.setattr("evidence.index.index.processors", lambda: 3)


def test_workers_give_the_same_entries_in_the_same_order(folders: list[Path], helpers: None) -> None:
    assert list(iter_entries(folders)) == [read_entry(folder) for folder in folders]
    assert [run.path for run in check_paths(folders).runs] == folders


def test_runs_of_a_dead_worker_are_read_here(folders, helpers, monkeypatch, tmp_path):
    for command in ("/bin/false", str(tmp_path / "absent")):
        monkeypatch.setattr("sys.executable", command)
        assert [entry.summary.run_id for entry in iter_entries(folders)] == [folder.name for folder in folders]


WORKER = "from evidence.index import index as i; import io, json, sys; read = i.read_entry; "
NOISY_READER = f"{WORKER} i.read_entry = lambda folder: (print('noise'), read(folder))[1]; i.worker_main()"
OTHER_FOLDERS = f"{WORKER} sys.stdin = io.StringIO(json.dumps(json.load(sys.stdin)[::-1])); i.worker_main()"


@pytest.mark.parametrize(
    ("script", "read_here"),
    [
        ('{python} -c "$NOISY_READER"', 1),
        ('echo noise; {python} "$@"', 7),
        ('{python} "$@" | head -c 300', 7),
        ('{python} "$@" | tr A B', 7),
        ('{python} -c "$OTHER_FOLDERS"', 7),
    ],
    ids=["a library prints", "noise", "cut off", "other bytes", "other folders"],
)
def test_output_of_a_worker_that_is_no_entry_is_not_used(
    script, read_here, folders, helpers, read, tmp_path, monkeypatch
):
    worker = tmp_path / "worker"
    worker.write_text(f"#!/bin/sh\n{script.format(python=sys.executable)}\n")
    worker.chmod(0o755)
    monkeypatch.setenv("NOISY_READER", NOISY_READER)
    monkeypatch.setenv("OTHER_FOLDERS", OTHER_FOLDERS)
    monkeypatch.setattr("sys.executable", str(worker))
    assert list(iter_entries(folders)) == [read_entry(folder) for folder in folders]
    assert len(read) == read_here


def test_interpreter_exits_without_waiting_for_workers(folders: list[Path], tmp_path: Path) -> None:
    slow = tmp_path / "slow"
    slow.write_text("#!/bin/sh\ncat > /dev/null\n")  # It answers nothing until its own reader has gone.
    slow.chmod(0o755)
    code = (
        "import sys; from pathlib import Path; from evidence.index import index\n"
        "index.WORTH_A_PROCESS, index.FIRST, index.processors = 2, 1, lambda: 3\n"
        "sys.executable = sys.argv[1]\n"
        "entries = index.iter_entries([Path(name) for name in sys.argv[2:]])\n"
        "print(next(entries).summary.path.name)\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code, str(slow), *map(str, folders)], capture_output=True, text=True, timeout=30
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "run-00\n", "")

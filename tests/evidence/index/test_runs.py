"""The list of runs: what each line says, what is read again, and how a broken folder appears."""

from __future__ import annotations

import fcntl
import gc
import os
import shutil
from contextlib import nullcontext
from datetime import timedelta
from pathlib import Path

import pytest
from mutations import apply
from synthetic import STARTED, write_run

from evidence.index.entries import IndexEntry
from evidence.index.runs import MOST_POINTS, RunIndex, index_folder, index_runs, summary_of
from evidence.judge.judgement import judge, report_of
from evidence.records.ours import read_run
from evidence.run.lock import RunLock
from schemas.problems import ProblemError


def test_line_of_a_run(tmp_path: Path) -> None:
    folder = write_run(
        tmp_path,
        "run",
        steps=100,
        items=100,
        manifest={"devices": {"kind": "TPU v5e", "list": [{"id": 0, "kind": "TPU v5e"}]}},
        plan={"target": {"name": "TPU v5e"}},
    )
    (summary,) = index_runs(tmp_path)
    assert (summary.path, summary.run_id, summary.grade) == (folder, "run", "consistent")
    assert (summary.mode, summary.status, summary.model, summary.method) == ("full", "succeeded", "own-model", "full")
    assert summary.device == "TPU v5e"
    assert (summary.steps_done, summary.steps_planned, summary.tokens_seen) == (100, 100, 204_800)
    assert summary.score is not None
    assert summary.score_low is not None
    assert summary.score_high is not None
    assert 0 <= summary.score_low < summary.score < summary.score_high <= 1
    assert summary.baseline_score == 0.0
    assert summary.duration_seconds == 74.0
    assert summary.started_at == "2026-11-20T12:00:00.000000+00:00"
    assert (summary.problem_count, summary.first_problem) == (0, None)


def test_a_loss_that_ended_as_no_number_is_none(tmp_path: Path) -> None:
    folder = write_run(tmp_path, "run", steps=100)
    apply(folder, {"file": "metrics.jsonl", "line": 100, "pointer": "/loss", "value": None})
    (summary,) = index_runs(tmp_path)
    assert summary.last_loss is None
    assert None not in summary.loss_points


def test_sparkline_keeps_the_extremes(tmp_path: Path) -> None:
    folder = write_run(tmp_path, "run", steps=1000)
    apply(folder, {"file": "metrics.jsonl", "line": 517, "pointer": "/loss", "value": 99.0})
    (summary,) = index_runs(tmp_path)
    assert len(summary.loss_points) == MOST_POINTS
    assert max(summary.loss_points) == 99.0
    short = write_run(tmp_path / "short", "run", steps=7)
    assert len(index_runs(short.parent)[0].loss_points) == 7


def test_newest_first_and_broken_folders_with_their_problem(tmp_path: Path) -> None:
    for number, name in enumerate(("old", "new")):
        write_run(tmp_path, name, seed=number, started=STARTED + timedelta(days=number))
    broken = write_run(tmp_path, "broken", seed=9)
    (broken / "run_manifest.json").write_text("{")
    (tmp_path / "figures").mkdir()
    summaries = index_runs(tmp_path)
    assert [(summary.path.name, summary.grade) for summary in summaries] == [
        ("new", "consistent"),
        ("old", "consistent"),
        ("figures", "not a run"),
        ("broken", "partial"),
    ]
    problem = summaries[2].first_problem
    assert problem is not None
    assert problem.what == "figures holds none of the files that a run writes."


def test_score_that_cannot_be_traced_is_not_shown(tmp_path: Path) -> None:
    write_run(tmp_path, "run", eval_summary={"metrics": {"exact_match": {"value": 0.99}}})
    (summary,) = index_runs(tmp_path)
    assert (summary.grade, summary.score, summary.score_low, summary.baseline_score) == (
        "contradictory",
        None,
        None,
        None,
    )


def test_only_changed_folders_are_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folders = [
        write_run(tmp_path, f"run-{number}", seed=number, started=STARTED + timedelta(hours=number))
        for number in range(4)
    ]
    index = RunIndex(tmp_path)
    first = index.refresh()
    read: list[str] = []

    def watched(folder: Path) -> object:
        read.append(folder.name)
        return read_run(folder)

    from evidence.index.parallel import read_run

    monkeypatch.setattr("evidence.index.parallel.read_run", watched)
    assert index.refresh() == first
    assert read == []
    apply(folders[2], {"file": "metrics.jsonl", "line": 1, "pointer": "/loss", "value": 1.0})
    assert {summary.path.name: summary.grade for summary in index.refresh()}["run-2"] == "contradictory"
    assert read == ["run-2"]
    shutil.rmtree(folders[0])
    assert [summary.path.name for summary in index.refresh()] == ["run-3", "run-2", "run-1"]
    assert read == ["run-2"]


def test_end_of_a_process_is_noticed_without_a_change_of_files(tmp_path: Path) -> None:
    folder = write_run(tmp_path, "run", status="running")
    (folder / "run.lock").touch()
    index = RunIndex(tmp_path)
    with (folder / "run.lock").open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert [summary.status for summary in index.refresh()] == ["running"]
    assert [summary.status for summary in index.refresh()] == ["interrupted"]


def test_rows_are_ahead_of_the_manifest_while_a_run_is_under_way(tmp_path: Path) -> None:
    folder = write_run(tmp_path, "run", status="running", manifest={"training": {"steps_done": 0}})
    with RunLock(folder):
        (summary,) = index_runs(tmp_path)
    assert (summary.steps_done, summary.steps_planned, summary.tokens_seen) == (10, 20, 20_480)
    assert summary.duration_seconds == 9.0


def test_copies_are_seen_in_the_list_too(tmp_path: Path) -> None:
    shutil.copytree(write_run(tmp_path, "run"), tmp_path / "copy")
    assert [summary.grade for summary in index_runs(tmp_path)] == ["consistent", "consistent"]
    apply(tmp_path / "copy", {"file": "run_manifest.json", "pointer": "/dataset/split", "value": "validation"})
    assert [summary.grade for summary in index_runs(tmp_path)] == ["contradictory", "contradictory"]


def test_root_that_is_not_there_has_no_runs(tmp_path: Path) -> None:
    assert index_runs(tmp_path / "absent") == []
    with pytest.raises(ProblemError) as refused:
        index_folder(tmp_path / "absent")
    assert refused.value.exit_code == 2


def test_a_runs_own_folder_is_a_list_of_that_run(tmp_path: Path) -> None:
    """Its folders of checkpoints and receipts are not runs."""
    run = write_run(tmp_path, "run")
    (run / "receipts").mkdir()
    (run / "receipts" / "replay.json").write_text("{}")
    assert index_folder(run) == index_folder(tmp_path)


def test_root_that_cannot_be_read_is_listed_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr("evidence.index.runs.os.scandir", refuse)
    (summary,) = index_runs(tmp_path)
    assert summary.first_problem is not None
    assert summary.first_problem.what == "The folder cannot be read: Permission denied."


def test_nonsense_values_do_not_stop_the_list(tmp_path: Path) -> None:
    write_run(
        tmp_path,
        "run",
        manifest={"started_at": "yesterday", "devices": {"count": 10**400, "kind": 7}, "training": {"steps_done": "x"}},
        eval_summary={"metrics": {"exact_match": {"value": 10**400}}},
    )
    (summary,) = index_runs(tmp_path)
    assert (summary.steps_done, summary.device, summary.score) == (None, None, None)
    assert summary.problem_count > 0


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no named pipes")
def test_named_pipe_does_not_block_the_list(tmp_path: Path) -> None:
    folder = write_run(tmp_path, "run")
    (folder / "metrics.jsonl").unlink()
    os.mkfifo(folder / "metrics.jsonl")
    assert [summary.grade for summary in index_runs(tmp_path)] == ["partial"]


@pytest.mark.parametrize("is_at_work", [True, False], ids=["at work", "at its end"])
def test_a_run_that_is_at_work_rests_for_who_asks_every_second_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_at_work: bool
) -> None:
    folder = write_run(tmp_path, "run")
    monkeypatch.setattr("evidence.index.runs.REST", 1e9)
    index = RunIndex(tmp_path)
    with RunLock(folder) if is_at_work else nullcontext():
        assert [summary.grade for summary in index.refresh(rest=True)] == ["consistent"]
        monkeypatch.setattr("evidence.index.runs.LONG_SECONDS", -1.0)
        index._looked_at = -1e12
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


def test_unchanged_runs_are_the_same_objects_and_reports_are_kept(tmp_path: Path) -> None:
    folders = [
        write_run(tmp_path, f"run-{number}", seed=number, started=STARTED + timedelta(hours=number))
        for number in range(3)
    ]
    index = RunIndex(tmp_path)
    first = {summary.path: summary for summary in index.refresh()}
    apply(folders[0], {"file": "metrics.jsonl", "line": 1, "pointer": "/loss", "value": 1.0})
    again = {summary.path: summary for summary in index.refresh()}
    assert [again[folder] is first[folder] for folder in folders] == [False, True, True]
    reports = [index.report(folder) for folder in folders]
    assert [report.grade.name for report in reports if report] == ["contradictory", "consistent", "consistent"]
    assert index.report(tmp_path / "absent") is None


def test_a_look_does_not_wait_for_the_collector(tmp_path: Path) -> None:
    write_run(tmp_path, "run")
    on: list[bool] = []
    RunIndex(tmp_path).refresh(progress=lambda _done, _total: on.append(gc.isenabled()))
    assert on == [False]
    assert gc.isenabled()


def test_a_long_run_holds_up_no_other_and_comes_next_when_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number, name in enumerate(("short", "long-1", "long-2", "long-3")):
        write_run(tmp_path, name, seed=number, steps=2)
    monkeypatch.setattr("evidence.index.runs.LONG_BYTES", 100_000)
    for number, name in enumerate(("long-3", "long-2", "long-1")):
        (tmp_path / name / "large.txt").write_bytes(bytes(200_000))
        os.utime(tmp_path / name / "large.txt", (number + 3e9, number + 3e9))
    index, order, changed = RunIndex(tmp_path), list[str](), list[str]()
    monkeypatch.setattr("evidence.index.runs.read_batches", lambda folders, **_: map(read, folders))

    def read(folder: Path) -> dict[Path, IndexEntry]:
        order.append(folder.name)
        if folder.name == "long-1" and index.latest:
            changed.extend(name for name in index.names() if not index.is_current(tmp_path / name))
        if folder.name == "long-1":
            index.asked = frozenset({"long-3"})
        return {folder: IndexEntry(judged=judge(run := read_run(folder)), summary=summary_of(run, report_of(run)))}

    index.refresh()
    assert order == ["short", "long-1", "long-3", "long-2"]
    (tmp_path / "short" / "notes.json").write_text("{")
    (tmp_path / "long-1" / "notes.json").write_text("{")
    index.refresh()
    assert changed == ["long-1"], "the short run is judged again before the long one is read"


def test_links_are_left_out_where_that_is_asked(tmp_path: Path) -> None:
    outside = write_run(tmp_path / "outside", "run")
    root = tmp_path / "root"
    root.mkdir()
    (root / "link").symlink_to(outside)
    assert [summary.path.name for summary in RunIndex(root).refresh()] == ["link"]
    assert RunIndex(root, follow_links=False).refresh() == []


def test_a_reading_says_what_it_has_so_far_and_begins_with_what_was_written_last(tmp_path: Path) -> None:
    names = [f"run-{number:02}" for number in range(30)]
    for number, name in enumerate(names):
        for file in write_run(tmp_path, name, seed=number, steps=2).iterdir():
            os.utime(file, (number, number))
    long = tmp_path / names[-1] / "metrics.jsonl"
    long.write_bytes(long.read_bytes() * 20_000)
    os.utime(long, (99, 99))
    index = RunIndex(tmp_path)
    seen: list[set[str]] = []
    index.refresh(progress=lambda done, total: seen.append({run.path.name for run in index.so_far()}))
    assert [len(some) for some in seen] == list(range(1, 31))
    order = [next(iter(now - before)) for before, now in zip([set[str](), *seen], seen, strict=False)]
    newest_first = names[::-1]
    assert order == [*newest_first[1:], newest_first[0]], "a long run lets all others go first"
    assert {run.path.name for run in index.so_far()} == set(names)
    (tmp_path / "run-07" / "notes.json").write_text("{")
    index.refresh(progress=lambda done, total: seen.append({run.path.name for run in index.so_far()}))
    assert seen[-1] == set(names), "what is known already is there from the first moment"

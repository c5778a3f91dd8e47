"""Checking runs, roots and single documents: what is looked at, what is refused, and what one run says of another."""

from __future__ import annotations

import json
import shutil
from datetime import timedelta
from pathlib import Path

import pytest
from mutations import apply, reseal
from synthetic import STARTED, write_run

from evidence.index.check import check_paths, run_folders
from evidence.judge.judgement import check_run
from evidence.records.ours import read_run
from evidence.run.hashes import sha256_manifest
from evidence.run.lock import RunLock
from schemas.problems import ProblemError, all_rules


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


def found(report: object) -> list[tuple[str, str, str]]:
    return [(problem.code, problem.severity, problem.what) for problem in report.all_findings]


def test_valid_runs_are_verified(tmp_path: Path) -> None:
    write_many(tmp_path, 3)
    report = check_paths([tmp_path])
    assert found(report) == []
    assert report.ok
    assert [run.grade.name for run in report.runs] == ["consistent"] * 3
    assert [run.path.name for run in report.runs] == ["run-00", "run-01", "run-02"]


def test_one_broken_of_fifty_hides_no_other(tmp_path: Path) -> None:
    folders = write_many(tmp_path, 50)
    (folders[20] / "run_manifest.json").write_bytes(b"\x00\xff" * 500)
    report = check_paths([tmp_path])
    assert not report.ok
    assert len(report.runs) == 50
    assert [run.path.name for run in report.runs if run.grade.name != "consistent"] == ["run-20"]
    errors = [problem for problem in report.all_findings if problem.severity == "error"]
    assert {Path(problem.file).parent.name for problem in errors} == {"run-20"}


def test_a_root_may_hold_other_things(tmp_path: Path) -> None:
    write_run(tmp_path, "run")
    (tmp_path / "README.md").write_text("# Runs\n")
    (tmp_path / ".launch").mkdir()
    (tmp_path / "figures").mkdir()
    report = check_paths([tmp_path])
    assert report.ok
    assert [(run.path.name, run.grade.name) for run in report.runs] == [("figures", "not a run"), ("run", "consistent")]
    assert found(report) == [("TP502", "note", "figures holds none of the files that a run writes.")]


def test_folder_without_runs_is_never_good(tmp_path: Path) -> None:
    (tmp_path / "figures").mkdir()
    for path in (tmp_path, tmp_path / "figures"):
        report = check_paths([path])
        assert not report.ok
        assert found(report) == [("TP501", "error", f"{path.name} holds none of the files that a run writes.")]
        assert report.runs[0].grade.name == "not a run"


def test_configuration_alone_makes_no_run(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("model: {name: demo}\n")
    write_run(tmp_path / "runs", "run")
    assert [run.grade.name for run in check_paths([tmp_path]).runs] == ["not a run"]
    assert [run.grade.name for run in check_paths([tmp_path / "runs"]).runs] == ["consistent"]


def test_what_is_not_there_is_refused_all_at_once(tmp_path: Path) -> None:
    (tmp_path / "bundle.zip").write_bytes(b"")
    (tmp_path / "notes.txt").write_text("")
    with pytest.raises(ProblemError) as refused:
        check_paths([tmp_path / "absent", tmp_path / "bundle.zip", tmp_path / "notes.txt"])
    assert refused.value.exit_code == 2
    assert [problem.what for problem in refused.value.problems] == [
        f"{tmp_path}/absent does not exist.",
        f"{tmp_path}/bundle.zip is a bundle, not a run.",
        f"{tmp_path}/notes.txt is not a document that trainproof writes, by its name.",
    ]
    assert refused.value.problems[1].next == f"Use `trainproof verify {tmp_path}/bundle.zip`."


def test_single_documents_are_held_against_their_schema(tmp_path: Path) -> None:
    folder = write_run(tmp_path, "run")
    apply(folder, {"file": "metrics.jsonl", "line": 3, "pointer": "/step", "value": "3"})
    names = ("config.yaml", "metrics.jsonl", "run_manifest.json")
    report = check_paths([folder / name for name in names])
    assert report.runs == ()
    assert found(report) == [("TP120", "error", '"3" is not a whole number.')]
    assert [len(entry["findings"]) for entry in report.to_json()["documents"]] == [0, 1, 0]


def test_manifest_that_was_changed_after_the_seal_is_found_by_the_log(tmp_path: Path) -> None:
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


def test_a_changed_copy_and_its_original_both_say_so(tmp_path: Path) -> None:
    original, _ = write_many(tmp_path, 2)
    write_changed_copy(original, tmp_path / "copy")
    report = check_paths([tmp_path])
    assert [run.grade.name for run in report.runs] == ["contradictory", "contradictory", "consistent"]
    found_in = [(run.path.name, [problem.code for problem in run.findings]) for run in report.runs]
    assert found_in == [("copy", ["TP421", "TP309", "TP302"]), ("run-00", ["TP421", "TP309"]), ("run-01", [])]
    assert report.runs[0].grade.reasons == (
        "metrics.jsonl: Every row of copy has the time and the loss of the same row in run-00.",
        "run_manifest.json: copy states the run id run-00, which is also that of run-00.",
    )


def test_an_unchanged_copy_is_a_note_and_leaves_both_grades(tmp_path: Path) -> None:
    original, _ = write_many(tmp_path, 2)
    shutil.copytree(original, tmp_path / "run-00-backup")
    what = "run-00-backup is an unchanged copy of run-00."
    report = check_paths([tmp_path])
    assert {run.grade.name for run in report.runs} == {"consistent"}
    assert [one for one in found(report) if one[0] != "TP302"] == [("TP423", "note", what)] * 2
    # One changed number makes it another run's statement.
    apply(tmp_path / "run-00-backup", {"file": "predictions.jsonl", "line": 1, "pointer": "/output_text", "value": "?"})
    grades = {run.path.name: run.grade.name for run in check_paths([tmp_path]).runs}
    assert grades == {"run-00": "contradictory", "run-00-backup": "contradictory", "run-01": "consistent"}


def test_two_ways_to_one_folder_are_one_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    original, _ = write_many(tmp_path, 2)
    (tmp_path / "latest").symlink_to(original.name)
    monkeypatch.chdir(original)
    report = check_paths([tmp_path, original, Path()])
    assert [(run.path.name, run.grade.name) for run in report.runs] == [
        ("latest", "consistent"),
        ("run-00", "consistent"),
        ("run-01", "consistent"),
        ("run-00", "consistent"),
        ("", "consistent"),
    ]


def test_a_copy_elsewhere_is_named_by_its_path(tmp_path: Path) -> None:
    original, _ = write_many(tmp_path / "here", 2)
    write_changed_copy(original, tmp_path / "there" / "run-00")
    there = check_paths([tmp_path / "here", tmp_path / "there"]).runs[-1]
    assert there.grade.reasons == (
        f"metrics.jsonl: Every row of run-00 has the time and the loss of the same row in {original}.",
        f"run_manifest.json: run-00 states the run id run-00, which is also that of {original}.",
    )


def test_a_finding_names_the_line_of_the_file_and_not_the_number_of_the_row(tmp_path: Path) -> None:
    (folder,) = write_many(tmp_path, 1)
    for name in ("metrics.jsonl", "predictions.jsonl"):
        lines = (folder / name).read_text().splitlines(keepends=True)
        (folder / name).write_text("".join(["\n", *lines, lines[0]]))
    findings = {(problem.code, Path(problem.file).name): problem for problem in check_paths([folder]).all_findings}
    rows = len((folder / "metrics.jsonl").read_text().splitlines())
    assert findings["TP322", "metrics.jsonl"].line == rows
    repeated = findings["TP351", "predictions.jsonl"]
    answers = (folder / "predictions.jsonl").read_text().splitlines()
    assert repeated.line == len(answers)
    assert repeated.what == f"The item {json.loads(answers[-1])['id']} was answered in line 2 already."
    assert findings["TP131", "metrics.jsonl"].line == 1


def test_of_many_copies_a_few_are_named(tmp_path: Path) -> None:
    (original,) = write_many(tmp_path, 1)
    for number in range(12):
        copy = write_changed_copy(original, tmp_path / f"copy-{number:02}")
        apply(copy, {"file": "run_manifest.json", "pointer": "/dataset/split", "value": f"split {number}"})
    report = check_paths([tmp_path])
    first, *_ = report.runs[-1].grade.reasons
    named = "copy-00, copy-01, copy-02"
    assert report.runs[-1].path == original
    assert first == (
        f"metrics.jsonl: Every row of run-00 has the time and the loss of the same row in {named} and 9 more."
    )


def test_renamed_folder_is_still_the_run(tmp_path: Path) -> None:
    write_run(tmp_path, "run").rename(tmp_path / "best")
    report = check_paths([tmp_path / "best"])
    assert report.ok
    assert found(report) == [("TP302", "note", "The folder best holds the run run.")]
    assert report.runs[0].grade.name == "consistent"


def test_run_under_way_is_not_blamed_for_what_is_still_to_come(tmp_path: Path) -> None:
    folder = write_run(tmp_path, "run", status="running")
    with RunLock(folder):
        assert check_run(read_run(folder)) == []
    assert [problem.code for problem in check_run(read_run(folder))] == ["TP513"]


def test_state_that_is_not_donated_is_a_warning(tmp_path: Path) -> None:
    donation = {"aliased_bytes": 0, "effective": False}
    report = check_paths([write_run(tmp_path, "run", manifest={"training": {"donation": donation}})])
    assert report.ok
    assert found(report) == [("TP304", "warning", "The compiled step reuses 0 of 1200000 bytes of the state.")]


def test_same_output_for_every_item_is_a_warning_in_a_full_run_only(tmp_path: Path) -> None:
    for mode, expected in (("full", ["TP410"]), ("smoke", [])):
        folder = write_run(tmp_path, mode, mode=mode)
        rows = [
            {"file": "predictions.jsonl", "line": line, "pointer": pointer, "value": value}
            for line in range(1, 13)
            for pointer, value in (
                ("/output_text", "the the"),
                ("/extracted_answer", None),
                ("/correct", False),
                ("/format_ok", False),
            )
        ]
        for change in rows:
            apply(folder, change)
        codes = [problem.code for problem in check_run(read_run(folder)) if problem.severity == "warning"]
        assert codes == expected


def test_torn_tail_of_a_killed_run_is_a_warning(tmp_path: Path) -> None:
    folder = write_run(tmp_path, "run", status="running")
    apply(folder, {"file": "metrics.jsonl", "append": '{"step": 11, "tok'})
    problems = check_run(read_run(folder))
    assert {problem.severity for problem in problems} == {"warning"}
    assert len(read_run(folder).metrics().values) == 10


def test_evaluation_that_stopped_early_is_a_warning_and_not_verified(tmp_path: Path) -> None:
    folder = write_run(tmp_path, "run", eval_summary={"status": "partial", "eval_set": {"items": 20}})
    report = check_paths([folder])
    assert report.ok
    assert found(report) == [("TP514", "warning", "12 of 20 items were answered.")]
    assert (report.runs[0].grade.name, report.runs[0].grade.reasons) == (
        "measured",
        ("The evaluation is not finished.",),
    )


def test_temporary_file_of_a_killed_write_is_a_note(tmp_path: Path) -> None:
    folder = write_run(tmp_path, "run")
    (folder / ".run_manifest.json.123.tmp").write_text("{")
    assert found(check_paths([folder])) == [("TP601", "note", "A temporary file was left over.")]


def test_listed_file_that_cannot_be_read_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write_run(tmp_path, "run")

    def refuse(path: Path) -> str:
        raise OSError(5, "Input/output error", str(path))

    monkeypatch.setattr("evidence.rules.integrity.sha256_file", refuse)
    report = check_paths([folder])
    assert ("TP210", "error", "plan.json cannot be read: Input/output error.") in found(report)
    assert report.runs[0].grade.name == "partial"


def test_folder_that_cannot_be_read_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write_run(tmp_path, "run")

    def refuse(path: Path) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr("evidence.records.ours.os.scandir", refuse)
    assert found(check_paths([folder])) == [("TP209", "error", "The folder cannot be read: Permission denied.")]


def test_progress_is_told(tmp_path: Path) -> None:
    write_many(tmp_path, 3)
    told = []
    check_paths([tmp_path], progress=lambda done, total: told.append((done, total)))
    assert told == [(1, 3), (2, 3), (3, 3)]


def test_a_run_named_twice_is_a_run(tmp_path: Path) -> None:
    folder = write_run(tmp_path, "run")
    assert run_folders(folder) == [folder]


RULES = [rule for rule in all_rules().values() if rule.code[2] in "23456"]


def test_every_rule_speaks_in_sentences() -> None:
    assert {rule.code[2] for rule in RULES} == {"2", "3", "4", "5", "6"}
    for rule in RULES:
        for text in (rule.why, rule.fix):
            assert text.endswith(".")
            assert not text.endswith("..")
        assert not rule.title.endswith(".")


def test_every_code_is_met_by_some_case() -> None:
    cases = Path(__file__).parents[2] / "cases"
    text = "".join(path.read_text("utf-8") for path in cases.rglob("problem.txt"))
    text += "".join(path.read_text("utf-8") for path in Path(__file__).parents[2].rglob("test_*.py"))
    assert [rule.code for rule in RULES if rule.code not in text] == []

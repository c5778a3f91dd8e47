"""Notes of runs are validated, change no grade, and are part of bundles."""

import json
import threading
import zipfile
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from commands import run_command
from refusals import catch_problems
from synthetic import write_run

from evidence.bundle.build import build_bundle
from evidence.bundle.verify import verify_bundle
from evidence.index.index import check_paths, index_folder
from evidence.notes import Notes, NotesEdit, change_notes, read_notes
from schemas.validate import read_document

NOW = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
WRITTEN = "2026-11-21T12:00:00.000+00:00"
PLAIN = NotesEdit(add=("baseline", "seed-3"), note="First run that reasons.\r\nKeep it. ", archive=True)


def test_notes_are_written_and_changed(tmp_path: Path) -> None:
    folder = write_run(tmp_path, "run")
    assert read_notes(folder) == Notes()
    (kept,) = change_notes([folder], PLAIN, NOW)
    assert kept == Notes(
        tags=("baseline", "seed-3"), note="First run that reasons.\nKeep it.", archived_at=WRITTEN, changed_at=WRITTEN
    )
    assert read_notes(folder) == kept
    assert read_document(folder / "notes.json", "notes").problems == ()
    later = NOW + timedelta(hours=1)
    # A second "archive" keeps the first time, and a change of nothing writes nothing.
    assert change_notes([folder], NotesEdit(add=("baseline",), archive=True), later) == [kept]
    (less,) = change_notes([folder], NotesEdit(remove=("baseline", "never-given"), note="", archive=False), later)
    assert (less.tags, less.note, less.archived_at) == (("seed-3",), "", None)
    assert less.changed_at == "2026-11-21T13:00:00.000+00:00"


def test_lists_show_notes_and_no_grade_depends_on_them(tmp_path: Path) -> None:
    folder = write_run(tmp_path, "run")
    change_notes([folder], PLAIN, NOW)
    (summary,) = index_folder(tmp_path)
    assert (summary.tags, summary.archived) == (("baseline", "seed-3"), True)
    assert summary.note == "First run that reasons.\nKeep it."
    (report,) = check_paths([folder]).runs
    assert (report.grade.name, report.findings) == ("consistent", ())


@pytest.mark.parametrize("text", ["", "{", "[]", '{"schema_version": "2.0"}', '{"tags": 1}', "\xff"])
def test_damaged_notes_are_a_warning_and_never_overwritten(tmp_path: Path, text: str) -> None:
    folder = write_run(tmp_path, "run")
    (folder / "notes.json").write_bytes(text.encode("latin-1"))
    (summary,) = index_folder(tmp_path)
    assert (summary.grade, summary.tags, summary.note, summary.archived) == ("consistent", (), None, False)
    (report,) = check_paths([folder]).runs
    assert {finding.severity for finding in report.findings} == {"warning"}
    assert all(finding.next and finding.file == str(folder / "notes.json") for finding in report.findings)
    assert (
        catch_problems(lambda: change_notes([folder], PLAIN, NOW), exit_code=1)[-1].what == "notes.json is not valid."
    )
    assert (folder / "notes.json").read_bytes() == text.encode("latin-1")


def test_link_is_not_followed(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "runs", "run")
    (tmp_path / "elsewhere.json").write_text("{}")
    (folder / "notes.json").symlink_to(tmp_path / "elsewhere.json")
    [problem] = catch_problems(lambda: change_notes([folder], PLAIN, NOW), exit_code=1)
    assert problem.what == "notes.json is a link or a folder, not a file."
    assert (tmp_path / "elsewhere.json").read_text() == "{}"


@pytest.mark.parametrize(
    "tag", ["two words", "", "a,b", "=1+1", "a:b", "<b>", "a\u200bb", "\u202eabc", "x" * 41, "a\n"]
)
def test_invalid_tag(tmp_path: Path, tag: str) -> None:
    folder = write_run(tmp_path, "run")
    assert "is not a valid tag." in catch_problems(lambda: change_notes([folder], NotesEdit(add=(tag,)), NOW))[0].what


def test_two_writers_never_tear_the_file(tmp_path: Path) -> None:
    folder = write_run(tmp_path, "run")
    long = "words " * 1000

    def write(name: str) -> None:
        for number in range(40):
            change_notes([folder], NotesEdit(note=f"{name} {number} {long}"), NOW)

    writers = [threading.Thread(target=write, args=(name,)) for name in ("first", "second")]
    for writer in writers:
        writer.start()
    while any(writer.is_alive() for writer in writers):
        read_notes(folder)
    for writer in writers:
        writer.join()
    assert read_notes(folder).note.split()[1] == "39"
    assert [path.name for path in folder.iterdir() if path.name.endswith(".tmp")] == []


def test_note_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    write_run(tmp_path, "a")
    write_run(tmp_path, "b", seed=1)
    assert run_command(capsys, "note", "a", "b", "--tag", "baseline", "--text", "One\ntwo\x1b[31m", "--archive")[0] == 0
    code, out, _ = run_command(capsys, "note", "a", "--untag", "baseline", "--restore")
    assert (code, out) == (0, "a\n  tags      –\n  note      One\n            two\\x1b[31m\n  archived  no\n")
    code, out, _ = run_command(capsys, "note", "b", "--json")
    (value,) = json.loads(out)
    assert (value["path"], value["tags"], value["note"]) == ("b", ["baseline"], "One\ntwo\x1b[31m")
    code, out, _ = run_command(capsys, "runs", ".")
    assert out.endswith("1 archived run not listed; --archived lists them too.\n")
    assert "\nb " not in out
    assert "\nb " in run_command(capsys, "runs", ".", "--archived")[1]
    assert [run["archived"] for run in json.loads(run_command(capsys, "runs", ".", "--json")[1])] == [True, False]


def test_bundle_contains_notes(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "runs", "run")
    change_notes([folder], NotesEdit(add=("baseline",), note="Look: <script>alert(1)</script>\n2nd line"), NOW)
    report = build_bundle([folder], tmp_path / "b.zip")
    verdict = verify_bundle(report.output)
    assert verdict.ok
    assert [(run.name, run.grade.name) for run in verdict.runs] == [("run", "consistent")]
    with zipfile.ZipFile(report.output) as bundle:
        assert json.loads(bundle.read("runs/run/notes.json"))["tags"] == ["baseline"]
        page = bundle.read("REPORT.html").decode()
    assert "Look: &lt;script&gt;alert(1)&lt;/script&gt;<br>2nd line" in page
    assert "They are not evidence and do not affect the grade." in page


def test_notes_of_another_tools_run(tmp_path: Path) -> None:
    folder = tmp_path / "theirs"
    folder.mkdir()
    state = {"log_history": [{"step": step, "loss": 2.0 / step} for step in range(1, 9)], "global_step": 8}
    (folder / "trainer_state.json").write_text(json.dumps({**state, "max_steps": 8}))
    (before,) = index_folder(tmp_path)
    change_notes([folder], NotesEdit(add=("theirs",), note="loss: 0.001, steps: 99"), NOW)
    (after,) = index_folder(tmp_path)
    assert after.tags == ("theirs",)
    assert (after.grade, after.last_loss, after.steps_done) == (before.grade, before.last_loss, before.steps_done)

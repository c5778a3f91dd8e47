"""Folders of other tools: contents, grade and findings of each; imports copy them, and checks read them again.

A case is `tests/cases/foreign/<name>/folder` with the files of another tool, and `<name>/problem.txt`. After a wanted
change, write the texts anew with `WRITE_CASES=1 pytest` on this file and read the difference.
"""

import errno
import json
import os
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from foreign_tools import write
from refusals import catch_problems
from synthetic import write_run
from typer.testing import CliRunner

from evidence.bundle.build import build_bundle
from evidence.bundle.verify import verify_bundle
from evidence.grade import check_run
from evidence.imports.folder import read_tool_folder
from evidence.imports.importing import ImportResult, import_run
from evidence.imports.run import ImportedRun
from evidence.index.index import index_runs
from evidence.run import read_run
from schemas.render import render_text
from schemas.validate import read_document
from trainproof.cli import app as command
from trainproof.cli.inspect import run_text

CASES = Path(__file__).parents[2] / "cases" / "foreign"
NAMES = sorted(path.parent.name for path in CASES.glob("*/folder"))
NOW = datetime(2026, 11, 20, 15, 30, 12, tzinfo=UTC)


def describe(view: ImportedRun) -> list[str]:
    lines = [f"{tool}: {', '.join(files)}" for tool, files in view.tools.items()]
    for fact in view.facts:
        note = f" [{fact.note}]" if fact.note else ""
        lines.append(f"fact {fact.name} = {fact.value!r} {fact.how} in {fact.source}{note}")
    for row in view.metrics:
        values = " ".join(f"{name}={value}" for name, value in row.values.items())
        lines.append(f"row {values} stage {row.stage} in {row.source}")
    for score in view.scores:
        at = f" at {score.checkpoint}" if score.checkpoint else ""
        note = f" [{score.note}]" if score.note else ""
        lines.append(f"score {score.name} = {score.value}{at} in {score.source}{note}")
    for one in view.predictions:
        answer = (one.id, one.prompt, one.expected, one.output_text, one.extracted_answer, one.correct, one.reasoning)
        lines.append(f"answer {answer!r} in {one.source}")
    return lines


@pytest.mark.parametrize("case", NAMES)
def test_folder_is_read_and_graded(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(CASES / case)
    report = check_run(read_run(Path("folder")))
    parts = [
        report.grade.name,
        *report.grade.reasons,
        "",
        *describe(read_tool_folder(Path("folder"))),
        "",
        render_text(report.findings),
    ]
    text = "\n".join(parts)
    if os.environ.get("WRITE_CASES"):
        Path("problem.txt").write_text(text, "utf-8")
    assert text == Path("problem.txt").read_text("utf-8")


def test_there_are_enough_cases() -> None:
    assert len(NAMES) >= 20


def imported(case: str, root: Path) -> ImportResult:
    return import_run(CASES / case / "folder", name="theirs", root=root, now=NOW)


def codes(folder: Path) -> list[str]:
    return [problem.code for problem in check_run(read_run(folder)).findings if problem.severity == "error"]


@pytest.mark.parametrize("case", NAMES)
def test_every_folder_is_imported_whole_and_graded_as_before(case: str, tmp_path: Path) -> None:
    source = CASES / case / "folder"
    before = check_run(read_run(source))
    if before.grade.name == "not a run":
        assert "Nothing in" in catch_problems(lambda: imported(case, tmp_path), exit_code=1)[0].what
        assert list(tmp_path.iterdir()) == []
        return
    made = imported(case, tmp_path)
    kept = {str(path.relative_to(source)): path.read_bytes() for path in source.rglob("*") if path.is_file()}
    weights = {name for name in kept if name.endswith((".pt", ".safetensors"))}
    copies = made.path / "original"
    assert {str(p.relative_to(copies)): p.read_bytes() for p in copies.rglob("*") if p.is_file()} == {
        name: content for name, content in kept.items() if name not in weights
    }
    assert read_document(made.path / "import.json", "import").problems == ()
    assert not (made.path / "run_manifest.json").exists()
    after = check_run(read_run(made.path))
    assert (after.grade.name, after.grade.reasons) == (before.grade.name, before.grade.reasons)
    assert [problem.code for problem in after.findings] == [p.code for p in before.findings if p.code != "TP517"]


def test_weights_are_not_copied(tmp_path: Path) -> None:
    made = imported("hf_checkpoints", tmp_path)
    assert [(note.code, note.what) for note in made.notes] == [
        ("TP523", "checkpoint-60/optimizer.pt (2 bytes) was not copied.")
    ]
    (weights,) = [one for one in made.document["originals"] if not one["kept"]]
    assert (weights["path"], weights["bytes"]) == ("checkpoint-60/optimizer.pt", 2)


TAMPERINGS: dict[str, tuple[str, Callable[[Path], object]]] = {
    "original changed": ("TP231", lambda run: (run / "original" / "trainer_state.json").write_text("{}")),
    "original missing": ("TP232", lambda run: (run / "original" / "train_results.json").unlink()),
    "original added": ("TP233", lambda run: (run / "original" / "more.log").write_text("step 1 loss: 0.1\n")),
    "fact changed": ("TP375", lambda run: edit(run, lambda document: document["facts"][0].update(value=2.0))),
    "tool without files": (
        "TP375",
        lambda run: edit(run, lambda document: document["tools"].append({"name": "MLflow", "files": []})),
    ),
    "row removed": ("TP375", lambda run: edit(run, lambda document: document["metrics"].pop())),
    "score raised": ("TP375", lambda run: edit(run, lambda document: document["scores"][1].update(value=0.99))),
    "renamed": ("TP375", lambda run: edit(run, lambda document: document.update(run_id="other"))),
    "rows forged": (
        "TP375",
        lambda run: (run / "metrics.jsonl").write_text(json.dumps({"step": 1, "loss": 0.1}) + "\n"),
    ),
    "key added": ("TP123", lambda run: edit(run, lambda document: document.update(trained_by="trainproof"))),
}


def edit(run: Path, change: Callable[[dict[str, Any]], object]) -> None:
    path = run / "import.json"
    document = json.loads(path.read_text("utf-8"))
    change(document)
    path.write_text(json.dumps(document), "utf-8")


@pytest.mark.parametrize("name", TAMPERINGS)
def test_tampering_is_detected(name: str, tmp_path: Path) -> None:
    run = imported("hf_trainer", tmp_path).path
    assert codes(run) == []
    code, change = TAMPERINGS[name]
    change(run)
    assert code in codes(run)
    assert check_run(read_run(run)).grade.name in ("contradictory", "partial")


def test_an_import_beside_a_manifest_is_contradictory(tmp_path: Path) -> None:
    made = imported("hf_trainer", tmp_path / "imports").path
    run = write_run(tmp_path, "run")
    (run / "import.json").write_bytes((made / "import.json").read_bytes())
    assert "TP376" in codes(run)
    assert check_run(read_run(run)).grade.name == "contradictory"


def test_refused_imports(tmp_path: Path) -> None:
    source = CASES / "hf_trainer" / "folder"
    ours = write_run(tmp_path, "ours")

    def refusal(folder: Path, name: str = "x", root: Path = tmp_path / "imports", exit_code: int = 2) -> str:
        return catch_problems(lambda: import_run(folder, name=name, root=root, now=NOW), exit_code=exit_code)[0].what

    missing, inside = tmp_path / "missing", source / "runs"
    assert refusal(missing) == f"{missing} is not a folder."
    assert refusal(source, "../x") == "'../x' cannot be the beginning of a run's name."
    assert refusal(source, root=inside) == f"The root {inside} lies inside {source}, which is only read."
    assert refusal(ours, exit_code=1) == f"{ours} is already a run of trainproof."
    assert not (tmp_path / "imports").exists()


def test_links_are_not_followed(tmp_path: Path) -> None:
    theirs = write(tmp_path / "theirs", {"b.log": "step 1 loss: 2.0\n"})
    (tmp_path / "secret.log").write_text("step 1 loss: 1.0\n")
    (theirs / "a.log").symlink_to(tmp_path / "secret.log")
    made = import_run(theirs, name="x", root=tmp_path / "runs", now=NOW)
    assert [path.name for path in (made.path / "original").iterdir()] == ["b.log"]
    assert [note.what for note in made.notes] == ["a.log is a symbolic link; it was not read."]


def test_skipped_files_are_named(tmp_path: Path) -> None:
    names = ("t.log", "back\\slash.log", "x.tmp", ".hidden", "venv/t.log", os.fsdecode(b"bad\xff.log"))
    theirs = write(tmp_path / "theirs", dict.fromkeys(names, "step 1 loss: 2.0\n"))
    made = import_run(theirs, name="x", root=tmp_path / "runs", now=NOW)
    assert [(note.code, note.severity, note.what) for note in made.notes] == [
        ("TP524", "warning", "back\\slash.log was skipped: not every system allows such a name."),
        ("TP524", "warning", "bad\\xff.log was skipped: not every system allows such a name."),
    ]
    found = [problem.what for problem in check_run(read_run(theirs)).findings if problem.code == "TP524"]
    assert found == [note.what for note in made.notes]


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    theirs = write(tmp_path / "theirs", {"a.log": "step 1 loss: 2.0\n", "b.log": "step 2 loss: 1.5\n"})
    opened = Path.open

    def fail(path: Path, *args: Any, **more: Any) -> Any:
        if path == theirs / "b.log":  # Root may read everything, so a mode would not do.
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return opened(path, *args, **more)

    monkeypatch.setattr(Path, "open", fail)
    [problem] = catch_problems(lambda: import_run(theirs, name="x", root=tmp_path / "runs", now=NOW))
    assert problem.file == str(theirs / "b.log")
    assert problem.what == f"{theirs / 'b.log'} cannot be read: Permission denied."
    assert problem.next == "Make it readable, or take it out of the folder, and import again."
    assert list((tmp_path / "runs").iterdir()) == []


def test_runs_of_trainproof_inside_are_skipped(tmp_path: Path) -> None:
    (tmp_path / "train.log").write_text("step 1 loss: 2.0\n")
    write_run(tmp_path, "ours")
    assert set(read_run(tmp_path).foreign().files) == {"train.log"}  # type: ignore[union-attr]


def test_lists_and_pages_show_the_figures(tmp_path: Path) -> None:
    made = imported("hf_trainer", tmp_path)
    (summary,) = index_runs(tmp_path)
    assert (summary.run_id, summary.grade, summary.model) == (made.path.name, "measured", "distilgpt2")
    assert (summary.steps_done, summary.steps_planned, summary.last_loss) == (60, 60, 1.7044)
    assert (summary.loss_points, summary.score, summary.mode) == ((2.4113, 1.9012, 1.7044), None, None)
    text = run_text(read_run(made.path))
    assert "  last loss        1.7044\n  mean loss        2.0056\n" in text
    assert "  result.mean_loss             2.0056  (stated: all_results.json at /train_loss (line 6))\n" in text


def test_contradicted_figures_are_not_shown(tmp_path: Path) -> None:
    imported("two_models", tmp_path)
    (summary,) = index_runs(tmp_path)
    assert (summary.grade, summary.model, summary.last_loss) == ("contradictory", None, 4.0)


def test_the_verb(tmp_path: Path) -> None:
    source = str(CASES / "hf_trainer" / "folder")
    done = CliRunner().invoke(command.app, ["import", source, "--name", "hf", "--root", str(tmp_path), "--json"])
    assert done.exit_code == 0
    printed = json.loads(done.stdout)
    assert [printed[key] for key in ("grade", "originals", "metrics", "scores")] == ["measured", 4, 4, 2]
    assert Path(printed["path"]).name == printed["run_id"]
    again = CliRunner().invoke(command.app, ["import", source, "--name", "hf", "--root", str(tmp_path)])
    assert again.stdout.splitlines()[1:] == [
        "grade: measured",
        "  trainproof did not carry it out; it was read from Hugging Face Trainer and JSON document.",
    ]


def test_a_redacted_original_keeps_the_grade(tmp_path: Path) -> None:
    log = "Saved to /home/somebody/model\nstep 1 loss: 2.0\nstep 2 loss: 1.5\n"
    theirs = write(tmp_path / "theirs", {"train.log": log})
    made = import_run(theirs, name="theirs", root=tmp_path / "runs", now=NOW)
    report = build_bundle([made.path], tmp_path / "b.zip", allow_partial=True, redact=True)
    assert [Path(each.path).name for each in report.redactions] == ["train.log"]
    verdict = verify_bundle(tmp_path / "b.zip")
    assert verdict.ok
    assert [run.grade.name for run in verdict.runs] == ["measured"]


def test_a_changed_original_does_not_hide_other_changes(tmp_path: Path) -> None:
    run = imported("hf_trainer", tmp_path).path
    (run / "original" / "config.json").write_text("{}")
    assert [problem.code for problem in check_run(read_run(run)).findings] == ["TP231"]
    edit(run, lambda document: document["scores"][1].update(value=0.99))
    assert [problem.code for problem in check_run(read_run(run)).findings] == ["TP231", "TP375"]

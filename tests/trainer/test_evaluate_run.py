"""Evaluating and exporting a finished run, and refusals before its checkpoint is read."""

import json
import os
import shutil
import signal
from pathlib import Path
from unittest.mock import Mock

import jax
import pytest
import yaml
from configs import changed
from model_folders import row_file
from refusals import catch_problem
from whole_runs import QUIET, carried_out, errors_of, manifest_of

from evidence import layout
from evidence.lock import RunLock
from schemas.problems import Problem, ProblemError
from trainer.data.conversations import FORM
from trainer.evaluation import evaluate
from trainer.evaluation.evaluate import evaluate_run
from trainer.export_run import export_run
from trainer.loop.session import StopRequest
from trainer.model import export
from trainer.recorder.progress import Watch
from trainer.run import RunRequest


@pytest.fixture
def folder(finished, config, tmp_path) -> Path:
    """Return a run of its own for a test: two steps, not evaluated."""
    return shutil.copytree(finished(config), tmp_path / "run")


@pytest.fixture
def unread(monkeypatch) -> None:
    monkeypatch.setattr("trainer.loop.checkpoints.restore", lambda *_: pytest.fail("the checkpoint was read first"))


def refused_evaluation(folder: Path, eval_set: str | None = "eval_v1") -> Problem:
    return catch_problem(lambda: evaluate_run(folder, eval_set, QUIET))


def files_of(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def test_a_run_is_evaluated_once(folder):
    assert evaluate_run(folder, "eval_v1", QUIET)["eval_set"]["name"] == "eval_v1"
    problem = refused_evaluation(folder)
    assert (problem.code, problem.file) == ("TP070", str(folder / layout.EVAL_SUMMARY))


@pytest.mark.usefixtures("unread")
@pytest.mark.parametrize(
    ("key", "value", "code"), [("max_new_tokens", 1024, "TP062"), ("eval_set", "eval_v2", "TP074")]
)
def test_settings_of_the_run_that_do_not_fit_are_refused(key, value, code, folder):
    config = yaml.safe_load((folder / layout.CONFIG).read_text())
    config["evaluation"][key] = value
    (folder / layout.CONFIG).write_text(yaml.safe_dump(config))
    before = sorted(folder.iterdir())
    problem = refused_evaluation(folder)
    assert (problem.code, key in problem.pointer) == (code, True)
    assert sorted(folder.iterdir()) == before


@pytest.mark.usefixtures("unread")
def test_locked_runs_lost_checkpoints_and_taken_folders_are_refused_before_the_checkpoint_is_read(folder):
    with RunLock(folder):
        assert refused_evaluation(folder).code == "TP090"
    problem = catch_problem(export_run, folder, folder.parent, QUIET)
    assert (problem.code, problem.what) == ("TP048", f"{folder.parent} is not empty.")
    shutil.rmtree(folder / layout.CHECKPOINTS)
    for work in (lambda: evaluate_run(folder, "eval_v1", QUIET), lambda: export_run(folder, None, QUIET)):
        problem = catch_problem(work)
        assert (problem.code, problem.file) == ("TP050", str(folder))


def test_the_current_folder_cannot_become_an_export(folder, tmp_path, monkeypatch):
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")
    for name in (".", str(tmp_path / "empty")):
        problem = catch_problem(export_run, folder, Path(name), QUIET)
        assert (problem.code, problem.what) == ("TP048", f"{name} is the current directory.")
    monkeypatch.chdir(tmp_path)
    assert export_run(folder, Path("empty"), QUIET) == Path("empty")
    assert (tmp_path / "empty" / "config.json").is_file()


@pytest.fixture(scope="module")
def stopped(config, tmp_path_factory) -> Path:
    """A run that was interrupted when the tenth item was answered."""
    folder = tmp_path_factory.mktemp("half") / "half"
    answers = folder / layout.PREDICTIONS

    def reason(self: StopRequest, *, reserve_seconds: float = 0.0) -> str | None:
        return "signal SIGTERM" if answers.is_file() and answers.read_text().count("\n") >= 10 else None

    evaluated = changed(config, evaluation={"eval_set": "eval_v1"})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(StopRequest, "reason", reason)
        assert carried_out(RunRequest(config=evaluated, folder=folder, command=["trainproof", "train"])) == 5
    assert json.loads((folder / layout.EVAL_SUMMARY).read_text())["status"] == "partial"
    return folder


@pytest.fixture
def half(stopped: Path, tmp_path: Path) -> Path:
    return shutil.copytree(stopped, tmp_path / "half")


@pytest.mark.slow
def test_a_stopped_evaluation_is_completed_and_keeps_its_baseline(half):
    before = json.loads((half / layout.EVAL_SUMMARY).read_text())
    summary = evaluate_run(half, None, QUIET)
    assert summary == json.loads((half / layout.EVAL_SUMMARY).read_text())
    assert (summary["status"], summary["predictions"]["rows"]) == ("complete", 50)
    assert summary["baseline"] == before["baseline"]
    assert errors_of(half) == []
    assert [path.name for path in half.iterdir() if path.name.startswith(".")] == []
    assert refused_evaluation(half, None).code == "TP070"


DISK_FULL = OSError(28, "No space left on device")
OUT_OF_MEMORY = jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 1024 bytes.")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("where", "error", "text"),
    [
        ("trainer.evaluation.evaluate.list_artifacts", DISK_FULL, None),
        ("trainer.evaluation.evaluate.list_artifacts", KeyboardInterrupt(), None),
        ("trainer.evaluation.answers.Sampler.answer", OUT_OF_MEMORY, "The device ran out of memory: RESOURCE_EXH"),
    ],
    ids=["disk full", "interrupted", "out of memory"],
)
def test_a_completion_that_fails_leaves_the_run_as_it_was(where, error, text, half, monkeypatch):
    before = files_of(half)
    monkeypatch.setattr(where, Mock(side_effect=error))
    with pytest.raises((ProblemError, KeyboardInterrupt), match=text):
        evaluate_run(half, None, QUIET)
    assert files_of(half) == before


@pytest.mark.slow
def test_a_partial_evaluation_with_a_logged_score_is_not_replaced(half):
    """As earlier versions logged it: a second score would contradict the first."""
    log = half / layout.LOG
    log.write_text(log.read_text().replace("evaluation_stopped", "evaluated"))
    assert refused_evaluation(half, None).code == "TP070"


def test_a_run_without_a_recorded_prompt_form_needs_its_rows(folder):
    """As earlier versions recorded it."""
    log, config = folder / layout.LOG, folder / layout.CONFIG
    log.write_text("".join(line for line in log.read_text().splitlines(keepends=True) if FORM not in line))
    config.write_text(config.read_text().replace("dataset: dev-reasoning-v2", "dataset: gone.jsonl"))
    problem = refused_evaluation(folder)
    assert (problem.code, problem.file) == ("TP010", "gone.jsonl")


def test_a_stopped_export_leaves_nothing(folder, tmp_path, monkeypatch):
    real = export.save_file

    def saved(*given, **named):
        real(*given, **named)
        os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(export, "save_file", saved)
    problem = catch_problem(export_run, folder, tmp_path / "model", QUIET, exit_code=5)
    assert (problem.code, "signal SIGTERM" in problem.what) == ("TP049", True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run"]


def test_one_of_two_concurrent_evaluations_is_refused(folder, monkeypatch):
    """Another process ends its evaluation while this one still reads the configuration."""
    real = evaluate.resolve

    def meanwhile(name: str, revision: str | None, **options: bool):
        (folder / layout.EVAL_SUMMARY).write_text("{}")
        return real(name, revision, **options)

    monkeypatch.setattr(evaluate, "resolve", meanwhile)
    assert refused_evaluation(folder).code == "TP070"


def as_killed(folder: Path, **training: int) -> None:
    manifest = manifest_of(folder)
    manifest |= {"status": "running", "exit": None, "finished_at": None, "artifacts": []}
    manifest["training"] |= training
    (folder / layout.MANIFEST).write_text(json.dumps(manifest))
    log = [line for line in (folder / layout.LOG).read_text().splitlines() if "run_sealed" not in line]
    (folder / layout.LOG).write_text("".join(f"{line}\n" for line in log))


def lose_checkpoint(folder: Path) -> None:
    (folder / layout.CHECKPOINTS / "2").rename(folder / layout.CHECKPOINTS / "1")


@pytest.mark.parametrize(
    ("damage", "code", "what"),
    [
        (lambda folder: as_killed(folder, steps_done=0), "TP075", "The run was killed; its newest checkpoint is at "),
        (lose_checkpoint, "TP075", "The newest checkpoint is at step 1; the run did 2 steps."),
        (lambda folder: (folder / layout.MANIFEST).write_text("{"), "TP107", ""),
    ],
    ids=["killed between steps", "last checkpoint lost", "manifest not valid"],
)
def test_a_run_without_the_state_of_its_last_step_is_not_scored(damage, code, what, folder):
    damage(folder)
    before = files_of(folder)
    problem = refused_evaluation(folder)
    assert (problem.code, what in problem.what) == (code, True)
    if code == "TP075":
        continued = f"trainproof train --resume {folder} --set evaluation.eval_set=eval_v1."
        assert problem.next == f"Continue it, which evaluates at the end: {continued}"
    assert files_of(folder) == before


def test_a_run_killed_after_its_last_step_is_scored_and_has_an_end(folder):
    as_killed(folder)
    assert evaluate_run(folder, "eval_v1", QUIET)["checkpoint"]["step"] == 2
    manifest, message = manifest_of(folder), "killed after its last step; evaluated later"
    assert (manifest["status"], manifest["exit"]["message"]) == ("interrupted", message)
    assert errors_of(folder) == []


@pytest.mark.slow
def test_a_run_of_another_device_and_without_its_data_is_scored_and_exported_here(config, train, tmp_path, capsys):
    dataset = row_file(tmp_path / "rows.jsonl", *[{"prompt": "What is 1 + 1?", "completion": "2"}] * 4)
    folder = train(changed(config, data={"dataset": dataset}))
    file = folder / layout.CONFIG
    file.write_text(file.read_text().replace("device: cpu", "device: tpu").replace("devices: 1", "devices: 4096"))
    Path(dataset).unlink()  # the log has the form of the prompts, and how answers are read
    capsys.readouterr()
    assert export_run(folder, None, Watch()) == folder / layout.EXPORT
    assert capsys.readouterr().out == f"exported step 2 to {folder / layout.EXPORT}\n"
    items = row_file(tmp_path / "items.jsonl", {"id": "a", "prompt": "What is 2 + 1?", "expected": "3"})
    assert evaluate_run(folder, items, Watch())["scoring"]["answer"] == "whole"
    said = "No tpu device was found; JAX sees only: cpu. 8 × cpu is used instead.\n"
    assert capsys.readouterr().out.startswith(said)
    assert (folder / layout.LOG).read_text().count("sealed again with its evaluation on 8 × cpu") == 1

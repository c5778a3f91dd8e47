"""What is done with a run that has ended, and what is refused before its checkpoint is read."""

import json
import os
import shutil
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import jax
import pytest

from evidence import layout
from evidence.grade import check_run
from evidence.lock import RunLock
from evidence.run import read_run
from schemas.problems import ProblemError
from schemas.render import as_text
from trainer.config.tree import Config, EvaluationConfig
from trainer.data.conversations import FORM
from trainer.evaluation import late as addition
from trainer.evaluation import late as module
from trainer.evaluation.answers import Sampler
from trainer.evaluation.late import evaluate_run
from trainer.export_run import export_run
from trainer.loop.session import StopRequest
from trainer.model import export
from trainer.recorder.progress import Watch
from trainer.run import RunRequest, run

QUIET = Watch(quiet=True)


@pytest.fixture
def folder(finished: Callable[[Config], Path], config: Config, tmp_path: Path) -> Path:
    """Return a run of its own for a test: two steps, not evaluated."""
    return shutil.copytree(finished(config), tmp_path / "run")


@pytest.fixture
def unread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail a test in which a checkpoint is read."""
    monkeypatch.setattr("trainer.loop.checkpoints.restore", lambda *_: pytest.fail("the checkpoint was read first"))


def refusal(work: Callable[[], object]) -> str:
    with pytest.raises(ProblemError) as caught:
        work()
    assert caught.value.exit_code == 2
    return as_text(caught.value.problems)


def test_a_run_is_evaluated_once(folder: Path):
    summary = evaluate_run(folder, "eval_v1", QUIET)
    assert summary["eval_set"]["name"] == "eval_v1"
    assert refusal(lambda: evaluate_run(folder, "eval_v1", QUIET)) == (
        f"error TP070: {folder / layout.EVAL_SUMMARY}: The run has been evaluated already.\n"
        "  A second evaluation would replace the evidence of the first.\n"
        "  Next: Train another run with --set evaluation.eval_set=NAME to use another set.\n"
    )


@pytest.mark.usefixtures("unread")
def test_outputs_without_room_for_a_prompt_are_refused_in_a_later_evaluation_too(
    finished: Callable[[Config], Path], config: Config
):
    folder = finished(replace(config, evaluation=EvaluationConfig(max_new_tokens=1024)))
    before = sorted(folder.iterdir())
    assert refusal(lambda: evaluate_run(folder, "eval_v1", QUIET)) == (
        "error TP062: tiny-gpt2 at /evaluation/max_new_tokens: "
        "evaluation.max_new_tokens is 1024 and the shortest prompt "
        "of eval_v1 has 6 tokens; tiny-gpt2 has 512 positions.\n"
        "  Prompt and output share the model's context, so no item could be answered.\n"
        "  Next: Set evaluation.max_new_tokens to at most 506; up to 496 leave room for every prompt.\n"
    )
    assert sorted(folder.iterdir()) == before


@pytest.mark.slow
@pytest.mark.usefixtures("unread")
def test_another_set_than_the_declared_one_is_refused_before_anything_is_read(
    finished: Callable[[Config], Path], config: Config, tmp_path: Path
):
    declared = replace(config, evaluation=EvaluationConfig(eval_set="eval_v1", max_new_tokens=4, batch_size=50))
    folder = shutil.copytree(finished(declared), tmp_path / "run")
    (folder / layout.EVAL_SUMMARY).unlink()
    assert refusal(lambda: evaluate_run(folder, "eval_v2", QUIET)) == (
        f"error TP074: {folder / layout.CONFIG} at evaluation.eval_set: The run's configuration declares eval_v1, "
        "and eval_v2 was asked for.\n"
        "  Next: Leave --eval-set out, or train another run with --set evaluation.eval_set=eval_v2.\n"
    )


@pytest.mark.usefixtures("unread")
def test_a_run_that_another_process_writes_is_not_read(folder: Path):
    with RunLock(folder):
        text = refusal(lambda: evaluate_run(folder, "eval_v1", QUIET))
    assert text.startswith(f"error TP090: {folder}: Another process is writing this run folder (process ")


@pytest.mark.usefixtures("unread")
def test_a_run_without_a_checkpoint_is_refused_first(folder: Path):
    shutil.rmtree(folder / layout.CHECKPOINTS)
    said = (
        f"error TP050: {folder}: The run has no complete checkpoint to continue from.\n"
        "  Expected: a numbered folder under checkpoints/; checkpoints are not committed or packed.\n"
        f"  Next: Use the machine and folder where it ran, or start anew with --config {folder / layout.CONFIG}.\n"
    )
    assert refusal(lambda: evaluate_run(folder, "eval_v1", QUIET)) == said
    assert refusal(lambda: export_run(folder, None, QUIET)) == said


@pytest.mark.usefixtures("unread")
def test_an_export_over_something_is_refused_before_the_checkpoint_is_read(folder: Path, tmp_path: Path):
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "thesis.tex").write_text("mine")
    assert refusal(lambda: export_run(folder, tmp_path / "taken", QUIET)) == (
        f"error TP048: {tmp_path / 'taken'}: {tmp_path / 'taken'} is not empty.\n"
        "  An export never overwrites files.\n"
        "  Next: Pass a new folder, or remove this one first.\n"
    )


def test_the_folder_one_is_in_cannot_become_an_export(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")
    for name in (".", str(tmp_path / "empty")):
        assert refusal(lambda name=name: export_run(folder, Path(name), QUIET)) == (
            f"error TP048: {name}: {name} is the folder that the command was given in.\n"
            "  An export appears whole or not at all: its folder is put there at the end, in place of an empty one.\n"
            "  Next: Pass a new folder, or remove this one first.\n"
        )
    monkeypatch.chdir(tmp_path)
    assert export_run(folder, Path("empty"), QUIET) == Path("empty")
    assert (tmp_path / "empty" / "config.json").is_file()


@pytest.fixture
def half(config: Config, tmp_path: Path) -> Path:
    """Return a run that was interrupted when the tenth item was answered."""
    folder = tmp_path / "half"
    answers = folder / layout.PREDICTIONS

    def after_ten(self, *, reserve_seconds: float = 0.0) -> str | None:
        return "signal SIGTERM" if answers.is_file() and answers.read_text().count("\n") >= 10 else None

    evaluation = EvaluationConfig(eval_set="eval_v1", max_new_tokens=4, batch_size=50)
    order = RunRequest(config=replace(config, evaluation=evaluation), folder=folder, command=["trainproof", "train"])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(StopRequest, "reason", after_ten)
        assert run(order, QUIET) == 5
    assert json.loads((folder / layout.EVAL_SUMMARY).read_text())["status"] == "partial"
    return folder


def errors_of(folder: Path) -> list[str]:
    return [problem.what for problem in check_run(read_run(folder)).findings if problem.severity == "error"]


@pytest.mark.slow
def test_an_evaluation_that_was_stopped_is_completed_and_keeps_its_baseline(half: Path):
    before = json.loads((half / layout.EVAL_SUMMARY).read_text())
    summary = evaluate_run(half, None, QUIET)
    assert summary == json.loads((half / layout.EVAL_SUMMARY).read_text())
    assert (summary["status"], summary["predictions"]["rows"]) == ("complete", 50)
    assert summary["baseline"] == before["baseline"] is not None
    assert errors_of(half) == []
    assert [path.name for path in half.iterdir() if path.name.startswith(".")] == []
    assert refusal(lambda: evaluate_run(half, None, QUIET)).startswith("error TP070: ")


@pytest.mark.slow
@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_a_completion_that_fails_leaves_the_run_as_it_was(
    error: BaseException, half: Path, monkeypatch: pytest.MonkeyPatch
):
    before = {path: path.read_bytes() for path in half.iterdir() if path.is_file()}

    def fails(*_, **__):
        raise error

    monkeypatch.setattr(addition, "artifacts_of", fails)
    with pytest.raises((ProblemError, KeyboardInterrupt)):
        evaluate_run(half, None, QUIET)
    assert {path: path.read_bytes() for path in half.iterdir() if path.is_file()} == before


@pytest.mark.slow
def test_an_evaluation_that_the_device_has_no_room_for_leaves_the_run_as_it_was(
    half: Path, monkeypatch: pytest.MonkeyPatch
):
    before = {path: path.read_bytes() for path in half.iterdir() if path.is_file()}

    def full(*_, **__):
        message = "RESOURCE_EXHAUSTED: Out of memory allocating 1024 bytes."
        raise jax.errors.JaxRuntimeError(message)

    monkeypatch.setattr(Sampler, "answer", full)
    with pytest.raises(ProblemError) as caught:
        evaluate_run(half, None, QUIET)
    assert (caught.value.exit_code, caught.value.problems[0].what) == (
        4,
        "The device ran out of memory: RESOURCE_EXHAUSTED: Out of memory allocating 1024 bytes.",
    )
    assert {path: path.read_bytes() for path in half.iterdir() if path.is_file()} == before


@pytest.mark.slow
def test_a_part_whose_score_is_logged_is_not_replaced(half: Path):
    """As earlier versions logged it: a second score would contradict the first."""
    log = half / layout.LOG
    log.write_text(log.read_text().replace("evaluation_stopped", "evaluated"))
    assert refusal(lambda: evaluate_run(half, None, QUIET)).startswith("error TP070: ")


def test_an_export_needs_neither_the_data_nor_the_device_of_the_run(folder: Path):
    config = folder / layout.CONFIG
    gone = config.read_text().replace("dataset: dev-reasoning-v2", "dataset: gone.jsonl")
    config.write_text(gone.replace("device: cpu", "device: tpu").replace("devices: 1", "devices: 4096"))
    assert (export_run(folder, None, QUIET) / "model.safetensors").is_file()


def test_a_run_that_does_not_state_how_it_is_asked_needs_its_rows(folder: Path):
    """As earlier versions recorded it."""
    log = folder / layout.LOG
    log.write_text("".join(line for line in log.read_text().splitlines(keepends=True) if FORM not in line))
    config = folder / layout.CONFIG
    config.write_text(config.read_text().replace("dataset: dev-reasoning-v2", "dataset: gone.jsonl"))
    assert refusal(lambda: evaluate_run(folder, "eval_v1", QUIET)).startswith("error TP010: gone.jsonl: ")


def test_what_is_odd_about_a_set_is_told_by_a_later_evaluation_too(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    items = tmp_path / "items.jsonl"
    items.write_text('{"id": "1", "prompt": "<eos>", "expected": "x"}\n')
    evaluate_run(folder, str(items), Watch())
    assert capsys.readouterr().out.startswith(
        f"TP024: {items} (line 1): 1 row has the text of special tokens in it, the first here: <eos>."
    )


def test_an_export_that_is_told_to_stop_leaves_nothing(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    real = export.save_file

    def saved(*given, **named):
        real(*given, **named)
        os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(export, "save_file", saved)
    with pytest.raises(ProblemError) as caught:
        export_run(folder, tmp_path / "model", QUIET)
    assert (caught.value.exit_code, as_text(caught.value.problems)) == (
        5,
        (
            f"error TP049: {tmp_path / 'model'}: The export was stopped (signal SIGTERM); nothing of it is left.\n"
            "  Next: Run the same command again.\n"
        ),
    )
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run"]


def test_evaluations_side_by_side_leave_one(folder: Path, monkeypatch: pytest.MonkeyPatch):
    """Another process ends its evaluation while this one still reads the configuration."""
    real = module.resolve

    def meanwhile(name: str, revision: str | None, **options: bool):
        (folder / layout.EVAL_SUMMARY).write_text("{}")
        return real(name, revision, **options)

    monkeypatch.setattr(module, "resolve", meanwhile)
    assert refusal(lambda: evaluate_run(folder, "eval_v1", QUIET)).startswith("error TP070: ")


def continued_with(folder: Path) -> str:
    return (
        "  A run is evaluated with the parameters of its last step.\n"
        "  Next: Continue it, which evaluates at the end: "
        f"trainproof train --resume {folder} --set evaluation.eval_set=eval_v1.\n"
    )


def as_killed(folder: Path, **training: int) -> dict:
    """Leave the manifest as a process that was killed leaves it."""
    manifest = json.loads((folder / layout.MANIFEST).read_text())
    manifest |= {"status": "running", "exit": None, "finished_at": None, "artifacts": []}
    manifest["training"] |= training
    (folder / layout.MANIFEST).write_text(json.dumps(manifest))
    log = [line for line in (folder / layout.LOG).read_text().splitlines() if "run_sealed" not in line]
    (folder / layout.LOG).write_text("".join(f"{line}\n" for line in log))
    return manifest


def test_a_run_that_was_killed_between_steps_is_not_scored(folder: Path):
    before = as_killed(folder, steps_done=0)
    assert refusal(lambda: evaluate_run(folder, "eval_v1", QUIET)) == (
        f"error TP075: {folder}: The run was killed; its newest checkpoint is at step 2 of 2.\n{continued_with(folder)}"
    )
    assert json.loads((folder / layout.MANIFEST).read_text()) == before


def test_a_run_whose_manifest_is_not_valid_is_not_scored(folder: Path):
    (folder / layout.MANIFEST).write_text("{")
    assert refusal(lambda: evaluate_run(folder, "eval_v1", QUIET)).startswith(
        f"error TP107: {folder / layout.MANIFEST}"
    )


def test_a_run_whose_last_checkpoint_is_lost_is_not_scored(folder: Path):
    (folder / layout.CHECKPOINTS / "2").rename(folder / layout.CHECKPOINTS / "1")
    assert refusal(lambda: evaluate_run(folder, "eval_v1", QUIET)) == (
        f"error TP075: {folder}: The newest checkpoint is at step 1; the run did 2 steps.\n{continued_with(folder)}"
    )


def test_a_run_that_was_killed_after_its_last_step_is_scored_and_has_an_end(folder: Path):
    as_killed(folder)
    assert evaluate_run(folder, "eval_v1", QUIET)["checkpoint"]["step"] == 2
    manifest = json.loads((folder / layout.MANIFEST).read_text())
    assert (manifest["status"], manifest["exit"]) == (
        "interrupted",
        {"code": 5, "error": None, "message": "killed after its last step; evaluated later"},
    )
    assert errors_of(folder) == []


@pytest.mark.slow
def test_a_run_of_another_device_is_scored_and_exported_with_the_one_that_is_there(
    config: Config, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"prompt": "What is 1 + 1?", "completion": "2"}\n' * 4)
    order = RunRequest(
        config=replace(config, data=replace(config.data, dataset=str(rows))),
        folder=tmp_path / "run",
        command=["trainproof", "train"],
    )
    assert run(order, QUIET) == 0
    file = order.folder / layout.CONFIG
    file.write_text(file.read_text().replace("device: cpu", "device: tpu").replace("devices: 1", "devices: 8"))
    said = "No tpu device was found; JAX sees only: cpu. 8 × cpu is used instead.\n"
    assert export_run(order.folder, None, Watch()) == order.folder / layout.EXPORT
    assert capsys.readouterr().out == f"exported step 2 to {order.folder / layout.EXPORT}\n"
    rows.unlink()  # in which form the model was taught to be asked stands in the log
    evaluate_run(order.folder, "eval_v1", Watch())
    assert capsys.readouterr().out.startswith(said)
    assert (order.folder / layout.LOG).read_text().count("sealed again with its evaluation on 8 × cpu") == 1

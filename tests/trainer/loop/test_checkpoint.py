"""A checkpoint is restored as it was saved, or not at all."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from evidence.run import layout
from schemas.problems.problem import ProblemError
from schemas.problems.render import as_text
from trainer.config.tree import CheckpointConfig, Config, LimitsConfig
from trainer.evaluate_run import evaluate_run
from trainer.export_run import export_run
from trainer.loop.checkpoint_format import HASH
from trainer.recorder.progress import Watch
from trainer.run import RunRequest, run

QUIET = Watch(quiet=True)
NOT_AS_SAVED = "its state is not the one that was saved"


@pytest.fixture(scope="module")
def made() -> dict[Config, Path]:
    return {}


@pytest.fixture
def folder(config: Config, made: dict[Config, Path], tmp_path_factory: pytest.TempPathFactory, tmp_path: Path) -> Path:
    """Return a run of its own for a test, with checkpoints at steps 2 and 4."""
    saving = replace(config, checkpoint=CheckpointConfig(save_every_steps=2), limits=LimitsConfig(steps=4))
    if saving not in made:
        made[saving] = tmp_path_factory.mktemp("saved") / "run"
        assert run(RunRequest(config=saving, folder=made[saving], command=["trainproof", "train"]), QUIET) == 0
    return shutil.copytree(made[saving], tmp_path / "run")


def newest(folder: Path) -> Path:
    return folder / layout.CHECKPOINTS / "4"


def bits_turned(checkpoint: Path) -> str:
    """Turn three bits of the parameters; the file stays readable."""
    largest = max(checkpoint.rglob("d/*"), key=lambda path: path.stat().st_size)
    content = bytearray(largest.read_bytes())
    for part in (2, 3, 4):
        content[len(content) * part // 5] ^= 1
    largest.write_bytes(content)
    return NOT_AS_SAVED


def emptied(checkpoint: Path) -> str:
    shutil.rmtree(checkpoint)
    checkpoint.mkdir()
    return "it cannot be read as the state of this model and optimizer (ValueError)"


def cut_off(checkpoint: Path) -> str:
    for path in checkpoint.rglob("*"):
        if path.is_file() and path.stat().st_size > 4000:
            path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    return "it cannot be read as the state of this model and optimizer (JSONDecodeError)"


def without_metadata(checkpoint: Path) -> str:
    for path in checkpoint.rglob("*METADATA*"):
        path.unlink()
    return "it cannot be read as the state of this model and optimizer (ValueError)"


def metadata_changed(checkpoint: Path) -> str:
    [path] = checkpoint.rglob("default/_METADATA")
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 255
    path.write_bytes(content)
    return "it cannot be read as the state of this model and optimizer (UnicodeDecodeError)"


def refusal(work: Callable[[], object]) -> str:
    with pytest.raises(ProblemError) as caught:
        work()
    assert caught.value.exit_code == 2
    return as_text(caught.value.problems)


def said(folder: Path, reason: str, then: str) -> str:
    return (
        f"error TP053: {newest(folder)}: The checkpoint at step 4 is damaged: {reason}.\n"
        "  What changed or got lost since it was saved is no state of the run, so nothing is done with it.\n"
        f"  Next: {then}\n"
    )


def move_away(folder: Path) -> str:
    return (
        "Move this folder away and continue from step 2, which is whole: "
        f"trainproof train --resume {folder} --output NEW_FOLDER."
    )


@pytest.mark.slow
@pytest.mark.parametrize("damage", [bits_turned, emptied, cut_off, without_metadata, metadata_changed])
def test_a_damaged_checkpoint_is_refused_and_the_whole_one_before_it_named(damage: Callable[[Path], str], folder: Path):
    text = said(folder, damage(newest(folder)), move_away(folder))
    assert refusal(lambda: export_run(folder, None, QUIET)) == text


@pytest.mark.slow
def test_a_run_is_not_continued_or_scored_from_a_damaged_checkpoint_and_is_from_the_one_before(
    folder: Path, config: Config, tmp_path: Path
):
    text = said(folder, bits_turned(newest(folder)), move_away(folder))
    assert refusal(lambda: evaluate_run(folder, "eval_v1", QUIET)) == text
    assert not (folder / layout.EVAL_SUMMARY).exists()
    order = RunRequest(
        config=replace(config, limits=LimitsConfig(steps=6)), folder=tmp_path / "rest", command=["-"], resume=folder
    )
    assert refusal(lambda: run(order, QUIET)) == text
    assert not order.folder.exists()  # nothing was spent, so there is nothing to record
    shutil.rmtree(newest(folder))
    assert run(replace(order, folder=tmp_path / "again"), QUIET) == 0
    parent = json.loads((tmp_path / "again" / layout.MANIFEST).read_text())["parent"]
    assert (parent["run_id"], parent["step"]) == ("run", 2)


def test_where_no_checkpoint_is_whole_a_new_start_is_named(folder: Path):
    reason = bits_turned(newest(folder))
    emptied(folder / layout.CHECKPOINTS / "2")
    then = f"No earlier one is whole: start anew with --config {folder / layout.CONFIG}."
    assert refusal(lambda: export_run(folder, None, QUIET)) == said(folder, reason, then)


def test_a_checkpoint_from_before_there_were_hashes_is_taken(folder: Path):
    [metadata] = newest(folder).glob("_CHECKPOINT_METADATA")
    content = json.loads(metadata.read_text())
    assert len(content["custom_metadata"].pop(HASH)) == 64
    metadata.write_text(json.dumps(content))
    assert export_run(folder, None, QUIET) == folder / layout.EXPORT

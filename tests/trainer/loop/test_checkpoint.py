"""A checkpoint is restored as it was saved, or not at all."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from evidence import layout
from evidence.hashes import link_of
from schemas.problems import ProblemError
from schemas.render import as_text
from trainer.config.tree import CheckpointConfig, Config, LimitsConfig
from trainer.evaluation.late import evaluate_run
from trainer.export_run import export_run
from trainer.loop import saving
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
    return "its metadata cannot be read"


def cut_off(checkpoint: Path) -> str:
    for path in checkpoint.rglob("*"):
        if path.is_file() and path.stat().st_size > 4000:
            path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    return "it cannot be read as the state of this model and optimizer (JSONDecodeError)"


def without_metadata(checkpoint: Path) -> str:
    for path in checkpoint.rglob("*METADATA*"):
        path.unlink()
    return "its metadata cannot be read"


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


def lost_a_file(checkpoint: Path) -> str:
    (checkpoint / "default" / "manifest.ocdbt").unlink()
    return "it cannot be read as the state of this model and optimizer (ValueError)"


def of_zero_bytes(checkpoint: Path) -> str:
    for path in checkpoint.rglob("d/*"):
        path.write_bytes(b"")
    return "it cannot be read as the state of this model and optimizer (ValueError)"


def without_its_hash(checkpoint: Path) -> str:
    (checkpoint / "_CHECKPOINT_METADATA").write_bytes(b"{")
    return "its metadata cannot be read"


def with_junk_for_data(checkpoint: Path) -> str:
    for path in checkpoint.rglob("ocdbt.process_0/d/*"):
        path.write_bytes(bytes(range(256)) * (path.stat().st_size // 256))
    return "it cannot be read as the state of this model and optimizer (ValueError)"


class Listening(Watch):
    """Keeps the lines that are shown."""

    def __init__(self) -> None:
        super().__init__(quiet=True)
        self.lines: list[str] = []

    def say(self, text: str) -> None:
        self.lines.append(text)


def damage_of(folder: Path, reason: str, then: str) -> tuple[str, str]:
    """Return the damage of the newest checkpoint in one line, and as an error."""
    what = f"{newest(folder)}: The checkpoint at step 4 is damaged: {reason}."
    why = "What changed or got lost since it was saved is no state of the run, so nothing is done with it."
    return f"TP053: {what} {why} Next: {then}", f"error TP053: {what}\n  {why}\n  Next: {then}\n"


OTHER_DAMAGES = (emptied, cut_off, without_metadata, metadata_changed, lost_a_file, of_zero_bytes, without_its_hash)
DAMAGES = [bits_turned, with_junk_for_data, *(pytest.param(each, marks=pytest.mark.slow) for each in OTHER_DAMAGES)]


@pytest.mark.parametrize("damage", DAMAGES)
def test_the_newest_whole_checkpoint_is_exported_and_the_damaged_one_named(
    damage: Callable[[Path], str], folder: Path, capfd: pytest.CaptureFixture[str]
):
    line, _ = damage_of(folder, damage(newest(folder)), "Step 2 is the newest whole one and is used instead.")
    unfinished = newest(folder).with_name("4.orbax-checkpoint-tmp")
    unfinished.mkdir()
    watch = Listening()
    assert export_run(folder, None, watch) == folder / layout.EXPORT
    assert watch.lines == [line, f"exported step 2 to {folder / layout.EXPORT}"]
    assert "Traceback" not in capfd.readouterr().err


def test_a_run_goes_on_from_the_newest_whole_checkpoint_and_its_score_is_never_that_of_an_earlier_step(
    folder: Path, config: Config, tmp_path: Path
):
    reason = bits_turned(newest(folder))
    continued = f"trainproof train --resume {folder} --output NEW_FOLDER"
    then = f"Continue from step 2, which is the newest whole one: {continued}."
    assert refusal(lambda: evaluate_run(folder, "eval_v1", QUIET)) == damage_of(folder, reason, then)[1]
    assert not (folder / layout.EVAL_SUMMARY).exists()
    # The damaged one is of the last step: as many steps are left as the whole one lacks.
    resumed = replace(config, limits=LimitsConfig(steps=4))
    order = RunRequest(config=resumed, folder=tmp_path / "rest", command=["-"], resume=folder)
    watch = Listening()
    assert run(order, watch) == 0
    line, _ = damage_of(folder, reason, "Step 2 is the newest whole one and is used instead.")
    assert watch.lines.count(line) == 1
    parent = json.loads((tmp_path / "rest" / layout.MANIFEST).read_text())["parent"]
    before, after = (
        {row["step"]: row for row in map(json.loads, (each / layout.CHAIN).read_text().splitlines())}
        for each in (folder, tmp_path / "rest")
    )
    assert parent == {"run_id": "run", "step": 2, "link": link_of(before[2])}
    assert sorted(after) == [2, 3, 4]
    assert after[4]["state_sha256"] == before[4]["state_sha256"]


def test_where_no_step_is_left_none_is_trained_again(folder: Path, config: Config, tmp_path: Path):
    resumed = replace(config, limits=LimitsConfig(steps=4))
    order = RunRequest(config=resumed, folder=tmp_path / "rest", command=["-"], resume=folder)
    assert refusal(lambda: run(order, QUIET)).startswith("error TP051: ")
    assert not order.folder.exists()


def test_where_no_checkpoint_is_whole_none_is_thrown_away(folder: Path):
    reason = bits_turned(newest(folder))
    emptied(folder / layout.CHECKPOINTS / "2")
    there = folder / layout.CHECKPOINTS
    then = f"No checkpoint here is whole. Each was read back when it was saved, so copy {there} again from there."
    text = refusal(lambda: export_run(folder, None, QUIET))
    assert text.startswith(damage_of(folder, reason, then)[1])
    assert text.count("TP053") == 2
    assert "anew" not in text


OTHER_NAMES = ("a*b", "a?b", "back\\slash", "a%20b #c:d", "no\udcffutf")


@pytest.mark.parametrize("name", ["a [b]", *(pytest.param(each, marks=pytest.mark.slow) for each in OTHER_NAMES)])
def test_a_run_is_saved_and_read_in_folders_of_every_name(name: str, folder: Path, config: Config, tmp_path: Path):
    made = tmp_path / name / "run"
    saving = replace(config, checkpoint=CheckpointConfig(save_every_steps=2, keep=1), limits=LimitsConfig(steps=4))
    assert run(RunRequest(config=saving, folder=made, command=["-"]), QUIET) == 0
    assert [path.name for path in (made / layout.CHECKPOINTS).iterdir()] == ["4"]
    export_run(made, tmp_path / "export", QUIET)
    export_run(folder, tmp_path / "other", QUIET)
    one, other = (tmp_path / each / "model.safetensors" for each in ("export", "other"))
    assert one.read_bytes() == other.read_bytes()


def test_a_checkpoint_that_cannot_be_read_back_is_not_announced_and_the_one_before_it_stays(
    config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    write = saving.ocp.CheckpointManager.save

    def loses_the_second(manager, step: int, **given: Any) -> bool:
        saved = write(manager, step, **given)
        if step == 4:
            (Path(manager.directory) / "4" / "default" / "manifest.ocdbt").unlink()
        return saved

    monkeypatch.setattr(saving.ocp.CheckpointManager, "save", loses_the_second)
    settings = replace(config, checkpoint=CheckpointConfig(save_every_steps=2, keep=1), limits=LimitsConfig(steps=6))
    watch = Listening()
    with pytest.raises(ProblemError) as caught:
        run(RunRequest(config=settings, folder=tmp_path / "run", command=["-"]), watch)
    [problem] = caught.value.problems
    assert problem.what == (
        "The run folder could not be written: the checkpoint at step 4 cannot be read back as it was written."
    )
    assert [line for line in watch.lines if line.startswith("checkpoint at")] == ["checkpoint at step 2"]
    assert (tmp_path / "run" / layout.CHECKPOINTS / "2").is_dir()


def test_a_checkpoint_from_before_there_were_hashes_is_taken(folder: Path):
    [metadata] = newest(folder).glob("_CHECKPOINT_METADATA")
    content = json.loads(metadata.read_text())
    assert len(content["custom_metadata"].pop(HASH)) == 64
    metadata.write_text(json.dumps(content))
    assert export_run(folder, None, QUIET) == folder / layout.EXPORT

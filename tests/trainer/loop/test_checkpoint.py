"""A checkpoint is restored as it was saved, or not at all."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from refusals import catch_problem, refusal_text
from tasks import with_settings
from whole_runs import QUIET, link_at, manifest_of, rows, saved_steps

from evidence import layout
from trainer.config.tree import Config
from trainer.evaluation.evaluate import evaluate_run
from trainer.export_run import export_run
from trainer.loop import checkpoints
from trainer.loop.checkpoints import STATE_HASH
from trainer.recorder.progress import Watch
from trainer.run import run

SAVING: dict[str, Any] = {"checkpoint": {"save_every_steps": 2}, "limits": {"steps": 4}}
"""Checkpoints at steps 2 and 4."""


@pytest.fixture
def folder(config: Config, finished: Callable[[Config], Path], tmp_path: Path) -> Path:
    return shutil.copytree(finished(with_settings(config, **SAVING)), tmp_path / "run")


def newest(folder: Path) -> Path:
    return folder / layout.CHECKPOINTS / "4"


def flip_bits(checkpoint: Path) -> None:
    """Flip three bits of the parameters; the file stays readable."""
    largest = max(checkpoint.rglob("d/*"), key=lambda path: path.stat().st_size)
    content = bytearray(largest.read_bytes())
    for part in (2, 3, 4):
        content[len(content) * part // 5] ^= 1
    largest.write_bytes(content)


def empty(checkpoint: Path) -> None:
    shutil.rmtree(checkpoint)
    checkpoint.mkdir()


def changing(pattern: str, change: Callable[[bytes], bytes] | None) -> Callable[[Path], None]:
    """Return a damage that changes the content of files, or removes them."""

    def damage(checkpoint: Path) -> None:
        for path in [path for path in checkpoint.rglob(pattern) if path.is_file()]:
            path.write_bytes(change(path.read_bytes())) if change else path.unlink()

    return damage


def flip_middle(content: bytes) -> bytes:
    middle = len(content) // 2
    return content[:middle] + bytes([content[middle] ^ 255]) + content[middle + 1 :]


def halve(content: bytes) -> bytes:
    return content[: len(content) // 2] if len(content) > 4000 else content


def listening(lines: list[str]) -> Watch:
    """Return a watch that keeps what is said."""
    watch = Watch(quiet=True)
    watch.say = lines.append
    return watch


def describe_damage(folder: Path, reason: str, then: str) -> tuple[str, str]:
    """Return the damage of the newest checkpoint in one line, and as an error."""
    what = f"{newest(folder)}: The checkpoint at step 4 is damaged: {reason}."
    why = "Files of the checkpoint were changed or lost after it was saved."
    return f"TP053: {what} {why} Next: {then}", f"error TP053: {what}\n  {why}\n  Next: {then}\n"


OTHER_STATE = "its state is not the one that was saved"
NO_METADATA = "its metadata cannot be read"
UNREADABLE = "it cannot be read as the state of this model and optimizer"
USED_INSTEAD = "The newest undamaged one, at step 2, is used instead."


DAMAGE = {
    "flipped bits": (flip_bits, OTHER_STATE),
    "other content": (changing("ocdbt.process_0/d/*", lambda old: bytes(len(old))), f"{UNREADABLE} (ValueError)"),
    "nothing": (empty, NO_METADATA),
    "halves": (changing("*", halve), f"{UNREADABLE} (JSONDecodeError)"),
    "no metadata": (changing("*METADATA*", None), NO_METADATA),
    "flipped metadata": (changing("default/_METADATA", flip_middle), f"{UNREADABLE} (UnicodeDecodeError)"),
    "no manifest": (changing("default/manifest.ocdbt", None), f"{UNREADABLE} (ValueError)"),
    "empty files": (changing("d/*", lambda old: b""), f"{UNREADABLE} (ValueError)"),
    "half metadata": (changing("_CHECKPOINT_METADATA", lambda old: b"{"), NO_METADATA),
}


@pytest.mark.slow(but=("flipped bits", "other content"))
@pytest.mark.parametrize("name", DAMAGE)
def test_the_newest_whole_checkpoint_is_exported_and_a_damaged_one_named(name, folder, capfd):
    damage, reason = DAMAGE[name]
    damage(newest(folder))
    newest(folder).with_name("4.orbax-checkpoint-tmp").mkdir()
    lines: list[str] = []
    assert export_run(folder, None, listening(lines)) == folder / layout.EXPORT
    assert lines == [describe_damage(folder, reason, USED_INSTEAD)[0], f"exported step 2 to {folder / layout.EXPORT}"]
    assert "Traceback" not in capfd.readouterr().err


def test_resume_uses_the_newest_whole_checkpoint_and_evaluation_refuses_an_earlier_step(folder, config, order_of):
    flip_bits(newest(folder))
    continued = f"trainproof train --resume {folder} --output NEW_FOLDER"
    then = f"Resume from the newest undamaged one, at step 2: {continued}."
    assert refusal_text(evaluate_run, folder, "eval_v1", QUIET) == describe_damage(folder, OTHER_STATE, then)[1]
    assert not (folder / layout.EVAL_SUMMARY).exists()
    # The damaged one is of the last step: as many steps are left as the whole one lacks.
    order = order_of(with_settings(config, limits={"steps": 4}), "rest", resume=folder)
    lines: list[str] = []
    assert run(order, listening(lines)) == 0
    assert lines.count(describe_damage(folder, OTHER_STATE, USED_INSTEAD)[0]) == 1
    before, after = ({row["step"]: row for row in rows(each, layout.CHAIN)} for each in (folder, order.folder))
    assert manifest_of(order.folder)["parent"] == {"run_id": "run", "step": 2, "link": link_at(folder, 2)}
    assert sorted(after) == [2, 3, 4]
    assert after[4]["state_sha256"] == before[4]["state_sha256"]


def test_no_whole_checkpoint_is_refused_without_deleting_any(folder):
    flip_bits(newest(folder))
    empty(folder / layout.CHECKPOINTS / "2")
    there = folder / layout.CHECKPOINTS
    then = f"All checkpoints here are damaged. Each was read back when it was saved, so copy {there} again."
    text = refusal_text(export_run, folder, None, QUIET)
    assert text.startswith(describe_damage(folder, OTHER_STATE, then)[1])
    assert text.count("TP053") == 2


@pytest.mark.slow(but=("a [b]",))
@pytest.mark.parametrize("name", ["a [b]", "a*b", "a?b", "back\\slash", "a%20b #c:d", "no\udcffutf"])
def test_a_run_is_saved_and_read_in_folders_of_every_name(name, folder, config, train, tmp_path):
    mine = train(with_settings(with_settings(config, **SAVING), checkpoint={"keep": 1}), f"{name}/run")
    assert saved_steps(mine) == ["4"]
    export_run(mine, tmp_path / "export", QUIET)
    export_run(folder, tmp_path / "other", QUIET)
    one, other = (tmp_path / each / "model.safetensors" for each in ("export", "other"))
    assert one.read_bytes() == other.read_bytes()


def test_a_checkpoint_that_cannot_be_read_back_is_not_announced(config, order_of, monkeypatch):
    write = checkpoints.ocp.CheckpointManager.save

    def loses_the_second(manager, step: int, **given: Any) -> bool:
        saved = write(manager, step, **given)
        if step == 4:
            (Path(manager.directory) / "4" / "default" / "manifest.ocdbt").unlink()
        return saved

    monkeypatch.setattr(checkpoints.ocp.CheckpointManager, "save", loses_the_second)
    order = order_of(with_settings(config, checkpoint={"save_every_steps": 2, "keep": 1}, limits={"steps": 6}))
    lines: list[str] = []
    problem = catch_problem(run, order, listening(lines), exit_code=4)
    assert problem.what.endswith(": the checkpoint at step 4 cannot be read back as it was written.")
    assert [line for line in lines if line.startswith("checkpoint at")] == ["checkpoint at step 2"]
    assert saved_steps(order.folder)[0] == "2"


def test_a_checkpoint_without_a_hash_of_an_earlier_version_is_used(folder):
    [metadata] = newest(folder).glob("_CHECKPOINT_METADATA")
    content = json.loads(metadata.read_text())
    assert len(content["custom_metadata"].pop(STATE_HASH)) == 64
    metadata.write_text(json.dumps(content))
    assert export_run(folder, None, QUIET) == folder / layout.EXPORT

"""A checkpoint is restored as it was saved, or not at all."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from refusals import catch_problem, catch_problems
from tasks import with_settings
from whole_runs import manifest_of, rows, saved_steps

from evidence import layout
from evidence.hashes import hash_entry
from schemas.render import render_text
from trainer.config.tree import Config
from trainer.evaluation.evaluate import evaluate_run
from trainer.export_run import export_run
from trainer.loop import checkpoints
from trainer.loop.checkpoints import STATE_HASH
from trainer.recorder.progress import Watch
from trainer.run import RunRequest, run

QUIET = Watch(quiet=True)


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


def changing(pattern: str, change: Callable[[bytes], bytes]) -> Callable[[Path], None]:
    def damage(checkpoint: Path) -> None:
        for path in [path for path in checkpoint.rglob(pattern) if path.is_file()]:
            path.write_bytes(change(path.read_bytes()))

    return damage


def removing(pattern: str) -> Callable[[Path], None]:
    return lambda checkpoint: [path.unlink() for path in list(checkpoint.rglob(pattern)) if path.is_file()]


def flip_middle(content: bytes) -> bytes:
    middle = len(content) // 2
    return content[:middle] + bytes([content[middle] ^ 255]) + content[middle + 1 :]


def halve(content: bytes) -> bytes:
    return content[: len(content) // 2] if len(content) > 4000 else content


class Listening(Watch):
    def __init__(self) -> None:
        super().__init__(quiet=True)
        self.lines: list[str] = []
        self.say = self.lines.append  # type: ignore[method-assign]


def damage_of(folder: Path, reason: str, then: str) -> tuple[str, str]:
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
    "other content": (
        changing("ocdbt.process_0/d/*", lambda old: bytes(range(256)) * (len(old) // 256)),
        f"{UNREADABLE} (ValueError)",
    ),
    "nothing": (empty, NO_METADATA),
    "halves": (changing("*", halve), f"{UNREADABLE} (JSONDecodeError)"),
    "no metadata": (removing("*METADATA*"), NO_METADATA),
    "flipped metadata": (changing("default/_METADATA", flip_middle), f"{UNREADABLE} (UnicodeDecodeError)"),
    "no manifest": (removing("default/manifest.ocdbt"), f"{UNREADABLE} (ValueError)"),
    "empty files": (changing("d/*", lambda old: b""), f"{UNREADABLE} (ValueError)"),
    "half metadata": (changing("_CHECKPOINT_METADATA", lambda old: b"{"), NO_METADATA),
}


@pytest.mark.slow(but=("flipped bits", "other content"))
@pytest.mark.parametrize("name", DAMAGE)
def test_the_newest_whole_checkpoint_is_exported_and_a_damaged_one_named(name, folder, capfd):
    damage, reason = DAMAGE[name]
    damage(newest(folder))
    line, _ = damage_of(folder, reason, USED_INSTEAD)
    newest(folder).with_name("4.orbax-checkpoint-tmp").mkdir()
    watch = Listening()
    assert export_run(folder, None, watch) == folder / layout.EXPORT
    assert watch.lines == [line, f"exported step 2 to {folder / layout.EXPORT}"]
    assert "Traceback" not in capfd.readouterr().err


def test_resume_uses_the_newest_whole_checkpoint_and_evaluation_refuses_an_earlier_step(folder, config, order_of):
    flip_bits(newest(folder))
    continued = f"trainproof train --resume {folder} --output NEW_FOLDER"
    then = f"Resume from the newest undamaged one, at step 2: {continued}."
    assert (
        render_text(catch_problems(lambda: evaluate_run(folder, "eval_v1", QUIET)))
        == damage_of(folder, OTHER_STATE, then)[1]
    )
    assert not (folder / layout.EVAL_SUMMARY).exists()
    # The damaged one is of the last step: as many steps are left as the whole one lacks.
    order = order_of(with_settings(config, limits={"steps": 4}), "rest", resume=folder)
    watch = Listening()
    assert run(order, watch) == 0
    line, _ = damage_of(folder, OTHER_STATE, USED_INSTEAD)
    assert watch.lines.count(line) == 1
    before, after = ({row["step"]: row for row in rows(each, layout.CHAIN)} for each in (folder, order.folder))
    assert manifest_of(order.folder)["parent"] == {"run_id": "run", "step": 2, "link": hash_entry(before[2])}
    assert sorted(after) == [2, 3, 4]
    assert after[4]["state_sha256"] == before[4]["state_sha256"]


def test_no_whole_checkpoint_is_refused_without_deleting_any(folder):
    flip_bits(newest(folder))
    empty(folder / layout.CHECKPOINTS / "2")
    there = folder / layout.CHECKPOINTS
    then = f"All checkpoints here are damaged. Each was read back when it was saved, so copy {there} again."
    text = render_text(catch_problems(lambda: export_run(folder, None, QUIET)))
    assert text.startswith(damage_of(folder, OTHER_STATE, then)[1])
    assert text.count("TP053") == 2


@pytest.mark.slow(but=("a [b]",))
@pytest.mark.parametrize("name", ["a [b]", "a*b", "a?b", "back\\slash", "a%20b #c:d", "no\udcffutf"])
def test_a_run_is_saved_and_read_in_folders_of_every_name(name, folder, config, order_of, tmp_path):
    order = order_of(with_settings(with_settings(config, **SAVING), checkpoint={"keep": 1}), f"{name}/run")
    assert run(order, QUIET) == 0
    assert saved_steps(order.folder) == ["4"]
    export_run(order.folder, tmp_path / "export", QUIET)
    export_run(folder, tmp_path / "other", QUIET)
    one, other = (tmp_path / each / "model.safetensors" for each in ("export", "other"))
    assert one.read_bytes() == other.read_bytes()


def test_a_checkpoint_that_cannot_be_read_back_is_not_announced(config, tmp_path, monkeypatch):
    write = checkpoints.ocp.CheckpointManager.save

    def loses_the_second(manager, step: int, **given: Any) -> bool:
        saved = write(manager, step, **given)
        if step == 4:
            (Path(manager.directory) / "4" / "default" / "manifest.ocdbt").unlink()
        return saved

    monkeypatch.setattr(checkpoints.ocp.CheckpointManager, "save", loses_the_second)
    settings = with_settings(config, checkpoint={"save_every_steps": 2, "keep": 1}, limits={"steps": 6})
    watch = Listening()
    request = RunRequest(config=settings, folder=tmp_path / "run", command=["-"])
    problem = catch_problem(lambda: run(request, watch), exit_code=4)
    assert problem.what.endswith(": the checkpoint at step 4 cannot be read back as it was written.")
    assert [line for line in watch.lines if line.startswith("checkpoint at")] == ["checkpoint at step 2"]
    assert (tmp_path / "run" / layout.CHECKPOINTS / "2").is_dir()


def test_a_checkpoint_without_a_hash_of_an_earlier_version_is_used(folder):
    [metadata] = newest(folder).glob("_CHECKPOINT_METADATA")
    content = json.loads(metadata.read_text())
    assert len(content["custom_metadata"].pop(STATE_HASH)) == 64
    metadata.write_text(json.dumps(content))
    assert export_run(folder, None, QUIET) == folder / layout.EXPORT

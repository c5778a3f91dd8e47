"""Replay: honest runs are identical bit for bit, and every kind of forged run is found and located."""

import json
import os
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest
import yaml
from commands import run_command
from configs import changed
from forging import forged, read_manifest, read_rows
from model_folders import row_file
from refusals import catch_problems
from replays import record, refusal, replay_run, small_config
from tasks import inputs_of
from whole_runs import errors_of

from evidence import layout
from evidence.bundle.build import build_bundle
from evidence.hashes import sha256_file
from evidence.proof.receipts import save_receipt
from evidence.proof.verification import find_proofs
from trainer.config.tree import Config
from trainer.loop.chain import StateWriter
from trainer.loop.loop import Loop
from trainer.loop.programs import compiled_steps
from trainer.loop.session import StopRequest
from trainer.loop.state import initial_state
from trainer.model.decoder import params_sha256
from trainer.replay import repetition
from trainer.replay.recorded import ReplayRequest, read_recorded
from trainer.replay.repetition import InMemoryRecorder, RecordedStates, Repetition, SegmentResult, Tolerance
from trainer.replay.replay import replay

SLOW = pytest.mark.slow


def replayed_config(folder: Path) -> Config:
    recording = {"chain_every_steps": 2, "states_mib": 0}
    return small_config(folder, steps=8, checkpoint={"save_every_steps": 3, "keep": 9}, recording=recording)


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of eight steps: chain at 2, 3, 4, 6 and 8, checkpoints at 3, 6 and 8."""
    root = tmp_path_factory.mktemp("replay")
    return record(replayed_config(root), root / "honest")


def verdicts(receipt: dict[str, Any]) -> list[str]:
    return [each["verdict"] for each in receipt["covered"]["segments"]]


class Replayer:
    """Replays copies of the honest run with its training step, compiled once."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.task, self.data = inputs_of(config)
        self.steps = compiled_steps(self.task, self.data.source.lengths_in_use)

    def replay(self, folder: Path, *, is_exact: bool = True) -> list[SegmentResult]:
        """Return the results of the segments that were reached."""
        run = read_recorded(folder)
        states = RecordedStates(run=run, task=self.task)
        repetition = Repetition(states=states, data=self.data, steps=self.steps, is_exact=is_exact)
        for segment in run.segments:
            if segment.number not in repetition.found:
                list(repetition.repeat(segment))
        return [repetition.found[number] for number in sorted(repetition.found)]

    def train(self, to: int = 8, start: Any = None, **changes: Any) -> tuple[InMemoryRecorder, Any]:
        """Train without a run folder, with some settings changed; return the recorder and the last state."""
        config = changed(self.config, **changes)
        task, data = inputs_of(config)
        is_same_step = config.optimizer == self.config.optimizer
        states, frozen = ([start], {}) if start is not None else initial_state(task)
        recorder = InMemoryRecorder()
        loop = Loop(
            task=task,
            step=self.steps if is_same_step else compiled_steps(task, data.source.lengths_in_use),
            frozen=frozen,
            source=data.source,
            stop=StopRequest(max_minutes=None),
            save=StateWriter(task=task, recorder=recorder),
            last_step=to,
        )
        if start is None:
            loop.save.write(states[0], saved=False)
        outcome = loop.run(states)
        loop.save.write(outcome.state, saved=False)
        return recorder, outcome.state


@pytest.fixture(scope="module")
def replayer(honest: Path) -> Replayer:
    return Replayer(replayed_config(honest.parent))


def splice(folder: Path, recorder: InMemoryRecorder, state: Any, *, after: int = 0) -> None:
    """Replace the training of a run after a step; times, speeds and the learning rate stay as recorded."""
    kept = ("step_seconds", "tokens_per_second", "device_memory_bytes", "time", "tokens_seen", "padding_fraction")
    rows = read_rows(folder)
    for row in recorder.rows:
        if (step := row["step"]) > after:
            rows[step - 1] = {**row, **{key: rows[step - 1][key] for key in (*kept, "learning_rate")}}
    states = {step: sha256 for step, sha256 in recorder.states.items() if step > after}
    forged(folder, rows, states=states, params={8: params_sha256(state.trained)})


@pytest.fixture
def copy(honest: Path, tmp_path: Path) -> Path:
    """A copy of the honest run without its checkpoints."""
    folder = tmp_path / "honest"
    shutil.copytree(honest, folder, ignore=shutil.ignore_patterns(layout.CHECKPOINTS))
    return folder


def test_a_whole_replay_of_an_honest_run_is_identical(honest, tmp_path):
    receipt, code, events = replay_run(honest, whole=True)
    assert code == 0
    assert receipt["said"] == "Replayed 5 of 5 segments (8 of 8 steps) and 12 of 12 answers: identical."
    found = [(each["first_step"], each["last_step"]) for each in receipt["covered"]["segments"]]
    assert found == [(0, 2), (2, 3), (3, 4), (4, 6), (6, 8)]
    assert verdicts(receipt) == ["identical"] * 5
    assert receipt["covered"]["start"] == {"verdict": "identical", "differences": []}
    counts = {"drawn": 12, "identical": 12, "within_tolerance": 0, "different": 0, "trained": 6}
    assert receipt["covered"]["items"] == counts | {"given_again": {"trained": 6, "untrained": 6}}
    assert receipt["marks"]["said"].endswith("Training reproduced: 8 of 8 steps, including its end.")
    assert receipt["marks"]["lacking"] == []
    assert [event["number"] for event in events if event["event"] == "segment"] == [0, 1, 2, 3, 4]
    assert save_receipt(receipt).is_file()


@pytest.mark.slow
def test_a_missing_evaluation_set_is_restored_from_the_answers(honest):
    items = honest.parent / "items.jsonl"
    away = items.rename(items.with_suffix(".away"))
    try:
        receipt, code, _ = replay_run(honest, segments=0, items=2)
    finally:
        away.rename(items)
    assert code == 0
    assert receipt["covered"]["start"] == {"verdict": "identical", "differences": []}
    assert receipt["covered"]["items"]["given_again"] == {"trained": 6, "untrained": 6}
    assert receipt["covered"]["items"]["different"] == 0


def test_without_checkpoints_the_first_segments_are_replayed_and_saved_parameters_answer(copy):
    receipt, code, _ = replay_run(copy, segments=1, items=2)
    assert code == 0
    assert receipt["said"] == "Replayed 2 of 5 segments (3 of 8 steps) and 12 of 12 answers: identical."
    items = receipt["covered"]["items"]
    assert (items["drawn"], items["identical"], items["trained"]) == (4, 4, 2)
    assert items["given_again"] == {"trained": 6, "untrained": 6}
    assert verdicts(receipt) == ["identical"] * 2 + ["not tried"] * 3


def edited_loss(folder: Path, _: Replayer) -> None:
    rows = read_rows(folder)
    rows[4]["loss"] -= 0.01
    forged(folder, rows)
    assert errors_of(folder) == []


def edited_end(folder: Path, _: Replayer) -> None:
    rows = read_rows(folder)
    for row in rows[6:]:
        row["grad_norm"] *= 0.9
    forged(folder, rows, states={8: "ab" * 32}, params={8: "cd" * 32})


def other_data_order(folder: Path, replayer: Replayer) -> None:
    splice(folder, *replayer.train(data={"shuffle": False}))


def later_learning_rate(folder: Path, replayer: Replayer) -> None:
    """Step 5 still uses the parameters of step 4; only its update differs."""
    _, fourth = replayer.train(to=4)
    splice(folder, *replayer.train(start=fourth, optimizer={"learning_rate": 2e-2}))


def spliced(folder: Path, replayer: Replayer) -> None:
    splice(folder, *replayer.train(seed=7), after=4)


def skipped_steps(folder: Path, replayer: Replayer) -> None:
    """Train four steps; the other states repeat the fourth, and the other rows are invented."""
    kept, state = replayer.train(to=4)
    rows = read_rows(folder)
    for row in rows[4:]:
        row["loss"], row["grad_norm"] = rows[3]["loss"] * (1 - row["step"] / 1e4), rows[3]["grad_norm"]
    forged(folder, rows, states={6: kept.states[4], 8: kept.states[4]}, params={8: params_sha256(state.trained)})


@pytest.mark.parametrize(
    ("forge", "honest_segments", "text"),
    [
        (edited_loss, 3, "Step 5 is the first row that differs, in its loss"),
        (edited_end, 4, "Step 7 is the first row that differs, in its gradient: grad_norm is"),
        pytest.param(other_data_order, 0, "Step 1 is the first row that differs, in its loss", marks=SLOW),
        pytest.param(later_learning_rate, 3, "Step 6 is the first row that differs, in its loss", marks=SLOW),
        pytest.param(spliced, 3, "Step 5 is the first row that differs", marks=SLOW),
        (skipped_steps, 3, "Step 5 is the first row that differs"),
    ],
)
def test_forged_training_is_found_and_located(forge, honest_segments, text, copy, replayer):
    true = read_rows(copy)[4]["loss"]
    forge(copy, replayer)
    results = replayer.replay(copy)
    assert [each.verdict for each in results][: honest_segments + 1] == ["identical"] * honest_segments + ["different"]
    assert text in results[honest_segments].difference
    if forge is edited_loss:
        assert results[4].verdict == "identical"
        assert f"loss is {true - 0.01!r} in the run and {true!r} here" in results[3].difference
        assert results[3].difference.endswith("so the row is not what training measured.")
    else:
        assert len(results) == honest_segments + 1


def scale_losses(folder: Path, factor: float, first: int = 0, states: dict[int, str] | None = None) -> None:
    """Multiply the losses from a row on, and state other hashes, as another processor would."""
    rows = read_rows(folder)
    for row in rows[first:]:
        row["loss"] *= factor
    forged(folder, rows, states=states, params={8: "cd" * 32} if states else None)


OTHER_STATES = dict.fromkeys((2, 3, 4, 6, 8), "ab" * 32)


def test_swapped_checkpoints_are_not_used(honest, copy, replayer):
    for step, taken_from in ((3, 6), (6, 6), (8, 8)):
        shutil.copytree(honest / layout.CHECKPOINTS / str(taken_from), copy / layout.CHECKPOINTS / str(step))
    found = read_recorded(copy)
    states = RecordedStates(run=found, task=replayer.task)
    assert states.load(3) is None
    assert states.warnings == ["the checkpoint at step 3 is not the state in the chain"]
    assert states.load(6) is not None
    # If the chain has the swapped state, the segment that ends there differs.
    forged(copy, states={3: found.states[6]})
    results = {each.segment.number: each for each in replayer.replay(copy)}
    assert results[1].verdict == "different"
    assert results[1].difference.startswith(
        "The state after step 3 is not the one in the chain, although every row up to"
    )


def test_edited_answers_and_edited_start_are_found(copy):
    answers = read_rows(copy, layout.PREDICTIONS)
    answers[2]["output_text"] = "<answer>4</answer>"
    row_file(copy / layout.PREDICTIONS, *answers)
    path = copy / layout.EVAL_SUMMARY
    path.write_text(path.read_text("utf-8").replace('"prompt_template": "', '"prompt_template": "Q: '), "utf-8")
    count = read_manifest(copy)["dataset"]["duplicates"]
    forged(copy, manifest={"dataset": {"duplicates": count + 1}, "model": {"parameters": 7}})
    receipt, code, _ = replay_run(copy, segments=0, items=6)
    assert (code, receipt["result"]) == (1, "different")
    assert receipt["covered"]["items"]["different"] == 1
    differences = receipt["covered"]["start"]["differences"]
    assert f"dataset.duplicates is {count + 1} in the run and {count} here" in differences
    for field in ("model.parameters is 7 ", "generation.prompt_template is "):
        assert any(each.startswith(field) for each in differences)
    assert "1 answer is not the model's: q2" in receipt["said"]


def test_other_versions_are_refused_unless_anyway(copy):
    packages = read_manifest(copy)["environment"]["packages"]
    forged(copy, manifest={"environment": {"packages": packages | {"jax": "0.1.2"}}})
    assert refusal(lambda: replay_run(copy)) == (3, [f"TP761 The run used jax 0.1.2; here it is {packages['jax']}."])
    receipt, code, _ = replay_run(copy, segments=0, items=0, anyway=True)
    assert (code, receipt["result"]) == (0, "identical")


def test_other_devices_and_other_data_are_refused(copy, tmp_path):
    forged(copy, manifest={"devices": {"platform": "tpu", "kind": "TPU v5 lite", "count": 8}})
    said = "TP762 The run used 8 × TPU v5 lite (tpu); this machine has 8 × cpu (cpu)."
    assert refusal(lambda: replay_run(copy)) == (3, [said])
    forged(copy, manifest={"devices": {"platform": "cpu", "kind": "cpu", "count": 1}})
    step = {"i": 0, "type": "compute", "content": "Add."}
    other = row_file(tmp_path / "other.jsonl", {"prompt": "1 + 1?", "steps": [step], "final_answer": "2"})
    code, [text] = refusal(lambda: replay_run(copy, dataset=other))
    assert (code, text.split(" has the")[0]) == (3, "TP763 other.jsonl")
    assert text.endswith(f"; the run was trained on {read_manifest(copy)['dataset']['sha256']}.")
    code, [text] = refusal(lambda: replay_run(copy, dataset=str(tmp_path / "not-there.jsonl")))
    assert (code, "not-there.jsonl" in text) == (3, True)


def change_config(folder: Path, group: str, **values: Any) -> None:
    config = yaml.safe_load((folder / layout.CONFIG).read_text())
    config[group] |= values
    (folder / layout.CONFIG).write_text(yaml.safe_dump(config))


def test_missing_models_and_damaged_runs_are_refused(copy, tmp_path):
    assert refusal(lambda: replay_run(tmp_path / "nothing"))[0] == 2
    rows = read_rows(copy)
    rows[-1]["step"] = 10**15  # would inflate the number of steps
    row_file(copy / layout.METRICS, *rows)
    said = "TP760 metrics.jsonl has a row of step 1,000,000,000,000,000, but config.yaml ends at step 8."
    assert refusal(lambda: replay_run(copy)) == (2, [said])
    (copy / layout.METRICS).unlink()
    assert refusal(lambda: replay_run(copy)) == (2, ["TP760 metrics.jsonl is missing or cannot be read."])
    row_file(copy / layout.METRICS, *rows[:-1])
    change_config(copy, "model", name="/home/somebody/their-model")
    [problem] = catch_problems(replay_run, copy, exit_code=3)
    assert problem.code == "TP040"
    assert problem.next.endswith("name its folder with --model.")


@pytest.mark.slow
def test_answers_of_a_later_evaluation_are_verified(copy):
    """Its configuration lacks an evaluation set, which must not hide a forged score."""
    change_config(copy, "evaluation", eval_set=None)
    honest = replay_run(copy, segments=0, items=6)[0]["covered"]["items"]
    assert (honest["trained"], honest["different"]) == (6, 0)
    answers = read_rows(copy, layout.PREDICTIONS)
    answers[3]["output_text"] = "<reasoning>So.</reasoning>\n<answer>42</answer>"
    row_file(copy / layout.PREDICTIONS, *answers)
    other = replay_run(copy, segments=0, items=6)[0]["covered"]["items"]
    assert (other["trained"], other["different"]) == (6, 1)


@pytest.mark.parametrize("kind", ["pipe", "device", "folder"])
def test_special_files_as_parameters_are_not_read(kind, copy):
    path = copy / layout.TRAINED_PARAMS
    path.unlink()
    {"pipe": os.mkfifo, "device": lambda path: path.symlink_to("/dev/zero"), "folder": os.mkdir}[kind](path)
    shutil.rmtree(copy / layout.CHECKPOINTS, ignore_errors=True)
    receipt, code, _ = replay_run(copy, segments=0)
    assert (code, receipt["result"]) == (0, "identical")


@pytest.mark.slow
def test_on_another_processor_the_tolerance_applies(copy, replayer):
    scale_losses(copy, 1 + 1e-7, states=OTHER_STATES)
    assert {each.verdict for each in replayer.replay(copy, is_exact=False)} == {"within tolerance"}
    assert replayer.replay(copy)[0].verdict == "different"
    scale_losses(copy, 1.001, first=4)
    assert [each.verdict for each in replayer.replay(copy, is_exact=False)] == ["within tolerance"] * 3 + ["different"]


@pytest.mark.parametrize(("minutes", "items"), [(0, 0), (1e-6, 2)])
def test_too_little_time_for_a_step_is_refused(minutes, items, copy):
    said = ["TP760 Time limit reached before any step was replayed."]
    assert refusal(lambda: replay_run(copy, minutes=minutes, items=items)) == (3, said)


def test_a_signal_ends_a_replay_with_its_results(copy):

    def tell(event: dict) -> None:
        if event["event"] == "step" and event["step"] == 5:
            os.kill(os.getpid(), signal.SIGTERM)

    receipt, code = replay(ReplayRequest(folder=copy, whole=True), lambda line: None, tell)
    assert code == 5
    assert receipt["result"] == "identical"
    assert verdicts(receipt) == ["identical"] * 4 + ["not tried"]
    assert receipt["said"].endswith("6 of 12 answers: identical. Stopped before its end.")


def test_a_bundle_is_replayed_and_verified_by_its_receipt(honest, tmp_path, capsys):
    bundle, output = tmp_path / "honest.zip", tmp_path / "receipt.json"
    build_bundle([honest], bundle)
    asked = ("--segments", 0, "--items", 2, "--seed", 5, "--output", output, "--json", "--json-lines")
    code, out, err = run_command(capsys, "replay", bundle, *asked)
    receipt = json.loads(out)
    assert (code, receipt["run_sha256"]) == (0, sha256_file(honest / layout.MANIFEST))
    events = [json.loads(line) for line in err.splitlines()]
    names = [event["event"] for event in events if event["event"] not in ("step", "items")]
    assert names == ["planned", "segment", "done"]
    assert events[-1] == {"event": "done", "result": "identical", "said": receipt["said"], "exit_code": 0}
    assert json.loads(output.read_text())["said"] == receipt["said"]
    [proof] = find_proofs(honest, receipt["run_sha256"])
    assert (proof.by, proof.is_positive) == ("you", True)


def cut_tolerance(monkeypatch, steps: int) -> None:
    """Cut the table of tolerances to so many steps."""
    short = Tolerance(factor=1, least=1e-6, measured={"loss": ((steps, 0.0),), "grad_norm": ((steps, 0.0),)})
    monkeypatch.setattr(repetition, "load_tolerance", lambda compute: short)


def test_on_another_processor_late_steps_are_not_judged(copy, replayer, monkeypatch):
    cut_tolerance(monkeypatch, 3)
    scale_losses(copy, 1.01, first=4, states=OTHER_STATES)
    results = replayer.replay(copy, is_exact=False)
    assert [each.verdict for each in results] == ["within tolerance"] * 3 + ["not tried"] * 2
    assert results[3].difference == repetition.TOO_FAR
    rows = read_rows(copy)
    rows[6]["tokens_seen"] += 1
    rows[7]["tokens_seen"] += 1
    forged(copy, rows)
    assert replayer.replay(copy, is_exact=False)[-1].verdict == "different"


def test_between_equal_states_the_tolerance_is_that_of_one_step(copy, replayer):
    """A loss that was summed in another order by two units of float32, between states with equal bits."""
    scale_losses(copy, 1 + 2e-7)
    assert {each.verdict for each in replayer.replay(copy, is_exact=False)} == {"within tolerance"}
    scale_losses(copy, 1 + 2e-6, first=6)
    assert replayer.replay(copy, is_exact=False)[-1].verdict == "different"


def test_on_another_processor_segments_are_judged_from_their_nearest_state(honest, tmp_path, replayer, monkeypatch):
    """The checkpoints at steps 3 and 6 are common states."""
    cut_tolerance(monkeypatch, 1)
    folder = shutil.copytree(honest, tmp_path / "honest")
    common = {step: sha256 for step, sha256 in read_recorded(folder).states.items() if step in (3, 6)}
    # Step 8 is the second after a common state, which this table cannot judge.
    scale_losses(folder, 1.01, first=7, states=OTHER_STATES | common)
    last = replayer.replay(folder, is_exact=False)[-1]
    assert (last.segment.first_step, last.segment.last_step, last.verdict) == (6, 7, "within tolerance")
    scale_losses(folder, 1.01, first=6)
    assert replayer.replay(folder, is_exact=False)[4].verdict == "different"

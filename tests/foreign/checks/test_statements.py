"""Folders of other tools, honest and with one lie told in one place: what was told twice is found, and nothing else."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import foreign_tools as tools
import pytest

from evidence.grade import check_run
from evidence.run import read_run


def errors_of(folder: Path, files: tools.Folder) -> list[str]:
    """Return what contradicts itself in a folder, as `code file: what`."""
    report = check_run(read_run(tools.write(folder / "run", files)))
    return [
        f"{problem.code} {Path(problem.file).name}: {problem.what}"
        for problem in report.findings
        if problem.code.startswith("TP3")
    ]


def changed(files: tools.Folder, name: str, change: Callable[[Any], None]) -> tools.Folder:
    """Return a folder with one JSON document changed."""
    value = json.loads(files[name])
    change(value)
    return {**files, name: tools.document(value)}


def replaced(files: tools.Folder, name: str, old: str, new: str) -> tools.Folder:
    """Return a folder with one text changed; the old one must be there."""
    text = files[name]
    assert isinstance(text, str)
    assert old in text
    return {**files, name: text.replace(old, new)}


HONEST: dict[str, Callable[[], tools.Folder]] = {
    name: getattr(tools, name)
    for name in (
        *("hf_trainer", "lm_eval", "mlflow", "wandb", "axolotl", "llama_factory", "unsloth", "keras", "tensorboard"),
        *("mlperf", "openai_evals"),
    )
}


@pytest.mark.parametrize("name", HONEST)
def test_an_honest_folder_is_measured(tmp_path: Path, name: str) -> None:
    assert errors_of(tmp_path, HONEST[name]()) == []
    assert check_run(read_run(tmp_path / "run")).grade.name == "measured"


def _all_flags_right() -> tools.Folder:
    files = tools.lm_eval(right=67)
    samples = next(name for name in files if "samples" in name)
    return replaced(files, samples, '"exact_match": 0.0', '"exact_match": 1.0')


def _fewer_samples() -> tools.Folder:
    files = tools.lm_eval(right=60, items=90)
    samples = next(name for name in files if "samples" in name)
    return {**files, samples: "".join(f"{line}\n" for line in str(files[samples]).splitlines()[:40])}


def _score(value: float) -> tools.Folder:
    files = tools.lm_eval(right=60, items=90)
    results = next(name for name in files if "results" in name)
    return changed(files, results, lambda one: one["results"]["gsm8k"].update({"exact_match,strict-match": value}))


def _mean_below() -> tools.Folder:
    files = tools.llama_factory()
    for name in ("all_results.json", "train_results.json"):
        files = changed(files, name, lambda one: one.update(train_loss=0.12))
    return changed(files, "trainer_state.json", lambda one: one["log_history"][-1].update(train_loss=0.12))


def _keras_shifted() -> tools.Folder:
    files = tools.keras()
    return changed(files, "history.json", lambda one: one.update(loss=[value + 2 for value in one["loss"]]))


PLANTED: dict[str, tuple[Callable[[], tools.Folder], str]] = {
    "one score name, two values": (
        lambda: {**tools.mlflow(), "results.json": tools.document({"accuracy": 0.97})},
        (
            "TP371 results.json: accuracy is 0.97 in results.json at /accuracy (line 2); none of the 3 values in "
            f"{tools.MLFLOW}/metrics/accuracy is that, the last is 0.81 ({tools.MLFLOW}/metrics/accuracy line 3)."
        ),
    ),
    "lm-eval score against its samples": (lambda: _score(0.95), "the 90 samples in "),
    "lm-eval error against score": (lambda: _score(0.95), "0.95 of 90 items has the standard error 0.0231"),
    "lm-eval samples missing": (_fewer_samples, "TP371"),
    "lm-eval flags against answers": (_all_flags_right, "33 of 100 answers are marked as right and differ"),
    "eval_accuracy against log_history": (
        lambda: changed(tools.hf_trainer(), "all_results.json", lambda one: one.update(eval_accuracy=0.94)),
        "accuracy is ",
    ),
    "global_step against rows": (
        lambda: changed(tools.hf_trainer(), "trainer_state.json", lambda one: one.update(global_step=5000)),
        "TP374 trainer_state.json: training.steps_done is 5000",
    ),
    "mean below the smallest row": (_mean_below, "result.mean_loss is 0.12"),
    "Axolotl learning rate": (
        lambda: {
            **tools.axolotl(rate="2e-4"),
            "trainer_state.json": tools.document(tools.trainer_state(peak=3e-3)),
        },
        "TP371 config.yml: training.learning_rate is 0.0002",
    ),
    "Axolotl batch": (lambda: tools.axolotl(batch=64), "that of a device is 64 (config.yml at micro_batch_size"),
    "Axolotl rank": (
        lambda: changed(tools.axolotl(), "adapter_config.json", lambda one: one.update(r=64)),
        "lora.rank is 64 in adapter_config.json",
    ),
    "W&B configuration against arguments": (
        lambda: replaced(
            replaced(tools.wandb(), f"{tools.WANDB}/wandb-metadata.json", '"gpt2"', '"google/gemma-2b"'),
            f"{tools.WANDB}/config.yaml",
            "gpt2",
            "gpt2",
        ),
        'model.name is "gpt2"',
    ),
    "Keras history in every epoch": (
        _keras_shifted,
        "The loss at epoch 0 is 2.4 in console.log line 2 and 4.4 in history.json at /loss/0",
    ),
    "MLflow runtime against its times": (
        lambda: {**tools.mlflow(), f"{tools.MLFLOW}/metrics/train_runtime": "1767330252000 38900 300\n"},
        "the run lasted 400 seconds from start to end",
    ),
    "LLaMA-Factory steps": (lambda: tools.llama_factory(steps=900), "training.steps_planned is "),
    "Unsloth README, steps": (lambda: tools.unsloth(steps=600), "README.md: training.steps_done is 600"),
    "Unsloth README, chip": (lambda: tools.unsloth(gpu="A100"), 'and "A100" in README.md line 3'),
    "TensorBoard score": (
        lambda: {**tools.tensorboard(), "results.json": tools.document({"accuracy": 0.99})},
        "accuracy is 0.99 in results.json",
    ),
    "MLPerf quality": (lambda: tools.mlperf(quality=0.61), "accuracy is 0.7551 in results.json"),
    "OpenAI report against its matches": (lambda: tools.openai_evals(reported=0.97), "15 of its 20 matches are right"),
    "model card": (
        lambda: {**tools.hf_trainer(), "README.md": tools.card(accuracy="0.97")},
        "accuracy is 0.85 in trainer_state.json at /log_history/32 (line 240) and 0.97 in README.md line 11.",
    ),
}


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_contradiction_is_found(tmp_path: Path, name: str) -> None:
    files, expected = PLANTED[name]
    found = errors_of(tmp_path, files())
    assert [one for one in found if expected in one], found
    assert check_run(read_run(tmp_path / "run")).grade.name == "contradictory"

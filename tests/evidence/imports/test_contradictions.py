"""Planted contradictions in folders of other tools are found, and honest folders give no error."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import foreign_tools as tools
import pytest

from evidence.grade import check_run
from evidence.imports.folder import read_tool_folder
from evidence.imports.grade import tool_figures
from evidence.imports.keys import rounds_to
from evidence.run import read_run


def find_contradictions(folder: Path, files: tools.Folder) -> list[str]:
    report = check_run(read_run(tools.write(folder / "run", files)))
    contradictions = [problem for problem in report.findings if problem.code.startswith("TP3")]
    return [f"{problem.code} {Path(problem.file).name}: {problem.what}" for problem in contradictions]


def changed(files: tools.Folder, name: str, change: Callable[[Any], object]) -> tools.Folder:
    value = json.loads(files[name])
    change(value)
    return {**files, name: tools.document(value)}


@pytest.mark.parametrize("name", sorted(path.name for path in tools.HONEST.iterdir() if path.is_dir()))
def test_honest_folders_give_no_error(tmp_path: Path, name: str) -> None:
    assert find_contradictions(tmp_path, tools.stored(name)) == []
    assert check_run(read_run(tmp_path / "run")).grade.name in ("measured", "partial")


def add_documents(files: tools.Folder, **documents: object) -> tools.Folder:
    return {**files, **{f"{name}.json": tools.document(value) for name, value in documents.items()}}


HF_TRAINER, MLFLOW = tools.stored("hf_trainer"), tools.stored("mlflow")
TENSORBOARD, LLAMA_FACTORY = tools.stored("tensorboard"), tools.stored("llama_factory")
HARNESS = tools.stored("lm_eval")
[RESULTS] = [name for name in HARNESS if "results" in name]

PLANTED: dict[str, tuple[tools.Folder, str]] = {
    "MLflow score": (add_documents(MLFLOW, results={"accuracy": 0.97}), "line 3 and 0.97 in results.json"),
    "TensorBoard score": (add_documents(TENSORBOARD, results={"accuracy": 0.99}), "and 0.99 in results.json"),
    "evaluation against the log": (
        changed(HF_TRAINER, "all_results.json", lambda one: one.update(eval_accuracy=0.94)),
        "TP371 all_results.json: accuracy is ",
    ),
    "evaluation in two summaries against the log": (
        add_documents(HF_TRAINER, all_results={"eval_loss": 0.4}, eval_results={"eval_loss": 0.4}),
        "loss is 1.05 in trainer_state.json",
    ),
    "score of the harness": (
        changed(HARNESS, RESULTS, lambda one: one["results"]["gsm8k"].update({"exact_match,strict-match": 0.95})),
        "TP373 results",
    ),
    "steps against rows": (
        changed(HF_TRAINER, "trainer_state.json", lambda one: one.update(global_step=5000)),
        "TP374 trainer_state.json: 5000 steps are said to be done",
    ),
    "final loss": (add_documents(MLFLOW, summary={"final_loss": 0.12}), "TP372 summary.json: The final loss is"),
    "rank of the adapter": (
        changed(tools.stored("axolotl"), "adapter_config.json", lambda one: one.update(r=64)),
        "TP371 config.yml: lora.rank is 64 in adapter_config.json",
    ),
    "planned steps": (
        LLAMA_FACTORY | {"training_args.yaml": str(LLAMA_FACTORY["training_args.yaml"]).replace(": 300", ": 900")},
        "training.steps_planned is ",
    ),
    "chip": (
        add_documents(tools.stored("unsloth"), run={"gpu": "NVIDIA A100-SXM4-40GB"}),
        'device.gpu is "NVIDIA A100-SXM4-40GB" in run.json',
    ),
    "one row of a log": (
        TENSORBOARD | {"train.log": "step 10 loss: 2.4\nstep 20 loss: 0.4\n"},
        "TP371 train.log: The loss at step 20 is ",
    ),
}


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_contradiction_is_found(tmp_path: Path, name: str) -> None:
    files, expected = PLANTED[name]
    found = find_contradictions(tmp_path, files)
    assert [one for one in found if expected in one], found
    assert check_run(read_run(tmp_path / "run")).grade.name == "contradictory"


# Folders of the predecessor: a manifest, a summary and a captured log, in any state of being filled in.

MANIFEST = {"run_version": "m38_v2", "model": "google/gemma-2b", "commit_sha": "b49fb4d", "num_steps": 20}
ROWS = "Platform: tpu\nModel: google/gemma-2b\n" + "".join(
    f"Step {i}/20 | loss: {3 - i / 20:.4f}\n" for i in range(1, 21)
)
CRASH = "Traceback (most recent call last):\nXlaRuntimeError: RESOURCE_EXHAUSTED: Used 28.59G of 15.75G hbm.\n"


def predecessor(log: str, loss: float | str | None, score: float | str | None, **manifest: object) -> tools.Folder:
    return {
        "run_manifest.json": tools.document(MANIFEST | {"final_loss": loss, "status": "completed"} | manifest),
        "eval_summary.json": tools.document({"primary_score": score, "n_items": 4, "status": "completed"}),
        "kaggle_output_log.txt": log,
    }


@pytest.mark.parametrize(
    ("files", "grade"),
    [
        (predecessor("Step 10/20 | loss: X.XXXX\n", None, None, commit_sha="<PENDING>"), "template"),
        (predecessor("# Paste output here\nFinal loss: TBD\n", "TBD", "TBD"), "template"),
        (predecessor("[paste training output here]\nStep 1 | loss: 2.0\n", None, None), "template"),
        (predecessor("Platform: tpu\n" + CRASH, None, None, status="failed"), "template"),
        (predecessor(ROWS[: len(ROWS) // 2], None, None, status="failed"), "partial"),
        (predecessor("# Paste output here\n", 2.0, 0.5), "partial"),
        (predecessor(ROWS + "Training completed!\n", 2.0, 0.5), "measured"),
        (predecessor(ROWS, None, None, commit_sha="<PENDING>"), "measured"),
        (predecessor(ROWS + "Training completed!\n", 1.2, 0.5), "contradictory"),
        (predecessor(CRASH + "Training completed!\n", None, None), "contradictory"),
        (predecessor(ROWS.replace("google/gemma-2b", "sshleifer/tiny-gpt2"), 2.0, 0.5), "contradictory"),
        (predecessor(ROWS, 2.0, 0.5, num_steps=200), "contradictory"),
    ],
)
def test_a_folder_of_the_predecessor_is_graded_as_a_careful_reader_would(tmp_path, files, grade):
    assert check_run(read_run(tools.write(tmp_path / "run", files))).grade.name == grade


def test_an_unused_device_is_not_the_device_of_the_run(tmp_path: Path) -> None:
    value = {"hardware": {"device": "cpu", "gpu": "RTX 5090 (Detected but PyTorch incompatible)"}, "train_loss": 1.7}
    view = read_tool_folder(tools.write(tmp_path / "run", {"manifest.json": tools.document(value)}))
    assert tool_figures(view).device == "cpu"


def test_a_contradicted_figure_is_not_replaced_by_another(tmp_path: Path) -> None:
    files = add_documents({}, a={"gpu": "A100", "device": "cuda", "train_loss": 1.7}, b={"gpu": "T4"})
    assert tool_figures(read_tool_folder(tools.write(tmp_path / "run", files))).device is None


@pytest.mark.parametrize("number", [math.nan, math.inf])
def test_a_number_that_is_not_finite_rounds_to_nothing(number: float) -> None:
    assert not rounds_to(number, 1.0)
    assert not rounds_to(0.25, number)


@pytest.mark.parametrize("number", [0, -1, 1e-300, 1e300, 10**400, True, "1e400"])
def test_no_number_stops_the_reading(tmp_path: Path, number: object) -> None:
    keys = ("eval_loss", "perplexity", "correct", "total", "accuracy", "train_runtime", "train_steps_per_second")
    sample = {"doc_id": number, "target": number, "filtered_resps": [number], "acc": number}
    state = json.loads(HF_TRAINER["trainer_state.json"]) | {
        "save_steps": number,
        "global_step": number,
        "max_steps": number,
    }
    files: tools.Folder = {
        "results.json": json.dumps(dict.fromkeys(keys, number) | {"results": {"t": {"acc,none": number}}}),
        "lm/samples_t.jsonl": json.dumps(sample) + "\n",
        "history.json": json.dumps({"loss": [number, 1.0], "accuracy": [1.0, number]}),
        "trainer_state.json": json.dumps(state),
    }
    report = check_run(read_run(tools.write(tmp_path / "run", files)))
    assert report.grade.name in ("measured", "partial", "contradictory", "template")

"""Planted contradictions in folders of other tools are found, and honest folders give no error."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import foreign_tools as tools
import pytest
from event_files import event, record

from evidence.grade import check_run
from evidence.imports.folder import read_tool_folder
from evidence.imports.grade import tool_figures
from evidence.imports.keys import rounds_to
from evidence.run import read_run

Case = Callable[[], tools.Folder]


def find_contradictions(folder: Path, files: tools.Folder) -> list[str]:
    report = check_run(read_run(tools.write(folder / "run", files)))
    contradictions = [problem for problem in report.findings if problem.code.startswith("TP3")]
    return [f"{problem.code} {Path(problem.file).name}: {problem.what}" for problem in contradictions]


def changed(files: tools.Folder, name: str, change: Callable[[Any], object]) -> tools.Folder:
    value = json.loads(files[name])
    change(value)
    return {**files, name: tools.document(value)}


def rounded() -> tools.Folder:
    """The same figures with fewer digits and in percent."""
    summary = {"eval_accuracy": 85.0, "eval_loss": 1.1, "train_runtime": 600}
    return {**tools.hf_trainer(), "summary.json": tools.document(summary)}


def resumed() -> tools.Folder:
    """A Trainer that was resumed at step 200, whose mean is of the last hundred steps."""
    state = tools.trainer_state()
    rows = [row for row in state["log_history"] if "loss" in row]
    state["log_history"][-1]["train_loss"] = sum(row["loss"] for row in rows if row["step"] > 200) * 10 / 300
    return {"trainer_state.json": tools.document(state)}


def logged_once() -> tools.Folder:
    """A single row at step 500 of 900, because the Trainer logs every 500 steps."""
    return {"trainer_state.json": tools.document(tools.trainer_state(steps=900, every=500, evals=False))}


def evaluated_elsewhere() -> tools.Folder:
    """Evaluations during training at other steps than the one at the end."""
    state = tools.trainer_state(evals=False)
    row = {"epoch": 2.0, "eval_accuracy": 0.8, "eval_loss": 1.2, "eval_runtime": 12.1, "step": 200}
    state["log_history"].insert(-1, row)
    final = {"epoch": 3.0, "eval_accuracy": 0.86, "eval_loss": 1.01, "eval_samples": 1000}
    return {"trainer_state.json": tools.document(state), "eval_results.json": tools.document(final)}


def best_not_last() -> tools.Folder:
    """The best evaluation is loaded at the end; W&B keeps the last one."""
    state = tools.trainer_state()
    rows = [row for row in state["log_history"] if "eval_accuracy" in row]
    rows[1]["eval_accuracy"], rows[1]["eval_loss"] = 0.91, 0.97
    summary = {"_runtime": 700, "train/global_step": 300, "eval/accuracy": rows[2]["eval_accuracy"]}
    final = {"epoch": 3.0, "eval_accuracy": 0.91, "eval_loss": 0.97}
    return {
        "trainer_state.json": tools.document(state),
        "all_results.json": tools.document(final),
        f"{tools.WANDB}/wandb-summary.json": tools.document(summary),
    }


def several_evaluations() -> tools.Folder:
    """Two tasks, two splits, a baseline: five accuracies of one name."""
    names = ("eval_gsm8k", "eval_math", "test_results", "val_results", "baseline/results")
    scores = zip(names, (0.41, 0.22, 0.63, 0.66, 0.05), strict=True)
    files = {f"{name}.json": tools.document({"accuracy": score}) for name, score in scores}
    return {**files, "trainer_state.json": tools.document(tools.trainer_state(evals=False))}


def two_harness_runs() -> tools.Folder:
    """The harness twice: another day and another number of items."""
    later = tools.lm_eval(right=30, items=50).items()
    return {**tools.lm_eval(), **{name.replace("2026-01-02", "2026-01-05"): content for name, content in later}}


def smoothed() -> tools.Folder:
    """A progress bar with the running mean, and a CSV file with the loss of each step."""
    course = tools.losses(30)
    bars = "".join(
        f"Epoch 1: {100 * (i + 1) // 30}%|###| {i + 1}/30 [00:01<00:30, loss={sum(course[: i + 1]) / (i + 1):.3f}]\n"
        for i in range(30)
    )
    return {
        "train.log": bars,
        "metrics.csv": "step,loss\n" + "".join(f"{i},{loss}\n" for i, loss in enumerate(course, 1)),
    }


def several_batches() -> tools.Folder:
    """The batch of a device, of a process with two devices, and of a step; and two and a half epochs, rounded up."""
    args = {"per_device_train_batch_size": 8, "gradient_accumulation_steps": 4, "num_train_epochs": 2.5}
    return {
        "trainer_state.json": tools.document(tools.trainer_state() | {"train_batch_size": 16}),
        "training_args.json": tools.document(args),
        "run.json": tools.document({"global_batch_size": 64, "n_gpus": 2}),
    }


def single_precision() -> tools.Folder:
    """TensorBoard rounds the losses to float32; the CSV file does not."""
    course = [2.4113123456789012, 1.9000000000000001, 1.3333333333333333]
    parts = [record(event(10 * (i + 1), "train/loss", simple=loss)) for i, loss in enumerate(course)]
    table = "step,loss\n" + "".join(f"{10 * (i + 1)},{loss!r}\n" for i, loss in enumerate(course))
    return {"runs/events.out.tfevents.1767330000.host.1.0": b"".join(parts), "metrics.csv": table}


def training_accuracy() -> tools.Folder:
    """MLflow autologging of Keras: training and validation accuracy."""
    rows = {
        f"{tools.MLFLOW}/metrics/{name}": "".join(f"1767330252000 {value + 0.05 * i:.4f} {i}\n" for i in range(3))
        for name, value in (("accuracy", 0.7), ("val_accuracy", 0.61))
    }
    return {**tools.mlflow(), **rows, "results.json": tools.document({"accuracy": 0.71})}


def numbered_logs() -> tools.Folder:
    """Two processes, each with the losses of its own part of the batch."""
    logs = (("rank_0.log", 0.0), ("rank_1.log", 0.1))
    return {
        name: "".join(f"step {i} loss: {loss + shift:.4f}\n" for i, loss in enumerate(tools.losses(20), 1))
        for name, shift in logs
    }


def sweep() -> tools.Folder:
    """Two runs of a hyperparameter sweep in sibling folders."""
    files: tools.Folder = {}
    for name, rate, losses in (("a", 1e-3, (2.0, 1.5)), ("b", 1e-4, (2.1, 1.9))):
        files[f"runs/{name}/config.json"] = tools.document({"lr": rate, "model": f"model-{name}", "seed": ord(name)})
        files[f"runs/{name}/metrics.csv"] = "step,loss\n" + "".join(f"{i},{loss}\n" for i, loss in enumerate(losses, 1))
        files[f"runs/{name}/results.json"] = tools.document({"accuracy": rate})
    return files


def similar_keys() -> tools.Folder:
    """Different quantities under similar keys: a critic, adapter parameters, attempted items."""
    rows = "".join(json.dumps({"step": i, "loss": loss, "lr": 2e-4}) + "\n" for i, loss in enumerate(tools.losses(20)))
    asked = {"num_parameters": 124_439_808, "learning_rate": 2e-4, "critic": {"learning_rate": 1e-6}}
    value = {"correct": 41, "attempted": 45, "total": 50, "accuracy": 0.9111, "total_params": 124_734_720}
    return {"metrics.jsonl": rows, "config.json": tools.document(asked), "results.json": tools.document(value)}


HONEST: list[Case] = [
    *(tools.hf_trainer, tools.lm_eval, tools.mlflow, tools.wandb, tools.axolotl, tools.llama_factory, tools.unsloth),
    *(tools.keras, tools.tensorboard, rounded, resumed, logged_once, evaluated_elsewhere, best_not_last),
    *(several_evaluations, two_harness_runs, smoothed, several_batches, single_precision, training_accuracy),
    *(numbered_logs, sweep, similar_keys),
]


@pytest.mark.parametrize("case", HONEST, ids=lambda case: case.__name__)
def test_honest_folders_give_no_error(tmp_path: Path, case: Case) -> None:
    assert find_contradictions(tmp_path, case()) == []
    assert check_run(read_run(tmp_path / "run")).grade.name in ("measured", "partial")


def _harness_score() -> tools.Folder:
    files = tools.lm_eval(right=60, items=90)
    name = next(name for name in files if "results" in name)
    return changed(files, name, lambda one: one["results"]["gsm8k"].update({"exact_match,strict-match": 0.95}))


def add_documents(files: tools.Folder, **documents: object) -> tools.Folder:
    return {**files, **{f"{name}.json": tools.document(value) for name, value in documents.items()}}


PLANTED: dict[str, tuple[Case, str]] = {
    "MLflow score": (
        lambda: add_documents(tools.mlflow(), results={"accuracy": 0.97}),
        "line 3 and 0.97 in results.json",
    ),
    "TensorBoard score": (
        lambda: add_documents(tools.tensorboard(), results={"accuracy": 0.99}),
        "and 0.99 in results.json",
    ),
    "evaluation against the log": (
        lambda: changed(tools.hf_trainer(), "all_results.json", lambda one: one.update(eval_accuracy=0.94)),
        "TP371 all_results.json: accuracy is ",
    ),
    "evaluation in two summaries against the log": (
        lambda: add_documents(tools.hf_trainer(), all_results={"eval_loss": 0.4}, eval_results={"eval_loss": 0.4}),
        "loss is 1.05 in trainer_state.json",
    ),
    "score of the harness": (_harness_score, "TP373 results"),
    "steps against rows": (
        lambda: changed(tools.hf_trainer(), "trainer_state.json", lambda one: one.update(global_step=5000)),
        "TP374 trainer_state.json: 5000 steps are said to be done",
    ),
    "final loss": (
        lambda: add_documents(tools.mlflow(), summary={"final_loss": 0.12}),
        "TP372 summary.json: The final loss is",
    ),
    "rank of the adapter": (
        lambda: changed(tools.axolotl(), "adapter_config.json", lambda one: one.update(r=64)),
        "TP371 config.yml: lora.rank is 64 in adapter_config.json",
    ),
    "planned steps": (lambda: tools.llama_factory(steps=900), "training.steps_planned is "),
    "chip": (
        lambda: {**tools.unsloth(), "run.json": tools.document({"gpu": "NVIDIA A100-SXM4-40GB"})},
        'device.gpu is "NVIDIA A100-SXM4-40GB" in run.json',
    ),
    "one row of a log": (
        lambda: {**tools.tensorboard(), "train.log": "step 10 loss: 2.4\nstep 20 loss: 0.4\n"},
        "TP371 train.log: The loss at step 20 is ",
    ),
}


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_contradiction_is_found(tmp_path: Path, name: str) -> None:
    case, expected = PLANTED[name]
    found = find_contradictions(tmp_path, case())
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
def test_a_folder_of_the_predecessor_is_graded_as_a_careful_reader_would(
    tmp_path: Path, files: tools.Folder, grade: str
) -> None:
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
    state = tools.trainer_state() | {"save_steps": number, "global_step": number, "max_steps": number}
    files: tools.Folder = {
        "results.json": json.dumps(dict.fromkeys(keys, number) | {"results": {"t": {"acc,none": number}}}),
        "lm/samples_t.jsonl": json.dumps(sample) + "\n",
        "history.json": json.dumps({"loss": [number, 1.0], "accuracy": [1.0, number]}),
        "trainer_state.json": json.dumps(state),
    }
    report = check_run(read_run(tools.write(tmp_path / "run", files)))
    assert report.grade.name in ("measured", "partial", "contradictory", "template")

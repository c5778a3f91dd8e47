"""Honest folders in which two places seem to contradict each other, and no false statement about any of them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import foreign_tools as tools
import pytest
from event_files import event, record

from evidence.grade import check_run
from evidence.records.foreign_run import read_foreign
from evidence.run import read_run
from foreign.checks.judgement import figures_of


def rounded() -> tools.Folder:
    """The same figures with fewer digits, in percent, and in a README of two digits."""
    return {
        **tools.hf_trainer(),
        "summary.json": tools.document({"eval_accuracy": 85.0, "eval_loss": 1.1, "train_runtime": 600}),
        "README.md": tools.card(accuracy="0.8"),
    }


def resumed() -> tools.Folder:
    """The Trainer, resumed at step 200: its mean is of the last hundred steps, over all steps."""
    state = tools.trainer_state()
    rows = [row for row in state["log_history"] if "loss" in row]
    mean = sum(row["loss"] for row in rows if row["step"] > 200) * 10 / 300
    state["log_history"][-1]["train_loss"] = mean
    summary = {key: value for key, value in state["log_history"][-1].items() if key != "step"}
    return {"trainer_state.json": tools.document(state), "all_results.json": tools.document(summary)}


def evaluated_elsewhere() -> tools.Folder:
    """Evaluations during training at other steps than the one at the end."""
    state = tools.trainer_state(evals=False)
    row = {"epoch": 2.0, "eval_accuracy": 0.8, "eval_loss": 1.2, "eval_runtime": 12.1, "step": 200}
    state["log_history"].insert(-1, row)
    final = {"epoch": 3.0, "eval_accuracy": 0.86, "eval_loss": 1.01, "eval_runtime": 12.0, "eval_samples": 1000}
    return {"trainer_state.json": tools.document(state), "eval_results.json": tools.document(final)}


def best_not_last() -> tools.Folder:
    """The best evaluation is loaded at the end; W&B keeps the last one."""
    state = tools.trainer_state()
    rows = [row for row in state["log_history"] if "eval_accuracy" in row]
    rows[1]["eval_accuracy"], rows[1]["eval_loss"] = 0.91, 0.97
    state |= {"best_metric": 0.97, "best_global_step": 200, "best_model_checkpoint": "out/checkpoint-200"}
    summary = {"_runtime": 700, "train/global_step": 300, "eval/accuracy": rows[2]["eval_accuracy"]}
    final = {"epoch": 3.0, "eval_accuracy": 0.91, "eval_loss": 0.97}
    return {
        "trainer_state.json": tools.document(state),
        "all_results.json": tools.document(final),
        f"{tools.WANDB}/wandb-summary.json": tools.document(summary),
    }


def two_sets() -> tools.Folder:
    """Two tasks, two splits, a baseline: five accuracies of one name."""
    return {
        "trainer_state.json": tools.document(tools.trainer_state(evals=False)),
        "eval_gsm8k.json": tools.document({"accuracy": 0.41, "n_examples": 1319}),
        "eval_math.json": tools.document({"accuracy": 0.22, "n_examples": 500}),
        "test_results.json": tools.document({"accuracy": 0.63}),
        "val_results.json": tools.document({"accuracy": 0.66}),
        "baseline/results.json": tools.document({"accuracy": 0.05}),
    }


def two_harness_runs() -> tools.Folder:
    """The harness twice: another day and another number of items."""
    later = {
        name.replace("2026-01-02", "2026-01-05"): content for name, content in tools.lm_eval(right=30, items=50).items()
    }
    return {**tools.lm_eval(), **later}


def smoothed() -> tools.Folder:
    """A bar that shows a running mean, beside a table of single losses."""
    course = tools.losses(30)
    bars = "".join(
        f"Epoch 1: {100 * (i + 1) // 30}%|###| {i + 1}/30 [00:01<00:30, loss={sum(course[: i + 1]) / (i + 1):.3f}]\n"
        for i in range(30)
    )
    table = "step,loss\n" + "".join(f"{i + 1},{loss}\n" for i, loss in enumerate(course))
    return {"train.log": bars, "metrics.csv": table}


def several_batches() -> tools.Folder:
    """The batch of a device, of a process with two devices, and of a step."""
    state = tools.trainer_state() | {"train_batch_size": 16}
    args = {"per_device_train_batch_size": 8, "gradient_accumulation_steps": 4, "learning_rate": 2e-4, "max_steps": -1}
    return {
        "trainer_state.json": tools.document(state),
        "training_args.json": tools.document(args | {"num_train_epochs": 3}),
        "run.json": tools.document({"global_batch_size": 64, "n_gpus": 2}),
    }


def parts_of_epochs() -> tools.Folder:
    """Two and a half epochs, which the Trainer states as three."""
    state = tools.trainer_state() | {"epoch": 2.5}
    for row in state["log_history"]:
        row["epoch"] = round(row["epoch"] * 2.5 / 3, 2)
    args = {"num_train_epochs": 2.5, "learning_rate": 2e-4}
    return {
        "trainer_state.json": tools.document(state),
        "training_args.json": tools.document(args),
        "all_results.json": tools.document({"epoch": 2.4994, "train_loss": state["log_history"][-1]["train_loss"]}),
    }


def stopped_early() -> tools.Folder:
    """Early stopping after a third of the steps, which the state says."""
    state = tools.trainer_state(steps=300)
    state |= {"max_steps": 900, "num_train_epochs": 9}
    state["log_history"][-1] |= {"train_steps_per_second": 1.5, "train_samples_per_second": 12.0}
    state["stateful_callbacks"] = {"EarlyStoppingCallback": {"args": {"early_stopping_patience": 3}}}
    return {"trainer_state.json": tools.document(state), "config.yaml": "max_steps: 900\nlearning_rate: 0.0002\n"}


def only_a_warmup() -> tools.Folder:
    """A short trial that ends within the warmup: the learning rate never reaches its peak."""
    rows = "".join(
        json.dumps({"step": step, "loss": loss, "learning_rate": 2e-4 * step / 1000}) + "\n"
        for step, loss in enumerate(tools.losses(20), start=1)
    )
    return {"metrics.jsonl": rows, "config.yaml": "learning_rate: 0.0002\nwarmup_steps: 1000\n"}


def calls_of_the_logger() -> tools.Folder:
    """W&B's own counter beside the steps of the training."""
    course = tools.losses(30)
    table = "_step,train/global_step,train/loss\n"
    table += "".join(f"{i},{10 * (i + 1)},{loss}\n" for i, loss in enumerate(course))
    state = tools.trainer_state(evals=False)
    return {"history.csv": table, "trainer_state.json": tools.document(state)}


def single_precision() -> tools.Folder:
    """Event files keep 32 bits of a number, tables all of them; Keras counts epochs from 0, its console from 1."""
    course = [2.4113123456789012, 1.9000000000000001, 1.3333333333333333]
    parts = [record(event(10 * (i + 1), "train/loss", simple=loss)) for i, loss in enumerate(course)]
    table = "step,loss\n" + "".join(f"{10 * (i + 1)},{loss!r}\n" for i, loss in enumerate(course))
    return {"runs/events.out.tfevents.1767330000.host.1.0": b"".join(parts), "metrics.csv": table}


def a_readme_of_many_runs() -> tools.Folder:
    """A README that speaks of a plan, of another run, of requirements and of a paper."""
    said = """# My model

Base model accuracy: 41 %. The paper reports an accuracy of 93 %.

Training for 2000 steps on an H100 would be better; it requires at least an A100.

## Planned

Trained for 5000 steps on an H100.

## Usage

- learning_rate: 5e-5

```
trained for 10 steps on an H100
```
"""
    return {**tools.unsloth(), "README.md": said}


def logged_by_itself() -> tools.Folder:
    """MLflow's own logging of Keras: accuracy is that of the training, and stands beside that of the validation."""
    rows = {
        name: "".join(f"{1767330252000 + i} {value + 0.05 * i:.4f} {i}\n" for i in range(3))
        for name, value in (("accuracy", 0.7), ("val_accuracy", 0.61))
    }
    files = {f"{tools.MLFLOW}/metrics/{name}": text for name, text in rows.items()}
    return {**tools.mlflow(), **files, "results.json": tools.document({"accuracy": 0.71})}


def two_ranks() -> tools.Folder:
    """Two processes, each with the losses of its own part of the batch."""
    rows = [f"step {10 * (i + 1)} loss: {loss}\n" for i, loss in enumerate(tools.losses(20))]
    other = [f"step {10 * (i + 1)} loss: {loss + 0.1:.4f}\n" for i, loss in enumerate(tools.losses(20))]
    return {"rank_0.log": "".join(rows), "rank_1.log": "".join(other)}


def several_models() -> tools.Folder:
    """The results of two models side by side."""
    results = {
        name: tools.document({"results": {"gsm8k": {"exact_match,none": score}}, "config": {"model_args": model}})
        for name, score, model in (
            ("gpt2/results.json", 0.02, "pretrained=openai-community/gpt2"),
            ("llama/results.json", 0.4, "pretrained=meta-llama/Llama-3.2-1B"),
        )
    }
    return {**results, "train.log": "step 10 loss: 2.5\nstep 20 loss: 2.25\n"}


def stages_in_a_readme() -> tools.Folder:
    """Two stages, of which the folder holds one."""
    said = "# A model\n\nStage one: SFT for 60 steps on a T4.\n\nStage two: GRPO for 500 steps on an A100.\n"
    return {**tools.unsloth(), "README.md": said}


def of_those_attempted() -> tools.Folder:
    """A share of the attempted ones, and categories of which not all are listed."""
    value = {
        "correct": 41,
        "attempted": 45,
        "total": 50,
        "accuracy": round(41 / 45, 4),
        "by_category": {"sums": {"accuracy": 0.5, "n": 10}, "dates": {"accuracy": 0.6, "n": 10}},
    }
    return {"results.json": tools.document(value), "train.log": "step 10 loss: 2.5\nstep 20 loss: 2.25\n"}


def counted_with_adapters() -> tools.Folder:
    """Parameters with the adapters and without them; a critic with a rate of its own."""
    log = "trainable params: 294,912 || all params: 124,734,720 || trainable%: 0.2364\n"
    rows = "".join(
        json.dumps({"step": 10 * (i + 1), "loss": loss, "lr": 2e-4 * (1 - i / 20)}) + "\n"
        for i, loss in enumerate(tools.losses(20))
    )
    asked = {"model": {"num_parameters": 124_439_808}, "learning_rate": 2e-4, "critic": {"learning_rate": 1e-6}}
    return {"train.log": log, "metrics.jsonl": rows, "config.json": tools.document(asked)}


TRAPS: list[Callable[[], tools.Folder]] = [
    *(rounded, resumed, evaluated_elsewhere, best_not_last, two_sets, two_harness_runs, smoothed, several_batches),
    *(parts_of_epochs, stopped_early, only_a_warmup, calls_of_the_logger, single_precision, a_readme_of_many_runs),
    *(logged_by_itself, two_ranks, several_models, stages_in_a_readme, of_those_attempted, counted_with_adapters),
]


@pytest.mark.parametrize("trap", TRAPS, ids=lambda one: one.__name__)
def test_nothing_is_held_against_an_honest_folder(tmp_path: Path, trap: Callable[[], tools.Folder]) -> None:
    report = check_run(read_run(tools.write(tmp_path / "run", trap())))
    assert [problem.what for problem in report.findings if problem.code.startswith("TP3")] == []
    assert report.grade.name in ("measured", "partial")


def test_a_device_that_did_no_work_is_no_device_of_the_run(tmp_path: Path) -> None:
    said = {
        "hardware": {"device": "cpu", "gpu": "RTX 5090 (Detected but PyTorch incompatible)"},
        "train_runtime": 256.4801,
        "train_loss": 1.733,
    }
    view = read_foreign(tools.write(tmp_path / "run", {"manifest.json": tools.document(said)}))
    assert figures_of(view).device == "cpu"
    assert [fact.name for fact in view.facts if "5090" in str(fact.value)] == ["device.remark"]


def test_a_row_of_a_training_is_none_of_an_evaluation_whatever_its_file_is_called(tmp_path: Path) -> None:
    row = {"train_runtime": 254.2241, "train_samples_per_second": 3.1, "train_loss": 1.733, "epoch": 1.0}
    other = {"train_runtime": 256.4801, "train_loss": 1.733}
    files: tools.Folder = {"eval_summary.json": tools.document(row), "train_results.json": tools.document(other)}
    folder = tools.write(tmp_path / "run", files)
    names = {fact.name for fact in read_foreign(folder).facts}
    assert not {name for name in names if name.startswith("evaluation.")}
    assert {"result.mean_loss", "result.train_seconds"} <= names
    found = [problem.what for problem in check_run(read_run(folder)).findings if problem.code == "TP371"]
    assert found == [
        (
            "result.train_seconds is 254.2241 in eval_summary.json at /train_runtime (line 2) and 256.4801 in "
            "train_results.json at /train_runtime (line 2)."
        )
    ]


def test_durations_and_counts_are_no_scores(tmp_path: Path) -> None:
    view = read_foreign(tools.write(tmp_path / "run", tools.hf_trainer()))
    assert {score.name for score in view.scores} == {"eval_accuracy", "eval_loss"}


@pytest.mark.parametrize("number", [0, -1, 1e-300, 1e300, 10**400, True, "1e400"])
def test_no_number_stops_the_reading(tmp_path: Path, number: object) -> None:
    keys = ("eval_loss", "perplexity", "correct", "total", "accuracy", "train_runtime", "train_steps_per_second")
    parts = {"a": {"accuracy": number, "n": number}, "b": {"accuracy": number, "n": 2}}
    value = dict.fromkeys(keys, number) | {"by_category": parts, "precision": number, "recall": 1, "f1": number}
    harness = {
        "results": {"t": {"acc,none": number, "acc_stderr,none": 0.1}},
        "n-samples": {"t": {"effective": number}},
    }
    sample = {"doc_id": number, "target": number, "filtered_resps": [number], "acc": number}
    state = tools.trainer_state() | {"save_steps": number, "global_step": number, "max_steps": number}
    measured = {"key": "eval_accuracy", "value": number, "metadata": {"epoch_num": number}}
    files: tools.Folder = {
        "results.json": json.dumps(value),
        "lm/results_1.json": json.dumps(harness),
        "lm/samples_t.jsonl": json.dumps(sample) + "\n",
        "history.json": json.dumps({"loss": [number, 1.0], "accuracy": [1.0, number]}),
        "trainer_state.json": json.dumps(state),
        "evals.jsonl": json.dumps({"spec": {"eval_name": "x"}})
        + "\n"
        + json.dumps({"final_report": {"count": number}}),
        "mllog.log": f":::MLLOG {json.dumps(measured)}\n",
    }
    report = check_run(read_run(tools.write(tmp_path / "run", files)))
    assert report.grade.name in ("measured", "partial", "contradictory", "template")

"""A second 26 contradictions, written after what the first 26 had shown was mended: other facts, and more tools."""

from __future__ import annotations

import json
from collections.abc import Callable

import foreign_tools as tools
from event_files import event, record
from foreign_parts.plants import changed, named, replaced

Folder = tools.Folder


def lightning() -> Folder:
    """Return an honest folder of PyTorch Lightning's CSVLogger."""
    course = tools.losses(30)
    rows = "epoch,lr-AdamW,step,train_loss,val_acc,val_loss\n"
    for index, loss in enumerate(course):
        step, epoch = 10 * index + 9, index // 10
        rows += f"{epoch},0.001,{step},{loss},,\n"
        if index % 10 == 9:
            rows += f"{epoch},,{step},,{0.5 + 0.07 * (epoch + 1):.4f},{1.6 - 0.2 * epoch:.4f}\n"
    hparams = "batch_size: 32\nlr: 0.001\nmax_epochs: 3\n"
    return {"lightning_logs/version_0/metrics.csv": rows, "lightning_logs/version_0/hparams.yaml": hparams}


def lightning_score() -> Folder:
    """Another accuracy than the last validation had."""
    return {**lightning(), "results.json": tools.document({"val_acc": 0.93})}


def lightning_rate() -> Folder:
    """A hundredth of the learning rate that the monitor logged."""
    return replaced(lightning(), "lightning_logs/version_0/hparams.yaml", "lr: 0.001", "lr: 0.00001")


def lightning_epochs() -> Folder:
    """One epoch asked for, three done."""
    return replaced(lightning(), "lightning_logs/version_0/hparams.yaml", "max_epochs: 3", "max_epochs: 1")


def iterations() -> Folder:
    """A lower loss in the table than in the log, at one iteration."""
    course = tools.losses(30)
    log = "".join(f"iter {10 * i}: loss {loss:.4f}, time 31.10ms, mfu 3.2%\n" for i, loss in enumerate(course))
    table = "iter,loss\n" + "".join(f"{10 * i},{0.4 if i == 20 else loss:.4f}\n" for i, loss in enumerate(course))
    return {"train.log": log, "loss.csv": table}


def board_loss() -> Folder:
    """Another loss of the last evaluation than on TensorBoard."""
    parts = [record(event(10 * (i + 1), "train/loss", simple=loss)) for i, loss in enumerate(tools.losses(30))]
    parts += [record(event(step, "eval/loss", simple=loss)) for step, loss in ((100, 1.4), (200, 1.2), (300, 1.1))]
    board = "runs/events.out.tfevents.1767330000.host.1.0"
    return {board: b"".join(parts), "eval_results.json": tools.document({"eval_loss": 0.41, "epoch": 3.0})}


def seeds() -> Folder:
    """Two seeds of one training."""
    return {
        **tools.hf_trainer(),
        "training_args.json": tools.document({"seed": 42, "num_train_epochs": 3}),
        "config.yaml": "seed: 7\n",
    }


def models() -> Folder:
    """Two models that were loaded."""
    return {
        **tools.hf_trainer(),
        "training_args.json": tools.document({"model_name_or_path": "FacebookAI/roberta-large", "num_train_epochs": 3}),
        "run_config.yaml": "model_name_or_path: prajjwal1/bert-tiny\n",
    }


def rows_of_data() -> Folder:
    """A hundred times as many samples in one summary as in the other."""
    return changed(tools.hf_trainer(), "all_results.json", lambda one: one.update(train_samples=80_000))


def items_of_the_evaluation() -> Folder:
    """Ten times as many items as time and speed allow."""
    files = changed(tools.hf_trainer(), "all_results.json", lambda one: one.update(eval_samples=10_000))
    return changed(files, "eval_results.json", lambda one: one.update(eval_samples=10_000))


def head_of_the_log() -> Folder:
    """More steps than examples, batch and epochs give."""
    head = """***** Running training *****
  Num examples = 800
  Num Epochs = 3
  Instantaneous batch size per device = 8
  Total train batch size (w. parallel, distributed & accumulation) = 8
  Gradient Accumulation steps = 1
  Total optimization steps = 3,000
"""
    return {"train.log": head + "step 10 loss: 2.5\nstep 20 loss: 2.1\n"}


def printed_rows() -> Folder:
    """Other losses in the captured output than in the state, at the same parts of an epoch."""
    rows = [row for row in tools.trainer_state()["log_history"] if "loss" in row]
    text = "".join(
        f"{{'loss': {row['loss'] - 0.3:.4f}, 'learning_rate': {row['learning_rate']:.4g}, 'epoch': {row['epoch']}}}\n"
        for row in rows
    )
    return {"trainer_state.json": tools.document(tools.trainer_state()), "output.log": text}


def wandb_steps() -> Folder:
    """Three hundred steps in the configuration, three thousand on the command line."""
    return replaced(tools.wandb(), f"{tools.WANDB}/wandb-metadata.json", '"300"', '"3000"')


def wandb_batch() -> Folder:
    """Eight a device in the configuration, one in the state."""
    state = tools.trainer_state(evals=False) | {"train_batch_size": 1}
    return {**tools.wandb(), "trainer_state.json": tools.document(state)}


def wandb_readme() -> Folder:
    """A README of three thousand steps."""
    return {**tools.wandb(), "README.md": "# Sums\n\nWe fine-tuned GPT-2 for 3,000 steps on a T4.\n"}


def mlflow_times() -> Folder:
    """An end before the start."""
    files = tools.mlflow()
    return replaced(files, f"{tools.MLFLOW}/meta.yaml", "end_time: 1767330652000", "end_time: 1767320652000")


def mlflow_f1() -> Folder:
    """Another F1 in the report than in MLflow."""
    score = {f"{tools.MLFLOW}/metrics/f1": "1767330600000 0.612 300\n"}
    return {**tools.mlflow(), **score, "metrics.json": tools.document({"f1": 0.9})}


def mlflow_status() -> Folder:
    """A failed run that its summary calls completed."""
    files = replaced(tools.mlflow(), f"{tools.MLFLOW}/meta.yaml", "status: 3", "status: 4")
    return {**files, "run_summary.json": tools.document({"status": "completed", "model": "gpt2"})}


def mlflow_batch() -> Folder:
    """Two batch sizes of one run."""
    return {**tools.mlflow(), f"{tools.MLFLOW}/params/batch_size": "64", "config.yaml": "batch_size: 8\n"}


def axolotl_accumulation() -> Folder:
    """Sixteen in the log, two in the configuration."""
    log = "***** Running training *****\n  Gradient Accumulation steps = 16\n  Total optimization steps = 300\n"
    return {**tools.axolotl(), "train.log": log}


def axolotl_optimizer() -> Folder:
    """Another optimizer in the arguments."""
    return {**tools.axolotl(), "training_args.json": tools.document({"optim": "adafactor"})}


def factory_runtime() -> Folder:
    """A tenth of the time in the summary."""
    return changed(tools.llama_factory(), "all_results.json", lambda one: one.update(train_runtime=61.5))


def factory_predictions() -> Folder:
    """Two values of one score of the prediction."""
    return {
        **tools.llama_factory(),
        "predict_results.json": tools.document({"predict_bleu-4": 41.2, "predict_rouge-1": 47.1}),
        "summary.json": tools.document({"predict_bleu-4": 81.2, "predict_rouge-1": 47.1}),
    }


def unsloth_rank() -> Folder:
    """Another rank in the README than in the adapters."""
    files = tools.unsloth()
    adapter = {"peft_type": "LORA", "r": 16, "lora_alpha": 16, "base_model_name_or_path": "unsloth/Llama-3.2-3B"}
    said = str(files["README.md"]) + "\n- LoRA rank: 64\n"
    return {**files, "README.md": said, "adapter_config.json": tools.document(adapter)}


def unsloth_parameters() -> Folder:
    """Ten times as many trained parameters in the README."""
    files = tools.unsloth()
    return {**files, "README.md": str(files["README.md"]) + "\n- Trainable parameters: 243,138,560\n"}


def evals_count() -> Folder:
    """A report of more samples than there are."""
    files = tools.openai_evals()
    name = named(files, "jsonl")
    lines = str(files[name]).splitlines()
    lines[-1] = json.dumps({"final_report": {"accuracy": 0.75, "count": 200}})
    return {**files, name: "\n".join(lines) + "\n"}


def categories() -> Folder:
    """A total above each of its parts."""
    parts = {"sums": {"accuracy": 0.5, "n": 50}, "dates": {"accuracy": 0.6, "n": 50}}
    value = {"accuracy": 0.9, "by_category": parts}
    return {"eval_results.json": tools.document(value), "train.log": "step 10 loss: 2.5\nstep 20 loss: 2.0\n"}


SECOND: tuple[Callable[[], Folder], ...] = (
    *(lightning_score, lightning_rate, lightning_epochs, iterations, board_loss, seeds, models, rows_of_data),
    *(items_of_the_evaluation, head_of_the_log, printed_rows, wandb_steps, wandb_batch, wandb_readme, mlflow_times),
    *(mlflow_f1, mlflow_status, mlflow_batch, axolotl_accumulation, axolotl_optimizer, factory_runtime),
    *(factory_predictions, unsloth_rank, unsloth_parameters, evals_count, categories),
)
"""The second 26."""

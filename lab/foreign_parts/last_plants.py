"""A third 26 contradictions, written last, of which 22 were found as the readers then were."""

from __future__ import annotations

import json
from collections.abc import Callable

import foreign_tools as tools
from event_files import event, record
from foreign_parts.more_plants import lightning
from foreign_parts.plants import changed, named, replaced

Folder = tools.Folder


def grpo() -> Folder:
    """Return an honest folder of TRL's GRPO: rewards in the state, and the answers of its evaluation."""
    history = [
        {"step": 5 * (i + 1), "epoch": round((i + 1) / 20, 2), "reward": round(0.2 + 0.03 * i, 4), "kl": 0.01 * i}
        | {"loss": round(0.001 * i, 5), "learning_rate": 1e-6, "completion_length": 180.0 + i}
        for i in range(20)
    ]
    state = {"epoch": 1.0, "global_step": 100, "max_steps": 100, "num_train_epochs": 1, "train_batch_size": 8}
    answers = "".join(
        json.dumps({"id": i, "question": f"{i} + 1", "expected": str(i + 1), "response": str(i + 1 if i < 30 else 0)})
        + "\n"
        for i in range(50)
    )
    rows = [json.loads(line) for line in answers.splitlines()]
    marked = "".join(json.dumps(row | {"correct": row["expected"] == row["response"]}) + "\n" for row in rows)
    return {
        "trainer_state.json": tools.document({**state, "log_history": history}),
        "eval/predictions.jsonl": marked,
        "eval/summary.json": tools.document({"accuracy": 0.6, "n_scored": 50}),
        "config.yaml": "learning_rate: 1.0e-6\nmax_steps: 100\nmodel_name: Qwen/Qwen2.5-0.5B\n",
    }


def text_of(files: Folder, name: str) -> str:
    """Return a file's text."""
    return str(files[name])


def reward_table() -> Folder:
    """Higher rewards in a table than in the state."""
    rows = "step,reward\n" + "".join(f"{5 * (i + 1)},{0.5 + 0.03 * i:.4f}\n" for i in range(20))
    return {**grpo(), "rewards.csv": rows}


def grpo_score() -> Folder:
    """A better score than the answers give."""
    return changed(grpo(), "eval/summary.json", lambda one: one.update(accuracy=0.88))


def grpo_scored() -> Folder:
    """More answers than there are."""
    return changed(grpo(), "eval/summary.json", lambda one: one.update(n_scored=500))


def grpo_marks() -> Folder:
    """Wrong answers marked as right."""
    return replaced(grpo(), "eval/predictions.jsonl", '"correct": false', '"correct": true')


def grpo_model() -> Folder:
    """Another model in the README."""
    return {**grpo(), "README.md": "# GRPO\n\n- Base model: meta-llama/Llama-3.1-8B\n"}


def grpo_steps() -> Folder:
    """A state of a thousand steps whose rows end at a hundred."""
    return changed(grpo(), "trainer_state.json", lambda one: one.update(global_step=1000, max_steps=1000))


def card_rate() -> Folder:
    """A model card with another learning rate."""
    return {**tools.hf_trainer(), "README.md": tools.card(rate="1e-05")}


def card_batch() -> Folder:
    """A model card with another batch."""
    return {**tools.hf_trainer(), "README.md": tools.card(batch=64)}


def card_loss() -> Folder:
    """A model card with a lower loss of the evaluation."""
    return replaced(tools.hf_trainer(), "README.md", "- Loss: 1.05", "- Loss: 0.31")


def sentence_score() -> Folder:
    """A sentence with a higher accuracy than the summary's."""
    said = "# Sentiment\n\nThe fine-tuned model reaches 97.2% accuracy on the evaluation set.\n"
    return {**tools.hf_trainer(), "README.md": said}


def card_table() -> Folder:
    """One row of the card's table of results beautified."""
    table = "\n### Training results\n\n| Training Loss | Epoch | Step | Validation Loss | Accuracy |\n"
    table += "|:---:|:---:|:---:|:---:|:---:|\n| 1.5 | 1.0 | 100 | 1.35 | 0.75 |\n| 1.1 | 2.0 | 200 | 0.41 | 0.93 |\n"
    return {**tools.hf_trainer(), "README.md": tools.card() + table}


def mean_above() -> Folder:
    """A mean above the largest row."""
    files = tools.hf_trainer()
    for name in ("all_results.json", "train_results.json"):
        files = changed(files, name, lambda one: one.update(train_loss=7.25))
    return changed(files, "trainer_state.json", lambda one: one["log_history"][-1].update(train_loss=7.25))


def first_loss() -> Folder:
    """A best loss above what the rows have."""
    return {**tools.wandb(), "summary.json": tools.document({"final_loss": 0.12, "model": "gpt2"})}


def wandb_commit() -> Folder:
    """Two commits of one run."""
    files = changed(
        tools.wandb(),
        f"{tools.WANDB}/wandb-metadata.json",
        lambda one: one.update(git={"commit": "0123456789abcdef" * 2}),
    )
    return {**files, "run.json": tools.document({"git_commit": "fedcba9876543210" * 2, "model": "gpt2"})}


def board_rate() -> Folder:
    """A learning rate on TensorBoard that nobody asked for."""
    parts = [record(event(10 * (i + 1), "train/learning_rate", simple=0.01 * (1 - i / 30))) for i in range(30)]
    parts += [record(event(10 * (i + 1), "train/loss", simple=loss)) for i, loss in enumerate(tools.losses(30))]
    board = "runs/events.out.tfevents.1767330000.host.1.0"
    return {board: b"".join(parts), "training_args.json": tools.document({"learning_rate": 2e-4})}


def board_steps() -> Folder:
    """A manifest of three thousand steps, three hundred on TensorBoard."""
    return {**tools.tensorboard(), "manifest.json": tools.document({"final_step": 3000, "model": "gpt2"})}


def mlflow_model() -> Folder:
    """Another model in MLflow's parameters than in the arguments."""
    return {**tools.mlflow(), "args.json": tools.document({"model_name": "google/gemma-2b", "learning_rate": 2e-4})}


def mlflow_best() -> Folder:
    """A best loss that is above the best row of the same run."""
    return {**tools.mlflow(), "summary.json": tools.document({"mean_loss": 0.2, "model": "gpt2"})}


def keras_loss() -> Folder:
    """Another last loss of the validation on the console."""
    files = tools.keras()
    last = json.loads(text_of(files, "history.json"))["val_loss"][-1]
    return replaced(files, "console.log", f"val_loss: {last:.4f}", "val_loss: 0.2001")


def keras_summary() -> Folder:
    """A summary with a better validation than any epoch."""
    return {**tools.keras(), "results.json": tools.document({"val_accuracy": 0.99, "epochs": 5})}


def mlperf_seed() -> Folder:
    """Another seed in the configuration."""
    return {**tools.mlperf(), "config.yaml": "seed: 7\n"}


def mlperf_samples() -> Folder:
    """A tenth of the samples in the summary."""
    return changed(tools.mlperf(), "results.json", lambda one: one.update(train_samples=128_116))


def evals_flags() -> Folder:
    """Matches counted as right whose picks are others."""
    files = tools.openai_evals(reported=1.0)
    return replaced(files, named(files, "jsonl"), '"correct": false', '"correct": true')


def harness_summary() -> Folder:
    """A summary with a higher score of the task than the harness gave."""
    folder = "ada__gpt2-math"
    return {**tools.lm_eval(), f"{folder}/summary.json": tools.document({"gsm8k": {"exact_match": 0.91}})}


def lightning_last() -> Folder:
    """A table and a summary with two last losses."""
    return {**lightning(), "summary.json": tools.document({"final_train_loss": 0.11, "model": "gpt2"})}


def factory_rank() -> Folder:
    """Adapters of another rank than asked for."""
    adapter = {"peft_type": "LORA", "r": 64, "lora_alpha": 16, "base_model_name_or_path": "Qwen/Qwen2.5-0.5B"}
    return {**tools.llama_factory(), "adapter_config.json": tools.document(adapter)}


THIRD: tuple[Callable[[], Folder], ...] = (
    *(reward_table, grpo_score, grpo_scored, grpo_marks, grpo_model, grpo_steps, card_rate, card_batch, card_loss),
    *(sentence_score, card_table, mean_above, first_loss, wandb_commit, board_rate, board_steps, mlflow_model),
    *(mlflow_best, keras_loss, keras_summary, mlperf_seed, mlperf_samples, evals_flags, harness_summary),
    *(lightning_last, factory_rank),
)
"""The third 26."""

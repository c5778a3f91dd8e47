"""Honest folders as other tools write them, by path and content, small and complete: tests change one thing in each.

Forms follow the tools: transformers' TrainerState, lm-evaluation-harness, MLflow's file store, W&B's files, Axolotl,
LLaMA-Factory, Unsloth, Keras and TensorBoard.
"""

import csv
import io
import json
import math
from pathlib import Path
from typing import Any

from event_files import event, record

Folder = dict[str, str | bytes]

MLFLOW = "mlruns/606783375233873416/1c6b2d5b909041df93e6e00b960de019"
WANDB = "wandb/run-20260102_050412-ab12cd34/files"
WHEN = "2026-01-02T05-04-12.123456"


def write(folder: Path, files: Folder) -> Path:
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return folder


def losses(count: int, *, first: float = 2.4, last: float = 0.9) -> list[float]:
    """Return losses that fall unevenly, as measured ones do."""
    return [round(last + (first - last) * math.exp(-3 * i / count) + 0.03 * math.sin(7 * i), 4) for i in range(count)]


def document(value: Any) -> str:
    return json.dumps(value, indent=2)


def trainer_state(
    *, steps: int = 300, every: int = 10, epochs: int = 3, peak: float = 2e-4, evals: bool = True
) -> dict[str, Any]:
    """Return a trainer_state.json: linear decay after a short warmup, an evaluation at the end of every epoch."""
    course = losses(steps // every)
    history: list[dict[str, Any]] = []
    for index, loss in enumerate(course):
        step = (index + 1) * every
        rate = peak * min(1.0, step / 20) * (1 - max(0, step - 20) / (steps - 20))
        epoch = round(epochs * step / steps, 2)
        history.append({"epoch": epoch, "grad_norm": 1.31, "learning_rate": rate, "loss": loss, "step": step})
        if evals and step % (steps // epochs) == 0:
            number = step // (steps // epochs)
            scores = {"eval_accuracy": round(0.7 + 0.05 * number, 4), "eval_loss": round(1.5 - 0.15 * number, 4)}
            speed = {"eval_runtime": 12.1041, "eval_samples_per_second": 82.617, "eval_steps_per_second": 10.327}
            history.append({"epoch": float(number), **scores, **speed, "step": step})
    mean, rate = round(sum(course) / len(course), 6), steps / 600.0
    speed = {"train_samples_per_second": round(8 * rate, 3), "train_steps_per_second": round(rate, 3)}
    summary = {"total_flos": 1.2e15, "train_loss": mean, "train_runtime": 600.0, **speed}
    history.append({"epoch": float(epochs), "step": steps, **summary})
    return {
        "best_global_step": None,
        "best_metric": None,
        "best_model_checkpoint": None,
        "epoch": float(epochs),
        "eval_steps": 500,
        "global_step": steps,
        "is_hyper_param_search": False,
        "is_local_process_zero": True,
        "is_world_process_zero": True,
        "log_history": history,
        "logging_steps": every,
        "max_steps": steps,
        "num_input_tokens_seen": 0,
        "num_train_epochs": epochs,
        "save_steps": 100,
        "stateful_callbacks": {},
        "total_flos": 1.2e15,
        "train_batch_size": 8,
        "trial_name": None,
        "trial_params": None,
    }


def hf_trainer() -> Folder:
    """Return what transformers' run_glue.py leaves."""
    state = trainer_state()
    train = {key: value for key, value in state["log_history"][-1].items() if key != "step"} | {"train_samples": 800}
    evaluated = {key: value for key, value in state["log_history"][-2].items() if key != "step"} | {
        "eval_samples": 1000
    }
    return {
        "trainer_state.json": document(state),
        "train_results.json": document(train),
        "eval_results.json": document(evaluated),
        "all_results.json": document(train | evaluated),
    }


def lm_eval(*, right: int = 67, items: int = 100) -> Folder:
    """Return results and samples of lm-evaluation-harness."""
    task, share = "gsm8k", right / items
    error = math.sqrt(share * (1 - share) / (items - 1))
    results = {
        "results": {task: {"alias": task, "exact_match,strict-match": share, "exact_match_stderr,strict-match": error}},
        "group_subtasks": {task: []},
        "configs": {
            task: {"task": task, "num_fewshot": 5, "metric_list": [{"metric": "exact_match", "aggregation": "mean"}]}
        },
        "versions": {task: 3.0},
        "n-shot": {task: 5},
        "higher_is_better": {task: {"exact_match": True}},
        "n-samples": {task: {"original": 1319, "effective": items}},
        "config": {"model": "hf", "model_args": "pretrained=ada/gpt2-math", "batch_size": "8", "limit": float(items)},
        "git_hash": "543617f",
        "date": 1767330252.123,
    }
    samples = [
        {
            "doc_id": index,
            "doc": {"question": f"What is {index} + 1?", "answer": f"We add.\n#### {index + 1}"},
            "target": f"We add.\n#### {index + 1}",
            "arguments": {"gen_args_0": {"arg_0": f"Question: What is {index} + 1?\nAnswer:"}},
            "resps": [[f"It is {answer}.\n#### {answer}"]],
            "filtered_resps": [str(answer)],
            "filter": "strict-match",
            "metrics": ["exact_match"],
            "doc_hash": f"{index:064x}",
            "exact_match": float(answer == index + 1),
        }
        for index in range(items)
        for answer in [index + 1 if index < right else index + 1000]
    ]
    lines = "".join(json.dumps(sample) + "\n" for sample in samples)
    folder = "ada__gpt2-math"
    return {f"{folder}/results_{WHEN}.json": document(results), f"{folder}/samples_{task}_{WHEN}.jsonl": lines}


def mlflow() -> Folder:
    """Return one run of MLflow's file store."""
    begun = 1767330252000
    metric = "".join(
        f"{begun + 1000 * (i + 1)} {value} {100 * (i + 1)}\n" for i, value in enumerate((0.71, 0.78, 0.81))
    )
    loss = "".join(f"{begun + 1000 * i} {value} {10 * (i + 1)}\n" for i, value in enumerate(losses(30)))
    meta = f"""artifact_location: file:///home/ada/mlruns/0/1c6b/artifacts
end_time: {begun + 400_000}
entry_point_name: ''
experiment_id: '606783375233873416'
lifecycle_stage: active
run_id: 1c6b2d5b909041df93e6e00b960de019
run_name: wistful-ant-659
source_type: 4
start_time: {begun}
status: 3
tags: []
user_id: ada
"""
    return {
        f"{MLFLOW}/meta.yaml": meta,
        f"{MLFLOW}/metrics/accuracy": metric,
        f"{MLFLOW}/metrics/loss": loss,
        f"{MLFLOW}/params/learning_rate": "0.0002",
        f"{MLFLOW}/params/model_name": "gpt2",
    }


def wandb() -> Folder:
    """Return the plain files of a W&B run of the Trainer."""
    course = losses(30)
    output = "".join(
        f"{{'loss': {loss}, 'grad_norm': 1.3, 'learning_rate': {2e-4 * (1 - i / 30):.4g}, "
        f"'epoch': {(i + 1) / 10:.2f}}}\n"
        for i, loss in enumerate(course)
    )
    summary = {
        "_runtime": 610.5,
        "_step": 31,
        "eval/accuracy": 0.85,
        "train/global_step": 300,
        "train/loss": course[-1],
    }
    config = """wandb_version: 1

learning_rate:
    value: 0.0002
model_name_or_path:
    value: gpt2
per_device_train_batch_size:
    value: 8
max_steps:
    value: 300
"""
    metadata = {
        "os": "Linux-6.1",
        "python": "CPython 3.11.9",
        "startedAt": "2026-01-02T05:04:12.000000Z",
        "program": "/home/ada/train.py",
        "args": ["--model_name_or_path", "gpt2", "--learning_rate", "2e-4", "--max_steps", "300"],
        "gpu": "Tesla T4",
        "gpu_count": 1,
    }
    return {
        f"{WANDB}/config.yaml": config,
        f"{WANDB}/output.log": output,
        f"{WANDB}/wandb-summary.json": document(summary),
        f"{WANDB}/wandb-metadata.json": document(metadata),
    }


def axolotl(*, epochs: int = 3) -> Folder:
    """Return an Axolotl configuration beside the state that its trainer saved."""
    asked = f"""base_model: NousResearch/Llama-3.2-1B
datasets:
  - path: teknium/GPT4-LLM-Cleaned
    type: alpaca
val_set_size: 0.1
sequence_len: 2048
sample_packing: true
adapter: lora
lora_r: 16
lora_alpha: 32
lora_dropout: 0.05
gradient_accumulation_steps: 2
micro_batch_size: 8
num_epochs: {epochs}
optimizer: adamw_8bit
lr_scheduler: cosine
learning_rate: 0.0002
bf16: auto
warmup_steps: 10
weight_decay: 0.0
"""
    adapter = {"base_model_name_or_path": "NousResearch/Llama-3.2-1B", "lora_alpha": 32, "lora_dropout": 0.05}
    return {
        "config.yml": asked,
        "trainer_state.json": document(trainer_state()),
        "adapter_config.json": document(adapter | {"peft_type": "LORA", "r": 16, "task_type": "CAUSAL_LM"}),
    }


def llama_factory(*, steps: int = 300) -> Folder:
    """Return what LLaMA-Factory leaves of an SFT run."""
    state = trainer_state(evals=False)
    rows = "".join(
        json.dumps(
            {"current_steps": row["step"], "total_steps": 300, "loss": row["loss"], "lr": row["learning_rate"]}
            | {"epoch": row["epoch"], "percentage": round(100 * row["step"] / 300, 2)}
            | {"elapsed_time": "0:01:40", "remaining_time": "0:08:20"}
        )
        + "\n"
        for row in state["log_history"][:-1]
    )
    asked = f"""model_name_or_path: Qwen/Qwen2.5-0.5B
stage: sft
do_train: true
finetuning_type: lora
lora_rank: 8
dataset: identity
cutoff_len: 2048
per_device_train_batch_size: 8
gradient_accumulation_steps: 1
learning_rate: 2.0e-4
max_steps: {steps}
"""
    summary = {key: value for key, value in state["log_history"][-1].items() if key != "step"}
    return {
        "trainer_log.jsonl": rows,
        "training_args.yaml": asked,
        "trainer_state.json": document(state),
        "all_results.json": document(summary),
        "train_results.json": document(summary),
    }


def unsloth() -> Folder:
    """Return the captured output of an Unsloth notebook."""
    course = losses(60)
    head = r"""==((====))==  Unsloth 2026.1.1: Fast Llama patching. Transformers: 4.57.0.
   \\   /|    GPU: Tesla T4. Num GPUs = 1. Max memory: 14.741 GB. Platform: Linux.
O^O/ \_/ \    Torch: 2.6.0+cu124. CUDA: 7.5. CUDA Toolkit: 12.4. Triton: 3.2.0
\        /    Bfloat16 = FALSE. FA [Xformers = 0.0.29. FA2 = False]
 "-____-"     Free license: http://github.com/unslothai/unsloth
==((====))==  Unsloth - 2x faster free finetuning | Num GPUs used = 1
   \\   /|    Num examples = 51,760 | Num Epochs = 1 | Total steps = 60
O^O/ \_/ \    Batch size per device = 2 | Gradient accumulation steps = 4
\        /    Data Parallel GPUs = 1 | Total batch size (2 x 4 x 1) = 8
 "-____-"     Trainable parameters = 24,313,856/3,237,063,680 (0.75% trained)
"""
    rows = "".join(
        f"{{'loss': {loss}, 'grad_norm': 0.4, 'learning_rate': {2e-4 * min(1, (i + 1) / 5) * (1 - i / 60):.4g}, "
        f"'epoch': {8 * (i + 1) / 51760:.4f}}}\n"
        for i, loss in enumerate(course)
    )
    mean = round(sum(course) / 60, 6)
    end = (
        f"{{'train_runtime': 473.2, 'train_samples_per_second': 1.014, 'train_steps_per_second': 0.127, "
        f"'train_loss': {mean}, 'epoch': 0.01}}\n"
    )
    return {"train.log": head + rows + end}


def keras(*, epochs: int = 5) -> Folder:
    """Return console output, CSVLogger's table and the history of a Keras training."""
    course, held_out = losses(epochs), losses(epochs, first=2.5, last=1.1)
    history = {
        "accuracy": [round(0.5 + 0.07 * i, 6) for i in range(epochs)],
        "loss": course,
        "val_accuracy": [round(0.48 + 0.065 * i, 6) for i in range(epochs)],
        "val_loss": held_out,
    }
    console = ""
    for i in range(epochs):
        figures = " - ".join(f"{name}: {values[i]:.4f}" for name, values in history.items())
        console += f"Epoch {i + 1}/{epochs}\n100/100 ━━━━━━━━━━━━━━━━━━━━ 3s 31ms/step - {figures}\n"
    out = io.StringIO()
    table = csv.writer(out, lineterminator="\n")
    table.writerow(["epoch", *history])
    table.writerows([i, *(values[i] for values in history.values())] for i in range(epochs))
    return {"console.log": console, "training.log": out.getvalue(), "history.json": json.dumps(history)}


def tensorboard() -> Folder:
    """Return an event file of losses and of an evaluation, and the result that a script wrote."""
    parts = [record(event(10 * (i + 1), "train/loss", simple=loss)) for i, loss in enumerate(losses(30))]
    parts += [
        record(event(step, "eval/accuracy", simple=value)) for step, value in ((100, 0.6), (200, 0.72), (300, 0.8))
    ]
    return {
        "runs/events.out.tfevents.1767330000.host.1.0": b"".join(parts),
        "results.json": document({"accuracy": 0.8}),
    }

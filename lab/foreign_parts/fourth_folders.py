"""Honest folders of thirteen tools, by somebody who had not seen the others: what the fourth set starts from."""

from __future__ import annotations

import json
import math
import random
from typing import Any

from foreign_tools import Folder, document

CARD = "The following hyperparameters were used during training:\n"
MODEL = "Qwen/Qwen2.5-0.5B"


def lines(rows: list[Any]) -> str:
    """Return values as JSON lines."""
    return "".join(json.dumps(row) + "\n" for row in rows)


def losses(count: int, first: float = 2.4, last: float = 0.9) -> list[float]:
    """Return a falling loss with noise, the same at every call."""
    draw = random.Random(count)
    fall = (last + (first - last) * math.exp(-3 * i / count) for i in range(1, count + 1))
    return [round(loss + draw.gauss(0, 0.03), 4) for loss in fall]


def hf(state: Any = None, train: Any = None, evaluation: Any = None) -> Folder:
    """Return a run of the Hugging Face Trainer, 600 steps with three evaluations."""
    rows: list[dict[str, Any]] = []
    course = losses(30)
    for i, loss in enumerate(course):
        step = 20 * (i + 1)
        rows.append({"epoch": step / 200, "grad_norm": 0.5 + i / 50, "learning_rate": 5e-5 * (1 - step / 600)})
        rows[-1] |= {"loss": loss, "step": step}
        if step % 200 == 0:
            rows.append({"epoch": step / 200, "eval_loss": round(loss + 0.08, 6)})
            rows[-1] |= {"eval_accuracy": round(0.6 + 0.0003 * step, 4), "eval_runtime": 14.21, "step": step}
    summary: dict[str, Any] = {"epoch": 3.0, "total_flos": 1.23e16, "train_loss": sum(course) / 30}
    summary |= {"train_runtime": 1843.2, "train_samples_per_second": 5.21, "train_steps_per_second": 0.3255}
    kept = {"best_metric": None, "epoch": 3.0, "eval_steps": 200, "global_step": 600, "logging_steps": 20}
    kept |= {"max_steps": 600, "num_train_epochs": 3, "save_steps": 200, "train_batch_size": 16}
    last = {key: rows[-1][key] for key in ("eval_loss", "eval_accuracy", "eval_runtime")}
    scores = {"epoch": 3.0, **last, "eval_samples": 1000, "eval_samples_per_second": 70.4, **(evaluation or {})}
    trained = {**summary, "train_samples": 3200, **(train or {})}
    return {
        "trainer_state.json": document({**kept, "log_history": [*rows, {**summary, "step": 600}], **(state or {})}),
        "train_results.json": document(trained),
        "eval_results.json": document(scores),
        "all_results.json": document({**trained, **scores}),
    }


def axolotl(epochs: int = 2, logged: float = 2e-4, adapter: Any = None) -> Folder:
    """Return a LoRA run of Axolotl, 200 steps."""
    model = "meta-llama/Llama-3.2-1B"
    config = (
        f"base_model: {model}\nadapter: lora\nlora_r: 16\nlora_alpha: 32\nsequence_len: 2048\nmicro_batch_size: 2\n"
    )
    config += f"gradient_accumulation_steps: 4\nnum_epochs: {epochs}\noptimizer: adamw_torch\nlearning_rate: 2e-4\n"
    course = losses(20, 1.9, 1.1)
    rows = [
        {"epoch": (i + 1) / 10, "loss": loss, "learning_rate": logged * 0.5 * (1 + math.cos(math.pi * i / 20))}
        | {"step": 10 * (i + 1)}
        for i, loss in enumerate(course)
    ]
    end = {"epoch": 2.0, "step": 200, "train_loss": sum(course) / 20, "train_runtime": 1201.3}
    state = {"epoch": 2.0, "global_step": 200, "max_steps": 200, "num_train_epochs": 2, "train_batch_size": 2}
    stated = {"base_model_name_or_path": model, "peft_type": "LORA", "r": 16, "lora_alpha": 32, **(adapter or {})}
    return {
        "config.yaml": config,
        "trainer_state.json": document({**state, "log_history": [*rows, end]}),
        "adapter_config.json": document(stated),
    }


def factory(args: Any = None, results: Any = None) -> Folder:
    """Return a run of LLaMA-Factory, 300 steps in ten minutes."""
    course = losses(30, 1.8, 1.0)
    rows: list[Any] = [
        {"current_steps": 10 * (i + 1), "total_steps": 300, "loss": loss, "epoch": (i + 1) / 10}
        | {"lr": 1e-4 * 0.5 * (1 + math.cos(math.pi * (i + 1) / 30)), "percentage": round(100 * (i + 1) / 30, 2)}
        | {"elapsed_time": f"0:{20 * (i + 1) // 60:02d}:{20 * (i + 1) % 60:02d}", "remaining_time": "0:00:00"}
        for i, loss in enumerate(course)
    ]
    rows.append(
        {"current_steps": 300, "total_steps": 300, "epoch": 3.0, "percentage": 100.0, "elapsed_time": "0:10:10"}
    )
    summary = {"epoch": 3.0, "train_loss": sum(course) / 30, "train_runtime": 610.4, "train_steps_per_second": 0.491}
    given = {"model_name_or_path": f"{MODEL}-Instruct", "stage": "sft", "finetuning_type": "lora", "lora_rank": 8}
    given |= {"per_device_train_batch_size": 1, "gradient_accumulation_steps": 8, "learning_rate": "1.0e-4"}
    given |= {"num_train_epochs": 3.0, **(args or {})}
    return {
        "trainer_log.jsonl": lines(rows),
        "all_results.json": document({**summary, **(results or {})}),
        "llamafactory_args.yaml": "".join(f"{key}: {value}\n" for key, value in given.items()),
    }


def unsloth(card: str = "", runtime: float = 452.6) -> Folder:
    """Return the console log of an Unsloth notebook, 60 steps on a T4."""
    course = losses(60, 1.7, 0.8)
    log = "==((====))==  Unsloth 2024.11.7: Fast Llama patching. Transformers = 4.46.2.\n"
    log += "   \\\\   /|    GPU: Tesla T4. Max memory: 14.748 GB. Platform = Linux.\n"
    log += "   \\\\   /|    Num examples = 51,760 | Num Epochs = 1\n"
    log += "O^O/ \\_/ \\    Batch size per device = 2 | Gradient Accumulation steps = 4\n"
    log += "\\        /    Total batch size = 8 | Total steps = 60\n"
    log += ' "-____-"     Number of trainable parameters = 24,313,856\n'
    for i, loss in enumerate(course, 1):
        log += f"{ {'loss': loss, 'grad_norm': 0.5, 'learning_rate': 2e-4 * (1 - i / 60), 'epoch': i * 8 / 51760} }\n"
    end = {"train_runtime": runtime, "train_steps_per_second": 0.133, "train_loss": sum(course) / 60, "epoch": 0.01}
    return {"train.log": f"{log}{end}\n", **({"README.md": card} if card else {})}


def harness(value: float = 0.65, error: float | None = None, effective: int = 80, shots: int = 5) -> Folder:
    """Return results and samples of lm-evaluation-harness, 52 of 80 right."""
    stderr = math.sqrt(0.65 * 0.35 / 79) if error is None else error
    results = {
        "results": {"arc_easy": {"alias": "arc_easy", "acc,none": value, "acc_stderr,none": stderr}},
        "configs": {"arc_easy": {"task": "arc_easy", "num_fewshot": shots}},
        "n-shot": {"arc_easy": shots},
        "n-samples": {"arc_easy": {"original": 2376, "effective": effective}},
        "config": {"model": "hf", "model_args": f"pretrained={MODEL},dtype=float16", "limit": 80.0},
        "date": 1740910272.5,
    }
    samples = [
        {"doc_id": i, "target": "0", "resps": [[["-1.2", "False"]]], "filtered_resps": [["-1.2", "False"]]}
        | {"filter": "none", "metrics": ["acc"], "acc": 1.0 if i < 52 else 0.0}
        for i in range(80)
    ]
    when = "2025-03-02T10-11-12.123456"
    return {f"results_{when}.json": document(results), f"samples_arc_easy_{when}.jsonl": lines(samples)}


def wandb(summary: Any = None, model: str = "gpt2", rate: str = "3e-4") -> Folder:
    """Return a W&B run of 50 logged rows in ten minutes; its config.yaml has the newer form."""
    course, place = losses(50), "wandb/run-20250101_120000-ab12cd34/files"
    last = {"_step": 49, "_runtime": 612, "train/loss": course[-1], "eval/accuracy": 0.731, **(summary or {})}
    about = {"startedAt": "2025-01-01T12:00:00.000000", "gpu": "NVIDIA A100-SXM4-40GB", "gpu_count": 1}
    about |= {"args": ["--model", model, "--lr", rate, "--batch_size", "32"]}
    config = "_wandb:\n  value:\n    cli_version: 0.18.0\nmodel:\n  value: gpt2\nlr:\n  value: 0.0003\n"
    rows = [
        {"_step": i, "train/loss": loss, "train/global_step": 10 * (i + 1), "_runtime": round(12.2 * (i + 1), 1)}
        for i, loss in enumerate(course)
    ]
    return {
        f"{place}/wandb-summary.json": document({key: value for key, value in last.items() if value is not None}),
        f"{place}/wandb-metadata.json": document(about),
        f"{place}/config.yaml": config + "batch_size:\n  value: 32\n",
        "history.jsonl": lines(rows),
    }


def mlflow(**extra: str) -> Folder:
    """Return an MLflow run whose accuracy counts its own evaluations."""
    run, began = "mlruns/123456/0a1b2c3d4e5f60718293a4b5c6d7e8f9", 1735736400000
    courses = {"val_accuracy": [0.5, 0.6, 0.71, 0.79], "loss": losses(30)}
    files: Folder = {
        f"{run}/meta.yaml": f"end_time: 1735740000000\nrun_name: smooth-ox-12\nstart_time: {began}\nstatus: 3\n",
        f"{run}/params/learning_rate": "0.001",
        f"{run}/params/epochs": "30",
    }
    for name, values in courses.items():
        rows = (f"{began + 60000 * i} {value} {i}\n" for i, value in enumerate(values))
        files[f"{run}/metrics/{name}"] = "".join(rows)
    return {**files, **{name.replace("__", "."): text for name, text in extra.items()}}


def lightning(**extra: str) -> Folder:
    """Return eight epochs of PyTorch Lightning."""
    rows = "epoch,step,train_loss,val_loss,val_acc\n"
    for epoch in range(8):
        fall = math.exp(-epoch / 3)
        rows += f"{epoch},{50 * epoch + 49},{2 * fall + 0.2:.5f},,\n"
        rows += f"{epoch},{50 * epoch + 49},,{2 * fall + 0.3:.5f},{0.5 + 0.05 * epoch:.4f}\n"
    place = "lightning_logs/version_0"
    files: Folder = {
        f"{place}/metrics.csv": rows,
        f"{place}/hparams.yaml": "lr: 0.001\nbatch_size: 128\nmax_epochs: 8\n",
    }
    return {**files, **{name.replace("__", "."): text for name, text in extra.items()}}


def torchtune(rate: str = "2e-5", most: str = "40", card: str = "") -> Folder:
    """Return a recipe of torchtune and its log of 40 steps."""
    config = "model:\n  _component_: torchtune.models.llama3_2.llama3_2_1b\nbatch_size: 4\nepochs: 1\noptimizer:\n"
    config += f"  _component_: torch.optim.AdamW\n  lr: {rate}\nmax_steps_per_epoch: {most}\ndtype: bf16\nseed: 42\n"
    rows = (
        f"Step {i} | loss:{loss} lr:2e-05 tokens_per_second_per_gpu:998.2\n" for i, loss in enumerate(losses(40), 1)
    )
    files: Folder = {"torchtune_config.yaml": config, "logs/log_1735736400.txt": "".join(rows)}
    return {**files, **({"README.md": card} if card else {})}


def keras(best: float = 0.865, more: int = 0, card: str = "") -> Folder:
    """Return what CSVLogger and a history saved as JSON hold of twelve epochs."""
    rows, history = "epoch,accuracy,loss,val_accuracy,val_loss\n", {}
    for epoch in range(12):
        values = {"accuracy": round(0.5 + 0.04 * epoch, 5), "loss": round(1.2 * math.exp(-epoch / 5), 5)}
        values |= {"val_accuracy": round(0.48 + 0.035 * epoch, 5), "val_loss": round(1.25 * math.exp(-epoch / 6), 5)}
        rows += f"{epoch}," + ",".join(map(str, values.values())) + "\n"
        for name, value in values.items():
            history.setdefault(name, []).append(value)
    history["val_accuracy"][-1] = best
    longer = {name: [*values, *([values[-1]] * more)] for name, values in history.items()}
    files: Folder = {"training.log": rows, "history.json": document(longer)}
    return {**files, **({"README.md": card} if card else {})}


def mlperf(**extra: str) -> Folder:
    """Return an MLPerf log of a successful run."""
    log, at = "", 1735736400000
    events = [("global_batch_size", 256, {}), ("opt_base_learning_rate", 0.0004, {}), ("seed", 3, {})]
    events += [("eval_accuracy", score, {"epoch_num": i}) for i, score in enumerate((0.5, 0.63, 0.7, 0.731), 1)]
    for key, value, about in [*events, ("run_stop", None, {"status": "success"})]:
        at += 60000
        kind = "INTERVAL_END" if key == "run_stop" else "POINT_IN_TIME"
        event = {"time_ms": at, "event_type": kind, "key": key, "value": value, "metadata": {"lineno": 1, **about}}
        log += f":::MLLOG {json.dumps(event)}\n"
    return {"result_0.txt": log, **{name.replace("__", "."): text for name, text in extra.items()}}


def evals(score: float = 0.55) -> Folder:
    """Return a record of OpenAI evals, 22 of 40 right."""
    run = {"run_id": "250101120000ABCD", "created_at": "2025-01-01 12:00:01+00:00"}
    rows: list[Any] = [{"spec": {"completion_fns": ["gpt-3.5-turbo"], "eval_name": "math.dev.v0", "split": "dev"}}]
    rows.append({"final_report": {"accuracy": score, "boostrap_std": 0.07}})
    for i in range(40):
        said = {"correct": i < 22, "expected": f"{i}", "picked": f"{i}" if i < 22 else None, "sampled": f"{i}"}
        rows.append({**run, "event_id": i, "sample_id": f"math.dev.{i}", "type": "match", "data": said})
    return {"250101120000ABCD_gpt-3.5-turbo_math.jsonl": lines(rows)}


def nanogpt(card: str = "") -> Folder:
    """Return a log of nanoGPT, 1,000 iterations."""
    log = "tokens per iteration will be: 3,072\nnumber of parameters: 10.65M\n"
    draw = random.Random(5)
    for i in range(0, 1001, 50):
        loss = 4.2 * math.exp(-i / 400)
        log += f"step {i}: train loss {loss + 1.2:.4f}, val loss {loss + 1.45:.4f}\n" if i % 250 == 0 else ""
        log += f"iter {i}: loss {loss + 1.2 + draw.gauss(0, 0.02):.4f}, time {draw.uniform(30, 34):.2f}ms, mfu 17.50%\n"
    files: Folder = {"train.log": log, "config/train_x.py": "learning_rate = 6e-4\nmax_iters = 1000\n"}
    return {**files, **({"README.md": card} if card else {})}


def litgpt(rate: str = "0.0002") -> Folder:
    """Return what LitGPT writes: microbatches beside steps."""
    rows = "iter,step,epoch,loss,iter_time,tokens,learning_rate\n"
    for i, loss in enumerate(losses(40, 2.0, 1.2), 1):
        rows += f"{4 * i},{i},0,{loss},0.41,{2048 * i},0.0002\n"
    asked = f"precision: bf16-true\nseed: 1337\noptimizer:\n  init_args:\n    lr: {rate}\ntrain:\n  max_steps: 40\n"
    return {"metrics.csv": rows, "hyperparameters.yaml": asked}

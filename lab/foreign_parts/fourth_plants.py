"""A fourth set of 42 contradictions in thirteen tools' folders, of which 27 were found at first, and 20 honest ones."""

from __future__ import annotations

import json
from collections.abc import Callable

from foreign_parts.fourth_folders import (
    CARD,
    axolotl,
    evals,
    factory,
    harness,
    hf,
    keras,
    lightning,
    lines,
    litgpt,
    losses,
    mlflow,
    mlperf,
    nanogpt,
    torchtune,
    unsloth,
    wandb,
)
from foreign_tools import Folder, document

Case = Callable[[], Folder]
EVALUATED = "It achieves the following results on the evaluation set:\n"


def case(name: str, folder: Case) -> Case:
    """Return a folder under a name."""
    folder.__name__ = name
    return folder


def asked(files: Folder, **settings: object) -> Folder:
    """Return a folder with a configuration beside."""
    return {**files, "config.yaml": "".join(f"{key}: {value}\n" for key, value in settings.items())}


def card(files: Folder, text: str) -> Folder:
    """Return a folder with a README."""
    return {**files, "README.md": f"# my-model\n\n{text}"}


def answers(score: float, told: Callable[[int], str], **more: object) -> Folder:
    """Return answers that nobody marked, and a summary of them."""
    rows = [{"id": i, "question": f"{i}+1", "answer": str(i + 1), "prediction": told(i)} for i in range(60)]
    return {"predictions.jsonl": lines(rows), "summary.json": document({"accuracy": score, "n": 60, **more})}


def sizes() -> Folder:
    """Return two sizes of one model."""
    files = {"config.json": {"model": "gpt2-medium", "num_params": 354823168}}
    files["report.json"] = {"model": "gpt2-medium", "num_params": 124439808}
    table = "step,loss\n" + "".join(f"{i},{loss}\n" for i, loss in enumerate(losses(20), 1))
    return {"metrics.csv": table, **{name: document(value) for name, value in files.items()}}


def seeds() -> Folder:
    """Return a log that prints another seed than the configuration."""
    log = "2025-01-01 10:00:00 INFO Namespace(seed=42, model='t5-small', epochs=4, lr=0.0003)\n"
    rows = (f"2025-01-01 10:{i:02d}:10 INFO epoch {i} train_loss={1.5 * 0.8**i:.4f}\n" for i in range(1, 5))
    return asked({"run.log": log + "".join(rows)}, seed=7, model="t5-small", epochs=4, lr=0.0003)


FOURTH: tuple[Case, ...] = (
    case("hf_best_metric", lambda: hf(state={"best_metric": 0.55, "best_model_checkpoint": "out/checkpoint-400"})),
    case("hf_max_steps", lambda: asked(hf(), learning_rate=5e-5, per_device_train_batch_size=16, max_steps=1200)),
    case("hf_eval_loss", lambda: hf(evaluation={"eval_loss": 0.4123})),
    case("hf_speed", lambda: hf(train={"train_samples_per_second": 52.1, "train_steps_per_second": 3.255})),
    case("hf_card", lambda: card(hf(), f"{EVALUATED}- Loss: 0.9412\n- Accuracy: 0.9610\n")),
    case("hf_card_rate", lambda: card(hf(), f"{CARD}- learning_rate: 0.0005\n- train_batch_size: 16\n")),
    case("axolotl_rate", lambda: axolotl(logged=2e-3)),
    case("axolotl_rank", lambda: axolotl(adapter={"r": 64})),
    case("axolotl_base", lambda: axolotl(adapter={"base_model_name_or_path": "mistralai/Mistral-7B-v0.1"})),
    case("axolotl_epochs", lambda: axolotl(epochs=5)),
    case("factory_runtime", lambda: factory(results={"train_runtime": 61.04, "train_steps_per_second": 4.91})),
    case("factory_rate", lambda: factory(args={"learning_rate": "1.0e-5"})),
    case("factory_epochs", lambda: factory(results={"epoch": 10.0})),
    case("unsloth_steps", lambda: unsloth("# llama\n\nFine-tuned with Unsloth for 600 steps on 1x Tesla T4.\n")),
    case("unsloth_gpu", lambda: unsloth("# Card\n\n- GPU: NVIDIA A100-SXM4-80GB\n- Total steps: 60\n")),
    case("unsloth_speed", lambda: unsloth(runtime=45.26)),
    case("unsloth_size", lambda: unsloth("# M\n\n| | |\n|---|---|\n| Trainable parameters | 243,138,560 |\n")),
    case("harness_score", lambda: harness(value=0.8125)),
    case("harness_items", lambda: harness(effective=2376)),
    case("harness_error", lambda: harness(error=0.004)),
    case(
        "harness_card", lambda: card(harness(), "| Task | Metric | Value |\n|---|---|---|\n| arc_easy | acc | 0.91 |\n")
    ),
    case("wandb_loss", lambda: wandb(summary={"train/loss": 0.2871})),
    case("wandb_model", lambda: wandb(model="gpt2-xl")),
    case("wandb_rate", lambda: wandb(rate="3e-5")),
    case("wandb_runtime", lambda: wandb(summary={"_runtime": 61200})),
    case("mlflow_score", lambda: mlflow(results__json=document({"val_accuracy": 0.93}))),
    case("mlflow_rate", lambda: mlflow(config__json=document({"learning_rate": 0.01, "batch_size": 64}))),
    case("lightning_score", lambda: lightning(test_results__json=document({"val_acc": 0.971}))),
    case("lightning_best", lambda: lightning(summary__json=document({"best_val_loss": 0.0712, "epochs": 8}))),
    case("torchtune_rate", lambda: torchtune(rate="2e-4")),
    case("torchtune_loss", lambda: torchtune(card="# Run\n\nFinal loss: 0.41\n\nSteps: 40\n")),
    case("keras_history", lambda: keras(best=0.97)),
    case("keras_epochs", lambda: keras(more=8)),
    case("mlperf_score", lambda: mlperf(results__json=document({"eval_accuracy": 0.781}))),
    case("mlperf_batch", lambda: mlperf(config__yaml="global_batch_size: 512\nseed: 3\n")),
    case("evals_score", lambda: evals(0.85)),
    case("nanogpt_loss", lambda: nanogpt("# GPT\n\nFinal val loss: 0.9871 after 1000 iterations.\n")),
    case("nanogpt_iterations", lambda: nanogpt("# GPT\n\nTrained for 5000 iterations with 10.65M parameters.\n")),
    case("litgpt_rate", lambda: litgpt("0.002")),
    case("plain_sizes", sizes),
    case("plain_answers", lambda: answers(0.95, lambda i: str(i + 1 if i % 4 else i))),
    case("plain_seed", seeds),
)


def of_percent() -> Folder:
    """Return scores as a percent, of another split, and the best of several."""
    scores = {"val_accuracy": 79.0, "test_accuracy": 77.2, "best_val_accuracy": 0.79}
    return mlflow(results__json=document(scores), config__json=document({"learning_rate": 1e-3, "epochs": 30}))


def resumed() -> Folder:
    """Return a run of the Trainer that was resumed at step 400: its mean and its clock are of the rest."""
    files = hf()
    state = json.loads(files["trainer_state.json"])
    course = [row["loss"] for row in state["log_history"] if "loss" in row]
    of_rest = {"train_loss": sum(course[20:]) / 30, "train_runtime": 602.1, "train_steps_per_second": 0.9965}
    of_rest["train_samples_per_second"] = 15.94
    state["log_history"][-1].update(of_rest)
    again = {name: document(json.loads(files[name]) | of_rest) for name in ("train_results.json", "all_results.json")}
    return {**files, **again, "trainer_state.json": document(state)}


def best_kept() -> Folder:
    """Return a run that loaded its best model at the end and evaluated it again."""
    rows = json.loads(hf()["trainer_state.json"])["log_history"]
    best = next(row for row in rows if row.get("step") == 400 and "eval_loss" in row)
    again = {key: best[key] for key in ("eval_loss", "eval_accuracy")}
    return hf(state={"best_metric": best["eval_loss"], "best_model_checkpoint": "out/checkpoint-400"}, evaluation=again)


def two_evaluations() -> Folder:
    """Return two evaluations of one task at different times, with five examples and with none."""
    files = harness(value=0.55, error=0.05597, shots=0)
    results = next(name for name in files if name.startswith("results"))
    return {**harness(), results.replace("10-11-12", "10-59-59"): files[results]}


def sweep() -> Folder:
    """Return two runs of a sweep beside each other."""
    files: Folder = {"summary.csv": "run,final_loss,accuracy\na,1.2,0.7\nb,1.8,0.6\n"}
    for name, rate, course in (("a", 1e-3, (2.0, 1.5, 1.2)), ("b", 1e-4, (2.1, 1.9, 1.8))):
        files[f"runs/{name}/config.json"] = document({"lr": rate, "seed": ord(name)})
        rows = (f"{i},{loss}\n" for i, loss in enumerate(course, 1))
        files[f"runs/{name}/metrics.csv"] = "step,loss\n" + "".join(rows)
    return files


HONEST_FOURTH: tuple[Case, ...] = (
    case("hf_with_card", lambda: card(hf(), f"{EVALUATED}- Accuracy: 0.78\n\n{CARD}- learning_rate: 5e-05\n")),
    case("hf_resumed", resumed),
    case("hf_best_kept", best_kept),
    case("hf_two_devices", lambda: asked(hf(), learning_rate=5e-5, per_device_train_batch_size=8, max_steps=-1)),
    case("axolotl_again", axolotl),
    case("factory_card", lambda: card(factory(), f"{CARD}- learning_rate: 0.0001\n- total_train_batch_size: 8\n")),
    case(
        "unsloth_card", lambda: unsloth("# llama\n\nLoRA, 60 steps, effective batch size 8 (2 x 4), on one Tesla T4.\n")
    ),
    case("harness_percent", lambda: card(harness(), "arc_easy acc 65.0 % (0.65 ± 0.054) on the first 80 items.\n")),
    case("harness_twice", two_evaluations),
    case("wandb_splits", lambda: {**wandb(), "results.json": document({"test_accuracy": 0.71, "dev_accuracy": 0.731})}),
    case("mlflow_percent", of_percent),
    case("lightning_best_of_all", lambda: lightning(summary__json=document({"best_val_acc": 0.85, "epochs": 8}))),
    case(
        "torchtune_two_devices", lambda: torchtune(most="null", card="Global batch 8 = 4 per device × 2, 40 steps.\n")
    ),
    case("keras_percent", lambda: keras(card="Best val accuracy 86.5 % at epoch 12 (1-based).\n")),
    case(
        "mlperf_per_gpu", lambda: mlperf(config__yaml="global_batch_size: 256\nper_gpu_batch_size: 32\nworld_size: 8\n")
    ),
    case("evals_again", evals),
    case("nanogpt_card", lambda: nanogpt("GPT, 10.65M parameters, 1000 iterations, best val loss 1.79, batch 12.\n")),
    case("litgpt_again", litgpt),
    case("sweep", sweep),
    case("answers_in_words", lambda: answers(0.75, lambda i: f"It is {i + 1}." if i % 4 else "no idea", n_correct=45)),
)

"""Contradictions planted in folders of other tools: each tells one thing twice, once falsely.

The folders are those of `tests/support/foreign_tools.py`. The plants were written after the readers, by what a person
might change, without looking at what is compared; none is a case of the tests. How many were found when they were
first counted, before anything was mended for them, stands in `lab/plants.py`.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import foreign_tools as tools

Folder = tools.Folder
ARGS = {"num_train_epochs": 3, "max_steps": -1, "learning_rate": 2e-4, "per_device_train_batch_size": 8}


def changed(files: Folder, name: str, change: Callable[[Any], object]) -> Folder:
    """Return a folder with one JSON document changed."""
    value = json.loads(files[name])
    change(value)
    return {**files, name: tools.document(value)}


def replaced(files: Folder, name: str, old: str, new: str) -> Folder:
    """Return a folder with one text changed.

    Raises:
        ValueError: The text to be changed is not there.
    """
    text = files[name]
    if not isinstance(text, str) or old not in text:
        message = f"{old!r} is not in {name}."
        raise ValueError(message)
    return {**files, name: text.replace(old, new)}


def named(files: Folder, part: str) -> str:
    """Return the path of the file whose name holds a part."""
    return next(name for name in files if part in name)


def best_metric() -> Folder:
    """The best evaluation is better than any."""
    return changed(tools.hf_trainer(), "trainer_state.json", lambda one: one.update(best_metric=0.42))


def epochs_of_the_summary() -> Folder:
    """Ten epochs in the summary, three in the state."""
    files = changed(tools.hf_trainer(), "all_results.json", lambda one: one.update(epoch=10.0))
    return changed(files, "train_results.json", lambda one: one.update(epoch=10.0))


def loss_of_the_evaluation() -> Folder:
    """Another loss of the last evaluation."""
    return changed(tools.hf_trainer(), "eval_results.json", lambda one: one.update(eval_loss=0.35))


def perplexity() -> Folder:
    """A perplexity that its own loss does not give."""
    return changed(tools.hf_trainer(), "eval_results.json", lambda one: one.update(perplexity=1.21))


def speed() -> Folder:
    """Ten times as many steps a second as there were."""
    files = tools.hf_trainer()
    for name in ("all_results.json", "train_results.json"):
        files = changed(files, name, lambda one: one.update(train_steps_per_second=5.0))
    return files


def harness_readme() -> Folder:
    """A README with a higher score than the harness gave."""
    return {**tools.lm_eval(), "README.md": "# ada/gpt2-math\n\n- **Exact match on GSM8K:** 92.0 %\n"}


def second_task() -> Folder:
    """Two tasks of the harness, of which the second's samples give another accuracy."""
    one, two = tools.lm_eval(), tools.lm_eval(right=40, items=50, task="arc_easy")
    results = named(one, "results")
    extra = json.loads(two[results])

    def join(value: dict[str, Any]) -> None:
        value["results"]["arc_easy"] = {"alias": "arc_easy", "exact_match,strict-match": 0.98}
        value["n-samples"]["arc_easy"] = extra["n-samples"]["arc_easy"]

    return {**two, **changed(one, results, join)}


def limit() -> Folder:
    """All items are said to be answered, and a hundred are."""
    files = tools.lm_eval()
    everything = {"gsm8k": {"original": 1319, "effective": 1319}}
    return changed(files, named(files, "results"), lambda one: one.update({"n-samples": everything}))


def wandb_score() -> Folder:
    """W&B's last accuracy against the Trainer's."""
    files = {**tools.wandb(), **tools.hf_trainer()}
    summary = f"{tools.WANDB}/wandb-summary.json"
    return changed(files, summary, lambda one: one.update({"eval/accuracy": 0.95}))


def wandb_chip() -> Folder:
    """An A100 in W&B's metadata, a T4 in the log."""
    files = tools.wandb()
    files = replaced(files, f"{tools.WANDB}/wandb-metadata.json", "Tesla T4", "NVIDIA A100-SXM4-40GB")
    return {**files, f"{tools.WANDB}/output.log": "GPU: Tesla T4\n" + str(files[f"{tools.WANDB}/output.log"])}


def wandb_runtime() -> Folder:
    """Two minutes of W&B around ten minutes of training."""
    files = {**tools.wandb(), "all_results.json": tools.document({"train_runtime": 600.0, "train_loss": 1.4})}
    return changed(files, f"{tools.WANDB}/wandb-summary.json", lambda one: one.update(_runtime=120.0))


def mlflow_rate() -> Folder:
    """A learning rate in MLflow's parameters that the rows never have."""
    files = {**tools.mlflow(), f"{tools.MLFLOW}/params/learning_rate": "0.01"}
    return {**files, "trainer_state.json": tools.document(tools.trainer_state(evals=False))}


def mlflow_loss() -> Folder:
    """Other losses in MLflow than in the log, at the same steps."""
    rows = "".join(f"step {10 * (i + 1)} loss: {loss - 0.4:.4f}\n" for i, loss in enumerate(tools.losses(30)))
    return {**tools.mlflow(), "train.log": rows}


def axolotl_model() -> Folder:
    """Adapters of another base than the configured one."""
    other = {"base_model_name_or_path": "mistralai/Mistral-7B-v0.3"}
    return changed(tools.axolotl(), "adapter_config.json", lambda one: one.update(other))


def axolotl_epochs() -> Folder:
    """One epoch asked for, three in the rows."""
    return tools.axolotl(epochs=1)


def axolotl_alpha() -> Folder:
    """Another alpha in the adapters."""
    return changed(tools.axolotl(), "adapter_config.json", lambda one: one.update(lora_alpha=128))


def factory_rows() -> Folder:
    """One row of LLaMA-Factory's log beautified."""
    files = tools.llama_factory()
    lines = str(files["trainer_log.jsonl"]).splitlines()
    lines[19] = json.dumps(json.loads(lines[19]) | {"loss": 0.31})
    return {**files, "trainer_log.jsonl": "\n".join(lines) + "\n"}


def factory_tokens() -> Folder:
    """Ten times as many tokens in the summary as in the state."""
    files = changed(
        tools.llama_factory(), "trainer_state.json", lambda one: one.update(num_input_tokens_seen=5_000_192)
    )
    return changed(files, "all_results.json", lambda one: one.update(num_input_tokens_seen=50_001_920))


def unsloth_rate() -> Folder:
    """A README with a tenth of the learning rate."""
    files = tools.unsloth()
    return {
        **files,
        "README.md": str(files["README.md"]) + "\n| Setting | Value |\n|---|---|\n| Learning rate | 2e-5 |\n",
    }


def unsloth_loss() -> Folder:
    """A README with a lower last loss."""
    files = tools.unsloth()
    return {**files, "README.md": str(files["README.md"]) + "\nFinal loss: 0.21\n"}


def keras_accuracy() -> Folder:
    """A better accuracy in the table than on the console, in the last epoch."""
    return replaced(tools.keras(), "training.log", "0.74", "0.94")


def keras_epochs() -> Folder:
    """A README of fifty epochs."""
    return {**tools.keras(), "README.md": "# Digits\n\nThe network was trained for 50 epochs with Adam.\n"}


def mlperf_status() -> Folder:
    """An aborted run that is handed in as finished."""
    files = tools.mlperf(status="aborted")
    return changed(files, "results.json", lambda one: one.update(status="success"))


def mlperf_batch() -> Folder:
    """Another batch in the configuration."""
    return {**tools.mlperf(), "config.yaml": "global_batch_size: 256\nseed: 42\n"}


def evals_model() -> Folder:
    """Another model in the summary than in the record."""
    return {
        **tools.openai_evals(),
        "summary.json": tools.document({"eval_model": "gpt-4", "model": "gpt-4", "accuracy": 0.75}),
    }


def counts() -> Folder:
    """Forty-one of fifty, called ninety-four percent."""
    value = {"correct": 41, "total": 50, "accuracy": 0.94}
    return {"results.json": tools.document(value), "train.log": "step 10 loss: 2.5\nstep 20 loss: 2.0\n"}


FIRST: tuple[Callable[[], Folder], ...] = (
    *(best_metric, epochs_of_the_summary, loss_of_the_evaluation, perplexity, speed, harness_readme, second_task),
    *(limit, wandb_score, wandb_chip, wandb_runtime, mlflow_rate, mlflow_loss, axolotl_model, axolotl_epochs),
    *(axolotl_alpha, factory_rows, factory_tokens, unsloth_rate, unsloth_loss, keras_accuracy, keras_epochs),
    *(mlperf_status, mlperf_batch, evals_model, counts),
)
"""The first 26."""

"""Honest folders as other tools write them, by path and content, small and complete: tests change one thing in each.

Forms follow the tools: transformers' TrainerState, lm-evaluation-harness, MLflow's file store, W&B's files, Axolotl,
LLaMA-Factory, Unsloth, Keras and TensorBoard. Most are stored in tests/cases/honest_tools.
"""

import json
import math
from pathlib import Path
from typing import Any

Folder = dict[str, str | bytes]

CASES = Path(__file__).parents[1] / "cases"
MLFLOW = "mlruns/606783375233873416/1c6b2d5b909041df93e6e00b960de019"
WANDB = "wandb/run-20260102_050412-ab12cd34/files"
GSM8K = CASES / "foreign" / "lm_eval_samples" / "folder" / "ada__gpt2-math"


def write(folder: Path, files: Folder) -> Path:
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return folder


def stored(name: str) -> Folder:
    folder = CASES / "honest_tools" / name
    files = {path.relative_to(folder).as_posix(): path for path in sorted(folder.rglob("*")) if path.is_file()}
    return {name: path.read_bytes() if "tfevents" in name else path.read_text("utf-8") for name, path in files.items()}


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
    small = json.loads((CASES / "foreign" / "hf_trainer" / "folder" / "trainer_state.json").read_text("utf-8"))
    counts = {"global_step": steps, "max_steps": steps, "logging_steps": every, "num_train_epochs": epochs}
    ends = {"epoch": float(epochs), "save_steps": 100, "total_flos": 1.2e15, "log_history": history}
    return {**small, **counts, **ends}


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
    (results_file,), (samples_file,) = GSM8K.glob("*.json"), GSM8K.glob("*.jsonl")
    results, share = json.loads(results_file.read_text("utf-8")), right / items
    error = math.sqrt(share * (1 - share) / (items - 1))
    results["results"]["gsm8k"] |= {"exact_match,strict-match": share, "exact_match_stderr,strict-match": error}
    results["n-samples"]["gsm8k"]["effective"] = items
    results["config"]["limit"] = float(items)
    sample = json.loads(samples_file.read_text("utf-8").splitlines()[0])
    lines = ""
    for index in range(items):
        correct = f"We add.\n#### {index + 1}"
        answer = index + 1 if index < right else index + 1000
        lines += json.dumps(
            sample
            | {"doc_id": index, "doc": {"question": f"What is {index} + 1?", "answer": correct}, "target": correct}
            | {"arguments": {"gen_args_0": {"arg_0": f"Question: What is {index} + 1?\nAnswer:"}}}
            | {"resps": [[f"It is {answer}.\n#### {answer}"]], "filtered_resps": [str(answer)]}
            | {"doc_hash": f"{index:064x}", "exact_match": float(answer == index + 1)}
        )
        lines += "\n"
    return {f"ada__gpt2-math/{results_file.name}": document(results), f"ada__gpt2-math/{samples_file.name}": lines}


def mlflow() -> Folder:
    """Return one run of MLflow's file store."""
    return stored("mlflow")


def wandb() -> Folder:
    """Return the plain files of a W&B run of the Trainer."""
    return stored("wandb")


def axolotl(*, epochs: int = 3) -> Folder:
    """Return an Axolotl configuration beside the state that its trainer saved."""
    files = stored("axolotl")
    asked = str(files["config.yml"]).replace("num_epochs: 3", f"num_epochs: {epochs}")
    return {**files, "config.yml": asked, "trainer_state.json": document(trainer_state())}


def llama_factory(*, steps: int = 300) -> Folder:
    """Return what LLaMA-Factory leaves of an SFT run."""
    files = stored("llama_factory")
    asked = str(files["training_args.yaml"]).replace("max_steps: 300", f"max_steps: {steps}")
    return {**files, "training_args.yaml": asked, "trainer_state.json": document(trainer_state(evals=False))}


def unsloth() -> Folder:
    """Return the captured output of an Unsloth notebook."""
    return stored("unsloth")


def keras() -> Folder:
    """Return console output, CSVLogger's table and the history of a Keras training."""
    return stored("keras")


def tensorboard() -> Folder:
    """Return an event file of losses and of an evaluation, and the result that a script wrote."""
    return stored("tensorboard")

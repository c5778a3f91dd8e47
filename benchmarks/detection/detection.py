"""Count which false statements `trainproof check` finds, in copies of a real run and in folders of other tools.

All hashes are recomputed after each change, including those of the chain.
`python benchmarks/detection/detection.py` writes adversary.json and foreign.json in benchmarks/results, in seconds.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "support"))

import foreign_tools as tools
from event_files import event, record
from leaves import Forger
from lies import LIES, VARIANTS, forge_run, tell

from evidence.grade import check_run
from evidence.run import read_run

REPOSITORY = Path(__file__).parents[2]
RESULTS = REPOSITORY / "benchmarks" / "results"
SEVERITIES = ("error", "warning")
RUN = "tests/cases/earlier/demo-smoke"
Folder = tools.Folder
ALL, STATE, TRAIN, EVAL = "all_results.json", "trainer_state.json", "train_results.json", "eval_results.json"
SUMMARY = f"{tools.WANDB}/wandb-summary.json"


def change(files: Folder, name: str, **changes: Any) -> Folder:
    """Change keys of a JSON file."""
    return {**files, name: tools.document(json.loads(files[name]) | changes)}


def add(files: Folder, name: str, content: Any) -> Folder:
    """Add a file: a text, or an object as JSON."""
    return {**files, name: content if isinstance(content, str) else tools.document(content)}


def replace(files: Folder, name: str, old: str, new: str) -> Folder:
    """Change a text, which must be there."""
    text = str(files[name])
    assert old in text, f"{old!r} is not in {name}"
    return {**files, name: text.replace(old, new)}


def board(name: str, first: float, last: float, **summary: Any) -> Folder:
    """Return TensorBoard events of a falling scalar, and a summary next to them."""
    values = (first + (last - first) * i / 29 for i in range(30))
    parts = [record(event(10 * (i + 1), name, simple=value)) for i, value in enumerate(values)]
    return add({"runs/events.out.tfevents.1767330000.host.1.0": b"".join(parts)}, "results.json", summary)


def predictions(**summary: Any) -> Folder:
    """Return fifty graded answers, thirty of them correct, and their summary."""
    rows = [{"id": i, "expected": str(i), "response": str(i if i < 30 else -1), "correct": i < 30} for i in range(50)]
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    return add({"predictions.jsonl": lines}, "summary.json", {"accuracy": 0.6, "n": 50} | summary)


def table(*, differs: bool) -> Folder:
    """Return losses in a log and in a table, which differ in one row or nowhere."""
    losses = tools.losses(30)
    log = "".join(f"step {10 * (i + 1)} loss: {loss:.4f}\n" for i, loss in enumerate(losses))
    losses[20] = 0.4 if differs else losses[20]
    return {
        "train.log": log,
        "loss.csv": "step,loss\n" + "".join(f"{10 * (i + 1)},{loss:.4f}\n" for i, loss in enumerate(losses)),
    }


def mlflow(name: str, content: str, **summary: Any) -> Folder:
    """Return an MLflow run with one more file, and a summary next to it."""
    return add(add(tools.stored("mlflow"), f"{tools.MLFLOW}/{name}", content), "metrics.json", summary)


PLANTS: dict[str, Callable[[], Folder]] = {
    "trainer: best metric": lambda: change(tools.stored("hf_trainer"), STATE, best_metric=0.42),
    "trainer: epochs": lambda: change(change(tools.stored("hf_trainer"), ALL, epoch=10.0), TRAIN, epoch=10.0),
    "trainer: loss of the evaluation": lambda: change(tools.stored("hf_trainer"), EVAL, eval_loss=0.35),
    "trainer: accuracy": lambda: add(tools.stored("hf_trainer"), "results.json", {"eval_accuracy": 0.97}),
    "trainer: rows of data": lambda: change(tools.stored("hf_trainer"), ALL, train_samples=80_000),
    "trainer: mean above the largest loss": lambda: change(
        change(tools.stored("hf_trainer"), ALL, train_loss=7.25), TRAIN, train_loss=7.25
    ),
    "trainer: seed": lambda: add(
        add(tools.stored("hf_trainer"), "training_args.json", {"seed": 42}), "config.yaml", "seed: 7\n"
    ),
    "trainer: final loss is the mean of another run": lambda: add(
        tools.stored("hf_trainer"), "summary.json", {"final_loss": 0.12, "model": "gpt2"}
    ),
    "wandb: loss": lambda: add(tools.stored("wandb"), "summary.json", {"final_loss": 0.12, "model": "gpt2"}),
    "wandb: accuracy": lambda: change(
        tools.stored("wandb") | tools.stored("hf_trainer"), SUMMARY, **{"eval/accuracy": 0.95}
    ),
    "wandb: model": lambda: add(tools.stored("wandb"), "args.json", {"model_name": "google/gemma-2b"}),
    "wandb: batch": lambda: add(
        tools.stored("wandb"), STATE, json.loads(tools.stored("llama_factory")[STATE]) | {"train_batch_size": 1}
    ),
    "mlflow: learning rate": lambda: mlflow("params/learning_rate", "0.01", learning_rate=2e-4),
    "mlflow: batch": lambda: mlflow("params/batch_size", "64", batch_size=8),
    "mlflow: score": lambda: mlflow("metrics/f1", "1767330600000 0.612 300\n", f1=0.9),
    "mlflow: status": lambda: add(
        replace(tools.stored("mlflow"), f"{tools.MLFLOW}/meta.yaml", "status: 3", "status: 4"),
        "run_summary.json",
        {"status": "completed", "model": "gpt2"},
    ),
    "adapter: base model": lambda: change(
        tools.stored("axolotl"), "adapter_config.json", base_model_name_or_path="mistralai/Mistral-7B-v0.3"
    ),
    "adapter: alpha": lambda: change(tools.stored("axolotl"), "adapter_config.json", lora_alpha=128),
    "adapter: epochs": lambda: replace(tools.stored("axolotl"), "config.yml", "num_epochs: 3", "num_epochs: 1"),
    "log and table: one loss": lambda: table(differs=True),
    "tensorboard: loss": lambda: board("eval/loss", 1.4, 1.1, eval_loss=0.41),
    "tensorboard: learning rate": lambda: board("train/learning_rate", 0.01, 0.0, learning_rate=2e-4),
    "tensorboard: steps": lambda: board("train/loss", 2.4, 0.9, final_step=3000, model="gpt2"),
    "predictions: score": lambda: predictions(accuracy=0.88),
    "predictions: number of answers": lambda: predictions(n_scored=500),
    "predictions: marks": lambda: replace(predictions(), "predictions.jsonl", '"correct": false', '"correct": true'),
}
HONEST: dict[str, Callable[[], Folder]] = {
    **{name: partial(tools.stored, name) for name in ("hf_trainer", "mlflow", "wandb", "axolotl", "tensorboard")},
    "predictions": predictions,
    "log and table": lambda: table(differs=False),
    "tensorboard and summary": lambda: board("eval/loss", 1.4, 1.1, eval_loss=1.1),
}


def errors_and_warnings(folder: Path) -> tuple[str, set[str], set[str]]:
    """Return the grade of a run, and the codes of its errors and of its warnings."""
    report = check_run(read_run(folder))
    codes = {severity: {each.code for each in report.findings if each.severity == severity} for severity in SEVERITIES}
    return report.grade.name, codes["error"], codes["warning"]


def check_lies(root: Path) -> Iterator[tuple[str, str, str, set[str], set[str]]]:
    """Yield family, name, grade, errors and warnings of every lie."""
    forger = Forger(REPOSITORY / RUN, root / Path(RUN).name)
    _, *known = errors_and_warnings(forger.folder)
    for family, lies in LIES.items():
        for name, lie in lies.items():
            grade, errors, warnings = errors_and_warnings(tell(forger, lie))
            yield family, name, grade, errors - known[0], warnings - known[1]
    for name, changes in VARIANTS.items():
        yield "forged", name, *errors_and_warnings(forge_run(root / "forged", name, changes))


def count(root: Path) -> dict[str, Any]:
    """Count the lies of each family that are found, with the codes that find them, and list the others."""
    families: dict[str, Any] = {}
    for family, name, grade, errors, warnings in check_lies(root):
        counts = families.setdefault(
            family, {"lies": 0, "errors": 0, "found": 0, "above_consistent": 0, "not_found": [], "found_by": {}}
        )
        counts["lies"] += 1
        if errors:
            counts["errors"] += 1
        if grade == "verified":
            counts["above_consistent"] += 1
        if errors | warnings:
            counts["found"] += 1
            counts["found_by"][name] = sorted(errors | warnings)
        else:
            counts["not_found"].append(name)
    return families


def count_planted(root: Path) -> dict[str, Any]:
    """Return how many contradictions in folders of other tools are found, and how many honest folders are accused."""

    def is_accused(number: int, files: tools.Folder) -> bool:
        report = check_run(read_run(tools.write(root / f"folder-{number}", files)))
        return any(problem.code.startswith("TP3") for problem in report.findings)

    missed = [name for number, (name, plant) in enumerate(PLANTS.items()) if not is_accused(number, plant())]
    accused = [name for number, (name, honest) in enumerate(HONEST.items()) if is_accused(1000 + number, honest())]
    planted = {"planted": len(PLANTS), "found": len(PLANTS) - len(missed), "missed": missed}
    return {**planted, "honest": len(HONEST), "accused": accused}


def main() -> None:
    """Count, print and write."""
    with tempfile.TemporaryDirectory() as root:
        families, planted = count(Path(root)), count_planted(Path(root))
    for family, counts in families.items():
        print(f"{family:<14} {counts['lies']:>3} lies, {counts['errors']:>3} errors, {counts['found']:>3} found")
    print(
        f"planted        {planted['planted']:>3} contradictions, {planted['found']} found; accused {planted['accused']}"
    )
    for name, result in (("adversary", {"run": RUN, "families": families}), ("foreign", planted)):
        (RESULTS / f"{name}.json").write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

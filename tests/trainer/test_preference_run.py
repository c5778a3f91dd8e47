"""A run on pairs from end to end, in sequences of two lengths: recorded, continued bit for bit, exported, judged."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from tasks import inputs_of

from evidence import layout
from evidence.grade import check_run
from evidence.run import read_run
from schemas.problems import ProblemError
from trainer.config.load import load_config
from trainer.config.tree import (
    Config,
    DataConfig,
    EvaluationConfig,
    LimitsConfig,
    MethodConfig,
    ObjectiveConfig,
    RecordingConfig,
)
from trainer.export_run import export_run
from trainer.model.model import build_model
from trainer.model.source import resolve
from trainer.recorder.progress import Watch
from trainer.run import RunRequest, run

QUIET = Watch(quiet=True)
EXACT = ("step", "tokens_seen", "loss", "grad_norm", "reward_chosen", "reward_margin", "reward_accuracy")


def rows(folder: Path) -> list[dict]:
    return [json.loads(line) for line in (folder / layout.METRICS).read_text().splitlines()]


def codes(folder: Path) -> set[str]:
    return {problem.code for problem in check_run(read_run(folder)).findings if problem.severity == "error"}


def written(path: Path, count: int) -> Path:
    """Write pairs, every third of them with a long answer."""
    pairs = [
        {"prompt": f"{n} + 1?", "chosen": f"It is {n + 1}.", "rejected": "I do not know." * (1 + 2 * (n % 3 == 0))}
        for n in range(count)
    ]
    path.write_text("".join(json.dumps(pair) + "\n" for pair in pairs))
    return path


@pytest.fixture
def pairs(config: Config, tmp_path: Path) -> Config:
    """Four steps of two pairs; with rewards in every row."""
    return replace(
        config,
        data=DataConfig(dataset=str(written(tmp_path / "pairs.jsonl", 9)), max_length=64, buckets=2),
        objective=ObjectiveConfig(kind="dpo", beta=0.3, label_smoothing=0.05),
        optimizer=replace(config.optimizer, schedule="constant"),
        recording=RecordingConfig(log_every_steps=1),
        limits=LimitsConfig(steps=4),
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    "method", [MethodConfig(), MethodConfig(kind="lora", rank=2, dropout=0.1)], ids=["full", "lora"]
)
def test_it_is_continued_bit_for_bit_and_exported(
    method: MethodConfig, pairs: Config, order_of: Callable[..., RunRequest], tmp_path: Path
):
    pairs = replace(pairs, method=method, evaluation=replace(pairs.evaluation, eval_set=str(items(tmp_path))))
    whole, first = order_of(pairs, "whole"), order_of(replace(pairs, limits=LimitsConfig(steps=2)), "first")
    rest = order_of(pairs, "rest", resume=first.folder)
    assert [run(order, QUIET) for order in (whole, first, rest)] == [0, 0, 0]
    assert [codes(order.folder) for order in (whole, first, rest)] == [set(), set(), set()]
    found = [[row[key] for key in EXACT] for row in rows(first.folder) + rows(rest.folder)]
    assert found == [[row[key] for key in EXACT] for row in rows(whole.folder)]
    assert rows(whole.folder)[0]["reward_margin"] == 0.0
    assert rows(whole.folder)[3]["reward_margin"] > 0.0
    manifest = json.loads((whole.folder / layout.MANIFEST).read_text())
    assert manifest["effective"]["objective"] == {"kind": "dpo", "beta": 0.3, "label_smoothing": 0.05}
    assert manifest["effective"]["data"]["buckets"] == 2
    # The reference is no further model: what is counted is what is exported, and adapters.
    of_adapters = manifest["model"]["trainable_parameters"] if method.kind == "lora" else 0
    assert manifest["model"]["parameters"] == 169_728 + of_adapters
    params = {
        json.loads((order.folder / layout.EVAL_SUMMARY).read_text())["checkpoint"]["params_sha256"]
        for order in (whole, rest)
    }
    assert len(params) == 1
    exported = export_run(whole.folder, tmp_path / "export", QUIET)
    assert build_model(pairs, resolve(str(exported))).reads_weights


def items(folder: Path) -> Path:
    path = folder / "items.jsonl"
    item = {"id": "a", "prompt": "90 + 1?", "expected": "91", "category": "sum", "difficulty": "easy"}
    path.write_text(json.dumps(item) + "\n")
    return path


@pytest.mark.slow
def test_it_is_not_continued_beside_another_reference(
    pairs: Config, order_of: Callable[..., RunRequest], tmp_path: Path
):
    """The first parameters are read again: where the files hold others, the loss would ask another model."""
    short = replace(pairs, limits=LimitsConfig(steps=1), evaluation=EvaluationConfig())
    first = order_of(short, "first")
    assert run(first, QUIET) == 0
    base = export_run(first.folder, tmp_path / "base", QUIET)
    named = replace(short, model=replace(short.model, name=str(base)))
    second = order_of(named, "second")
    assert run(second, QUIET) == 0
    other = order_of(replace(named, seed=5, model=replace(named.model, weights="random")), "other")
    assert run(other, QUIET) == 0
    (base / "model.safetensors").unlink()
    export_run(other.folder, tmp_path / "others", QUIET)
    (tmp_path / "others" / "model.safetensors").rename(base / "model.safetensors")
    with pytest.raises(ProblemError) as caught:
        run(order_of(replace(named, limits=LimitsConfig(steps=2)), "rest", resume=second.folder), QUIET)
    assert [problem.code for problem in caught.value.problems] == ["TP055"]


@pytest.mark.slow
def test_every_length_is_compiled_before_the_first_step(pairs: Config, order_of: Callable[..., RunRequest]):
    order = order_of(replace(pairs, evaluation=EvaluationConfig()))
    assert run(order, QUIET) == 0
    _, data = inputs_of(pairs)
    assert data.source.lengths_in_use == (32, 64)
    log = [json.loads(line) for line in (order.folder / layout.LOG).read_text().splitlines()]
    [compiled] = [line for line in log if line["event"] == "compiled"]
    assert compiled["fields"]["lengths"] == [32, 64]
    assert "compiled for 2 lengths of sequences: train_32 in " in compiled["message"]
    widths = [data.source.batch(step)["tokens"].shape[-1] for step in range(4)]
    assert [row["tokens_per_step"] for row in rows(order.folder)] == [4 * width for width in widths]
    found = rows(order.folder)
    found[1] |= {"tokens_per_step": 300.0}
    (order.folder / layout.METRICS).write_text("".join(json.dumps(row) + "\n" for row in found))
    assert "TP312" in codes(order.folder)


def test_the_page_of_the_documentation_runs(
    order_of: Callable[..., RunRequest], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    page = (Path(__file__).parents[2] / "docs" / "preference.md").read_text()
    for name, kind in (("pairs.jsonl", "json"), ("preference.yaml", "yaml")):
        (tmp_path / name).write_text(page.partition(f"```{kind}\n")[2].partition("```")[0])
    monkeypatch.chdir(tmp_path)
    config = load_config(Path("preference.yaml"), settings=["mesh.device=cpu", "mesh.devices=1"])
    order = order_of(config)
    assert run(order, QUIET) == 0
    assert rows(order.folder)[-1]["reward_accuracy"] in (0.0, 0.5, 1.0)

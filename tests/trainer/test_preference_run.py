"""A run on pairs from end to end, in sequences of two lengths: recorded, resumed bit for bit, exported, judged."""

import json
from dataclasses import replace
from operator import itemgetter
from pathlib import Path

import pytest
from model_folders import row_file
from tasks import inputs_of, with_settings
from whole_runs import QUIET, error_codes, logged, manifest_of, refusal, rows

from evidence import layout
from trainer.config.load import load_config
from trainer.config.tree import Config
from trainer.export_run import export_run
from trainer.model.model import build_model
from trainer.model.source import resolve

EXACT = itemgetter("step", "tokens_seen", "loss", "grad_norm", "reward_chosen", "reward_margin", "reward_accuracy")


@pytest.fixture
def pairs(config: Config, tmp_path: Path) -> Config:
    """Four steps of two pairs, every third pair with a long answer; with rewards in every row."""
    rejected = ["I do not know." * (1 + 2 * (n % 3 == 0)) for n in range(9)]
    pairs = [{"prompt": f"{n} + 1?", "chosen": f"It is {n + 1}.", "rejected": each} for n, each in enumerate(rejected)]
    return with_settings(
        config,
        data={"dataset": row_file(tmp_path / "pairs.jsonl", *pairs), "max_length": 64, "buckets": 2},
        objective={"kind": "dpo", "beta": 0.3, "label_smoothing": 0.05},
        optimizer={"schedule": "constant"},
        limits={"steps": 4},
    )


@pytest.mark.slow
@pytest.mark.parametrize("method", [{}, {"kind": "lora", "rank": 2, "dropout": 0.1}], ids=["full", "lora"])
def test_it_resumes_bit_for_bit_and_is_exported(method, pairs, train, tmp_path):
    item = {"id": "a", "prompt": "90 + 1?", "expected": "91", "category": "sum", "difficulty": "easy"}
    items = row_file(tmp_path / "items.jsonl", item)
    pairs = with_settings(pairs, method=method, evaluation={"eval_set": items})
    whole, first = train(pairs, "whole"), train(with_settings(pairs, limits={"steps": 2}), "first")
    rest = train(pairs, "rest", resume=first)
    assert [len(logged(folder, "baseline_left_out")) for folder in (whole, first, rest)] == [0, 0, 1]
    assert list(map(EXACT, rows(first) + rows(rest))) == list(map(EXACT, rows(whole)))
    assert rows(whole)[0]["reward_margin"] == 0.0
    assert rows(whole)[3]["reward_margin"] > 0.0
    manifest = manifest_of(whole)
    assert manifest["effective"]["objective"] == {"kind": "dpo", "beta": 0.3, "label_smoothing": 0.05}
    # The reference is no further model: the parameters are those that are exported, and adapters.
    of_adapters = manifest["model"]["trainable_parameters"] if method else 0
    assert manifest["model"]["parameters"] == 169_728 + of_adapters
    summaries = [json.loads((folder / layout.EVAL_SUMMARY).read_text()) for folder in (whole, rest)]
    assert len({each["checkpoint"]["params_sha256"] for each in summaries}) == 1
    exported = export_run(whole, tmp_path / "export", QUIET)
    assert build_model(pairs, resolve(str(exported))).reads_weights


@pytest.mark.slow
def test_it_is_not_continued_beside_another_reference(pairs, train, order_of, tmp_path):
    """The first parameters are read again: where the files hold others, the loss would ask another model."""
    short = with_settings(pairs, limits={"steps": 1})
    base = export_run(train(short, "first"), tmp_path / "base", QUIET)
    named = with_settings(short, model={"name": str(base)})
    second = train(named, "second")
    other = train(replace(with_settings(named, model={"weights": "random"}), seed=5), "other")
    (base / "model.safetensors").unlink()
    export_run(other, tmp_path / "others", QUIET)
    (tmp_path / "others" / "model.safetensors").rename(base / "model.safetensors")
    longer = order_of(with_settings(named, limits={"steps": 2}), "rest", resume=second)
    assert refusal(longer)[1].startswith("error TP055: ")


@pytest.mark.slow
def test_every_length_is_compiled_before_the_first_step(pairs, train):
    folder = train(pairs)
    _, data = inputs_of(pairs)
    assert data.source.lengths_in_use == (32, 64)
    [compiled] = logged(folder, "compiled")
    assert compiled["fields"]["lengths"] == [32, 64]
    assert "compiled for 2 lengths of sequences: train_32 in " in compiled["message"]
    widths = [data.source.batch(step)["tokens"].shape[-1] for step in range(4)]
    found = rows(folder)
    assert [row["tokens_per_step"] for row in found] == [4 * width for width in widths]
    found[1] |= {"tokens_per_step": 300.0}
    row_file(folder / layout.METRICS, *found)
    assert "TP312" in error_codes(folder)


def test_the_page_of_the_documentation_runs(train, tmp_path, monkeypatch):
    page = (Path(__file__).parents[2] / "docs" / "guides" / "preference.md").read_text()
    for name, kind in (("pairs.jsonl", "json"), ("preference.yaml", "yaml")):
        (tmp_path / name).write_text(page.partition(f"```{kind}\n")[2].partition("```")[0])
    monkeypatch.chdir(tmp_path)
    folder = train(load_config(Path("preference.yaml"), settings=["mesh.device=cpu", "mesh.devices=1"]))
    assert rows(folder)[-1]["reward_accuracy"] in (0.0, 0.5, 1.0)

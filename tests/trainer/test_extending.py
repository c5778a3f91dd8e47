"""A method and an objective that nobody ships, each in ten lines, run through the real run to the best grade."""

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
from changed_schema import changed_schema, with_row_field
from tasks import task_of
from whole_runs import errors_of, manifest_of, rows

from evidence import layout
from evidence.grade import check_run
from evidence.run import read_run
from trainer.config.tree import Config, LimitsConfig, MethodConfig, ObjectiveConfig
from trainer.export_run import export_run
from trainer.loop.checkpoints import restored_state
from trainer.model.model import METHODS, Method
from trainer.objectives import OBJECTIVES
from trainer.objectives.objective import LossSums, Microbatch
from trainer.objectives.supervised import SupervisedLoss
from trainer.recorder.progress import Watch

QUIET = Watch(quiet=True)


class LastNorm(Method):
    kind = "last_norm"

    def is_trained(self, name: str) -> bool:
        return name.startswith("final_norm.")


@dataclass(frozen=True, kw_only=True)
class Pulled(SupervisedLoss):
    constant: float = 3.0
    kind = "pulled"

    def loss_fn(self, model: Any, batch: Microbatch, key: Any) -> LossSums:
        distance = jnp.square(model.logits(model.hidden(batch["tokens"])) - self.constant).mean(axis=-1)
        weight = jnp.float32(distance.size)
        return LossSums(loss=distance.sum(), weight=weight, named={"largest_pull": distance.max() * weight})


def with_kind(group: str, kind: str) -> Callable[[dict[str, Any]], None]:
    def change(document: dict[str, Any]) -> None:
        document["properties"][group]["properties"]["kind"]["enum"].append(kind)

    return change


def expect_best_grade(folder: Path) -> None:
    assert errors_of(folder) == []
    # Measured where the code under test is not committed.
    assert check_run(read_run(folder)).grade.name in ("consistent", "measured")


@pytest.mark.slow
def test_a_method_of_ten_lines_runs_resumes_and_exports(config, train, monkeypatch):
    monkeypatch.setitem(METHODS, "last_norm", lambda config: LastNorm())
    constant = replace(config.optimizer, schedule="constant")
    with changed_schema("train_config", with_kind("method", "last_norm")):
        short = replace(config, method=MethodConfig(kind="last_norm"), optimizer=constant)
        longer = replace(short, limits=LimitsConfig(steps=4))
        whole, first = train(longer, "whole"), train(short, "first")
        rest = train(longer, "rest", resume=first)
        expect_best_grade(rest)
        manifest = manifest_of(rest)
        [state], frozen = restored_state(rest, task_of(longer))
        assert list(state.trained) == ["final_norm.bias", "final_norm.scale"]
        assert manifest["training"]["method"] == manifest["effective"]["method"]["kind"] == "last_norm"
        trained, kept = (sum(value.size for value in params.values()) for params in (state.trained, frozen))
        assert manifest["model"]["trainable_parameters"] == trained
        assert manifest["model"]["parameters"] == trained + kept
        assert [row["loss"] for row in rows(first) + rows(rest)] == [row["loss"] for row in rows(whole)]
        assert np.any(state.trained["final_norm.bias"])
        assert (export_run(rest, None, QUIET) / "model.safetensors").is_file()
        plan = json.loads((rest / layout.PLAN).read_text())
        assert {"params", "frozen"} <= {part["name"] for part in plan["parts"]}


def pulled(config: Config) -> Pulled:
    plain = SupervisedLoss.from_config(config)
    return Pulled(max_length=plain.max_length, chunk_positions=plain.chunk_positions)


@pytest.mark.slow
def test_an_objective_of_ten_lines_runs_and_its_figure_is_recorded(config, train, monkeypatch):
    monkeypatch.setitem(OBJECTIVES, "pulled", pulled)
    changed = replace(config, objective=ObjectiveConfig(kind="pulled"), limits=LimitsConfig(steps=8))
    figure = with_row_field(
        "largest_pull", {"type": "number", "title": "Largest pull", "description": "Of a position."}
    )
    with changed_schema("train_config", with_kind("objective", "pulled")), changed_schema("metric_row", figure):
        folder = train(changed)
        expect_best_grade(folder)
        measured = rows(folder)
        assert measured[-1]["loss"] < measured[0]["loss"] - 1
        assert all(row["largest_pull"] >= row["loss"] for row in measured)
        assert manifest_of(folder)["effective"]["objective"] == {"kind": "pulled"}


@pytest.mark.slow
def test_a_figure_without_a_field_of_the_row_is_not_written(config, train, monkeypatch):
    monkeypatch.setitem(OBJECTIVES, "supervised", pulled)
    assert "largest_pull" not in rows(train(config))[0]

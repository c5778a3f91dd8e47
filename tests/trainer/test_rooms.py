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
from trainer.run import RunRequest, run

QUIET = Watch(quiet=True)


class LastNorm(Method):
    """Trains the last norm alone."""

    kind = "last_norm"

    def is_trained(self, name: str) -> bool:
        return name.startswith("final_norm.")


@dataclass(frozen=True, kw_only=True)
class Pulled(SupervisedLoss):
    """Pulls the logits of every position toward a constant."""

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


def rows(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / layout.METRICS).read_text().splitlines()]


def errors_and_grade(folder: Path) -> tuple[list[str], str]:
    report = check_run(read_run(folder))
    return [problem.what for problem in report.findings if problem.severity == "error"], report.grade.name


@pytest.mark.slow
def test_a_method_of_ten_lines_runs_resumes_and_exports(
    config: Config, order_of: Callable[..., RunRequest], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setitem(METHODS, "last_norm", lambda config: LastNorm())
    short = replace(config, method=MethodConfig(kind="last_norm"), limits=LimitsConfig(steps=2))
    with changed_schema("train_config", with_kind("method", "last_norm")):
        short = replace(short, optimizer=replace(config.optimizer, schedule="constant"))
        whole = replace(short, limits=LimitsConfig(steps=4))
        first = order_of(short, "first")
        rest = order_of(whole, "rest", resume=first.folder)
        assert [run(request, QUIET) for request in (order_of(whole, "whole"), first, rest)] == [0, 0, 0]
        errors, grade = errors_and_grade(rest.folder)
        assert errors == []
        assert grade in ("consistent", "measured")  # measured where the code under test is not committed
        manifest = json.loads((rest.folder / layout.MANIFEST).read_text())
        task = task_of(whole)
        [state], frozen = restored_state(rest.folder, task)
        assert list(state.trained) == ["final_norm.bias", "final_norm.scale"]
        assert manifest["training"]["method"] == manifest["effective"]["method"]["kind"] == "last_norm"
        assert manifest["model"]["trainable_parameters"] == sum(value.size for value in state.trained.values())
        assert manifest["model"]["parameters"] == manifest["model"]["trainable_parameters"] + sum(
            value.size for value in frozen.values()
        )
        uninterrupted = rows(order_of(whole, "whole").folder)
        assert [row["loss"] for row in rows(first.folder) + rows(rest.folder)] == [row["loss"] for row in uninterrupted]
        assert np.any(state.trained["final_norm.bias"])
        assert (export_run(rest.folder, None, QUIET) / "model.safetensors").is_file()
        plan = json.loads((rest.folder / layout.PLAN).read_text())
        assert {"params", "frozen"} <= {part["name"] for part in plan["parts"]}


@pytest.mark.slow
def test_an_objective_of_ten_lines_runs_and_its_figure_is_recorded(
    config: Config, order_of: Callable[..., RunRequest], monkeypatch: pytest.MonkeyPatch
):
    def pulled_of(config: Config) -> Pulled:
        plain = SupervisedLoss.from_config(config)
        return Pulled(max_length=plain.max_length, chunk_positions=plain.chunk_positions)

    monkeypatch.setitem(OBJECTIVES, "pulled", pulled_of)
    changed = replace(config, objective=ObjectiveConfig(kind="pulled"), limits=LimitsConfig(steps=8))
    figure = with_row_field(
        "largest_pull", {"type": "number", "title": "Largest pull", "description": "Of a position."}
    )
    with changed_schema("train_config", with_kind("objective", "pulled")), changed_schema("metric_row", figure):
        order = order_of(changed)
        assert run(order, QUIET) == 0
        errors, grade = errors_and_grade(order.folder)
        assert errors == []
        assert grade in ("consistent", "measured")  # measured where the code under test is not committed
        measured = rows(order.folder)
        assert measured[-1]["loss"] < measured[0]["loss"] - 1
        assert all(row["largest_pull"] >= row["loss"] for row in measured)
        manifest = json.loads((order.folder / layout.MANIFEST).read_text())
        assert manifest["effective"]["objective"] == {"kind": "pulled"}


@pytest.mark.slow
def test_a_figure_without_a_field_of_the_row_is_not_written(
    config: Config, order_of: Callable[..., RunRequest], monkeypatch: pytest.MonkeyPatch
):
    plain = SupervisedLoss.from_config(config)
    pulled = Pulled(max_length=plain.max_length, chunk_positions=plain.chunk_positions)
    monkeypatch.setitem(OBJECTIVES, "supervised", lambda config: pulled)
    order = order_of(config)
    assert run(order, QUIET) == 0
    assert "largest_pull" not in rows(order.folder)[0]

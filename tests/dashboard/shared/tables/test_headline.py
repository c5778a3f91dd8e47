from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from synthetic import write_run

from dashboard.shared.config import settings
from dashboard.shared.reading.series import Tail
from dashboard.shared.tables import forecast, headline
from evidence.run import read_run
from schemas.formats import NOTHING


def test_the_headline_of_a_whole_run(tmp_path: Path) -> None:
    run = read_run(write_run(tmp_path, "alpha", steps=20, items=10, correct=1.0))
    series = Tail(run.path / "metrics.jsonl").series()
    found = {item.label: item for item in headline.figures(run.manifest, run.eval_summary, run.plan, series)}
    assert (found["Steps"].value, found["Steps"].detail) == ("20", "of 20 planned")
    assert found["Exact match"].value == "100.0 %"
    assert found["Exact match"].detail == "72.2–100.0 %, n = 10; untrained 0.0 %"
    assert found["Speed"].detail == "0.500 s per step, on average"
    assert run.manifest is not None
    slow = run.manifest | {"result": run.manifest["result"] | {"tokens_seen": 40_960, "train_seconds": 100.0}}
    mean = {item.label: item for item in headline.figures(slow, None, run.plan, series)}
    assert mean["Speed"].value == "410 tokens/s"
    under_way = run.manifest | {"status": "running", "result": dict.fromkeys(run.manifest["result"])}
    live = {item.label: item for item in headline.figures(under_way, None, run.plan, series)}
    assert live["Speed"].detail == "0.500 s for the last step"
    assert found["Duration"].detail == "10.0 s of training"


def test_the_headline_of_nothing_is_all_dashes(tmp_path: Path) -> None:
    series = Tail(tmp_path / "none").series()
    assert {item.value for item in headline.figures(None, None, None, series)} == {NOTHING}


def test_settings_three_times_over_and_where_they_disagree(tmp_path: Path) -> None:
    folder = write_run(
        tmp_path,
        "alpha",
        config={"optimizer": {"name": "adafactor"}, "mesh": {"device": "auto"}},
        manifest={"training": {"optimizer": {"name": "adamw"}}},
    )
    run = read_run(folder)
    found = {item.key: item for item in settings.settings(run)}
    assert (found["optimizer.name"].declared, found["optimizer.name"].effective) == ("adafactor", "adamw")
    assert found["optimizer.name"].differs
    assert found["optimizer.name"].is_changed
    # auto leaves the choice to the program, and parameters cannot be split over one device.
    assert not found["mesh.device"].differs
    assert not found["mesh.shard_params"].differs
    assert found["mesh.shard_params"].remark == "Parameters cannot be sharded over one device."
    assert found["optimizer.beta1"].effective is None
    assert (found["model.name"].default, found["limits.max_minutes"].declared) == (None, "null")
    assert sum(item.differs for item in found.values()) == 1


def test_settings_of_a_run_without_documents(tmp_path: Path) -> None:
    found = settings.settings(read_run(tmp_path))
    assert all(item.declared is None and item.effective is None for item in found)


@pytest.mark.parametrize(
    ("peak", "remark"),
    [
        (1_700_000, "6.2 % more than planned, within its known error."),
        (3_200_000, "100.0 % more than planned."),
        (1_200_000, "25.0 % less than planned."),
    ],
)
def test_the_plan_beside_what_was_observed(peak: int, remark: str) -> None:
    plan = {"need_bytes": 1_600_000, "error_fraction": 0.2, "verdict": "fits", "target": {"name": "T4", "devices": 2}}
    manifest = {
        "devices": {"platform": "gpu", "kind": "T4", "count": 2},
        "result": {"peak_memory_bytes": peak, "stopped_because": "All steps were done."},
    }
    device, memory, fits = forecast.forecasts(plan, manifest)
    assert (device.planned, device.observed, device.remark) == ("2 × T4", "2 × T4", "")
    assert memory.remark == remark
    assert fits.observed == "All steps were done."
    assert forecast.forecasts(None, manifest) == []


def test_what_a_plan_does_not_state_is_not_said_to_differ() -> None:
    device, memory, _ = forecast.forecasts({"error_fraction": 0.2}, {"devices": {"kind": "T4", "count": 1}})
    assert (device.planned, device.remark) == ("–", "")
    assert memory.planned == "–"


def test_on_a_cpu_the_whole_process_is_not_held_against_arrays() -> None:
    plan = {"need_bytes": 18_874_368, "error_fraction": 0.2, "verdict": "fits"}
    manifest = {"devices": {"platform": "cpu"}, "result": {"peak_memory_bytes": 536_870_912}}
    memory = forecast.forecasts(plan, manifest)[1]
    assert (memory.planned, memory.observed) == ("18.0 MiB ± 20 %", "–")
    assert memory.remark == (
        "Not compared: the process took 512.0 MiB at most, with Python and all libraries. The plan is of the run's "
        "arrays."
    )


def test_the_growth_of_a_process_is_held_against_arrays_and_what_the_plan_adds_for_the_process() -> None:
    mib = 2**20
    plan = {"need_bytes": 200 * mib, "error_fraction": 0.02, "target": {"devices": 1, "process_bytes": 300 * mib}}
    grown = {"bytes": 450 * mib, "part": "train", "source": "process_growth"}
    memory = forecast.forecasts(plan, {"result": {"observed_memory": grown, "peak_memory_bytes": 700 * mib}})[1]
    assert (memory.what, memory.planned, memory.observed) == ("Memory of the process", "500.0 MiB ± 30 %", "450.0 MiB")
    assert memory.remark == "10.0 % less than planned, within its known error. Train step took most."


def test_what_an_earlier_version_counted_on_a_cpu_is_no_observation() -> None:
    plan = {"need_bytes": 1_600_000, "error_fraction": 0.02, "verdict": "fits"}
    counted = {"bytes": 1_600_000, "program": "train", "source": "arrays that exist, and what the running program adds"}
    memory = forecast.forecasts(plan, {"devices": {"platform": "cpu"}, "result": {"peak_arrays": counted}})[1]
    assert (memory.observed, memory.remark) == ("–", "")


@pytest.mark.parametrize(
    ("seconds", "remark"),
    [
        (150.0, "Observed is 1.50 × what was likely, within the band."),
        (300.0, "Observed is 3.00 × what was likely, outside the band."),
    ],
)
def test_the_planned_time_of_a_step_beside_the_mean_one(seconds: float, remark: str) -> None:
    plan = {"time": {"step_seconds": {"low": 0.5, "likely": 1.0, "high": 2.0}}}
    manifest = {"result": {"train_seconds": seconds}, "training": {"steps_done": 100}}
    step = next(one for one in forecast.forecasts(plan, manifest) if one.what == "Time of a step")
    assert step.planned == "1.0 s (0.5 s to 2.0 s)"
    assert (step.observed, step.remark) == (f"{seconds / 100:.1f} s", remark)


@pytest.mark.parametrize("value", [0.001, 0.0010000001, 1.0, 1e-06, 1.5e-7, 1e22, 0.1 + 0.2, -2.5e-10])
def test_a_number_is_shown_as_yaml_writes_it_with_every_digit(value: float) -> None:
    text = settings.as_yaml(value)
    assert yaml.safe_dump(value) == f"{text}\n...\n"
    assert yaml.safe_load(text) == value

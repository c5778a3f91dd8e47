"""The main figures of a run, the comparison with its plan, and the peak memory on every page."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from pages import Open, said
from synthetic import write_run

from dashboard.shared import state
from dashboard.shared.files import Tail
from dashboard.shared.tables import headline
from evidence.effective import peak_memory, planned_memory
from evidence.run import read_run
from schemas.formats import NOTHING
from trainproof.cli.app import main

SUBMITTED = Path(__file__).parents[4] / "submission_runs"
MIB = 2**20


def test_the_figures_of_a_whole_run(tmp_path: Path) -> None:
    run = read_run(write_run(tmp_path, "alpha", steps=20, items=10, correct=1.0))
    series = Tail(run.path / "metrics.jsonl").series()
    found = {item.label: item for item in headline.figures(run.manifest, run.eval_summary, run.plan, series)}
    assert (found["Steps"].value, found["Steps"].detail) == ("20", "of 20 planned")
    assert found["Exact match"].value == "100.0 %"
    assert found["Exact match"].detail == "72.2–100.0 %, n = 10; untrained 0.0 %"
    assert found["Speed"].detail == "0.5 s per step, without the first"
    assert found["Duration"].detail == "10.0 s of training"
    assert run.manifest is not None
    running = run.manifest | {"status": "running", "result": dict.fromkeys(run.manifest["result"])}
    live = {item.label: item for item in headline.figures(running, None, run.plan, series)}
    assert live["Speed"].detail == "0.5 s for the last step"
    nothing = headline.figures(None, None, None, Tail(tmp_path / "none").series())
    assert {item.value for item in nothing} == {NOTHING}


@pytest.mark.parametrize(
    ("platform", "result", "text"),
    [
        ("cpu", {"observed_memory": {"bytes": MIB, "part": "train", "source": "process_growth"},
                 "peak_memory_bytes": 5 * MIB}, "1.0 MiB, process above baseline"),
        ("gpu", {"observed_memory": {"bytes": MIB, "part": None, "source": "device"}}, "1.0 MiB, one device"),
        ("gpu", {"peak_memory_bytes": MIB}, "1.0 MiB, one device"),
        ("tpu", {"peak_arrays": {"bytes": MIB, "source": "reported by the device"}}, "1.0 MiB, one device"),
        # Earlier versions counted arrays on a CPU from the plan.
        ("cpu", {"peak_arrays": {"bytes": MIB, "source": "arrays that exist, and what the running program adds"},
                 "peak_memory_bytes": 5 * MIB}, "5.0 MiB, whole process"),
        ("cpu", {"peak_memory_bytes": None}, None),
    ],
)  # fmt: skip
def test_peak_memory_has_a_scope(platform: str, result: dict[str, Any], text: str | None) -> None:
    found = peak_memory({"devices": {"platform": platform}, "result": result})
    assert (found.as_text() if found else None) == text


def test_the_plan_of_a_process_adds_its_own_memory_and_a_whole_process_is_not_planned() -> None:
    plan = {"need_bytes": 100, "error_fraction": 0.02, "target": {"devices": 2, "process_bytes": 30}}
    found = {scope: planned_memory(plan, scope) for scope in ("one device", "process above baseline", "whole process")}
    assert {scope: one and (one.bytes, one.error_fraction) for scope, one in found.items()} == {
        "one device": (100, 0.02), "process above baseline": (230, 0.3), "whole process": None,
    }  # fmt: skip


def test_every_page_and_command_has_one_peak_memory(
    opened: Open, root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(SUBMITTED / "demo-full", root / "demo-full")
    shutil.copytree(SUBMITTED / "demo-smoke", root / "demo-smoke")
    peak = peak_memory(json.loads((root / "demo-full" / "run_manifest.json").read_text("utf-8")))
    assert peak is not None
    text = peak.as_text()
    size, _, scope = text.partition(", ")
    app = opened(state.RUN, run="demo-full", view="Plan")
    assert next(metric.value for metric in app.metric if metric.label == "Peak memory") == size
    assert f'<p class="tp-sub">{scope}; planned ' in said(app), "headline"
    assert f">{text}</td>" in said(app), "tab Plan"
    assert text in said(opened(state.COMPARE, runs=["demo-smoke", "demo-full"])), "comparison"
    runs = opened(state.RUNS, columns=["Peak memory"]).dataframe[0].value
    assert runs.set_index("run")["memory"]["demo-full"] == text
    for command, *names in (["show", "demo-full"], ["compare", "demo-smoke", "demo-full"]):
        capsys.readouterr()
        with pytest.raises(SystemExit):
            main([command, *(f"{root / name}" for name in names)])
        assert text in capsys.readouterr().out, command


@pytest.mark.parametrize(
    ("platform", "peak", "remark"),
    [
        ("gpu", 1_700_000, "6.2 % more than planned, within the known error."),
        ("gpu", 3_200_000, "100.0 % more than planned, outside the known error."),
        ("gpu", 1_200_000, "25.0 % less than planned, outside the known error."),
        ("cpu", 512 * MIB, "Not compared, because the process includes Python and all libraries."),
    ],
)
def test_the_plan_beside_what_was_observed(platform: str, peak: int, remark: str) -> None:
    plan = {"need_bytes": 1_600_000, "error_fraction": 0.2, "verdict": "fits", "target": {"name": "T4", "devices": 2}}
    manifest = {
        "devices": {"platform": platform, "kind": "T4", "count": 2},
        "result": {"peak_memory_bytes": peak, "stopped_because": "All steps were done."},
    }
    device, memory, fits = headline.compare_with_plan(plan, manifest)
    assert device == ("Device", "2 × T4", "2 × T4", "")
    assert (memory[1] == "–", memory[3]) == (platform == "cpu", remark)
    assert fits[2] == "All steps were done."
    assert headline.compare_with_plan(None, manifest) == []

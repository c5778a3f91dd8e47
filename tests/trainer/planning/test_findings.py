"""What a planned run would waste: each rule with figures that break it, and none where they do not."""

from dataclasses import replace
from typing import Any

import pytest
from configs import changed

from evidence.targets import Target, load_target
from trainer.config.tree import Config, ModelConfig
from trainer.planning.duration import Band, PredictedStep, SessionPart, exactly
from trainer.planning.formula import Part
from trainer.planning.memory import ProgramMemory
from trainer.planning.plan import PlannedRun, PlanOptions, findings, plan_config
from trainer.planning.subject import read_subject

HOUR = 3600.0
T4X2 = load_target("kaggle-t4x2")
TINY = changed(
    Config(model=ModelConfig(name="tiny-gpt2")),
    data={"max_length": 128},
    batch={"microbatch_size": 4},
    limits={"steps": 1_000_000},
)
OPT_STATE = 1_573_000
"""Adafactor on SmolLM2-135M."""


@pytest.fixture(scope="module")
def quiet() -> PlannedRun:
    """A run without findings: 200 steps, a checkpoint every 50 of them, no padding."""
    config = changed(TINY, limits={"steps": 200}, checkpoint={"save_every_steps": 50})
    subject = replace(read_subject(config, T4X2), tokens=(1.0, ""), warnings=())
    parts = (Part("opt_state", OPT_STATE, ""),)
    train = ProgramMemory(name="train", peak_bytes=1, available_bytes=None, error_fraction=0.0, because="", parts=parts)
    step = PredictedStep(update=None, flops=0, moved_bytes=0, because="")
    return PlannedRun(subject=subject, target=T4X2, train=train, step=step)


def varied(run: PlannedRun, *, step: Band | None = None, hours: Band | None = None, **more: Any) -> PlannedRun:
    """Return the run with a time of a step, a time of the whole, settings by group, and other figures."""
    groups = {name: more.pop(name) for name in list(more) if hasattr(TINY, name)}
    config = changed(run.subject.task.config, **groups)
    subject = replace(run.subject.changed(config), tokens=more.pop("tokens", run.subject.tokens))
    train = replace(run.train, **{name: more.pop(name) for name in list(more) if hasattr(run.train, name)})
    predicted = replace(run.step, update=step, drawing=more.pop("drawing", None))
    parts = [SessionPart("train", hours.times(HOUR), "")] if hours else []
    return replace(run, subject=subject, train=train, step=predicted, parts=parts, **more)


def rule_codes(run: PlannedRun, **more: Any) -> list[str]:
    return [f"{problem.code} {problem.severity}" for problem in findings(varied(run, **more))]


SLOW = {"step": Band(low=100, likely=125, high=150)}
RARELY = {"checkpoint": {"save_every_steps": 500}}
AT_THE_END = {"checkpoint": {"save_every_steps": 0}}


def test_unknown_figures_give_no_finding(quiet: PlannedRun):
    assert findings(quiet) == ()
    limits = replace(T4X2, session_seconds=None, week_seconds=None, disk_bytes=None, host_memory_bytes=None)
    assert findings(replace(quiet, target=limits)) == ()


@pytest.mark.parametrize(
    ("figures", "expected"),
    [
        ({"tokens": (0.8, "")}, []),
        ({"tokens": (0.7, "")}, ["TP736 note"]),
        ({"tokens": (0.0, "")}, ["TP736 warning"]),
        ({"data": {"max_length": 512, "buckets": 3}, "hours": exactly(0.01)}, ["TP737 warning"]),
        ({"data": {"max_length": 512, "buckets": 3}, "hours": exactly(1)}, ["TP737 note"]),
        ({"memory": {"donate": False}}, ["TP738 warning"]),
        ({"aliased_fraction": 0.0}, ["TP738 error"]),
        ({"aliased_fraction": 1.0}, []),
        ({"opt_state_ratio": 3.1}, ["TP739 error"]),
        ({"opt_state_ratio": 1.01}, []),
        # Gemma-2B in float32: 10 GB each, two kept and one being written, on 19.5 GB.
        ({"checkpoint_bytes": 10_024_689_664}, ["TP741 error"]),
        ({"checkpoint_bytes": 5_012_344_832}, []),
        ({"host": (2 * 30_074_068_992, "the copied state")}, ["TP743 error"]),
        ({"host": (30_074_068_992, "the copied state")}, []),
        ({"drawing": exactly(1), "step": exactly(1)}, ["TP748 warning"]),
        ({**SLOW, "limits": {"steps": 3000}, "checkpoint": {"save_every_steps": 72}}, []),
        # It saves before the session ends.
        ({**SLOW, **RARELY, "limits": {"steps": 3000, "max_minutes": 690}}, ["TP742 warning"]),
        ({"step": exactly(100), **AT_THE_END, "limits": {"steps": 100}}, []),
        ({"step": exactly(100), **AT_THE_END, "limits": {"steps": 300}}, ["TP731 warning"]),
        ({"step": exactly(100), **AT_THE_END, "limits": {"steps": 500}}, ["TP731 error"]),
        ({"hours": Band(low=4, likely=5, high=6)}, []),
        ({"hours": Band(low=8, likely=11, high=13)}, ["TP732 note"]),
        ({"hours": Band(low=10, likely=14, high=20)}, ["TP732 warning"]),
        ({"hours": Band(low=20, likely=28, high=40)}, ["TP732 warning", "TP733 note"]),
        ({"hours": Band(low=40, likely=45, high=50)}, ["TP732 warning", "TP733 warning"]),
        ({**SLOW, "limits": {"steps": 1250}, "hours_stated": 45}, []),
        ({"step": Band(low=8, likely=12, high=19), "limits": {"steps": 400, "max_minutes": 100}}, ["TP742 note"]),
        ({"step": Band(low=8, likely=12, high=19), "limits": {"steps": 400, "max_minutes": 130}}, []),
    ],
)
def test_rules(quiet: PlannedRun, figures: dict[str, Any], expected: list[str]):
    assert rule_codes(quiet, **figures) == expected


@pytest.mark.parametrize(
    ("figures", "code", "what"),
    [
        (
            {**SLOW, **RARELY, "limits": {"steps": 3000}},
            "TP731 error",
            "A checkpoint is written every 500 steps, which takes 13.9 to 20.8 hours; a session of kaggle-t4x2 has 12.",
        ),
        (
            {**SLOW, "limits": {"steps": 2500}, "hours_stated": 45},
            "TP734 error",
            "2,500 steps of 100 to 150 s on kaggle-t4x2 are 69.4 to 104 hours, not 45.",
        ),
        (
            {"step": Band(low=8, likely=12, high=19), "limits": {"steps": 400, "max_minutes": 60}},
            "TP742 warning",
            "400 steps on kaggle-t4x2 take 53.3 to 127 minutes; limits.max_minutes is 60, which is enough for",
        ),
    ],
)
def test_findings_name_their_figures(quiet: PlannedRun, figures: dict[str, Any], code: str, what: str):
    (problem,) = findings(varied(quiet, **figures))
    assert f"{problem.code} {problem.severity}" == code
    assert problem.what.startswith(what)
    if code == "TP731 error":
        assert problem.next.startswith("Use --set checkpoint.save_every_steps=72, which is at most 3 hours")


def test_too_few_tokens_for_the_device(quiet: PlannedRun):
    """2.5e9 parameters of 2 bytes, each read three times."""
    half = {"compute": "bfloat16", "params": "bfloat16"}
    run = varied(quiet, precision=half, batch={"microbatch_size": 1}, data={"max_length": 32})
    run = replace(run, target=load_target("tpu-v5e-1"), step=replace(run.step, flops=15e9 * 64, moved_bytes=15e9))
    (problem,) = findings(run)
    assert problem.what == (
        "A microbatch of 64 tokens over 2 devices gives tpu-v5e-1 64 operations per byte of memory traffic. It needs "
        "241 to reach full speed, so at most 27% is used. About 256 tokens would be enough."
    )
    assert findings(replace(run, step=replace(run.step, flops=15e9 * 256))) == ()


def test_a_state_that_devices_cannot_divide(quiet: PlannedRun):
    seven = read_subject(changed(TINY, limits={"steps": 200}), replace(T4X2, devices=7))
    run = replace(varied(quiet), subject=replace(seven, tokens=(1.0, ""), warnings=()))
    assert [problem.code for problem in findings(run)] == ["TP740"]


def codes(config: Config, target: Target) -> dict[str, str]:
    plan = plan_config(config, target, PlanOptions(quick=True, advice=False))
    return {each["code"]: each["severity"] for each in plan["findings"]}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("target", "layers", "expected"),
    [
        (T4X2, "auto", False),
        (replace(T4X2, platform="cpu", device_kinds=("AMD EPYC",)), "auto", True),
        (replace(T4X2, platform="cpu", devices=1), "scanned", False),
    ],
)
def test_a_quantised_base_saves_nothing_on_a_cpu_unless_layers_are_scanned(target, layers, expected):
    config = changed(TINY, method={"kind": "lora", "base": "nf4"}, memory={"layers": layers})
    assert ("TP712" in codes(config, target)) == expected

"""What a planned run would waste: each rule with figures that break it, and none where they do not."""

from dataclasses import replace

import pytest

from evidence.targets import Target, load_target
from trainer.config.tree import (
    BatchConfig,
    CheckpointConfig,
    Config,
    DataConfig,
    LimitsConfig,
    MemoryConfig,
    MeshConfig,
    MethodConfig,
    ModelConfig,
)
from trainer.planning.duration import Band, exactly
from trainer.planning.findings import RunFigures, findings
from trainer.planning.plan import PlanOptions, plan_config

GIB = 2**30
HOUR = 3600.0
T4X2 = load_target("kaggle-t4x2")
QUIET = RunFigures(file="my.yaml", steps=200, save_every_steps=50)
ADAFACTOR = {"opt_state_bytes_declared": 1_573_000}
"""SmolLM2-135M on a TPU: 819 small arrays, which are padded to tiles."""


def found(run: RunFigures, **changed) -> list[str]:
    return [f"{problem.code} {problem.severity}" for problem in findings(replace(run, **changed), T4X2)]


def test_unknown_figures_give_no_finding():
    assert findings(QUIET, T4X2) == ()
    assert findings(QUIET, replace(T4X2, session_seconds=None, week_seconds=None, disk_bytes=None)) == ()


@pytest.mark.parametrize(
    ("figures", "expected"),
    [
        ({"padding_fraction": 0.2}, []),
        ({"padding_fraction": 0.3}, ["TP736 note"]),
        ({"padding_fraction": 1.0}, ["TP736 warning"]),
        ({"distinct_shapes": 9, "compile_seconds": 60.0, "run_seconds": exactly(HOUR)}, ["TP737 warning"]),
        ({"distinct_shapes": 9, "compile_seconds": 1.0, "run_seconds": exactly(HOUR)}, ["TP737 note"]),
        ({"distinct_shapes": 1, "compile_seconds": 60.0}, []),
        # Gemma-2B in bfloat16 under AdamW: 14.00 GiB in, 14.00 GiB out, nothing donated.
        ({"state_bytes": 14 * GIB, "alias_bytes": 0, "donate_declared": False}, ["TP738 warning"]),
        ({"state_bytes": 14 * GIB, "alias_bytes": 0}, ["TP738 error"]),
        ({"state_bytes": 14 * GIB, "alias_bytes": 14 * GIB}, []),
        ({"opt_state_bytes": 4_823_000, "opt_state_bytes_declared": 1_573_000}, ["TP739 error"]),
        ({"opt_state_bytes": 4_823_000, "opt_state_bytes_declared": 1_573_000, "opt_state_arrays": 819}, []),
        (
            {"opt_state_bytes": 8_000_000, "opt_state_bytes_declared": 1_573_000, "opt_state_arrays": 819},
            ["TP739 error"],
        ),
        ({"devices": 8, "bytes_per_device": (14 * GIB, *[0] * 7)}, ["TP740 error"]),
        ({"devices": 8, "bytes_per_device": (14 * GIB, *[0] * 7), "divided": False}, []),
        ({"devices": 8, "bytes_per_device": (GIB,) * 8}, []),
        # Gemma-2B in float32: 10 GB each, two kept and one being written, on 19.5 GB.
        ({"checkpoint_bytes": 10_024_689_664, "checkpoints_on_disk": 3}, ["TP741 error"]),
        ({"checkpoint_bytes": 5_012_344_832, "checkpoints_on_disk": 3}, []),
        ({"host_bytes": 2 * 30_074_068_992, "host_because": "the copied state"}, ["TP743 error"]),
        ({"host_bytes": 30_074_068_992, "host_because": "the copied state"}, []),
        ({"quantised_on_cpu": "nf4", "padding_fraction": 0.3}, ["TP712 warning", "TP736 note"]),
    ],
)
def test_rules(figures, expected):
    assert found(QUIET, **figures) == expected


def test_checkpoints_further_apart_than_a_session():
    step = Band(low=100, likely=125, high=150)
    run = RunFigures(file="fast.yaml", steps=3000, save_every_steps=500, step_seconds=step)
    (problem,) = findings(run, T4X2)
    assert (problem.code, problem.severity, problem.pointer) == ("TP731", "error", "/checkpoint/save_every_steps")
    assert problem.what == (
        "A checkpoint is written every 500 steps, which takes 13.9 to 20.8 hours; a session of kaggle-t4x2 has 12."
    )
    assert problem.next.startswith("Use --set checkpoint.save_every_steps=72, which is at most 3 hours")
    assert found(run, save_every_steps=72) == []
    assert found(run, max_minutes=690) == ["TP742 warning"], "it saves before the session ends"
    assert found(run, max_minutes=800) == ["TP731 error", "TP742 warning"]
    at_the_end = RunFigures(file="my.yaml", steps=300, step_seconds=exactly(100))
    assert [found(at_the_end, steps=steps) for steps in (100, 300, 500)] == [[], ["TP731 warning"], ["TP731 error"]]


@pytest.mark.parametrize(
    ("hours", "codes"),
    [
        ((4, 5, 6), []),
        ((8, 11, 13), ["TP732 note"]),
        ((10, 14, 20), ["TP732 warning"]),
        ((20, 28, 40), ["TP732 warning", "TP733 note"]),
        ((40, 45, 50), ["TP732 warning", "TP733 warning"]),
    ],
)
def test_sessions_and_weeks(hours, codes):
    low, likely, high = (each * HOUR for each in hours)
    assert found(QUIET, run_seconds=Band(low=low, likely=likely, high=high), sessions=4) == codes


def test_stated_hours_are_compared_with_the_time_of_the_steps():
    run = replace(QUIET, step_seconds=Band(low=100, likely=125, high=150))
    assert found(run, steps=1250, hours_stated=45) == []
    (problem,) = findings(replace(run, steps=2500, hours_stated=45), T4X2)
    assert problem.what == "2,500 steps of 100 to 150 s on kaggle-t4x2 are 69.4 to 104 hours, not 45."


def test_a_time_limit_before_the_last_step():
    run = replace(QUIET, steps=400, step_seconds=Band(low=8, likely=12, high=19))
    (problem,) = findings(replace(run, max_minutes=60), T4X2)
    assert problem.what == (
        "400 steps on kaggle-t4x2 take 53.3 to 127 minutes; limits.max_minutes is 60, which is enough for about 300."
    )
    assert [found(run, max_minutes=limit) for limit in (60, 100, 130)] == [["TP742 warning"], ["TP742 note"], []]


def test_too_few_tokens_for_the_device():
    params, v5e = 2.5e9, load_target("tpu-v5e-1")
    run = replace(
        QUIET,
        compute_type="bfloat16",
        tokens_per_step=64,
        flops_per_step=6 * params * 64,
        bytes_per_step=3 * 2 * params,
    )
    (problem,) = findings(run, v5e)
    assert problem.what == (
        "A step of 64 tokens gives tpu-v5e-1 64 operations per byte; it can do 241, so at most 27% of its speed is "
        "used. About 256 tokens would be enough."
    )
    assert findings(replace(run, tokens_per_step=256, flops_per_step=6 * params * 256), v5e) == ()


def test_the_guide_of_two_free_gpus_is_told_what_its_own_figures_mean():
    """2 completions a prompt, 10,000 steps of 100 to 150 s, a checkpoint every 500 steps, 45 hours stated."""
    guide = RunFigures(
        file="guide.yaml",
        steps=10_000,
        save_every_steps=500,
        step_seconds=Band(low=100, likely=125, high=150),
        run_seconds=Band(low=1e6, likely=1.25e6, high=1.5e6),
        sessions=29,
        hours_stated=45,
        group_size=2,
    )
    problems = {each.code: each for each in findings(guide, T4X2)}
    assert problems["TP731"].severity == "error"
    assert "278 to 417 hours in about 29 sessions" in problems["TP732"].what
    assert "278 to 417 hours; kaggle-t4x2 has 30 a week" in problems["TP733"].what
    assert "are 278 to 417 hours, not 45" in problems["TP734"].what
    assert "only the order of the rewards matters" in problems["TP748"].what
    assert [found(QUIET, group_size=size) for size in (None, 3, 4)] == [[], ["TP748 warning"], []]


TINY = Config(
    model=ModelConfig(name="tiny-gpt2"),
    data=DataConfig(max_length=128),
    batch=BatchConfig(microbatch_size=4),
    limits=LimitsConfig(steps=1_000_000),
)


def codes(config: Config, target: Target) -> dict[str, str]:
    plan = plan_config(config, target, PlanOptions(quick=True, advice=False))
    return {each["code"]: each["severity"] for each in plan["findings"]}


@pytest.mark.slow
def test_a_plan_finds_waste():
    careless = replace(
        TINY,
        memory=MemoryConfig(donate=False),
        data=DataConfig(max_length=512, buckets=3),
        checkpoint=CheckpointConfig(save_every_steps=0),
    )
    problems = codes(careless, T4X2)
    assert problems["TP738"] == "warning", "the state is held twice"
    assert problems["TP736"] == "warning", "most of a batch is padding"
    assert problems["TP737"] == "note", "one program for each length"
    assert {"TP739", "TP740"}.isdisjoint(problems), "the optimizer is the declared one, and both GPUs hold half"
    careful = replace(TINY, data=DataConfig(max_length=128, packing=True), mesh=MeshConfig(shard_params=False))
    assert {"TP736", "TP737", "TP738", "TP739", "TP740"}.isdisjoint(codes(careful, T4X2))


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
    config = replace(TINY, method=MethodConfig(kind="lora", base="nf4"), memory=MemoryConfig(layers=layers))
    assert ("TP712" in codes(config, target)) == expected

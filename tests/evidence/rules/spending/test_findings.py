"""What a run would spend badly: each finding where its figures say so, its words, and silence where they do not."""

from dataclasses import replace

import pytest

from evidence.targets import load_target
from trainer.planning.spending_rules import Band, RunFigures, exactly, findings

GIB = 2**30
HOUR = 3600.0


T4X2 = load_target("kaggle-t4x2")
QUIET = RunFigures(file="my.yaml", steps=200, save_every_steps=50)


def only(found):
    [problem] = found
    return problem


def test_nothing_known_is_nothing_said():
    assert findings(QUIET, T4X2) == ()
    assert findings(QUIET, replace(T4X2, session_seconds=None, week_seconds=None, disk_bytes=None)) == ()


def test_bfloat16_on_a_t4():
    problem = only(findings(replace(QUIET, compute_type="bfloat16"), T4X2))
    assert (problem.code, problem.severity) == ("TP730", "error")
    assert problem.what == "precision.compute is bfloat16; kaggle-t4x2 multiplies float32 or float16."
    assert problem.next == "Use --set precision.compute=float16."
    assert findings(replace(QUIET, compute_type="float16"), T4X2) == ()


def test_the_guide_that_saves_every_500_steps():
    run = RunFigures(
        file="fast.yaml", steps=3000, save_every_steps=500, step_seconds=Band(low=100, likely=125, high=150)
    )
    problem = only(findings(run, T4X2))
    assert (problem.code, problem.severity, problem.pointer) == ("TP731", "error", "/checkpoint/save_every_steps")
    assert problem.what == (
        "A checkpoint is written every 500 steps, which takes 13.9 to 20.8 hours; a session of kaggle-t4x2 has 12."
    )
    assert problem.next.startswith("Use --set checkpoint.save_every_steps=72, which is at most 3 hours")
    assert findings(replace(run, save_every_steps=72), T4X2) == ()
    assert only(findings(replace(run, max_minutes=690), T4X2)).code == "TP742", "it saves before the session ends"
    assert [each.code for each in findings(replace(run, max_minutes=800), T4X2)] == ["TP731", "TP742"]


def test_a_checkpoint_only_at_the_end_is_as_far_as_the_run_is_long():
    run = RunFigures(file="my.yaml", steps=300, step_seconds=exactly(100))
    problem = only(findings(run, T4X2))
    assert problem.severity == "warning"
    assert "only at the end, after 300 steps, which takes 8.33 hours" in problem.what
    assert only(findings(replace(run, steps=500), T4X2)).severity == "error"
    assert findings(replace(run, steps=100), T4X2) == ()


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
    found = findings(replace(QUIET, run_seconds=Band(low=low, likely=likely, high=high), sessions=4), T4X2)
    assert sorted(f"{each.code} {each.severity}" for each in found) == codes


def test_stated_hours_are_steps_times_the_time_of_a_step():
    """2,500 steps of 100 to 150 s are 69 to 104 hours; the guide says 40 to 50 for 10,000 rows, 8 a step: 1,250."""
    run = replace(QUIET, step_seconds=Band(low=100, likely=125, high=150))
    assert findings(replace(run, steps=1250, hours_stated=45), T4X2) == ()
    problem = only(findings(replace(run, steps=2500, hours_stated=45), T4X2))
    assert problem.code == "TP734"
    assert problem.what == "2,500 steps of 100 to 150 s on kaggle-t4x2 are 69.4 to 104 hours; 45 are stated."
    assert problem.expected == "69.4 to 104 hours"


def test_a_limit_that_ends_the_run_before_its_last_step():
    run = replace(QUIET, steps=400, step_seconds=Band(low=8, likely=12, high=19))
    problem = only(findings(replace(run, max_minutes=60), T4X2))
    assert (problem.code, problem.severity, problem.pointer) == ("TP742", "warning", "/limits/max_minutes")
    assert problem.what == (
        "400 steps on kaggle-t4x2 take 53.3 to 127 minutes; limits.max_minutes is 60, which is enough for about 300."
    )
    assert only(findings(replace(run, max_minutes=100), T4X2)).severity == "note"
    assert findings(replace(run, max_minutes=130), T4X2) == ()


def test_few_tokens_leave_the_device_waiting_for_its_memory():
    v5e = load_target("tpu-v5e-1")
    params = 2.5e9
    run = replace(
        QUIET,
        compute_type="bfloat16",
        devices=1,
        tokens_per_step=64,
        flops_per_step=6 * params * 64,
        bytes_per_step=3 * 2 * params,
    )
    problem = only(findings(run, v5e))
    assert (problem.code, problem.severity) == ("TP735", "warning")
    assert "64 tokens a step give tpu-v5e-1 64 operations for each byte" in problem.what
    assert "it could do 241, so at most 27% of its speed is used. About 256 tokens would do." in problem.what
    assert findings(replace(run, tokens_per_step=256, flops_per_step=6 * params * 256), v5e) == ()


@pytest.mark.parametrize(("share", "severity"), [(0.2, None), (0.3, "note"), (0.93, "warning"), (1.0, "warning")])
def test_padding(share, severity):
    found = findings(replace(QUIET, padding_fraction=share), T4X2)
    assert [each.severity for each in found] == ([severity] if severity else [])
    if found and share < 1:
        assert found[0].next == "Use --set data.packing=true."


def test_compiling_for_each_shape():
    run = replace(QUIET, distinct_shapes=9, compile_seconds=60.0, run_seconds=exactly(HOUR))
    problem = only(findings(run, T4X2))
    assert (problem.code, problem.severity) == ("TP737", "warning")
    assert "9 shapes, so the step is compiled 9 times for kaggle-t4x2, which takes 9 minutes" in problem.what
    assert only(findings(replace(run, compile_seconds=1.0), T4X2)).severity == "note"
    assert findings(replace(run, distinct_shapes=1), T4X2) == ()


def test_the_public_failure_held_its_state_twice():
    """Gemma-2B in bfloat16 under AdamW: 14.00 GiB in, 14.00 GiB out, nothing donated."""
    run = replace(QUIET, state_bytes=14 * GIB, alias_bytes=0, donate_declared=False)
    problem = only(findings(run, T4X2))
    assert (problem.code, problem.severity) == ("TP738", "warning")
    assert problem.next == "Use --set memory.donate=true, which frees 14.00 GiB."
    declared = only(findings(replace(run, donate_declared=True), T4X2))
    assert declared.severity == "error"
    assert findings(replace(run, alias_bytes=14 * GIB), T4X2) == ()


def test_the_public_failure_said_adafactor_and_ran_adamw():
    trained = 2_506_172_416
    run = replace(QUIET, optimizer="adafactor", opt_state_bytes=4 * trained, opt_state_bytes_declared=5_000_000)
    problem = only(findings(run, T4X2))
    assert problem.code == "TP739"
    assert "takes 9.34 GiB of optimizer state; adafactor keeps 4.8 MiB" in problem.what
    assert findings(replace(run, opt_state_bytes=5_002_000), T4X2) == ()


def test_small_arrays_are_padded_to_tiles():
    """SmolLM2-135M under Adafactor on a TPU: 819 arrays, most of one number or one row, 4.6 MiB where 1.5 are kept."""
    run = replace(QUIET, optimizer="adafactor", opt_state_bytes=4_823_000, opt_state_bytes_declared=1_573_000)
    assert only(findings(run, T4X2)).code == "TP739"
    assert findings(replace(run, opt_state_arrays=819), T4X2) == ()
    assert only(findings(replace(run, opt_state_arrays=819, opt_state_bytes=8_000_000), T4X2)).code == "TP739"


def test_one_device_of_eight_holds_everything():
    held = (14 * GIB, *[0] * 7)
    run = replace(QUIET, devices=8, bytes_per_device=held)
    problem = only(findings(run, T4X2))
    assert problem.code == "TP740"
    assert "holds 14.00 GiB of the state, another 0 B; an equal share is 1.75 GiB" in problem.what
    assert findings(replace(run, bytes_per_device=(GIB,) * 8), T4X2) == ()
    assert findings(replace(run, divided=False), T4X2) == ()


def test_checkpoints_and_the_disk():
    """Gemma-2B in float32: 10 GB each, two kept and one being written, on 19.5 GB."""
    run = replace(QUIET, checkpoint_bytes=10_024_689_664, checkpoints_on_disk=3)
    problem = only(findings(run, T4X2))
    assert problem.code == "TP741"
    assert problem.what == "3 checkpoints of 10 GB are 30.1 GB; kaggle-t4x2 has 19.5 GB."
    assert findings(replace(run, checkpoint_bytes=5_012_344_832), T4X2) == ()


def test_what_passes_through_the_machine_and_its_memory():
    """Gemma-2B with AdamW in float32: three times 10.02 GB, on Kaggle's machine of 31 GB, and twice as much."""
    run = replace(QUIET, host_bytes=2 * 30_074_068_992, host_because="the state that is copied when it is saved")
    problem = only(findings(run, T4X2))
    assert problem.code == "TP743"
    said = "the state that is copied when it is saved is 60.1 GB; the machine of kaggle-t4x2 has 31 GB of memory."
    assert problem.what == said
    assert findings(replace(run, host_bytes=30_074_068_992), T4X2) == ()
    assert findings(replace(run, host_bytes=None), T4X2) == ()


def test_the_worst_comes_first():
    run = replace(QUIET, compute_type="bfloat16", padding_fraction=0.93, checkpoint_bytes=10**10, checkpoints_on_disk=3)
    assert [each.severity for each in findings(run, T4X2)] == ["error", "error", "warning"]

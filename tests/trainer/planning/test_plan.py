"""Plans for targets: verdicts, refusals, changes, sizes and findings; and the stated figures of the presets."""

import json
import math
import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import jax
import pytest
from configs import GEMMA, GEMMA_PARAMETERS, changed
from refusals import catch_problem

from evidence.registry import published_models
from evidence.targets import load_target, targets
from schemas.validate import check_value
from trainer.config.load import load_config
from trainer.config.tree import Config, ModelConfig
from trainer.data.answers import EvalShape
from trainer.loop.checkpoints import max_checkpoints
from trainer.loop.rollouts import rollout_programs
from trainer.loop.task import Task, build_mesh
from trainer.model.model import build_model
from trainer.model.source import known_source, resolve_for_planning
from trainer.planning.changes import advise, grid, largest_microbatch, list_changes
from trainer.planning.compile.machines import V5E_1, find_machine
from trainer.planning.duration import Band, PredictedStep, SessionPart, exactly
from trainer.planning.formula import Part, estimate
from trainer.planning.memory import Estimator, ProgramMemory, deciding
from trainer.planning.out_of_memory import setting_cost
from trainer.planning.plan import PlannedRun, PlanOptions, findings, plan_config, refuse_what_does_not_fit
from trainer.planning.subject import Subject, read_subject
from trainproof.cli.plan import max_batch_text, time_lines

GIB, MIB = 2**30, 2**20
QUICK = PlanOptions(quick=True, advice=False)
TPU = load_target("tpu-v5e-1")
HALF = {"params": "bfloat16", "compute": "bfloat16"}


@pytest.fixture(autouse=True)
def _offline(monkeypatch, tmp_path) -> None:
    monkeypatch.setattr("huggingface_hub.snapshot_download", lambda *_, **__: pytest.fail("the hub was requested"))
    monkeypatch.setenv("TRAINPROOF_CACHE", str(tmp_path / "cache"))


def planned(config: Config, target: str, options: PlanOptions = QUICK) -> dict[str, Any]:
    plan = plan_config(config, load_target(target), options)
    assert check_value("plan", plan, file="plan.json") == []
    return plan


@pytest.mark.parametrize(("name", "stated"), published_models().items())
def test_a_shipped_shape_has_as_many_parameters_as_its_page_states(name: str, stated: dict[str, Any]):
    model = build_model(Config(model=ModelConfig(name=name)), known_source(name))
    assert sum(math.prod(shape.shape) for shape in model.shapes.values()) == stated["parameters"]
    assert all(known_source(other) is not None for other in stated["same_shape"])


def test_a_plan_needs_no_network_and_its_figures_add_up():
    plan = planned(changed(GEMMA, evaluation={"eval_set": "eval_v2"}), "kaggle-tpu-v5e-8")
    assert plan["verdict"] == "fits"
    assert [program["name"] for program in plan["programs"]] == ["start", "train", "decode", "export"]
    for each in (*plan["programs"], plan | {"peak_bytes": plan["need_bytes"]}):
        assert sum(part["bytes"] for part in each["parts"]) == each["peak_bytes"]
    time = plan["time"]
    assert "assumed" in time["tokens_source"]
    assert 0 < time["real_tokens"] < time["tokens"] == 8 * 4 * 512
    names = ["install", "compile", "load", "train", "save", "evaluate", "export"]
    assert [part["name"] for part in time["session"]] == names
    total = sum(part["seconds"]["likely"] for part in time["session"])
    assert time["hours"]["likely"] * 3600 == pytest.approx(total, rel=2e-3)
    assert plan["disk"]["need_bytes"] > 4 * GEMMA_PARAMETERS


@pytest.mark.parametrize("name", ["t4", "kaggle-t4x2", "p100"])
def test_bfloat16_on_a_gpu_that_lacks_it_is_unsupported(name: str):
    plan = planned(GEMMA, name)
    assert (plan["verdict"], plan["programs"], plan["time"]) == ("unsupported", [], None)
    assert plan["findings"][0]["what"] == f"precision.compute is bfloat16, which {name} does not have."


def test_more_devices_than_there_are_and_a_length_beyond_the_model_are_refused():
    more, longer = changed(GEMMA, mesh={"devices": 3}), changed(GEMMA, data={"max_length": 9000})
    assert catch_problem(read_subject, more, load_target("t4"), exit_code=3).code == "TP702"
    assert catch_problem(read_subject, longer, load_target("t4")).code == "TP061"


def test_without_a_compiler_the_formula_answers_with_its_band(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("trainer.planning.compile.machines.has_compiler", lambda platform: False)
    plan = planned(GEMMA, "tpu-v5e-1", PlanOptions(advice=False))
    assert {(program["method"], program["error_fraction"]) for program in plan["programs"]} == {("closed_form", 0.3)}
    assert "the TPU compiler is not installed (pip install 'trainproof[plan]')" in plan["programs"][0]["because"]


def test_every_target_has_a_compiler_that_can_be_described(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("trainer.planning.compile.machines.has_compiler", lambda platform: True)
    for target in targets().values():
        assert find_machine(target, devices=target.devices).platform == target.platform


@pytest.mark.slow
def test_the_public_failure_is_refused_with_its_cure():
    """AdamW on one v5e chip, 64 tokens, nothing donated: 28.12 GiB by the compiler."""
    sizes = {"data": {"max_length": 64}, "batch": {"microbatch_size": 1}}
    adamw = {"optimizer": {"name": "adamw", "max_grad_norm": 1.0}, "memory": {"donate": False}}
    plan = planned(changed(GEMMA, precision=HALF, **sizes, **adamw), "tpu-v5e-1", PlanOptions(quick=True))
    assert plan["verdict"] == "does_not_fit"
    fitting = [each["set"] for each in plan["advice"] if each["verdict"] == "fits"]
    assert ["optimizer.name=adafactor"] in fitting or ["memory.donate=true", "optimizer.name=adafactor"] in fitting
    assert any("memory.donate=true" in each for each in fitting), "donation costs nothing"
    problem = catch_problem(refuse_what_does_not_fit, plan, model="gemma-2b", exit_code=3)
    assert problem.code == "TP710"
    assert "optimizer.name=adafactor" in problem.next
    refuse_what_does_not_fit(plan | {"forced": True}, model="gemma-2b")
    assert all(each["need_bytes"] + each["frees_bytes"] == plan["need_bytes"] for each in plan["advice"])


@pytest.mark.slow
def test_changes_that_cannot_be_built_are_passed_over():
    """Adapters on a float16 base fit; without adapters that base cannot be trained."""
    adamw = {"name": "adamw", "max_grad_norm": 1.0}
    config = changed(GEMMA, batch={"microbatch_size": 8}, optimizer=adamw, precision={"compute": "float16"})
    plan = planned(config, "t4", PlanOptions(quick=True))
    fitting = [each["set"] for each in plan["advice"] if each["verdict"] == "fits"]
    assert fitting
    assert all("method.kind=lora" in each for each in fitting if "precision.params=float16" in each)
    assert not any(setting.endswith("=bfloat16") and "precision" in setting for each in fitting for setting in each)


@dataclass(frozen=True, kw_only=True)
class Scaled(Estimator):
    """Compiler whose programs need a multiple of the formula. It counts compilations."""

    times: Callable[[int], float]
    asked: list[tuple[int, int]] = field(default_factory=list)

    def formula_only(self) -> Estimator:
        return Estimator(platform=self.platform, available_bytes=self.available_bytes)

    def programs(self, task: Task, asked: EvalShape | None) -> list[ProgramMemory]:
        length, size = task.config.data.max_length, task.config.batch.microbatch_size
        self.asked.append((length, size))
        return [
            replace(each, peak_bytes=round(self.times(size) * each.peak_bytes), method="compiler", error_fraction=0.02)
            for each in self.formula_only().programs(task, asked)
        ]


def test_if_the_compiler_refuses_a_microbatch_a_smaller_one_is_planned():
    subject = read_subject(changed(GEMMA, batch={"microbatch_size": 128}, precision=HALF), TPU)
    strict = Scaled(platform="tpu", times=lambda size: 1 if size <= 8 else 20, available_bytes=TPU.memory_bytes)
    need = deciding(strict.formula_only().programs(subject.task, subject.eval_shape)).peak_bytes
    found = advise(subject, strict, need)
    fitting = [setting for each in found if each["verdict"] in ("fits", "tight") for setting in each["set"]]
    sizes = [int(setting.partition("=")[2]) for setting in fitting if setting.startswith("batch.microbatch_size")]
    assert sizes
    assert max(sizes) <= 8


@pytest.mark.parametrize(
    ("stated", "length", "instead"),
    [("plain", 4096, "auto"), ("auto", 1024, "blockwise"), ("auto", 4096, None), ("blockwise", 4096, None)],
)
def test_blockwise_attention_is_a_change_where_scores_of_whole_rows_exist(stated, length, instead):
    config = changed(GEMMA, data={"max_length": length}, memory={"attention": stated})
    named = [each.settings[0] for each in list_changes(config) if each.kind == "memory.attention"]
    assert named == ([f"memory.attention={instead}"] if instead else [])


def test_every_change_is_a_setting_that_makes_its_configuration():
    adamw = {"name": "adamw", "state": "bfloat16", "max_grad_norm": 1.0}
    base = changed(GEMMA, optimizer=adamw, memory={"donate": False})
    for change in list_changes(base):
        assert change.config != base
        assert setting_cost(change.settings[0])
        for setting in change.settings:
            key, _, value = setting.partition("=")
            group, _, name = key.partition(".")
            stated = getattr(getattr(change.config, group), name)
            assert value == ("true" if stated is True else "null" if stated is None else str(stated))


@pytest.fixture(scope="module")
def demo() -> Subject:
    return read_subject(changed(Config(model=ModelConfig(name="demo")), batch={"microbatch_size": 8}), TPU)


@pytest.mark.parametrize("times", [0.6, 1.0, 1.7])
@pytest.mark.parametrize("configured", [1, 8, 4096])
def test_the_largest_microbatch_is_found_with_few_compilations(times: float, configured: int, demo: Subject):
    def sized(size: int) -> Subject:
        return demo.changed(changed(demo.task.config, batch={"microbatch_size": size}))

    def fits(size: int) -> bool:
        return deciding(estimator.programs(sized(size).task, demo.eval_shape)).verdict == "fits"

    subject, estimator = sized(configured), Scaled(platform="tpu", times=lambda size: times, available_bytes=GIB)
    now = deciding(estimator.programs(subject.task, subject.eval_shape))
    found = largest_microbatch(subject, estimator, now, say=lambda line: None)
    assert len(estimator.asked) <= 5
    size = found["microbatch_size"]
    assert fits(size)
    assert not fits(size + max(1, size // 8))


@pytest.mark.parametrize(
    ("available", "said"),
    [(1, "not even the smallest fits at this length."), (None, "the device's memory is not known.")],
)
def test_no_largest_microbatch_is_explained(available: int | None, said: str, demo: Subject):
    estimator = Scaled(platform="tpu", times=lambda size: 1, available_bytes=available)
    most = largest_microbatch(demo, estimator, deciding(estimator.programs(demo.task, None)), say=lambda line: None)
    assert max_batch_text({"max_batch": most, "available_bytes": available}) == said


def test_a_grid_grows_with_size_and_length_and_contains_the_configured_cell():
    odd = changed(GEMMA, batch={"microbatch_size": 3}, data={"max_length": 640})
    plan = planned(odd, "tpu-v5e-1", replace(QUICK, grid=True))
    table = plan["grid"]
    assert table["microbatch_sizes"] == [1, 2, 3, 4, 8, 16, 32, 64, 128]
    assert table["max_lengths"] == [128, 256, 512, 640, 1024, 2048, 4096]
    needs = {(cell["max_length"], cell["microbatch_size"]): cell["need_bytes"] for cell in table["cells"]}
    assert len(needs) == len(table["microbatch_sizes"]) * len(table["max_lengths"])
    assert needs[640, 3] == plan["need_bytes"]
    for length in table["max_lengths"]:
        row = [needs[length, size] for size in table["microbatch_sizes"]]
        assert row == sorted(row)


def test_a_grid_confirms_the_boundary_of_each_length(demo: Subject):
    estimator = Scaled(platform="tpu", times=lambda size: 1.4, available_bytes=GIB // 4, machine=V5E_1)
    table = grid(demo, estimator)
    cells = [cell for cell in table["cells"] if cell["method"] == "compiler"]
    assert {(cell["max_length"], cell["microbatch_size"]) for cell in cells} == set(estimator.asked)
    for length in table["max_lengths"]:
        confirmed = [cell for cell in cells if cell["max_length"] == length]
        assert len(confirmed) <= 3
        assert not confirmed or any(cell["verdict"] == "fits" for cell in confirmed)


QWEN = changed(
    Config(model=ModelConfig(name="Qwen/Qwen2.5-1.5B")),
    method={"kind": "lora"},
    data={"max_length": 1024},
    objective={"kind": "grpo", "rewards": "exact", "group_size": 8, "max_completion_tokens": 512},
    batch={"microbatch_size": 8},
    mesh={"shard_params": False},
    precision={"params": "float16", "compute": "float16"},
    limits={"steps": 200},
)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("target", "compute", "token_seconds", "sequences"),
    [
        # Weights and cache are read once a token: 1,543,714,304 + 9,232,384 parameters and 8 · 1,024 tokens of 14,336
        # numbers, 2 bytes each, at 40 % of 320 and 819 GB/s.
        ("t4", "float16", 3_340_773_888 / 320e9 / 0.4, 8),
        ("kaggle-tpu-v5e-8", "bfloat16", 3_340_773_888 / 819e9 / 0.4, 64),
    ],
)
def test_drawing_completions_is_planned(target: str, compute: str, token_seconds: float, sequences: int):
    plan = planned(changed(QWEN, precision={"params": compute, "compute": compute}), target)
    assert plan["verdict"] == "fits"
    assert [each["name"] for each in plan["programs"]] == ["start", "train", "rollout", "export"]
    parts = {part["name"]: part["bytes"] for part in plan["programs"][2]["parts"]}
    # 28 layers, 2 heads of 128, keys and values, 2 bytes; 8 completions of 1,024 tokens on each device.
    assert parts["key_value_cache"] == 28 * 2 * 128 * 2 * 2 * 8 * 1024 == 224 * MIB
    assert parts["opt_state"] > 0, "the optimizer state is resident"
    time, drawn = plan["time"], plan["time"]["rollout"]
    assert drawn["seconds"]["likely"] == pytest.approx(512 * token_seconds, rel=0.03)
    both = drawn["seconds"]["likely"] + drawn["update_seconds"]["likely"]
    assert time["step_seconds"]["likely"] == pytest.approx(both, rel=1e-3)
    assert f"{sequences} completions of 512 tokens at" in drawn["because"]
    assert f"  {drawn['because']}." in time_lines(plan)
    assert "TP736" not in {each["code"] for each in plan["findings"]}, "the length of completions is unknown"


def test_updates_on_the_same_completions_share_their_time():
    twice = changed(QWEN, objective={"updates_per_rollout": 2})
    once, half = (planned(each, "t4")["time"]["rollout"] for each in (QWEN, twice))
    assert half["seconds"]["likely"] == pytest.approx(once["seconds"]["likely"] / 2, rel=1e-3)
    assert half["update_seconds"] == once["update_seconds"]


def test_a_divided_model_sends_its_weights_for_every_token_and_small_groups_are_warned_of():
    small = changed(QWEN, precision=HALF, objective={"group_size": 2})
    whole, divided = (
        planned(changed(small, mesh={"shard_params": each}), "kaggle-tpu-v5e-8") for each in (False, True)
    )
    assert divided["time"]["rollout"]["seconds"]["likely"] > whole["time"]["rollout"]["seconds"]["likely"]
    assert divided["programs"][2]["peak_bytes"] < whole["programs"][2]["peak_bytes"]
    assert "TP748" in {each["code"] for each in whole["findings"]}


def test_the_preset_for_two_t4s_fits_without_findings():
    config = load_config(Path("trainer/configs/kaggle_t4x2.yaml"))
    plan = planned(config, "kaggle-t4x2")
    assert plan["need_bytes"] == pytest.approx(10.66 * GIB, rel=0.3)  # compiled for two T4s
    assert plan["verdict"] in ("fits", "tight")
    assert (plan["findings"], plan["time"]["tokens"]) == ([], 32_768)
    assert plan["disk"]["need_bytes"] == pytest.approx(max_checkpoints(config) * 235e6, rel=0.01)


CASE = (
    "gemma-2b train v5e:2x4: optimizer.name=adafactor precision.compute=bfloat16 precision.params=bfloat16 "
    "data.max_length=128 batch.microbatch_size=256"
)
"""The submission preset in benchmarks/results/memory_estimate.json."""


def test_the_readme_states_what_is_planned_for_the_submission_preset():
    """Compiled memory; hours and share of the week as planned; checkpoints on Kaggle's disk."""
    config = load_config(Path("trainer/configs/submission_tpu.yaml"))
    plan = planned(config, "kaggle-tpu-v5e-8")
    cases = json.loads(Path("benchmarks/results/memory_estimate.json").read_text())["cases"]
    [case] = [each for each in cases if each["case"] == CASE]
    said = " ".join(Path("README.md").read_text("utf-8").split())
    stated = re.search(
        r"about ([\d.]+) of the ([\d.]+) GiB on each of the eight chips and takes ([\d.]+) to ([\d.]+) hours, or "
        r"(\d+) to (\d+) % of the weekly (\d+)-hour quota",
        said,
    )
    need, usable, least, most, low, high, week = map(float, stated.groups())
    hours, share = plan["time"]["hours"], plan["time"]["week_fraction"]
    assert (least, most) == (pytest.approx(hours["low"], rel=0.05), pytest.approx(hours["high"], rel=0.05))
    assert (low, high) == (round(100 * share["low"]), round(100 * share["high"]))
    assert (week * 3600, usable * GIB) == (plan["time"]["week_seconds"], plan["available_bytes"])
    assert f"{case['compiled_bytes'] / GIB:.1f}" == f"{need}"
    assert f"{need} GiB" in Path("trainer/configs/submission_tpu.yaml").read_text("utf-8")
    assert plan["need_bytes"] == pytest.approx(case["compiled_bytes"], rel=0.3)
    assert plan["time"]["tokens"] == 262_144
    assert plan["disk"]["need_bytes"] < 19_500_000_000
    assert [each for each in plan["findings"] if each["severity"] != "note"] == []


@pytest.mark.slow
def test_the_formula_of_drawing_is_near_this_compiler():
    sizes = {"data": {"max_length": 128}, "objective": {"max_completion_tokens": 64}, "batch": {"microbatch_size": 32}}
    plain = {"method": {"kind": "full"}, "precision": {"params": "float32", "compute": "float32"}}
    config = changed(QWEN, model={"name": "demo", "weights": "random"}, **plain, **sizes)
    task = Task.of(config, resolve_for_planning("demo", None), build_mesh(jax.devices("cpu")[:1]), platform="cpu")
    parts = estimate(task, platform="cpu")["rollout"]
    compiled = max(each.compile().peak_bytes or 0 for each in rollout_programs(task).values())
    estimated = sum(part.bytes for part in parts if part.name != "opt_state")
    assert estimated == pytest.approx(compiled, rel=0.3)


T4X2 = load_target("kaggle-t4x2")
TINY = changed(
    Config(model=ModelConfig(name="tiny-gpt2")),
    data={"max_length": 128},
    batch={"microbatch_size": 4},
    limits={"steps": 1_000_000},
)


@pytest.fixture(scope="module")
def quiet() -> PlannedRun:
    """A run without findings: 200 steps, a checkpoint every 50 of them, no padding."""
    config = changed(TINY, limits={"steps": 200}, checkpoint={"save_every_steps": 50})
    subject = replace(read_subject(config, T4X2), tokens=(1.0, ""), warnings=())
    parts = (Part("opt_state", 1_573_000, ""),)  # Adafactor on SmolLM2-135M
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
    parts = [SessionPart("train", hours.times(3600), "")] if hours else []
    return replace(run, subject=subject, train=train, step=predicted, parts=parts, **more)


SLOW = {"step": Band(low=100, likely=125, high=150)}
TWELVE = {"step": Band(low=8, likely=12, high=19)}
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
        ({**TWELVE, "limits": {"steps": 400, "max_minutes": 60}}, ["TP742 warning"]),
        ({**TWELVE, "limits": {"steps": 400, "max_minutes": 100}}, ["TP742 note"]),
        ({**TWELVE, "limits": {"steps": 400, "max_minutes": 130}}, []),
    ],
)
def test_rules(quiet: PlannedRun, figures: dict[str, Any], expected: list[str]):
    assert [f"{each.code} {each.severity}" for each in findings(varied(quiet, **figures))] == expected


def test_findings_name_their_figures(quiet: PlannedRun):
    (rare,) = findings(varied(quiet, **SLOW, **RARELY, limits={"steps": 3000}))
    assert "every 500 steps, which takes 13.9 to 20.8 hours; a session of kaggle-t4x2 has 12." in rare.what
    assert rare.next.startswith("Use --set checkpoint.save_every_steps=72, which is at most 3 hours")
    (stated,) = findings(varied(quiet, **SLOW, limits={"steps": 2500}, hours_stated=45))
    assert stated.what == "2,500 steps of 100 to 150 s on kaggle-t4x2 are 69.4 to 104 hours, not 45."
    (short,) = findings(varied(quiet, **TWELVE, limits={"steps": 400, "max_minutes": 60}))
    assert "take 53.3 to 127 minutes; limits.max_minutes is 60, which is enough for" in short.what
    assert [f"{each.code} {each.severity}" for each in (rare, stated)] == ["TP731 error", "TP734 error"]


def test_too_few_tokens_for_the_device(quiet: PlannedRun):
    """2.5e9 parameters of 2 bytes, each read three times."""
    half = {"compute": "bfloat16", "params": "bfloat16"}
    run = varied(quiet, precision=half, batch={"microbatch_size": 1}, data={"max_length": 32})
    run = replace(run, target=load_target("tpu-v5e-1"), step=replace(run.step, flops=15e9 * 64, moved_bytes=15e9))
    (problem,) = findings(run)
    figures = ("64 tokens over 2 devices", "64 operations per byte", "needs 241", "at most 27%", "About 256 tokens")
    assert all(each in problem.what for each in figures)
    assert findings(replace(run, step=replace(run.step, flops=15e9 * 256))) == ()


def test_a_state_that_devices_cannot_divide(quiet: PlannedRun):
    seven = read_subject(changed(TINY, limits={"steps": 200}), replace(T4X2, devices=7))
    run = replace(varied(quiet), subject=replace(seven, tokens=(1.0, ""), warnings=()))
    assert [problem.code for problem in findings(run)] == ["TP740"]


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
    plan = plan_config(config, target, PlanOptions(quick=True, advice=False))
    assert ("TP712" in {each["code"] for each in plan["findings"]}) == expected

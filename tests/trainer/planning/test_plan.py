"""Plans for targets: verdicts, documents, refusals, changes and sizes; and the stated figures of the presets."""

import json
import math
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pytest

from evidence.registry import published_models
from evidence.targets import load_target, targets
from schemas.problems import ProblemError
from schemas.validate import check_value
from trainer.config.load import load_config
from trainer.config.tree import (
    BatchConfig,
    Config,
    DataConfig,
    EvaluationConfig,
    LimitsConfig,
    MemoryConfig,
    MeshConfig,
    MethodConfig,
    ModelConfig,
    ObjectiveConfig,
    OptimizerConfig,
    PrecisionConfig,
)
from trainer.data.answers import EvalShape
from trainer.loop.checkpoints import max_checkpoints
from trainer.loop.task import Task
from trainer.model.model import build_model
from trainer.model.source import known_source
from trainer.planning.changes import advise, grid, largest_microbatch, list_changes
from trainer.planning.compile.machines import V5E_1, find_machine
from trainer.planning.formula import estimate
from trainer.planning.memory import Estimator, ProgramMemory, deciding
from trainer.planning.plan import PlanOptions, plan_config, refuse_what_does_not_fit
from trainer.planning.subject import Subject, read_subject
from trainproof.cli.plan import max_batch_text, time_lines

GIB, MIB = 2**30, 2**20
QUICK = PlanOptions(quick=True, advice=False)
TPU, KAGGLE_TPU = load_target("tpu-v5e-1"), load_target("kaggle-tpu-v5e-8")
PARAMETERS = 2_506_172_416
GEMMA = Config(
    model=ModelConfig(name="google/gemma-2b"),
    data=DataConfig(max_length=512),
    batch=BatchConfig(microbatch_size=4),
    optimizer=OptimizerConfig(name="adafactor", max_grad_norm=None),
    precision=PrecisionConfig(compute="bfloat16"),
    limits=LimitsConfig(steps=200),
)
HALF = PrecisionConfig(params="bfloat16", compute="bfloat16")


@pytest.fixture(autouse=True)
def _offline(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def refused(*_: object, **__: object) -> None:
        raise AssertionError("the hub was requested")

    monkeypatch.setattr("huggingface_hub.snapshot_download", refused)
    monkeypatch.setenv("TRAINPROOF_CACHE", str(tmp_path / "cache"))


def planned(config: Config, target: str, options: PlanOptions = QUICK) -> dict[str, Any]:
    plan = plan_config(config, load_target(target), options)
    assert check_value("plan", plan, file="plan.json") == []
    return plan


@pytest.mark.parametrize(("name", "stated"), published_models().items())
def test_a_shipped_shape_has_as_many_parameters_as_its_page_states(name: str, stated: dict[str, Any]):
    source = known_source(name)
    assert source is not None
    model = build_model(Config(model=ModelConfig(name=name)), source)
    assert sum(math.prod(shape.shape) for shape in model.shapes.values()) == stated["parameters"]
    assert all(known_source(other) is not None for other in stated["same_shape"])


def test_a_plan_needs_no_network_and_its_figures_add_up():
    plan = planned(replace(GEMMA, evaluation=EvaluationConfig(eval_set="eval_v2")), "kaggle-tpu-v5e-8")
    assert plan["verdict"] == "fits"
    assert [program["name"] for program in plan["programs"]] == ["start", "train", "decode", "export"]
    for each in (*plan["programs"], plan | {"peak_bytes": plan["need_bytes"]}):
        assert sum(part["bytes"] for part in each["parts"]) == each["peak_bytes"]
    time = plan["time"]
    assert time["session_seconds"] == 9 * 3600
    assert "assumed" in time["tokens_source"]
    assert 0 < time["real_tokens"] < time["tokens"] == 8 * 4 * 512
    names = ["install", "compile", "load", "train", "save", "evaluate", "export"]
    assert [part["name"] for part in time["session"]] == names
    total = sum(part["seconds"]["likely"] for part in time["session"])
    assert time["hours"]["likely"] * 3600 == pytest.approx(total, rel=2e-3)
    assert plan["disk"]["need_bytes"] > 4 * PARAMETERS


@pytest.mark.parametrize("name", ["t4", "kaggle-t4x2", "p100"])
def test_bfloat16_on_a_gpu_that_lacks_it_is_unsupported(name: str):
    plan = planned(GEMMA, name)
    assert (plan["verdict"], plan["programs"], plan["time"]) == ("unsupported", [], None)
    assert plan["findings"][0]["what"] == f"precision.compute is bfloat16, which {name} does not have."


def test_full_fine_tuning_of_nine_billion_parameters_fits_on_eight_chips():
    """Its decoding compiles to 6.79 GiB of 15.75; a copy of all weights on each chip would take 17.2."""
    nine = replace(GEMMA, model=ModelConfig(name="google/gemma-2-9b"), data=DataConfig(max_length=1024))
    evaluated = replace(nine, batch=BatchConfig(microbatch_size=1), evaluation=EvaluationConfig(eval_set="eval_v2"))
    assert planned(evaluated, "kaggle-tpu-v5e-8")["verdict"] == "fits"


def test_more_devices_than_there_are_and_a_length_beyond_the_model_are_refused():
    with pytest.raises(ProblemError) as refused:
        read_subject(replace(GEMMA, mesh=replace(GEMMA.mesh, devices=3)), load_target("t4"))
    assert (refused.value.exit_code, refused.value.problems[0].code) == (3, "TP702")
    with pytest.raises(ProblemError) as refused:
        read_subject(replace(GEMMA, data=DataConfig(max_length=9000)), load_target("t4"))
    assert (refused.value.exit_code, refused.value.problems[0].code) == (2, "TP061")


def test_without_a_compiler_the_formula_answers_with_its_band(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("trainer.planning.compile.machines.has_compiler", lambda platform: False)
    plan = planned(GEMMA, "tpu-v5e-1", PlanOptions(advice=False))
    assert {(program["method"], program["error_fraction"]) for program in plan["programs"]} == {("closed_form", 0.3)}
    assert "the TPU compiler is not installed (pip install 'trainproof[plan]')" in plan["programs"][0]["because"]


def test_every_target_has_a_compiler_that_can_be_described(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("trainer.planning.compile.machines.has_compiler", lambda platform: True)
    for target in targets().values():
        machine = find_machine(target, devices=target.devices)
        assert machine is not None
        assert machine.platform == target.platform


@pytest.mark.slow
def test_a_model_too_large_for_this_machine_is_refused_before_anything_is_made(tmp_path: Path):
    model = tmp_path / "huge"
    model.mkdir()
    described = json.loads(Path("benchmarks/models.json").read_text())["gemma-2b"]
    (model / "config.json").write_text(json.dumps(described | {"num_hidden_layers": 400}))
    for file in Path("trainer/model/tokenizer").glob("*.json"):
        (model / file.name).write_bytes(file.read_bytes())
    config = tmp_path / "config.yaml"
    config.write_text(f"model: {{name: {model}, weights: random}}\nmesh: {{devices: 1}}\n")
    command = [sys.executable, "-m", "trainproof", "train", "--config", str(config), "--output", str(tmp_path / "run")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 3
    assert "error TP710" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_the_public_failure_is_refused_with_its_cure():
    """AdamW on one v5e chip, 64 tokens, nothing donated: 28.12 GiB by the compiler."""
    config = replace(
        GEMMA,
        data=DataConfig(max_length=64),
        batch=BatchConfig(microbatch_size=1),
        optimizer=OptimizerConfig(name="adamw"),
        memory=MemoryConfig(donate=False),
        precision=HALF,
    )
    plan = planned(config, "tpu-v5e-1", PlanOptions(quick=True))
    assert plan["verdict"] == "does_not_fit"
    fitting = [each["set"] for each in plan["advice"] if each["verdict"] == "fits"]
    assert ["optimizer.name=adafactor"] in fitting or ["memory.donate=true", "optimizer.name=adafactor"] in fitting
    assert any("memory.donate=true" in each for each in fitting), "donation costs nothing"
    with pytest.raises(ProblemError) as refused:
        refuse_what_does_not_fit(plan, model="gemma-2b")
    assert (refused.value.exit_code, refused.value.problems[0].code) == (3, "TP710")
    assert "optimizer.name=adafactor" in (refused.value.problems[0].next or "")
    refuse_what_does_not_fit(plan | {"forced": True}, model="gemma-2b")
    assert all(each["need_bytes"] + each["frees_bytes"] == plan["need_bytes"] for each in plan["advice"])


@pytest.mark.slow
def test_changes_that_cannot_be_built_are_passed_over():
    """Adapters on a float16 base fit; without adapters that base cannot be trained."""
    config = replace(
        GEMMA,
        batch=BatchConfig(microbatch_size=8),
        optimizer=OptimizerConfig(name="adamw"),
        precision=PrecisionConfig(compute="float16"),
    )
    plan = planned(config, "t4", PlanOptions(quick=True))
    fitting = [each["set"] for each in plan["advice"] if each["verdict"] == "fits"]
    assert fitting
    assert all("method.kind=lora" in each for each in fitting if "precision.params=float16" in each)
    assert not any(setting.endswith("=bfloat16") and "precision" in setting for each in fitting for setting in each)


class Stricter(Estimator):
    """Says that microbatches above 8 need twenty times the estimate."""

    def programs(self, task: Task, asked: EvalShape | None) -> list[ProgramMemory]:
        answers = super().programs(task, asked)
        if task.config.batch.microbatch_size <= 8:
            return answers
        return [replace(each, peak_bytes=20 * each.peak_bytes, method="compiler") for each in answers]


def test_if_the_compiler_refuses_a_microbatch_a_smaller_one_is_planned():
    subject = read_subject(replace(GEMMA, batch=BatchConfig(microbatch_size=128), precision=HALF), TPU)
    formula = Estimator(platform="tpu", available_bytes=TPU.memory_bytes)
    strict = Stricter(platform="tpu", available_bytes=TPU.memory_bytes)
    found = advise(subject, strict, formula.programs(subject.task, subject.eval_shape))
    sizes = [
        int(setting.partition("=")[2])
        for each in found
        if each["verdict"] in ("fits", "tight")
        for setting in each["set"]
        if setting.startswith("batch.microbatch_size")
    ]
    assert sizes
    assert max(sizes) <= 8


@pytest.mark.parametrize(
    ("stated", "length", "instead"),
    [("plain", 4096, "auto"), ("auto", 1024, "blockwise"), ("auto", 4096, None), ("blockwise", 4096, None)],
)
def test_blockwise_attention_is_a_change_where_scores_of_whole_rows_exist(stated, length, instead):
    config = replace(GEMMA, data=DataConfig(max_length=length), memory=MemoryConfig(attention=stated))
    named = [each.settings[0] for each in list_changes(config) if each.kind == "memory.attention"]
    assert named == ([f"memory.attention={instead}"] if instead else [])


def test_every_change_is_a_setting_that_makes_its_configuration():
    base = replace(GEMMA, optimizer=OptimizerConfig(name="adamw", state="bfloat16"), memory=MemoryConfig(donate=False))
    for change in list_changes(base):
        assert change.config != base
        assert change.costs
        for setting in change.settings:
            key, _, value = setting.partition("=")
            group, _, name = key.partition(".")
            stated = getattr(getattr(change.config, group), name)
            assert value == ("true" if stated is True else "null" if stated is None else str(stated))


class Scaled(Estimator):
    """Estimator whose programs need a multiple of the formula; it counts the sizes."""

    times = 1.0
    asked: ClassVar[list[tuple[int, int]]] = []

    def formula_only(self) -> Estimator:
        return Estimator(platform=self.platform, available_bytes=self.available_bytes)

    def programs(self, task: Task, asked: EvalShape | None) -> list[ProgramMemory]:
        self.asked.append((task.config.data.max_length, task.config.batch.microbatch_size))
        answers = self.formula_only().programs(task, asked)
        return [
            replace(each, peak_bytes=round(self.times * each.peak_bytes), method="compiler", error_fraction=0.02)
            for each in answers
        ]


@pytest.fixture(scope="module")
def demo() -> Subject:
    return read_subject(Config(model=ModelConfig(name="demo"), batch=BatchConfig(microbatch_size=8)), TPU)


@pytest.mark.parametrize("times", [0.6, 1.0, 1.7])
@pytest.mark.parametrize("configured", [1, 8, 4096])
def test_the_largest_microbatch_is_found_with_few_compilations(
    times: float, configured: int, demo: Subject, monkeypatch: pytest.MonkeyPatch
):
    subject = demo.changed(replace(demo.task.config, batch=BatchConfig(microbatch_size=configured)))
    estimator = Scaled(platform="tpu", available_bytes=GIB)
    monkeypatch.setattr(Scaled, "times", times)
    monkeypatch.setattr(Scaled, "asked", asked := [])
    now = deciding(estimator.programs(subject.task, subject.eval_shape))
    found = largest_microbatch(subject, estimator, now, say=lambda line: None)
    assert found is not None
    assert len(asked) <= 5

    def fits(size: int) -> bool:
        changed = subject.changed(replace(subject.task.config, batch=BatchConfig(microbatch_size=size)))
        return deciding(estimator.programs(changed.task, subject.eval_shape)).verdict == "fits"

    size = found["microbatch_size"]
    assert fits(size)
    assert not fits(size + max(1, size // 8))


@pytest.mark.parametrize(
    ("available", "said"),
    [(1, "not even the smallest fits at this length."), (None, "the device's memory is not known.")],
)
def test_no_largest_microbatch_is_explained(available: int | None, said: str, demo: Subject):
    estimator = Scaled(platform="tpu", available_bytes=available)
    now = deciding(estimator.programs(demo.task, None))
    most = largest_microbatch(demo, estimator, now, say=lambda line: None)
    assert max_batch_text({"max_batch": most, "available_bytes": available}) == said


def test_a_grid_grows_with_size_and_length_and_contains_the_configured_cell():
    odd = replace(GEMMA, batch=BatchConfig(microbatch_size=3), data=DataConfig(max_length=640))
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


def test_a_grid_confirms_the_boundary_of_each_length(demo: Subject, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(Scaled, "times", 1.4)
    monkeypatch.setattr(Scaled, "asked", asked := [])
    estimator = Scaled(platform="tpu", available_bytes=GIB // 4, machine=V5E_1)
    table = grid(demo, estimator)
    cells = [cell for cell in table["cells"] if cell["method"] == "compiler"]
    compiled = {(cell["max_length"], cell["microbatch_size"]) for cell in cells}
    assert compiled == set(asked)
    assert all(len([one for one in compiled if one[0] == length]) <= 3 for length in table["max_lengths"])
    for length in table["max_lengths"]:
        confirmed = [cell for cell in cells if cell["max_length"] == length]
        assert not confirmed or any(cell["verdict"] == "fits" for cell in confirmed)


QWEN = Config(
    model=ModelConfig(name="Qwen/Qwen2.5-1.5B"),
    method=MethodConfig(kind="lora"),
    data=DataConfig(max_length=1024),
    objective=ObjectiveConfig(kind="grpo", rewards="exact", group_size=8, max_completion_tokens=512),
    batch=BatchConfig(microbatch_size=8),
    mesh=MeshConfig(shard_params=False),
    precision=PrecisionConfig(params="float16", compute="float16"),
    limits=LimitsConfig(steps=200),
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
    plan = planned(replace(QWEN, precision=PrecisionConfig(params=compute, compute=compute)), target)
    assert plan["verdict"] == "fits"
    assert [each["name"] for each in plan["programs"]] == ["start", "train", "rollout", "export"]
    parts = {part["name"]: part["bytes"] for part in plan["programs"][2]["parts"]}
    # 28 layers, 2 heads of 128, keys and values, 2 bytes; 8 completions of 1,024 tokens on each device.
    assert parts["key_value_cache"] == 28 * 2 * 128 * 2 * 2 * 8 * 1024 == 224 * MIB
    assert parts["opt_state"] > 0, "the optimizer state is resident"
    time, drawn = plan["time"], plan["time"]["rollout"]
    assert drawn["seconds"]["likely"] == pytest.approx(512 * token_seconds, rel=0.03)
    assert drawn["seconds"]["likely"] + drawn["update_seconds"]["likely"] == pytest.approx(
        time["step_seconds"]["likely"], rel=1e-3
    )
    assert f"{sequences} completions of 512 tokens at" in drawn["because"]
    assert f"  {drawn['because']}." in time_lines(plan)
    assert "TP736" not in {each["code"] for each in plan["findings"]}, "the length of completions is unknown"


def test_updates_on_the_same_completions_share_their_time():
    twice = replace(QWEN, objective=replace(QWEN.objective, updates_per_rollout=2))
    once, half = (planned(each, "t4")["time"]["rollout"] for each in (QWEN, twice))
    assert half["seconds"]["likely"] == pytest.approx(once["seconds"]["likely"] / 2, rel=1e-3)
    assert half["update_seconds"] == once["update_seconds"]


def test_a_divided_model_sends_its_weights_for_every_token_and_small_groups_are_warned_of():
    small = replace(QWEN, precision=HALF, objective=replace(QWEN.objective, group_size=2))
    whole, divided = (
        planned(replace(small, mesh=MeshConfig(shard_params=each)), "kaggle-tpu-v5e-8") for each in (False, True)
    )
    assert divided["time"]["rollout"]["seconds"]["likely"] > whole["time"]["rollout"]["seconds"]["likely"]
    assert divided["programs"][2]["peak_bytes"] < whole["programs"][2]["peak_bytes"]
    assert "TP748" in {each["code"] for each in whole["findings"]}


def test_the_preset_for_two_t4s_fits_without_findings():
    config = load_config(Path("trainer/configs/kaggle_t4x2.yaml"))
    plan = planned(config, "kaggle-t4x2")
    assert plan["need_bytes"] == pytest.approx(10.66 * GIB, rel=0.3)  # compiled for two T4s
    assert plan["verdict"] in ("fits", "tight")
    assert plan["findings"] == []
    assert plan["time"]["tokens"] == 32_768
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
    assert stated is not None
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
    from jax import devices

    from trainer.loop.rollouts import rollout_programs
    from trainer.loop.task import build_mesh
    from trainer.model.source import resolve_for_planning

    config = replace(
        QWEN,
        model=ModelConfig(name="demo", weights="random"),
        method=MethodConfig(),
        precision=PrecisionConfig(),
        data=DataConfig(max_length=128),
        objective=replace(QWEN.objective, max_completion_tokens=64),
        batch=BatchConfig(microbatch_size=32),
    )
    task = Task.of(config, resolve_for_planning("demo", None), build_mesh(devices("cpu")[:1]), platform="cpu")
    parts = estimate(task, platform="cpu")["rollout"]
    compiled = max(each.compile().peak_bytes or 0 for each in rollout_programs(task).values())
    estimated = sum(part.bytes for part in parts if part.name != "opt_state")
    assert estimated == pytest.approx(compiled, rel=0.3)

"""The plan: what is refused, and in which words."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from schemas.problems import ProblemError
from schemas.render import as_text
from schemas.validate import check_value
from trainer.config.tree import (
    BatchConfig,
    Config,
    DataConfig,
    EvaluationConfig,
    MemoryConfig,
    MeshConfig,
    ModelConfig,
    OptimizerConfig,
)
from trainer.data.answers import EvalShape
from trainer.loop.mesh import shapes_mesh
from trainer.loop.task import Task
from trainer.model.source import resolve
from trainer.planning.devices import Devices
from trainer.planning.estimate.part import ERROR_FRACTION
from trainer.planning.program_memory import verdict
from trainer.planning.run_plan import plan_run, refuse_what_does_not_fit

GIB = 2**30

GEMMA_2B = json.loads(Path("benchmarks/models.json").read_text())["gemma-2b"]


def chips(count: int = 1, memory_bytes: int | None = int(15.75 * GIB)) -> Devices:
    return Devices(
        requested="tpu",
        platform="tpu",
        kind="TPU v5 lite",
        chosen_because="test",
        memory_bytes=memory_bytes,
        memory_source="limit reported by the device",
        list=tuple(range(count)),
    )


@pytest.fixture(scope="module")
def gemma(tmp_path_factory: pytest.TempPathFactory):
    folder = tmp_path_factory.mktemp("gemma-2b")
    (folder / "config.json").write_text(json.dumps(GEMMA_2B))
    return str(folder)


def gemma_run(**groups) -> Config:
    base = Config(
        model=ModelConfig(name="gemma-2b"),
        data=DataConfig(max_length=512),
        optimizer=OptimizerConfig(name="adafactor", max_grad_norm=None),
        batch=BatchConfig(microbatch_size=1),
        mesh=MeshConfig(device="tpu"),
    )
    return replace(base, **groups)


def task_of(config: Config, folder: str, devices: int = 1) -> Task:
    return Task.of(config, resolve(folder, with_weights=False), shapes_mesh(devices))


def test_a_plan_is_a_valid_document_whose_parts_add_up(gemma):
    plan = plan_run(task_of(gemma_run(), gemma), chips(), forced=False)
    assert check_value("plan", plan, file="plan.json") == []
    assert sum(part["bytes"] for part in plan["parts"]) == plan["need_bytes"]
    assert plan["verdict"] == "fits"


def test_the_public_failure_is_refused_with_its_cure(gemma):
    """AdamW on one v5e chip without donation: the run that died on Kaggle. Donation and Adafactor are the cure."""
    config = gemma_run(
        optimizer=OptimizerConfig(name="adamw"), memory=MemoryConfig(donate=False), data=DataConfig(max_length=64)
    )
    plan = plan_run(task_of(config, gemma), chips(), forced=False)
    assert plan["verdict"] == "does_not_fit"
    assert [change["set"] for change in plan["changes"][:3]] == [
        *("optimizer.name=adafactor", "optimizer.state=int8", "memory.donate=true")
    ]
    with pytest.raises(ProblemError) as caught:
        refuse_what_does_not_fit(plan, model="gemma-2b")
    assert caught.value.exit_code == 3
    assert as_text(caught.value.problems) == (
        "error TP710: gemma-2b: The run needs about 58.04 GiB on each device; TPU v5 lite has 15.75 GiB "
        "(limit reported by the device), so it is 42.29 GiB over.\n"
        "  Largest parts: second_state 28.01 GiB, opt_state 18.67 GiB, params 9.34 GiB, gradients 1.95 GiB.\n"
        "  Next: --set optimizer.name=adafactor saves 37.33 GiB; --set memory.donate=true saves 20.68 GiB; "
        "--set precision.params=bfloat16 saves 10.31 GiB; none is enough alone, so combine them. "
        "Or start it all the same with --force.\n"
    )


def test_what_is_forced_is_not_refused_but_recorded(gemma):
    plan = plan_run(task_of(gemma_run(optimizer=OptimizerConfig(name="adamw")), gemma), chips(), forced=True)
    refuse_what_does_not_fit(plan, model="gemma-2b")
    assert (plan["verdict"], plan["forced"]) == ("does_not_fit", True)


def test_without_a_known_memory_there_is_no_verdict(gemma):
    plan = plan_run(task_of(gemma_run(), gemma), chips(memory_bytes=None), forced=False)
    assert (plan["verdict"], plan["available_bytes"]) == ("unknown", None)


@pytest.mark.slow
def test_a_model_too_large_for_this_machine_is_refused_before_anything_is_made(tmp_path: Path):
    model = tmp_path / "huge"
    model.mkdir()
    (model / "config.json").write_text(json.dumps(GEMMA_2B | {"num_hidden_layers": 40}))
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


def test_a_verdict_is_tight_where_the_limit_lies_in_the_band():
    assert [verdict(need * GIB, 100 * GIB, ERROR_FRACTION) for need in (92, 93, 108, 109)] == [
        "fits",
        "tight",
        "tight",
        "does_not_fit",
    ]


def test_a_smaller_batch_of_prompts_is_named_where_the_evaluation_decides():
    config = Config(model=ModelConfig(name="demo"), evaluation=EvaluationConfig(batch_size=20000))
    asked = EvalShape(prompts=20000, longest_tokens=30)
    plan = plan_run(task_of(config, "demo"), chips(), forced=False, asked=asked)
    assert (plan["verdict"], sum(part["bytes"] for part in plan["parts"])) == ("does_not_fit", plan["need_bytes"])
    largest = plan["changes"][0]
    assert (largest["set"], largest["fits"]) == ("evaluation.batch_size=1", True)

"""Which attention a run has: as it states, or as its device and length decide; read back from the traced step."""

from dataclasses import replace
from types import SimpleNamespace

import jax
import pytest

from schemas.problems import ProblemError
from trainer.config.tree import BatchConfig, Config, DataConfig, MemoryConfig, ModelConfig, PrecisionConfig
from trainer.loop.compilation import attention_kind
from trainer.loop.programs import train_program
from trainer.loop.task import Task, build_mesh, choose_attention
from trainer.model.source import resolve
from trainer.planning.subject import read_subject
from trainer.replay.place import replay_config
from trainer.replay.replay import ReplayRequest

CONFIG = Config(model=ModelConfig(name="tiny-gpt2"), batch=BatchConfig(microbatch_size=2))


def of(attention: str = "auto", **groups) -> Config:
    length = groups.pop("length", 64)
    memory = MemoryConfig(attention=attention, layers=groups.pop("layers", "auto"))
    return replace(CONFIG, data=DataConfig(max_length=length), memory=memory, **groups)


def test_auto_takes_what_the_device_has_from_a_length_on():
    found = {
        (platform, length): choose_attention(of(length=length), platform=platform)
        for platform in ("tpu", "gpu", "cpu", None)
        for length in (1023, 1024, 2047, 2048)
    }
    others = {("tpu", 1024): "splash", ("tpu", 2047): "splash", ("tpu", 2048): "splash", ("gpu", 2048): "blockwise"}
    assert found == dict.fromkeys(found, "plain") | others
    assert choose_attention(of(length=4096, layers="scanned"), platform="tpu") == "blockwise"
    assert choose_attention(of("blockwise"), platform="cpu") == "blockwise"
    assert choose_attention(of("blockwise"), platform=None) == "plain", "answers are made with a cache"


def test_splash_is_refused_where_it_does_not_work():
    from evidence.targets import load_target

    half = PrecisionConfig(compute="float16")
    with pytest.raises(ProblemError) as refused:
        read_subject(of("splash", layers="scanned", precision=half), load_target("t4"))
    [problem] = refused.value.problems
    assert (problem.code, refused.value.exit_code, problem.pointer) == ("TP707", 2, "/memory/attention")
    assert problem.what == (
        "memory.attention is splash and the device is a GPU and precision.compute is float16 and "
        "memory.layers is scanned."
    )


@pytest.mark.parametrize(("kind", "platform"), [("plain", "cpu"), ("blockwise", "cpu"), ("splash", "tpu")])
def test_the_traced_step_shows_which_it_is(kind, platform):
    task = Task.of(of(kind), resolve("tiny-gpt2"), build_mesh(jax.devices("cpu")[:1]), platform=platform)
    program = train_program(task)
    assert attention_kind(program.function.trace(*program.arguments).jaxpr) == kind == task.attention
    assert task.changed(of("plain")).attention == "plain"


def test_a_replay_attends_as_the_run_did_and_earlier_runs_were_plain(tmp_path):
    def repeated(memory: dict[str, str]) -> str:
        manifest = {"effective": {"memory": memory}, "devices": {"count": 1}}
        run = SimpleNamespace(manifest=manifest, config=CONFIG)
        return replay_config(run, ReplayRequest(folder=tmp_path)).memory.attention  # type: ignore[arg-type]

    assert (repeated({}), repeated({"attention": "blockwise"})) == ("plain", "blockwise")

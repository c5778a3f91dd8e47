"""Phase files that cannot be used, and phases in the queue."""

import json
from pathlib import Path

import pytest
import yaml
from refusals import catch_problems
from synthetic import write_run

from launch.jobs import jobs
from launch.phases import find_runs, queue_phases, read_phases
from trainer.config.load import load_config
from trainer.config.tree import to_document

MODEL = {"name": "Qwen/Qwen3-0.6B"}
LORA = {"model": MODEL, "method": {"kind": "lora"}}
PHASES = {"code": {}, "math": {"parent": "code"}, "chat": {"set": {"data.dataset": "chat.jsonl"}}}


def read(folder: Path, place: str = "local", **changes: object):
    document = {"name": "reasoner", "config": LORA, "phases": PHASES, **changes}
    path = folder / "phases.yaml"
    path.write_text(yaml.safe_dump({key: each for key, each in document.items() if each is not None}, sort_keys=False))
    return read_phases(path, lambda source, settings: to_document(load_config(source, settings=settings)), place=place)


def refused(folder: Path, **changes: object) -> list[tuple[str, str]]:
    return [(each.code, each.what) for each in catch_problems(lambda: read(folder, **changes))]


def test_every_problem_of_a_file_is_found_before_anything_starts(tmp_path: Path) -> None:
    phases = {
        "code": {"set": {"method.rnak": 4}},
        "math": {"parent": "cod"},
        "chat": {"parent": "talk"},
        "talk": {"parent": "chat", "set": {"limits.steps": "many"}},
        "whole": {"set": {"method.kind": "full"}},
        "other": {"set": {"model.name": "Qwen/Qwen3-1.7B"}},
        "base": {},
    }
    weights = {"whole": 1.0, "other": 0.5, "base": 0.5, "mathe": 1}
    found = refused(tmp_path, phases=phases, merge={"weights": weights, "dtyp": "bfloat16"}, paralel=2)
    texts = "\n".join(f"{code} {what}" for code, what in found)
    for expected in (
        'TP123 The key "paralel"',
        'TP123 The key "dtyp"',
        'TP123 The key "rnak"',
        "TP779 phases.math.parent refers to the phase cod, but the phases are code, math, chat,",
        "TP779 Phase chat starts from itself: chat from talk from chat.",
        "TP779 Phase talk starts from itself: talk from chat from talk.",
        "TP779 merge.weights.mathe refers to the phase mathe, but the phases are code, math, chat,",
        "TP779 Phase whole trains no adapter: its method.kind is not lora.",
        "TP779 Only adapters for the same model can be merged: other adapts Qwen/Qwen3-1.7B, base adapts",
        "TP120",
    ):
        assert expected in texts, texts
    assert len(found) == 10, texts


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"config": "absent.yaml"}, "cannot be read"),
        ({"phases": None}, '"phases" is missing'),
        ({"phases": ["code"]}, "list of 1 item"),
        ({"phases": {"math": {"parent": 3}}}, "3"),
        ({"phases": {"a b": {}}}, "a b"),
        ({"phases": PHASES | {"math": {"parent": "code", "set": {"model.name": "gpt2"}}}}, "different model than code"),
        ({"phases": PHASES | {"code": {"set": {"method.rank": 4}}}, "place": "kaggle-tpu"}, "only adapters are sent"),
        (
            {"config": {"model": {"name": "demo"}, "method": LORA["method"]}, "merge": {"weights": {"math": 1}}},
            "not read from weight files",
        ),
    ],
)
def test_a_bad_file_is_refused_in_words(tmp_path: Path, changes: dict, says: str) -> None:
    assert says in "\n".join(what for _, what in refused(tmp_path, **changes))


def test_a_phase_starts_from_the_adapter_or_else_the_model_of_its_parent(tmp_path: Path) -> None:
    kinds = {"dpo": {"objective.kind": "dpo"}, "wide": {"method.rank": 32}, "full": {"method.kind": "full"}, "on": {}}
    phases = {"code": {}} | {name: {"parent": "code", "set": stated} for name, stated in kinds.items()}
    parent = Path("runs/reasoner-code-1")
    for phase in read(tmp_path, phases=phases)[1][1:]:
        config = phase.start_config(tmp_path / "phases.yaml", parent)
        adapter = "runs/reasoner-code-1/trained_params.safetensors" if phase.name == "on" else None
        model = MODEL["name"] if phase.name == "on" else "runs/reasoner-code-1/export"
        assert (config["method"]["adapter"], config["model"]["name"]) == (adapter, model)
        assert config["recording"]["phase"] == f"{phase.name} {phase.sha256} reasoner-code-1 phases.yaml"
        assert config == to_document(load_config(config))


@pytest.fixture
def waiting(root: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A runs folder whose jobs are queued and not started."""
    monkeypatch.setattr("launch.queue.start_worker", lambda root: None)
    return root


def test_phases_wait_for_their_parents_and_are_queued_once(waiting: Path, tmp_path: Path) -> None:
    def queue(**changes: object) -> list[tuple[str, dict[str, bool]]]:
        file = read(tmp_path, **changes)
        queued = queue_phases(waiting, tmp_path / "phases.yaml", *file, force=False, place="local")
        numbers = {job.job_id: number for number, job in enumerate(queued)}
        return [
            (job.run.split("-2")[0], {numbers[name]: needed for name, needed in job.after.items()}) for job in queued
        ]

    ends = {0: True, 1: True, 2: True}
    expected = [("reasoner-code", {}), ("reasoner-math", {0: True}), ("reasoner-chat", {1: False}), ("reasoner", ends)]
    assert queue() == expected
    assert queue() == expected
    assert len(jobs(waiting)) == 4
    assert queue(name="beside", parallel=2)[1:3] == [("beside-math", {0: True}), ("beside-chat", {0: False})]


def test_runs_are_found_by_settings_and_parent(waiting: Path, tmp_path: Path) -> None:
    phases = read(tmp_path)[1]

    def record(name: str, number: int, parent: str, mode: str = "full") -> str:
        run = write_run(waiting, f"{name}-{number}", steps=4, items=0)
        manifest = json.loads((run / "run_manifest.json").read_text())
        phase = next(each for each in phases if each.name == name)
        manifest["phase"] = {"name": name, "sha256": phase.sha256, "parent": parent, "file": "phases.yaml"}
        (run / "run_manifest.json").write_text(
            json.dumps(manifest | {"started_at": f"2026-11-0{number}T00:00:00Z", "mode": mode})
        )
        return run.name

    record("code", 1, "-")
    record("math", 2, "code-1")
    record("code", 4, "-", mode="smoke")
    record("code", 3, "-")
    assert {name: run.path.name for name, run in find_runs(waiting, phases).items()} == {"code": "code-3"}
    record("math", 4, "code-3")
    record("math", 5, "code-3", mode="smoke")
    assert find_runs(waiting, phases)["math"].path.name == "math-4"
    assert find_runs(waiting, read(tmp_path, phases=PHASES | {"code": {"set": {"seed": 1}}})[1]) == {}

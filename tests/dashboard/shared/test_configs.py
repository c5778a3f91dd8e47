"""Shipped configurations, smoke runs and the full runs they lead to, and models and datasets on this machine."""

from __future__ import annotations

from pathlib import Path

from dashboard.shared import configs, form
from dashboard.shared.configs import full_run_parameters
from schemas.reading import write_yaml
from schemas.validate import check_value

FULL = ["mode=full", "model.shape=own", "limits.steps=100"]


def test_every_shipped_configuration_and_its_smoke_test_are_valid() -> None:
    found = configs.sources()
    assert found[0].key == "demo.yaml"
    assert not [source for source in found if source.path.name.startswith("smoke_")]
    smokes = map(configs.make_smoke_config, map(configs.read, found))
    started = [configs.quick_smoke(), *map(configs.read, found), *smokes]
    full = map(form.fill_defaults, started)
    assert [problem for config in full for problem in check_value(form.KIND, config, file="config.yaml")] == []
    assert configs.quick_smoke()["mode"] == "smoke"


def test_a_smoke_test_leads_to_its_shipped_configuration_or_to_itself_with_more_steps() -> None:
    demo = configs.read(configs.sources()[0])
    smoke = form.fill_defaults(configs.make_smoke_config(demo))
    assert full_run_parameters(smoke, "a") == {"source": "demo.yaml"}
    smoke["optimizer"]["learning_rate"] *= 2
    assert full_run_parameters(smoke, "a") == {"source": "same as a", "set": ["name=demo", *FULL]}
    smoke["limits"]["steps"] = 500
    assert full_run_parameters(smoke, "a")["set"][3] == "limits.steps=500"
    quick = full_run_parameters(form.fill_defaults(configs.quick_smoke()), "b")
    assert quick == {"source": "same as b", "set": ["name=full", *FULL]}


def test_a_smoke_test_with_a_small_model_leads_to_the_configuration_it_was_made_from(tmp_path: Path) -> None:
    demo = form.fill_defaults(configs.read(configs.sources()[0]))
    queued = configs.make_smoke_config(demo)
    small = {
        **queued,
        "model": {**queued["model"], "shape": "small"},
        "data": {**queued["data"], "generated_rows": 1000},
        "batch": {**queued["batch"], "microbatch_size": 4},
    }
    assert full_run_parameters(small, "a") == {"source": "demo.yaml"}
    for config in (demo, queued, small):
        config["optimizer"] = {**config["optimizer"], "learning_rate": 0.5}
    original = ["data.generated_rows=12000", "batch.microbatch_size=8"]
    assert full_run_parameters(small, "a", queued=queued)["set"] == ["name=demo", *FULL, *original]
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "config.yaml").write_text(write_yaml(demo), "utf-8")
    assert full_run_parameters(small, "a", full_runs=[tmp_path / "full"], queued=queued) == {"source": "same as full"}
    small["model"]["shape"] = "own"
    assert full_run_parameters(small, "a", full_runs=[tmp_path / "full"])["source"] == "same as a", (
        "its batch is its own"
    )


def test_a_damaged_smoke_configuration_leads_to_a_form_all_the_same() -> None:
    assert full_run_parameters({"limits": [], "name": 3}, "c")["set"] == ["name=3", *FULL]


def test_models_and_datasets_in_a_folder_and_its_subfolders_are_found(tmp_path: Path) -> None:
    for name in ("a.gguf", "m/b/config.json", "m/b/x.safetensors", "m/c/config.json", ".d/config.json", "m/rows.JSONL"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    uploads = tmp_path / ".launch" / "rows"
    uploads.mkdir(parents=True)
    (uploads / "up.txt").write_text("")
    (tmp_path / "loop").symlink_to(tmp_path)
    assert configs.local_models(tmp_path) == ["a.gguf", "m/b"]
    assert configs.local_datasets(tmp_path, uploads) == ["m/rows.JSONL", ".launch/rows/up.txt"]
    assert configs.local_models(tmp_path / "nowhere") == []

"""Shipped configurations and their smoke runs, and models and datasets on this machine."""

from __future__ import annotations

from pathlib import Path

from dashboard.shared import configs, form
from schemas.validate import check_value


def test_every_shipped_configuration_and_its_smoke_test_are_valid() -> None:
    found = configs.sources()
    assert found[0].key == "demo.yaml"
    assert not [source for source in found if source.path.name.startswith("smoke_")]
    smokes = map(configs.make_smoke_config, map(configs.read, found))
    started = [configs.quick_smoke(), *map(configs.read, found), *smokes]
    full = map(form.fill_defaults, started)
    assert [problem for config in full for problem in check_value(form.KIND, config, file="config.yaml")] == []
    assert configs.quick_smoke()["mode"] == "smoke"


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

"""Four LoRA phases of one file: trained, interrupted, continued, merged and packed."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from commands import run_command
from safetensors.numpy import load_file
from whole_runs import errors_of, manifest_of, rows

from evidence import layout
from trainer.loop.session import StopRequest

pytestmark = pytest.mark.slow

BASE = Path("trainer/configs/countdown_start").resolve()
SHARED = {
    "model": {"name": str(BASE)},
    "method": {"kind": "lora", "rank": 4, "targets": "q_proj,up_proj"},
    "data": {"max_length": 32},
    "optimizer": {"learning_rate": 0.01},
    "batch": {"microbatch_size": 2},
    "mesh": {"device": "cpu", "devices": 1},
    "checkpoint": {"save_every_steps": 1, "keep": 1},
    "recording": {"system_every_seconds": None},
    "limits": {"steps": 3},
}
FILE = {
    "name": "reasoner",
    "config": "shared.yaml",
    "phases": {
        "math": {"parent": "code", "set": {"data.dataset": "math.jsonl"}},
        "code": {"set": {"data.dataset": "code.jsonl"}},
        "chat": {"set": {"data.dataset": "chat.jsonl"}},
        "style": {"parent": "chat", "set": {"data.dataset": "style.jsonl", "limits.steps": 4}},
    },
    "merge": {"weights": {"math": 0.6, "style": -0.4}, "dtype": "float32"},
}


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for number, name in enumerate(FILE["phases"]):
        rows = (json.dumps({"prompt": f"{number} + {each}", "completion": f"{number + each}"}) for each in range(4))
        (tmp_path / f"{name}.jsonl").write_text("\n".join(rows))
    (tmp_path / "shared.yaml").write_text(yaml.safe_dump(SHARED))
    (tmp_path / "phases.yaml").write_text(yaml.safe_dump(FILE, sort_keys=False))
    return tmp_path


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str]):
    return lambda *arguments: run_command(capsys, *arguments)


def runs_of(root: Path) -> dict[str, list[Path]]:
    found: dict[str, list[Path]] = {}
    for folder in sorted(path for path in root.iterdir() if (path / layout.MANIFEST).is_file()):
        found.setdefault(manifest_of(folder)["phase"]["name"], []).append(folder)
    return found


def delta(run: Path, projection: str) -> Any:
    """Return what a run's adapter adds to a kernel, by hand."""
    params = load_file(run / layout.TRAINED_PARAMS)
    first, second = (params[f"{projection}.{name}"] for name in ("lora_a", "lora_b"))
    return first.astype(np.float64) @ second.astype(np.float64) * 16.0 / 4


def test_four_phases_are_trained_once_merged_and_packed(work: Path, command) -> None:
    asked = ("train", "--phases", "phases.yaml")
    assert command(*asked, "--check")[0] == 0
    assert not Path("submission_runs").exists()

    def limit(self: StopRequest, *, reserve_seconds: float = 0.0) -> str | None:
        found = list(Path("submission_runs").glob("reasoner-chat-*"))
        return "limits.max_minutes=1 reached" if found and len(rows(found[0])) >= 2 else None

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(StopRequest, "reason", limit)
        code, out, _ = command(*asked)
    assert code == 5, out
    before = {path: path.stat().st_mtime_ns for path in Path("submission_runs").rglob("*") if path.is_file()}
    code, out, err = command(*asked)
    assert code == 0, err
    assert "Phase code is trained: submission_runs/reasoner-code-" in out
    assert {path: path.stat().st_mtime_ns for path in before} == before
    found = runs_of(Path("submission_runs"))
    assert {name: len(runs) for name, runs in found.items()} == {"code": 1, "math": 1, "chat": 2, "style": 1}
    manifests = {name: manifest_of(runs[-1]) for name, runs in found.items()}
    assert (manifests["chat"]["parent"]["run_id"], manifests["chat"]["parent"]["step"]) == (found["chat"][0].name, 2)
    for name, parent in (("math", "code"), ("style", "chat")):
        run, above = found[name][-1], found[parent][-1]
        assert manifests[name]["phase"] == manifests[name]["phase"] | {"parent": above.name, "file": "phases.yaml"}
        # The first state is the last one of the parent, as both say.
        last = rows(above, layout.CHAIN)[-1]["params_sha256"]
        assert manifests[name]["model"]["weights_sha256"] == last
        assert errors_of(run) == []
    bundle = Path("bundles/reasoner.zip")
    code, out, _ = command("verify", bundle)
    assert code == 0
    assert all(runs[-1].name in out for runs in found.values())
    [merged] = Path("bundles").glob("reasoner-*")
    base, after = load_file(BASE / "model.safetensors"), load_file(merged / "model.safetensors")
    changed = 0
    for layer in range(4):
        for ours, theirs in (("attention.query", "self_attn.q_proj"), ("mlp.up", "mlp.up_proj")):
            name = f"model.layers.{layer}.{theirs}.weight"
            added = 0.6 * delta(found["math"][-1], f"layers.{layer}.{ours}")
            added -= 0.4 * delta(found["style"][-1], f"layers.{layer}.{ours}")
            np.testing.assert_allclose(after[name], base[name].astype(np.float64) + added.T, atol=2e-6)
            changed += np.abs(after[name] - base[name]).max() > 1e-4
    assert changed == 8
    assert all(
        np.array_equal(after[name], base[name]) for name in base if "q_proj" not in name and "up_proj" not in name
    )
    count = len(list(Path("submission_runs").iterdir()))
    assert command(*asked)[0] == 0
    assert len(list(Path("submission_runs").iterdir())) == count


def test_a_phase_that_trains_everything_is_exported_for_the_next(work: Path, command) -> None:
    phases = {
        "whole": {
            "set": {"method.kind": "full", "method.rank": 8, "method.targets": "all", "data.dataset": "code.jsonl"}
        },
        "lora": {"parent": "whole", "set": {"data.dataset": "math.jsonl"}},
    }
    file = {**FILE, "phases": phases, "merge": {"weights": {"lora": 0.5}}, "config": SHARED}
    Path("phases.yaml").write_text(yaml.safe_dump(file, sort_keys=False))
    code, _, err = command("train", "--phases", "phases.yaml", "--output", "runs")
    assert code == 0, err
    runs = runs_of(Path("runs"))
    base = load_file(runs["whole"][0] / "export" / "model.safetensors")
    [merged] = Path("bundles").glob("reasoner-*")
    name = "model.layers.0.mlp.up_proj.weight"
    added = 0.5 * delta(runs["lora"][0], "layers.0.mlp.up").T
    np.testing.assert_allclose(load_file(merged / "model.safetensors")[name], base[name] + added, atol=2e-6)


def test_other_options_and_bad_rows_are_refused_before_training(work: Path, command) -> None:
    code, _, err = command("train", "--phases", "phases.yaml", "--seed", "3")
    assert (code, "omit" in err) == (2, True)
    Path("style.jsonl").unlink()
    Path("math.jsonl").write_text("{}\n")
    code, _, err = command("train", "--phases", "phases.yaml")
    assert code == 2
    assert "style.jsonl" in err
    assert "math.jsonl" in err
    assert not Path("submission_runs").exists()

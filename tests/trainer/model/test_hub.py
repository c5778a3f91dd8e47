"""A model fetched from a hub: from a server on this machine that speaks the hub's protocol, in a process of its own."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hub_server import COMMIT, hub_of

from trainer.generate.api import load_model
from trainer.model.tokenizer import FOLDER

pytestmark = pytest.mark.slow

CASES = Path(__file__).parents[2] / "cases" / "models"

SCRIPT = """
import json, sys
from trainer.generate.api import load_model
from trainer.model.source import resolve
from schemas.problems import ProblemError

source = resolve("owner/tiny", with_weights=False)
drawn = sorted(path.name for path in source.folder.iterdir())
vocabulary = len(source.tokenizer().get_vocab())
model = load_model("owner/tiny")
try:
    resolve("owner/other")
    other = None
except ProblemError as error:
    other = [error.problems[0].code, error.problems[0].what]
print(json.dumps({
    "revision": source.revision, "drawn": drawn, "vocabulary": vocabulary, "other": other,
    "whole": sorted(path.name for path in resolve("owner/tiny").folder.iterdir()),
    "logits": float(model([[1, 2, 3]]).sum()),
}))
"""


def test_a_name_on_the_hub_loads_and_without_its_weights_nothing_but_descriptions_is_fetched(tmp_path):
    repository = tmp_path / "repository"
    shutil.copytree(CASES / "gpt2-untied", repository)
    config = json.loads((repository / "config.json").read_text())
    (repository / "pytorch_model.bin").write_bytes(b"never fetched")
    (repository / "modeling_tiny.py").write_text("raise SystemExit")
    for path in FOLDER.glob("*.json"):
        shutil.copy(path, repository)
    vocabulary = json.loads((repository / "tokenizer.json").read_text())
    vocabulary["model"]["vocab"] = {
        token: number for token, number in vocabulary["model"]["vocab"].items() if number < config["vocab_size"]
    }
    vocabulary["model"]["merges"], vocabulary["added_tokens"] = [], vocabulary["added_tokens"][:2]
    (repository / "tokenizer.json").write_text(json.dumps(vocabulary))
    with hub_of("owner/tiny", repository) as hub:
        environment = {key: value for key, value in os.environ.items() if not key.startswith("HF_")}
        done = subprocess.run(
            [sys.executable, "-c", SCRIPT],
            env=environment | {"HF_ENDPOINT": hub.address, "HF_HOME": str(tmp_path / "cache"), "JAX_PLATFORMS": "cpu"},
            cwd=Path(__file__).parents[3],
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        got = json.loads(done.stdout.splitlines()[-1])
        weights = [file for file in hub.fetched if "safetensors" in file]
        first_weight = hub.fetched.index(weights[0])
    descriptions = ["config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json"]
    assert sorted(hub.fetched[:first_weight]) == sorted([*descriptions, "special_tokens_map.json"])
    assert got["drawn"] == sorted([*descriptions, "special_tokens_map.json"])
    assert got["revision"] == COMMIT
    shards = [f"model-0000{number}-of-00003.safetensors" for number in (1, 2, 3)]
    assert sorted(weights) == [*shards, "model.safetensors.index.json"]
    assert not {"pytorch_model.bin", "modeling_tiny.py"} & set(got["whole"])
    assert got["other"] == ["TP045", "The hub has no model owner/other."]
    assert got["vocabulary"] <= config["vocab_size"]
    local = load_model(CASES / "gpt2-untied")([[1, 2, 3]])
    np.testing.assert_allclose(got["logits"], float(local.sum()), rtol=1e-5)

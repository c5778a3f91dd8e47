"""Our adapters in PEFT: of every family, PEFT's logits with the files that we write are ours."""

import json
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest
from our_adapters import METHODS, MODELS, write

from trainer.generate.api import load_model
from trainer.model.families import FAMILIES

OURS = Path(__file__).parents[3] / "cases" / "our_adapters"
LOADED = json.loads((OURS / "versions.json").read_text())["adapters"]


def test_there_is_an_adapter_of_every_family():
    # A checkpoint with images is that of its text model with other names.
    families = {json.loads((MODELS / name / "config.json").read_text())["model_type"] for name in METHODS}
    assert families == set(FAMILIES) - {"gemma3"}
    assert set(LOADED) == set(METHODS)


@pytest.mark.slow
@pytest.mark.parametrize("name", METHODS)
def test_peft_computes_what_we_compute(name, tmp_path):
    write(name, tmp_path / "adapter")
    weights = (tmp_path / "adapter" / "adapter_model.safetensors").read_bytes()
    assert sha256(weights).hexdigest() == LOADED[name]["adapter_sha256"], "PEFT loaded another adapter: make it anew"
    assert LOADED[name]["largest_change"] > 0.05
    expected = np.load(OURS / "expected.npz")
    logits = load_model(MODELS / name, adapter=tmp_path / "adapter")(expected[f"{name}.tokens"])
    largest = np.abs(expected[f"{name}.logits"]).max()
    np.testing.assert_allclose(logits, expected[f"{name}.logits"], rtol=0, atol=1e-5 * largest)

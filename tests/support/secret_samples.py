"""Secrets of every known kind, none of them real, as they turn up in logs."""

from pathlib import Path

import yaml

# Put together here, as those of the file, so that no file of this repository holds the shape of a secret.
HEX = "0f1e2d3c4b5a69788796a5b4c3d2e1f0"
LETTERS = "aB3dE6gH9jK2mN5pQ8sT1vW4yZ7bC0fG"
HF = "hf_" + LETTERS + "xY"

STORED = yaml.safe_load((Path(__file__).parents[1] / "cases" / "secrets.yaml").read_text("utf-8"))
SECRETS = {
    **{name: text.replace("‖", "") for name, text in STORED.items()},
    "token in utf-16": f"HF_TOKEN={HF}".encode("utf-16"),
}

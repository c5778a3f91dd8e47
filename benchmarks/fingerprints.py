"""How far fingerprints of the same answers are apart: computed in other ways, and by what did not give them.

A small decoder is trained for a few hundred steps and answers prompts; the states it wrote them from are held against
those of one pass over the same text, computed in every way that changes the order of sums here, and against other
weights, prompts, element types and edited answers. The tolerances in `trainer/evaluation/tolerance.py` are twice the
largest figure of the first kind (benchmarks/results/fingerprints.json, docs/decisions/fingerprints.md).

    python benchmarks/fingerprints.py [--steps 300] [--prompts 40]
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

DEVICES = 8
os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={DEVICES} {os.environ.get('XLA_FLAGS', '')}"
os.environ["JAX_PLATFORMS"] = "cpu"

import numpy as np
from fingerprint_parts.ways import (
    Text,
    in_chunks,
    in_one_pass,
    packed,
    params_of,
    repeated,
    spread,
    task_of,
    written,
)

from evidence.scores.fingerprint import Agreement, agreement, fingerprint_bytes, fingerprint_of
from trainer.config.load import load_config
from trainer.data.encode import end_token_id, prompt_ids
from trainer.data.render import PromptForm
from trainer.data.rows import read_eval_set
from trainer.model.files.source import resolve
from trainer.model.params import Params
from trainer.model.quantised import dequantised, quantise_on_device

RESULT = Path(__file__).parent / "results" / "fingerprints.json"
TYPES = ("float32", "bfloat16", "float16")
NEW = 48
OTHER_CPUS = ("AVX2", "SSE4_2")

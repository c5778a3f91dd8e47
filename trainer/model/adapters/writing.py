"""Writes a LoRA adapter as PEFT does: adapter_config.json and adapter_model.safetensors."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save_file

from evidence.writing import write_json
from trainer.model.adapters.config import CONFIG, PREFIX, modules
from trainer.model.adapters.reading import FIRST, SECOND, WEIGHTS
from trainer.model.files.export import refuse_taken
from trainer.model.files.source import ModelSource
from trainer.model.lora import Lora, lora_names
from trainer.model.params import Params


def write_adapter(folder: Path, params: Params, loras: Mapping[str, Lora], source: ModelSource) -> None:
    """Write an adapter into a folder that does not exist yet, or is empty.

    Args:
        folder: made here.
        params: holds the two matrices of each adapter by name; others are passed over.
        loras: by the name of a projection.
        source: the model that it is for.

    Raises:
        ProblemError: something is in the folder already.
    """
    refuse_taken(folder)
    folder.mkdir(parents=True, exist_ok=True)
    tensors: dict[str, NDArray[np.float32]] = {}
    scales: dict[str, float] = {}
    for module, projections in modules(source).items():
        parts = [name for name in projections if name in loras]
        if parts:
            first, second = fuse(projections, params, loras)
            tensors |= {PREFIX + module + FIRST: first, PREFIX + module + SECOND: second}
            scales[module] = loras[parts[0]].scale
    save_file(tensors, folder / WEIGHTS, metadata={"format": "pt"})
    (folder / WEIGHTS).chmod(folder.stat().st_mode & 0o666)
    ranks = {module: tensors[PREFIX + module + FIRST].shape[0] for module in scales}
    dropout = max((lora.dropout for lora in loras.values()), default=0.0)
    write_json(folder / CONFIG, adapter_config(source, ranks, scales, dropout))


def fuse(
    projections: tuple[str, ...], params: Params, loras: Mapping[str, Lora]
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return the two matrices of a module, `[rank inputs]` and `[outputs rank]`.

    Where a module holds several projections, their adapters stand side by side and each writes its own outputs; if they
    share the first matrix, as PEFT's own do, it is written once.
    """
    firsts, seconds, outputs = [], [], []
    for name in projections:
        if name in loras:
            first, second = (np.asarray(jax.device_get(params[each]), np.float32) for each in lora_names(name))
            firsts.append(first.T)
            seconds.append(second.T * (loras[name].scale / loras[next(n for n in projections if n in loras)].scale))
            outputs.append(second.shape[1])
        else:
            outputs.append(int(params[f"{name}.kernel"].shape[1]))
    if len(firsts) == len(projections) and all(np.array_equal(firsts[0], each) for each in firsts):
        return np.ascontiguousarray(firsts[0]), np.ascontiguousarray(np.concatenate(seconds))
    whole = np.zeros((sum(outputs), sum(len(first) for first in firsts)), np.float32)
    row = column = taken = 0
    for name, height in zip(projections, outputs, strict=True):
        if name in loras:
            width = seconds[taken].shape[1]
            whole[row : row + height, column : column + width] = seconds[taken]
            column, taken = column + width, taken + 1
        row += height
    return np.ascontiguousarray(np.concatenate(firsts)), whole


def adapter_config(
    source: ModelSource, ranks: Mapping[str, int], scales: Mapping[str, float], dropout: float
) -> dict[str, Any]:
    """Return what PEFT needs to know: the usual rank and alpha, and where a module has others."""
    rank = Counter(ranks.values()).most_common(1)[0][0]
    alpha = Counter(scales[module] * ranks[module] for module in ranks).most_common(1)[0][0]
    return {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": source.name,
        "revision": source.revision,
        "r": rank,
        "lora_alpha": alpha,
        "lora_dropout": dropout,
        # Whole names: a module that has no adapter has none.
        "target_modules": sorted(ranks),
        "rank_pattern": {module: each for module, each in ranks.items() if each != rank},
        "alpha_pattern": {
            module: scales[module] * each for module, each in ranks.items() if scales[module] * each != alpha
        },
        "bias": "none",
        "fan_in_fan_out": source.spec.family == "gpt2",
        "use_rslora": False,
        "use_dora": False,
        "modules_to_save": None,
        "init_lora_weights": True,
        "inference_mode": True,
    }

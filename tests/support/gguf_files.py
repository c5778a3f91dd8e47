"""GGUF files as llama.cpp's converter writes them, by the `gguf` package's own names, writer and quantisation.

Nothing here comes of the project's reader or writer, so that both can be held against it.
"""

import json
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from numpy.typing import NDArray
from safetensors import safe_open

ARCHITECTURES = {"gemma3_text": "gemma3", "mistral": "llama"}
KEYS = {
    "num_hidden_layers": "block_count",
    "n_layer": "block_count",
    "hidden_size": "embedding_length",
    "n_embd": "embedding_length",
    "intermediate_size": "feed_forward_length",
    "n_inner": "feed_forward_length",
    "max_position_embeddings": "context_length",
    "n_positions": "context_length",
    "num_attention_heads": "attention.head_count",
    "n_head": "attention.head_count",
    "num_key_value_heads": "attention.head_count_kv",
    "head_dim": "attention.key_length",
    "rms_norm_eps": "attention.layer_norm_rms_epsilon",
    "layer_norm_epsilon": "attention.layer_norm_epsilon",
    "rope_theta": "rope.freq_base",
    "rope_local_base_freq": "rope.freq_base_swa",
    "sliding_window": "attention.sliding_window",
    "attn_logit_softcapping": "attn_logit_softcapping",
    "final_logit_softcapping": "final_logit_softcapping",
}
TRANSPOSED = ("attn_qkv.weight", "ffn_down.weight", "ffn_up.weight", "attn_output.weight")
"""GPT-2's kernels, which the converter transposes."""


def tensors_of(folder: Path) -> dict[str, NDArray[np.float32]]:
    """Return the tensors of a folder in Hugging Face's layout."""
    found = {}
    for path in sorted(folder.glob("*.safetensors")):
        with safe_open(path, framework="numpy") as file:
            found |= {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a dictionary
    return found


def converted(folder: Path, config: dict[str, Any]) -> dict[str, NDArray[np.float32]]:
    """Return tensors by the converter's names and in its forms (convert_hf_to_gguf.py)."""
    architecture = ARCHITECTURES.get(config["model_type"], config["model_type"])
    number = next(key for key, name in gguf.MODEL_ARCH_NAMES.items() if name == architecture)
    names = gguf.get_tensor_name_map(number, config.get("num_hidden_layers") or config["n_layer"])
    found = {}
    for theirs, value in tensors_of(folder).items():
        if theirs == "lm_head.weight" and config.get("tie_word_embeddings", True):
            continue
        name = names.get_name(theirs, try_suffixes=(".weight", ".bias"))
        assert name is not None, theirs
        if architecture in ("llama", "smollm3") and (".q_proj." in theirs or ".k_proj." in theirs):
            heads = config["num_attention_heads" if ".q_proj." in theirs else "num_key_value_heads"]
            halves = value.reshape(heads, 2, value.shape[0] // heads // 2, *value.shape[1:])
            value = halves.swapaxes(1, 2).reshape(value.shape)
        if architecture.startswith("gemma") and theirs.endswith("norm.weight"):
            value = value + 1
        if architecture == "gpt2" and name.endswith(TRANSPOSED):
            value = value.T
        found[name] = np.ascontiguousarray(value)
    return found


def write(
    path: Path,
    architecture: str,
    metadata: dict[str, Any],
    tensors: dict[str, tuple[NDArray[Any], gguf.GGMLQuantizationType | None]],
) -> Path:
    """Write a file of any metadata and tensors; a tensor with a type beside it holds that type's blocks as bytes."""
    writer = gguf.GGUFWriter(path, architecture)
    for key, value in metadata.items():
        add(writer, key, value)
    for name, (value, kind) in tensors.items():
        writer.add_tensor(name, value, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def add(writer: gguf.GGUFWriter, key: str, value: Any) -> None:
    """Add a key in the type that llama.cpp has for such a value."""
    if isinstance(value, bool):
        writer.add_bool(key, value)
    elif isinstance(value, int):
        writer.add_uint32(key, value)
    elif isinstance(value, float):
        writer.add_float32(key, value)
    elif isinstance(value, str):
        writer.add_string(key, value)
    else:
        writer.add_array(key, value)


def from_folder(
    folder: Path,
    path: Path,
    *,
    metadata: dict[str, Any] | None = None,
    tensors: dict[str, NDArray[np.float32]] | None = None,
) -> Path:
    """Write the model in a folder as the converter would, in F32, with further keys and tensors."""
    config = json.loads((folder / "config.json").read_text())
    rope = config.get("rope_parameters") or {}  # of transformers 5
    config |= {"rope_theta": rope["rope_theta"]} if "rope_theta" in rope else {}
    architecture = ARCHITECTURES.get(config["model_type"], config["model_type"])
    stated = {f"{architecture}.{KEYS[key]}": config[key] for key in KEYS if config.get(key) is not None}
    if config["model_type"] != "gpt2":
        width = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
        stated[f"{architecture}.rope.dimension_count"] = width
    values = converted(folder, config) | (tensors or {})
    in_f32 = {name: (value.astype(np.float32), None) for name, value in values.items()}
    return write(path, architecture, stated | (metadata or {}), in_f32)

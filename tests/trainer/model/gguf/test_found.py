"""GGUF files and files of other formats as the name of a model."""

import shutil
from pathlib import Path

import gguf_files
import numpy as np
import pytest

from schemas.problems import Problem, ProblemError
from trainer.model.decoder import abstract, flatten
from trainer.model.load import refuse_unusable_weights
from trainer.model.source import resolve

CASES = Path(__file__).parents[3] / "cases" / "models"


def refusal(name, revision=None):
    with pytest.raises(ProblemError) as raised:
        resolve(name, revision)
    [problem] = raised.value.problems
    assert raised.value.exit_code == 2
    return problem


@pytest.mark.parametrize(
    ("file", "kind", "way"),
    [
        (
            "model.safetensors",
            "weights without a config.json",
            "Name the folder that has them with config.json and tokenizer.",
        ),
        (
            "pytorch_model.bin",
            "a PyTorch pickle, which can run code when it is read",
            (
                "If you trust it, let transformers write it anew, `AutoModelForCausalLM.from_pretrained(folder)` and "
                "`.save_pretrained(other)`, and name that folder."
            ),
        ),
        (
            "m.onnx",
            "a compiled graph, made to be run and not to be trained",
            "Name the model that it was made from.",
        ),
        (
            "weights.npz",
            "arrays of NumPy, as MLX keeps models",
            "Write it as safetensors, `mlx_lm.convert --dequantize`, and name that folder.",
        ),
    ],
)
def test_other_formats_are_named_with_a_way(file, kind, way, tmp_path):
    path = tmp_path / file
    path.write_bytes(b"\0" * 64)
    for name, what in (
        (str(path), f"{path} is {kind}."),
        (str(tmp_path), f"{tmp_path} has no config.json; what it holds is {kind}."),
    ):
        problem = refusal(name)
        assert (problem.code, problem.file, problem.next) == ("TP040", name, way)
        assert problem.what == what
        assert problem.why == "A model is a folder with config.json and safetensors, or a GGUF file."


def test_a_gguf_file_is_found_by_its_name_and_alone_in_a_folder(tmp_path):
    path = gguf_files.from_folder(CASES / "llama", tmp_path / "m.gguf")
    for name in (str(path), str(tmp_path)):
        source = resolve(name)
        assert (source.name, source.folder, source.weights, source.spec.family) == (name, path, "pretrained", "llama")
    assert refusal(str(path), "main").what == f"Revision main was asked for, but {path} is a local file."
    shutil.copy(path, tmp_path / "other.gguf")
    problem = refusal(str(tmp_path))
    assert problem.what == f"{tmp_path} has no config.json; what it holds is 2 GGUF files (m.gguf, other.gguf)."
    assert problem.next == "Name one of the files."


def test_a_gguf_of_another_architecture_is_named(tmp_path):
    path = gguf_files.write(tmp_path / "m.gguf", "mamba", {}, {})
    assert refusal(str(path)) == Problem(
        code="TP039",
        severity="error",
        file=str(path),
        what="m.gguf is not a model that is read from GGUF: its general.architecture is 'mamba'.",
        why="Each architecture names its tensors and computes in its own way.",
        expected="gpt2, llama, gemma, gemma2, gemma3, qwen2, qwen3, smollm3",
        next="Choose a model of one of the architectures that are read.",
    )
    bare = gguf_files.write(tmp_path / "bare.gguf", "qwen2", {"qwen2.block_count": 2}, {})
    assert refusal(str(bare)).what == (
        "bare.gguf is not a model that is read from GGUF: it lacks qwen2.embedding_length, qwen2.feed_forward_length, "
        "qwen2.attention.head_count, qwen2.context_length, qwen2.attention.layer_norm_rms_epsilon, the tensor "
        "token_embd.weight."
    )


@pytest.mark.parametrize(
    ("stated", "because"),
    [
        (
            {"llama.rope.scaling.type": "longrope"},
            "its rotary positions are stretched by 'longrope', and linear, yarn and Llama 3's way are read",
        ),
        ({"llama.rope.dimension_count": 4}, "it turns 4 of the 10 numbers of a head"),
    ],
)
def test_rotary_positions_that_are_not_computed_are_named(stated, because, tmp_path):
    path = gguf_files.from_folder(CASES / "llama", tmp_path / "m.gguf", metadata=stated)
    assert refusal(str(path)).what == f"m.gguf is not a model that is read from GGUF: {because}."
    other = {"rope_freqs.weight": np.ones(5, np.float32) * 3}
    path = gguf_files.from_folder(CASES / "llama", tmp_path / "other.gguf", tensors=other)
    assert refusal(str(path)).what == (
        "other.gguf is not a model that is read from GGUF: its rope_freqs.weight holds other divisors than those of "
        "Llama 3.1."
    )


def test_tensors_that_are_missing_or_unknown_in_a_gguf_are_named(tmp_path):
    path = gguf_files.from_folder(CASES / "llama", tmp_path / "m.gguf", tensors={"blk.0.odd": np.ones(4, np.float32)})
    source = resolve(str(path))
    wanted = flatten(abstract(source.spec, params_dtype="float32", compute_dtype="float32", remat="none"))[1]
    with pytest.raises(ProblemError) as raised:
        refuse_unusable_weights(source, wanted)
    [problem] = raised.value.problems
    assert (problem.code, problem.what) == ("TP044", f"{path}: 1 tensor is of no use to this model: blk.0.odd.")

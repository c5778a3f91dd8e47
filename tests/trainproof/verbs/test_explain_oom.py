"""`trainproof plan --explain-oom` from a file, a pipe or a run folder, with a configuration, and its errors."""

import io
import json
import sys
from pathlib import Path

import jax
import pytest

CASES = Path("tests/cases/out_of_memory").resolve()
GEMMA_2B = json.loads(Path("benchmarks/models.json").read_text())["gemma-2b"]


@pytest.fixture
def explained(run):
    return lambda source, *arguments: run("plan", "--explain-oom", source, *arguments)


def test_the_whole_answer(explained):
    answer = (CASES / "answers" / "tpu_v6e_qwen3_logits.txt").read_text("utf-8")
    assert explained(CASES / "tpu_v6e_qwen3_logits.txt") == (0, answer, "")


def test_from_a_pipe_as_json(explained, monkeypatch):
    text = (CASES / "gpu_t4_gemma_2b_2026.txt").read_bytes()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text + b"\xff\n")))
    code, out, _ = explained("-", "--json")
    answer = json.loads(out)
    assert (code, answer["memory"], answer["configuration"]) == (0, "gpu", None)


@pytest.fixture
def gemma(tmp_path):
    """The public failure's own statement: bfloat16, Adafactor, 1 × 64 tokens, on one chip."""
    folder = tmp_path / "gemma-2b"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(GEMMA_2B))
    config = tmp_path / "declared.yaml"
    config.write_text(
        f"model: {{name: {folder}, weights: random}}\n"
        "data: {max_length: 64}\n"
        "optimizer: {name: adafactor, max_grad_norm: null}\n"
        "batch: {microbatch_size: 1}\n"
        "precision: {params: bfloat16, compute: bfloat16}\n"
        "mesh: {devices: 1}\n"
    )
    return config


def test_the_public_failure_ran_another_program_than_it_declared(gemma, explained):
    """28.59 GiB were blamed on the vocabulary; they are AdamW's, held twice."""
    code, out, _ = explained(CASES / "tpu_v5e_gemma_2b.txt", "--config", gemma, "--json")
    answer = json.loads(out)
    assert code == 0
    expected, told = answer["notes"]
    assert expected.startswith("The configured run needs about ")
    assert 5.0 < float(expected.split("about ")[1].split(" GiB")[0]) < 6.3
    assert told.startswith("The text says 28.59 GiB, so the program that failed is probably not the configured one")
    assert answer["changes"]


def test_a_model_whose_shapes_ship_needs_no_hub(gemma, explained, monkeypatch):
    def refused(*_: object, **__: object) -> None:
        raise AssertionError("the hub was requested")

    monkeypatch.setattr("huggingface_hub.snapshot_download", refused)
    gemma.write_text(gemma.read_text().replace(str(gemma.parent / "gemma-2b"), "google/gemma-2b"))
    code, out, _ = explained(CASES / "tpu_v5e_gemma_2b.txt", "--config", gemma, "--json")
    assert (code, json.loads(out)["configuration"][0]["bytes"]) == (0, 2 * 2_506_172_416)


def test_what_cannot_be_explained_is_an_error(tmp_path, explained, run):
    text = tmp_path / "other.txt"
    text.write_text("OSError: [Errno 28] No space left on device\n")
    code, out, err = explained(text)
    assert (code, out, "TP745" in err) == (1, "", True)
    assert "Its last line is: OSError: [Errno 28] No space left on device" in err
    fix = "Next: Pass the file with the text, the folder of a run, or - for standard input."
    for source, says in (
        (tmp_path / "absent.txt", "absent.txt"),
        (tmp_path, f"{tmp_path} is a folder without a log.jsonl."),
        ("", "No file was given."),
    ):
        code, _, err = explained(source)
        assert (code, says in err, fix in err or source == tmp_path / "absent.txt") == (2, True, True)
    code, _, err = run("plan")
    assert (code, "--config" in err) == (2, True), "a plan still asks for its configuration"


@pytest.mark.slow
def test_a_run_that_ran_out_of_memory_is_explained_from_its_folder(tmp_path, run, explained, monkeypatch):
    """The folder has the message of JAX in its log, and the configuration."""
    said = (CASES / "gpu_gemma_2b_kaggle_t4.txt").read_text("utf-8").partition("RESOURCE_EXHAUSTED")

    def full(*_, **__):
        raise jax.errors.JaxRuntimeError(said[1] + said[2])

    monkeypatch.setattr("trainer.run.train", full)
    folder = tmp_path / "run"
    code, _, err = run("train", "--config", "trainer/configs/tiny.yaml", "--device", "cpu", "--output", folder)
    assert code == 4
    assert f"`trainproof plan --explain-oom {folder}` says what filled it" in err
    code, out, _ = explained(folder, "--json")
    answer = json.loads(out)
    assert (code, answer["need_bytes"], len(answer["largest"])) == (0, round(1.95 * 2**30), 1)
    assert answer["notes"][0].startswith("The configured run needs about ")


def test_of_a_long_log_the_end_is_read(explained, tmp_path):
    log, text = tmp_path / "log.txt", (CASES / "gpu_t4_gemma_2b_2026.txt").read_bytes()
    log.write_bytes(b"step 1 loss 2.0\n" * 400_000 + text)
    code, out, err = explained(log)
    assert (code, err) == (0, "")
    assert out.startswith("Out of memory: a GPU's memory")

"""`trainproof plan --explain-oom`: the whole answer, from a file, from a pipe, beside a configuration, and refusals."""

import io
import json
import sys
from pathlib import Path

import jax
import pytest

from trainproof.cli import app as command

CASES = Path("tests/cases/out_of_memory").resolve()
GEMMA_2B = json.loads(Path("benchmarks/models.json").read_text())["gemma-2b"]


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    try:
        command.main(["plan", *arguments])
        code = 0
    except SystemExit as ended:
        code = int(ended.code or 0)
    out, err = capsys.readouterr()
    return code, out, err


def test_the_whole_answer(capsys):
    code, out, err = run(capsys, "--explain-oom", str(CASES / "tpu_v6e_qwen3_logits.txt"))
    assert (code, err) == (0, "")
    assert out == (CASES / "answers" / "tpu_v6e_qwen3_logits.txt").read_text("utf-8")


def test_from_a_pipe_as_json(capsys, monkeypatch):
    text = (CASES / "gpu_t4_gemma_2b_2026.txt").read_bytes()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text + b"\xff\n")))
    code, out, _ = run(capsys, "--explain-oom", "-", "--json")
    answer = json.loads(out)
    assert code == 0
    assert answer["memory"] == "gpu"
    assert answer["configuration"] is None


@pytest.fixture
def gemma(tmp_path, monkeypatch):
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


def test_the_public_failure_ran_another_program_than_it_declared(gemma, capsys):
    """28.59 GiB were blamed on the vocabulary; they are AdamW's, held twice."""
    code, out, _ = run(capsys, "--explain-oom", str(CASES / "tpu_v5e_gemma_2b.txt"), "--config", str(gemma), "--json")
    answer = json.loads(out)
    assert code == 0
    expected, told = answer["notes"]
    assert expected.startswith("The configured run needs about ")
    assert 5.0 < float(expected.split("about ")[1].split(" GiB")[0]) < 6.3
    assert told.startswith("The text says 28.59 GiB, so the program that failed is probably not the configured one")
    assert answer["changes"]


def test_a_model_whose_shapes_ship_needs_no_hub(gemma, capsys, monkeypatch):
    def refused(*_: object, **__: object) -> None:
        raise AssertionError("the hub was asked")

    monkeypatch.setattr("huggingface_hub.snapshot_download", refused)
    gemma.write_text(gemma.read_text().replace(str(gemma.parent / "gemma-2b"), "google/gemma-2b"))
    code, out, _ = run(capsys, "--explain-oom", str(CASES / "tpu_v5e_gemma_2b.txt"), "--config", str(gemma), "--json")
    assert (code, json.loads(out)["configuration"][0]["bytes"]) == (0, 2 * 2_506_172_416)


def test_a_text_that_is_none_is_said_to_be_none(tmp_path, capsys):
    text = tmp_path / "other.txt"
    text.write_text("OSError: [Errno 28] No space left on device\n")
    code, out, err = run(capsys, "--explain-oom", str(text))
    assert (code, out) == (1, "")
    assert "TP745" in err
    assert "Its last line is: OSError: [Errno 28] No space left on device" in err


def test_a_file_that_is_not_there(tmp_path, capsys):
    code, _, err = run(capsys, "--explain-oom", str(tmp_path / "absent.txt"))
    assert code == 2
    assert "absent.txt" in err


def test_a_plan_still_asks_for_its_configuration(capsys):
    code, _, err = run(capsys)
    assert code == 2
    assert "--config" in err


@pytest.mark.slow
def test_a_run_that_ran_out_of_memory_is_explained_from_its_folder(tmp_path, capsys, monkeypatch):
    """What JAX said is kept whole in the log, and the configuration lies beside it."""
    said = (CASES / "gpu_gemma_2b_kaggle_t4.txt").read_text("utf-8").partition("RESOURCE_EXHAUSTED")

    def full(*_, **__):
        raise jax.errors.JaxRuntimeError(said[1] + said[2])

    monkeypatch.setattr("trainer.run.train", full)
    folder = tmp_path / "run"
    with pytest.raises(SystemExit) as ended:
        command.main(["train", "--config", "trainer/configs/tiny.yaml", "--device", "cpu", "--output", str(folder)])
    assert ended.value.code == 4
    assert f"`trainproof plan --explain-oom {folder}` says what filled it" in capsys.readouterr().err
    code, out, _ = run(capsys, "--explain-oom", str(folder), "--json")
    answer = json.loads(out)
    assert code == 0
    assert answer["need_bytes"] == round(1.95 * 2**30)
    assert len(answer["largest"]) == 1
    assert answer["notes"][0].startswith("The configured run needs about ")


def test_of_a_long_log_the_end_is_read(capsys, tmp_path):
    log, text = tmp_path / "log.txt", (CASES / "gpu_t4_gemma_2b_2026.txt").read_bytes()
    log.write_bytes(b"step 1 loss 2.0\n" * 400_000 + text)
    code, out, err = run(capsys, "--explain-oom", str(log))
    assert (code, err) == (0, f"Only the last 4,000,000 of {6_400_000 + len(text):,} bytes are read.\n")
    assert out.startswith("Out of memory: a GPU's memory")


@pytest.mark.parametrize(("name", "says"), [("{}", "{} is a folder without a log.jsonl."), ("", "No file was given.")])
def test_a_folder_without_a_log_is_named(capsys, tmp_path, name, says):
    code, _, err = run(capsys, "--explain-oom", name.format(tmp_path))
    assert code == 2
    assert says.format(tmp_path) in err
    assert "Next: Pass the file with the text, the folder of a run, or - for standard input." in err

"""What no run is begun with: a folder, a device, rows, a model that are not right, said in whole sentences."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from safetensors.numpy import load_file, save_file
from tasks import first_state_of
from whole_runs import carried_out, errors_of, manifest_of, refusal

from evidence import layout
from trainer.config.tree import Config, EvaluationConfig
from trainer.model.export import export
from trainer.model.source import resolve
from trainer.run import RunRequest


@pytest.mark.slow
def test_a_folder_with_a_run_is_left_alone(config: Config, order_of: Callable[..., RunRequest]):
    order = order_of(config)
    carried_out(order)
    before = {path: path.read_bytes() for path in order.folder.iterdir() if path.is_file()}
    assert refusal(order) == (
        2,
        (
            f"error TP031: {order.folder}: The folder already holds a run.\n"
            "  A run never overwrites files.\n"
            f"  Next: Give --output another folder, or continue that run with --resume {order.folder}.\n"
        ),
    )
    assert {path: path.read_bytes() for path in order.folder.iterdir() if path.is_file()} == before


def test_a_folder_with_other_files_is_left_alone(config: Config, order_of: Callable[..., RunRequest]):
    order = order_of(config)
    order.folder.mkdir()
    (order.folder / "thesis.tex").write_text("mine")
    code, text = refusal(order)
    assert code == 2
    assert "The folder is not empty: it holds thesis.tex." in text


NO_ID = (
    "  The name becomes the run id, which is part of every document and of bundles.\n"
    "  Expected: letters, digits, dot, underscore and hyphen, a letter or digit first, at most 128.\n"
)


@pytest.mark.parametrize(("name", "like_it"), [("my run", "my-run"), ("_ä", "run"), ("x" * 129, "x" * 128)])
def test_a_folder_whose_name_is_no_run_id_is_refused_before_anything_is_planned(
    name: str, like_it: str, config: Config, order_of: Callable[..., RunRequest], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("trainer.run.read_inputs", lambda *_, **__: pytest.fail("it was planned first"))
    order = order_of(config, name)
    assert refusal(order) == (
        2,
        (
            f"error TP032: {order.folder}: The folder's name {name!r} cannot be the id of a run.\n{NO_ID}"
            f"  Next: Give --output a folder with such a name, for example {like_it}.\n"
        ),
    )
    assert not order.folder.exists()


def test_all_that_is_wrong_with_a_folder_is_said_at_once(config: Config, order_of: Callable[..., RunRequest]):
    order = order_of(config, "my run")
    order.folder.mkdir()
    (order.folder / "thesis.tex").write_text("mine")
    assert refusal(order) == (
        2,
        (
            f"error TP032: {order.folder}: The folder's name 'my run' cannot be the id of a run.\n{NO_ID}"
            "  Next: Give --output a folder with such a name, for example my-run.\n"
            f"error TP031: {order.folder}: The folder is not empty: it holds thesis.tex.\n"
            "  A run never overwrites files.\n"
            "  Next: Give --output another folder.\n"
        ),
    )


@pytest.mark.slow
def test_the_folder_one_is_in_gives_the_run_its_name(
    config: Config, order_of: Callable[..., RunRequest], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    assert carried_out(replace(order_of(config), folder=Path())) == 0
    assert manifest_of(tmp_path / "here")["run_id"] == "here"
    assert errors_of(tmp_path / "here") == []


def test_a_run_whose_name_is_no_run_id_cannot_be_continued(
    config: Config, order_of: Callable[..., RunRequest], tmp_path: Path
):
    copy = tmp_path / "copy of run"
    (copy / layout.CHECKPOINTS / "1").mkdir(parents=True)
    assert refusal(replace(order_of(config), resume=copy)) == (
        2,
        (
            f"error TP032: {copy}: The folder's name 'copy of run' cannot be the id of a run.\n{NO_ID}"
            "  Next: Give --resume a folder with such a name, for example copy-of-run.\n"
        ),
    )


def test_an_output_that_cannot_be_made_is_refused(config: Config, order_of: Callable[..., RunRequest], tmp_path: Path):
    (tmp_path / "file").write_text("")
    code, text = refusal(replace(order_of(config), folder=tmp_path / "file" / "run"))
    assert code == 2
    assert "The run folder cannot be written: Not a directory." in text


def test_an_absent_device_is_refused(config: Config, order_of: Callable[..., RunRequest]):
    order = order_of(replace(config, mesh=replace(config.mesh, device="tpu")))
    assert refusal(order) == (
        3,
        (
            "error TP701: --device: No tpu device was found; JAX sees only: cpu.\n"
            "  Expected: at least one tpu device.\n"
            "  Next: On Kaggle choose Settings, Accelerator, TPU v5e-8 and install trainproof[tpu]; "
            "or use --device auto.\n"
        ),
    )
    assert not order.folder.exists()


def test_more_devices_than_there_are_is_refused(config: Config, order_of: Callable[..., RunRequest]):
    code, text = refusal(order_of(replace(config, mesh=replace(config.mesh, devices=9))))
    assert code == 3
    assert "mesh.devices is 9, but JAX sees 8." in text


@pytest.mark.parametrize(
    ("name", "content", "text"),
    [
        ("none.jsonl", None, "There is no dataset"),
        ("empty.jsonl", "", "empty"),
        ("no-answer.jsonl", '{"prompt": "What?", "steps": [{"i": 0, "type": "a", "content": "b"}]}\n', "final_answer"),
        (
            "torn.jsonl",
            '{"prompt": "a", "completion": "b"}\n{"prompt": \n{"prompt": "a", "completion": "b"}\n',
            "line 2",
        ),
    ],
)
def test_a_bad_dataset_is_refused(
    name: str, content: str | None, text: str, config: Config, order_of: Callable[..., RunRequest], tmp_path: Path
):
    path = tmp_path / name
    if content is not None:
        path.write_text(content)
    order = order_of(replace(config, data=replace(config.data, dataset=str(path))))
    code, said = refusal(order)
    assert code == 2
    assert text in said
    assert not order.folder.exists()


def test_a_name_close_to_a_dataset_is_asked_about(config: Config, order_of: Callable[..., RunRequest]):
    order = order_of(replace(config, data=replace(config.data, dataset="dev-reasoning-v1")))
    assert refusal(order) == (
        2,
        (
            "error TP010: dev-reasoning-v1: There is no dataset 'dev-reasoning-v1': it is not built in, "
            "and no such file exists.\n"
            "  Expected: a built-in name (dev-reasoning-v2, dev-stories-v1, countdown-v1, countdown-solved-v1) or "
            "the path of a file or folder of rows.\n"
            "  Next: Did you mean dev-reasoning-v2? Else give --dataset one of these.\n"
        ),
    )


def test_an_unknown_model_is_refused(config: Config, order_of: Callable[..., RunRequest]):
    order = order_of(replace(config, model=replace(config.model, name="tiny-gpt3")))
    code, text = refusal(order)
    assert code == 2
    assert "tiny-gpt3 is not on this machine and could not be downloaded." in text
    assert "Did you mean tiny-gpt2?" in text


def test_an_evaluation_set_with_an_id_twice_is_refused(
    config: Config, order_of: Callable[..., RunRequest], tmp_path: Path
):
    path = tmp_path / "items.jsonl"
    path.write_text('{"id": "a", "prompt": "x", "expected": "y"}\n' * 2)
    order = order_of(replace(config, evaluation=EvaluationConfig(eval_set=str(path))))
    assert refusal(order) == (
        2,
        (
            f"error TP012: {path} at /id (line 2): The id 'a' is already used in line 1.\n"
            "  Expected: an id that no other item has.\n"
            "  Next: Give each item its own id.\n"
        ),
    )


def test_everything_that_is_wrong_with_the_weights_is_said_at_once(
    config: Config, order_of: Callable[..., RunRequest], tmp_path: Path
):
    folder = tmp_path / "model"
    export(folder, first_state_of(config).trained, resolve("tiny-gpt2"))
    tensors = load_file(folder / "model.safetensors")
    tensors["transformer.stranger"] = tensors.pop("transformer.ln_f.bias")
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    order = order_of(replace(config, model=replace(config.model, name=str(folder))))
    whats = [
        f"{folder}: missing tensors: ln_f.bias.",
        f"{folder}: unexpected tensors: stranger.",
    ]
    code, text = refusal(order)
    assert code == 2
    assert text == "".join(
        f"error TP044: {folder}: {what}\n"
        "  Files and config.json must describe the same gpt2 model; nothing is left random.\n"
        "  Next: Use config.json and safetensors of the same model.\n"
        for what in whats
    )
    assert not order.folder.exists()

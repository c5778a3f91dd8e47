"""What is refused before a run begins: folders, devices, rows and models that cannot be used."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from model_folders import row_file
from tasks import with_settings
from whole_runs import errors_of, manifest_of, refusal

from evidence import layout


@pytest.fixture
def unread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trainer.run.read_inputs", lambda *_, **__: pytest.fail("inputs were read first"))


def test_a_folder_with_a_run_is_left_alone(config, order_of, finished):
    order = order_of(config)
    shutil.copytree(finished(config), order.folder)
    before = {path: path.read_bytes() for path in order.folder.iterdir() if path.is_file()}
    code, text = refusal(order)
    assert (code, text.splitlines()[0]) == (2, f"error TP031: {order.folder}: The folder already contains a run.")
    assert f"--resume {order.folder}" in text
    assert {path: path.read_bytes() for path in order.folder.iterdir() if path.is_file()} == before


@pytest.mark.usefixtures("unread")
@pytest.mark.parametrize(("name", "suggested"), [("my run", "my-run"), ("_ä", "run"), ("x" * 129, "x" * 128)])
def test_a_folder_whose_name_is_no_run_id_is_refused(name, suggested, config, order_of):
    order = order_of(config, name)
    code, text = refusal(order)
    assert (code, text[:12]) == (2, "error TP032:")
    assert text.endswith(f"  Next: Use --output with a valid name, for example {suggested}.\n")
    assert not order.folder.exists()


@pytest.mark.usefixtures("unread")
def test_every_problem_of_a_folder_is_reported_at_once(config, order_of):
    order = order_of(config, "my run")
    order.folder.mkdir()
    (order.folder / "thesis.tex").write_text("mine")
    code, text = refusal(order)
    assert (code, [line[:12] for line in text.splitlines() if line.startswith("error")]) == (
        2,
        ["error TP032:", "error TP031:"],
    )
    assert f"{order.folder}: The folder is not empty: it contains thesis.tex.\n" in text


@pytest.mark.slow
def test_the_current_folder_gives_the_run_its_name(config, train, tmp_path, monkeypatch):
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    train(config, folder=Path())
    assert manifest_of(tmp_path / "here")["run_id"] == "here"
    assert errors_of(tmp_path / "here") == []


def test_a_run_whose_name_is_no_run_id_cannot_be_continued(config, order_of, tmp_path):
    copy = tmp_path / "copy of run"
    (copy / layout.CHECKPOINTS / "1").mkdir(parents=True)
    code, text = refusal(replace(order_of(config), resume=copy))
    assert (code, text[:12]) == (2, "error TP032:")
    assert text.endswith("  Next: Use --resume with a valid name, for example copy-of-run.\n")


def test_an_output_that_cannot_be_made_is_refused(config, order_of, tmp_path):
    (tmp_path / "file").write_text("")
    code, text = refusal(replace(order_of(config), folder=tmp_path / "file" / "run"))
    assert code == 2
    assert "The run folder cannot be written: Not a directory." in text


@pytest.mark.parametrize(
    ("group", "values", "code", "said"),
    [
        ("mesh", {"device": "tpu"}, 3, "error TP701: --device: No tpu device was found; JAX sees only: cpu."),
        ("mesh", {"devices": 9}, 3, "mesh.devices is 9, but JAX sees 8."),
        ("model", {"name": "tiny-gpt3"}, 2, "Did you mean tiny-gpt2?"),
        ("data", {"dataset": "none.jsonl"}, 2, "error TP010: none.jsonl: There is no dataset"),
        ("data", {"dataset": "dev-reasoning-v1"}, 2, "  Next: Did you mean dev-reasoning-v2?"),
    ],
)
def test_a_name_or_device_that_does_not_exist_is_refused(group, values, code, said, config, order_of):
    order = order_of(with_settings(config, **{group: values}))
    exit_code, text = refusal(order)
    assert (exit_code, said in text) == (code, True), text
    assert not order.folder.exists()


PAIR = '{"prompt": "a", "completion": "b"}\n'


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "error TP011: "),
        ('{"prompt": "What?", "steps": [{"i": 0, "type": "a", "content": "b"}]}\n', "final_answer"),
        (f'{PAIR}{{"prompt": \n{PAIR}', "line 2"),
    ],
)
def test_a_bad_dataset_is_refused(content, said, config, order_of, tmp_path):
    (tmp_path / "rows.jsonl").write_text(content)
    order = order_of(with_settings(config, data={"dataset": str(tmp_path / "rows.jsonl")}))
    code, text = refusal(order)
    assert (code, said in text) == (2, True), text
    assert not order.folder.exists()


def test_an_evaluation_set_with_an_id_twice_is_refused(config, order_of, tmp_path):
    items = row_file(tmp_path / "items.jsonl", *[{"id": "a", "prompt": "x", "expected": "y"}] * 2)
    code, text = refusal(order_of(with_settings(config, evaluation={"eval_set": items})))
    assert (code, text.splitlines()[0]) == (
        2,
        f"error TP012: {items} at /id (line 2): The id 'a' is already used in line 1.",
    )

"""Files of rows that people write by hand: blank lines, and the lines that messages name."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from evidence import layout
from schemas.problems import ProblemError
from schemas.render import render_text
from trainer.config.tree import Config, DataConfig
from trainer.data.rows import read_dataset, read_eval_set
from trainer.recorder.progress import Watch
from trainer.run import RunRequest, run
from trainproof.cli.plan import plan_run

PAIR = '{"prompt": "a", "completion": "b"}\n'


def refusal(reader: Callable, path: Path, text: str) -> str:
    path.write_text(text)
    with pytest.raises(ProblemError) as caught:
        reader(str(path))
    assert caught.value.exit_code == 2
    return render_text(caught.value.problems)


def test_blank_lines_are_skipped_with_a_warning_also_at_the_end(tmp_path: Path):
    path = tmp_path / "rows.jsonl"
    path.write_text(PAIR + "\n" + PAIR + "\n")
    read = read_dataset(str(path))
    assert len(read.rows) == 2
    assert list(read.lines) == [1, 3]
    assert render_text(read.warnings) == "".join(
        f"warning TP131: {path} (line {line}): The line is blank and was skipped.\n"
        "  Next: Delete it; each line of a JSONL file holds one object.\n"
        for line in (2, 4)
    )


def test_a_file_of_blank_lines_has_no_rows(tmp_path: Path):
    path = tmp_path / "rows.jsonl"
    assert refusal(read_dataset, path, "\n\n") == (
        f"error TP011: {path}: The dataset has no rows.\n"
        "  Expected: at least one line of JSON.\n"
        "  Next: Write one row per line; schemas/documents/v1 describes the shapes.\n"
    )


def test_a_repeated_id_is_named_with_the_lines_of_the_file(tmp_path: Path):
    path = tmp_path / "items.jsonl"
    item = '{"id": "a", "prompt": "x", "expected": "y"}\n'
    assert refusal(read_eval_set, path, "\n" + item + "\n" + item) == (
        f"error TP012: {path} at /id (line 4): The id 'a' is already used in line 2.\n"
        "  Expected: an id that no other item has.\n"
        "  Next: Give each item its own id.\n"
    )


@pytest.mark.slow
def test_a_run_and_a_plan_show_the_warning(
    config: Config, order_of: Callable[..., RunRequest], tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    path = tmp_path / "rows.jsonl"
    path.write_text(PAIR + "\n")
    order = order_of(replace(config, data=DataConfig(dataset=str(path), max_length=16)))
    with Watch() as watch:
        assert run(order, watch) == 0
    said = (
        f"TP131: {path} (line 2): The line is blank and was skipped. "
        "Next: Delete it; each line of a JSONL file holds one object."
    )
    assert said in capsys.readouterr().out
    log = [json.loads(line) for line in (order.folder / layout.LOG).read_text().splitlines()]
    assert [row["message"] for row in log if row["level"] == "warning"] == [said]
    for _ in range(2):  # the second one was kept
        plan = plan_run(order.folder / layout.CONFIG, device="cpu", settings=())
        [told] = [each["what"] for each in plan["findings"] if each["code"] == "TP131"]
        assert told == f"{path} (line 2): The line is blank and was skipped."

"""The commands of docs/getting-started.md in order, with a small model folder and the rows of the page."""

import json
import re
import shlex
from pathlib import Path

import jax
import pytest
from first_hour import folder_with_weights, rows_in

from trainer import runtime
from trainproof.cli.app import main

pytestmark = pytest.mark.slow

PAGE = (Path(__file__).parents[2] / "docs" / "getting-started.md").read_text(encoding="utf-8")
CODE = re.compile(r"```(sh|python)\n(.*?)```", re.DOTALL)


def followed(block: str) -> None:
    """Run the commands of a block; each must end well."""
    for line in block.splitlines():
        program, *words = shlex.split(line, comments=True)
        assert program == "trainproof"
        with pytest.raises(SystemExit) as ended:
            main(words)
        assert ended.value.code in (None, 0), line


@pytest.mark.slow
def test_from_rows_to_a_verified_run_by_the_page_alone(tmp_path: Path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    one = jax.devices("cpu")[:1]  # a student's machine does not have eight
    monkeypatch.setattr(runtime, "list_devices", lambda platform: one if platform == "cpu" else [])
    folder_with_weights(tmp_path / "my-model")
    blocks = CODE.findall(PAGE)
    assert [language for language, _ in blocks] == ["python", *["sh"] * 6]
    for language, block in blocks:
        if language == "python":
            exec(compile(block, "docs/getting-started.md", "exec"), {})
        else:
            followed(block)
    assert len(rows_in(tmp_path / "rows.jsonl")) == 200
    first = json.loads((tmp_path / "submission_runs/first/run_manifest.json").read_text())
    assert (first["status"], first["dataset"]["overlap_with_eval"]) == ("succeeded", 0)
    metrics = rows_in(tmp_path / "submission_runs/first/metrics.jsonl")
    assert metrics[-1]["loss"] < 0.7 * metrics[0]["loss"]
    assert "identical" in capsys.readouterr().out

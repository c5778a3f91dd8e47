"""A chat template that writes the date writes the date of the run's start, whenever the run is continued or checked."""

import json
from pathlib import Path
from typing import Any

import pytest
from model_folders import chat, chat_model_folder, row_file
from replays import challenged, replay_run
from tasks import with_settings
from whole_runs import QUIET, manifest_of

import trainer.run as story
from evidence import layout
from trainer.config.tree import Config
from trainer.evaluation.evaluate import evaluate_run
from trainer.play import trained_model
from trainer.replay.recorded import ReplayRequest, prepare_replay, read_recorded
from trainer.replay.replay import write_states
from trainer.run import check
from trainer.runtime import choose_devices

DATED = (
    "{{ bos_token }}[{{ strftime_now('%d %b %Y') }}]{% for m in messages %}[{{ m['role'] }}] {{ m['content'] }}</turn>"
    "{% endfor %}{% if add_generation_prompt %}[assistant] {% endif %}"
)
STARTED = "2031-02-03T23:59:59.000+00:00"


@pytest.fixture
def dated(config, tmp_path, monkeypatch) -> Config:
    """A run with the date in its prompts, started on a fixed day."""
    read = story.read_inputs

    def read_on_that_day(*given: Any, **named: Any) -> Any:
        """A new run reads its weights."""
        return read(*given, **named | ({"rendered_at": STARTED} if named["with_weights"] else {}))

    monkeypatch.setattr(story, "read_inputs", read_on_that_day)
    rows = [chat(("user", f"{number} + 1?"), ("assistant", str(number + 1))) for number in range(4)]
    items = row_file(tmp_path / "items.jsonl", {"id": "a", "prompt": "5 + 1?", "expected": "6"})
    model = str(chat_model_folder(tmp_path / "model", DATED, turn_end="</turn>"))
    return with_settings(
        config,
        model={"name": model, "weights": "random"},
        data={"dataset": row_file(tmp_path / "rows.jsonl", *rows), "max_length": 64},
        evaluation={"eval_set": items, "baseline": False},
        checkpoint={"save_every_steps": 1},
    )


def dates_in(folder: Path) -> set[str]:
    shown = json.loads((folder / layout.FIRST_EXAMPLES).read_text())["examples"]
    asked = json.loads((folder / layout.EVAL_SUMMARY).read_text())["generation"]["prompt_template"]
    return {text.removeprefix("<bos>")[:13] for text in (asked, *(example["text"] for example in shown))}


@pytest.mark.slow
def test_every_day_renders_as_the_day_of_the_start(dated, train, tmp_path):
    folder = train(dated)
    assert manifest_of(folder)["dataset"]["rendered_at"] == STARTED
    assert dates_in(folder) == {"[03 Feb 2031]"}
    run = read_recorded(folder)
    assert replay_run(folder, whole=True)[0]["result"] == "identical"
    kept = prepare_replay(run, ReplayRequest(folder=folder)).data.first_examples(4, run_id="a")["examples"]
    assert {example["text"][5:18] for example in kept} == {"[03 Feb 2031]"}
    own = row_file(tmp_path / "own.jsonl", {"id": "b", "prompt": "7 + 1?", "expected": "8"})
    assert challenged(folder, items=Path(own), again=1)["result"] == "identical"
    entrant = trained_model(folder, choose_devices("cpu", 1))
    assert entrant.sampler.document()["prompt_template"] == "<bos>[03 Feb 2031][user] {prompt}</turn>[assistant] "
    (tmp_path / "states").mkdir()
    assert write_states(folder, [1], tmp_path / "states", lambda line: None) == run.sha256
    # Runs that continue it have the same prompts.
    for number in (4, 6):
        folder = train(with_settings(dated, limits={"steps": number}), f"run-{number}", resume=folder)
        assert manifest_of(folder)["dataset"]["rendered_at"] == STARTED
        assert dates_in(folder) == {"[03 Feb 2031]"}


def test_a_later_evaluation_has_the_date_of_the_run_and_an_earlier_version_that_of_its_start(
    dated, config, train, order_of
):
    folder = train(with_settings(dated, evaluation={"eval_set": None}))
    evaluate_run(folder, dated.evaluation.eval_set, QUIET)
    assert dates_in(folder) == {"[03 Feb 2031]"}
    manifest = manifest_of(folder)
    del manifest["dataset"]["rendered_at"]
    manifest["started_at"] = "2029-01-02T03:04:05.000+00:00"
    (folder / layout.MANIFEST).write_text(json.dumps(manifest))
    found = check(order_of(with_settings(dated, limits={"steps": 3}), "again", resume=folder), QUIET)
    assert {example["text"][5:18] for example in found["first_examples"]["examples"]} == {"[02 Jan 2029]"}
    assert found["dataset"]["rendered_at"] == manifest["started_at"]
    assert "rendered_at" not in check(order_of(config, "undated"), QUIET)["dataset"], "its template has no date"

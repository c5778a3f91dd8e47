"""Play: evaluated answers are repeated to the character, and no run changes."""

import io
import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from commands import run_command
from configs import changed
from whole_runs import rows

from evidence import layout
from evidence.hashes import sha256_file
from trainer.config.tree import Config
from trainer.export_run import export_run
from trainer.recorder.progress import Watch

METHODS = {
    "full": {},
    "lora": {"method": {"kind": "lora", "rank": 2}},
    "qlora": {"method": {"kind": "lora", "rank": 2, "base": "nf4"}, "memory": {"remat": "layer"}},
}


@pytest.fixture
def get_run(config: Config, finished: Callable[[Config], Path]) -> Callable[..., Path]:
    asked = changed(config, evaluation={"eval_set": "eval_v1", "baseline": True, "max_new_tokens": 6, "batch_size": 25})
    return lambda method="full": finished(changed(asked, **METHODS[method]))


def hashes(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): sha256_file(path) for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., list[dict]]:
    """Return a function that runs the verb with JSON lines, questions on standard input, and gives its events."""

    def play(*arguments: object, asked: list[dict | str] | None = None) -> list[dict]:
        lines = [one if isinstance(one, str) else json.dumps(one) for one in asked or []]
        monkeypatch.setattr(sys, "stdin", io.StringIO("".join(f"{line}\n" for line in lines)))
        code, out, _ = run_command(capsys, "play", *arguments, "--json-lines")
        assert code == 0
        return [json.loads(line) for line in out.splitlines()]

    return play


@pytest.mark.slow(but=("full",))
@pytest.mark.parametrize("method", list(METHODS))
def test_items_are_answered_as_the_run_states_and_its_folder_stays_as_it_was(method, get_run, played):
    folder = get_run(method)
    before = hashes(folder)
    stated, untrained = (rows(folder, name) for name in (layout.PREDICTIONS, layout.BASELINE_PREDICTIONS))
    events = played(folder, "--untrained", asked=[{"item": row["id"]} for row in stated[:9]])
    assert [event["event"] for event in events if event["event"] not in ("text", "answer", "done")] == ["ready"]
    answers = [event for event in events if event["event"] == "answer"]
    for model, expected in enumerate((stated, untrained)):
        mine = [answer for answer in answers if answer["model"] == model]
        assert [(one["text"], one["tokens"], one["finish_reason"], one["correct"]) for one in mine] == [
            (row["output_text"], row["output_tokens"], row["finish_reason"], row["correct"]) for row in expected[:9]
        ]
    assert {answer["expected"] for answer in answers} == {row["expected"] for row in stated[:9]}
    assert hashes(folder) == before


@pytest.mark.slow
def test_models_write_in_turn_a_token_each(get_run, played):
    folder, other = get_run(), get_run("lora")
    events = played(folder, "--untrained", "--beside", other, "--prompt", "1+1=")
    assert [model["name"] for model in events[0]["models"]] == ["run", "run, untrained", "run"]
    assert events[0]["models"][1]["where"] == "seed 0"
    assert events[0]["evidence"] is False
    assert [event["model"] for event in events if event["event"] == "text"][:6] == [0, 1, 2, 0, 1, 2]
    for model in range(3):
        *texts, answer = [event for event in events if event.get("model") == model]
        assert answer["event"] == "answer"
        assert "expected" not in answer
        assert all(answer["text"].startswith(text["text"]) for text in texts)


@pytest.mark.slow
def test_a_checkpoint_without_a_run_answers_as_the_run_that_exported_it(get_run, played, capsys, tmp_path):
    folder, exported = get_run(), tmp_path / "exported"
    export_run(folder, exported, Watch(quiet=True))
    prompt = "1+1="
    asked = ["--prompt", f"{prompt}\n"]  # As the template of its rows writes it, which a checkpoint does not state.
    events = played("--model", exported, *asked)
    assert [model["name"] for model in events[0]["models"]] == ["exported"]
    assert events[0]["models"][0]["where"] == str(exported)
    text = next(event["text"] for event in events if event["event"] == "answer")
    of_run = next(event["text"] for event in played(folder, "--prompt", prompt) if event["event"] == "answer")
    assert text.startswith(of_run), "the run's answers are cut after six tokens"
    assert run_command(capsys, "play", "--model", tmp_path / "nowhere")[0] == 2
    for wrong in (("--model", exported, "--untrained"), ("--model", exported, folder), ()):
        code, _, said = run_command(capsys, "play", *wrong)
        assert code == 2
        assert "Pass a run, or --model alone" in " ".join(said.replace("│", " ").split())


def test_the_terminal_reads_prompts_from_standard_input(get_run, monkeypatch, capsys):
    monkeypatch.setattr(sys, "stdin", io.StringIO("1+1=\n\n" + "1 " * 300 + "\n"))
    _, out, _ = run_command(capsys, "play", get_run())
    notice, empty, name, *text, ended, blank, last = out.splitlines()
    assert notice == "Nothing is recorded, and nothing here counts for a grade."
    assert (empty, name, blank) == ("", "run:", "")
    assert text
    assert ended == "[6 tokens, cut off]"
    assert last.startswith("TP118: run cannot answer: the prompt has ")
    assert last.endswith(" tokens; at most 506 leave room for an output. Next: Shorten the prompt.")


def test_an_invalid_line_is_refused_and_the_next_is_answered(get_run, played):
    events = played(get_run(), asked=["nonsense", '{"prompt": 3}', {"item": "none"}, {"prompt": "1+1="}])
    [found] = zip(*(event["problems"] for event in events if event["event"] == "refused"), strict=True)
    assert [(each["code"], each["what"]) for each in found] == [
        ("TP117", "'nonsense' is not a question."),
        ("TP117", "'{\"prompt\": 3}' is not a question."),
        ("TP116", "run was evaluated on eval_v1, without none."),
    ]
    assert events[-1] == {"event": "done"}

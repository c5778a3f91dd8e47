"""`data.system_prompt` is part of every prompt in training, evaluation and the documents of a run."""

import json
from pathlib import Path

import pytest
from configs import changed
from model_folders import GEMMA_TEMPLATE, chat, chat_model_folder, row_file
from refusals import problems_of
from tasks import inputs_of
from whole_runs import carried_out, errors_of, manifest_of, rows

from evidence import layout
from trainer.config.tree import Config, ModelConfig
from trainer.data.rows import add_system_prompt
from trainer.evaluation.recorded import read_form
from trainer.run import RunRequest

PAIR = {"prompt": "2 + 2? ", "completion": "4"}
TALK = chat(("user", "Hi."), ("assistant", "Ho."))
ANSWERS = {"prompt": "2?", "chosen": " 2", "rejected": " 3"}
OWN = chat(("system", "Be long."), ("user", "Hi."), ("assistant", "Ho."))
EVAL = {"id": "a", "prompt": "1 + 1? ", "expected": "2"}
SYSTEM = "Be brief."


def configured(folder: Path, data: list[dict], *, model="tiny-gpt2", objective="supervised", **settings) -> Config:
    dataset = row_file(folder / "rows.jsonl", *data)
    return changed(
        Config(model=ModelConfig(name=model, weights="random")),
        data={"dataset": dataset, "max_length": 64, "system_prompt": SYSTEM, **settings},
        objective={"kind": objective},
        evaluation={"eval_set": row_file(folder / "eval.jsonl", EVAL), "max_new_tokens": 2},
        limits={"steps": 2},
    )


def prompts(config: Config) -> tuple[str, str]:
    """Return the prompts of the first training row and of the first evaluation item."""
    _, data = inputs_of(config)
    [example, *_] = data.first_examples(1, run_id="r")["examples"]
    return bytes.fromhex(example["prompt_utf8"]).decode(), data.tokenizer.decode(data.items.prompts[0])


@pytest.mark.parametrize(
    ("row", "settings", "trained", "asked"),
    [
        (PAIR, {}, "Be brief.\n\n2 + 2? ", "Be brief.\n\n1 + 1? "),
        (PAIR, {"template": "Q: {prompt}"}, "Be brief.\n\nQ: 2 + 2? ", "Be brief.\n\nQ: 1 + 1? "),
        (ANSWERS, {"objective": "dpo"}, "Be brief.\n\n2?", "Be brief.\n\n1 + 1? "),
        (TALK, {}, "system: Be brief.\nuser: Hi.\nassistant: ", "system: Be brief.\nuser: 1 + 1? \nassistant: "),
    ],
)
def test_prompts_of_rows_and_items_begin_with_it(row, settings, trained: str, asked: str, tmp_path: Path):
    assert prompts(configured(tmp_path, [row], **settings)) == (trained, asked)


def test_a_template_without_system_turns_writes_it_before_the_first_turn(tmp_path: Path):
    model = str(chat_model_folder(tmp_path / "model", GEMMA_TEMPLATE))
    config = configured(tmp_path, [TALK], model=model)
    trained = "<bos><turn>user\nBe brief.\n\nHi.</turn>\n<turn>model\n"
    assert prompts(config) == (trained, trained.replace("Hi.", "1 + 1?"))


def test_rows_keep_their_own_and_a_prompt_that_no_row_takes_is_refused(tmp_path: Path):
    _, data = inputs_of(configured(tmp_path, [OWN, TALK]))
    texts = {data.tokenizer.decode(row.token_ids) for row in data.encoded.encoded}
    assert {text.partition("\n")[0] for text in texts} == {"system: Be long.", "system: Be brief."}
    assert data.form.system == SYSTEM
    for lines, kind in (([OWN], "rows"), ([{"text": "All of it."}], "text")):
        [problem] = problems_of(inputs_of, configured(tmp_path, lines, kind=kind))
        assert (problem.code, problem.pointer) == ("TP006", "/data/system_prompt")


def test_rows_without_a_system_prompt_stay_as_they_are():
    assert add_system_prompt([PAIR], None) == [PAIR]
    [pair] = add_system_prompt([{"chosen": PAIR, "rejected": PAIR}], SYSTEM)
    assert pair["chosen"] == pair["rejected"] == PAIR | {"system_prompt": SYSTEM}


@pytest.mark.parametrize(("row", "template"), [(PAIR, "Q: {prompt}"), (TALK, None)])
def test_a_run_records_it_without_a_contradiction(row, template, tmp_path: Path):
    config = configured(tmp_path, [row], template=template)
    assert carried_out(RunRequest(config=config, folder=tmp_path / "run", command=["trainproof"])) == 0
    assert errors_of(tmp_path / "run") == []
    assert manifest_of(tmp_path / "run")["effective"]["data"]["system_prompt"] == SYSTEM
    assert read_form(tmp_path / "run", config) == inputs_of(config)[1].form
    summary = json.loads((tmp_path / "run" / layout.EVAL_SUMMARY).read_text())
    assert summary["generation"]["prompt_template"].startswith(("Be brief.\n\nQ: ", "system: Be brief.\n"))
    assert rows(tmp_path / "run", layout.PREDICTIONS)

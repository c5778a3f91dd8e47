"""Prompts of rows and items: templates and `data.system_prompt`."""

import json
from pathlib import Path

import pytest
from configs import changed
from model_folders import GEMMA_TEMPLATE, chat, chat_model_folder, row_file
from refusals import catch_problems
from tasks import inputs_of
from whole_runs import carried_out, errors_of, manifest_of, rows

from evidence import layout
from trainer.config.tree import Config, ModelConfig, build_config, to_document
from trainer.data.conversations import PromptForm, infer_form, render_row
from trainer.data.encode import encode_rows
from trainer.data.rows import check_kinds
from trainer.evaluation.recorded import logged_form, read_form
from trainer.model.source import resolve
from trainer.run import RunRequest

PAIR = {"prompt": "Who is Ann's husband? Answer: ", "completion": "Bob"}
TRACE = {"prompt": "2 + 2?", "steps": [{"i": 0, "type": "compute", "content": "4."}], "final_answer": "4"}
TALK = chat(("user", "Hi."), ("assistant", "Ho."))


@pytest.fixture(scope="module")
def tokenizer():
    return resolve("tiny-gpt2").tokenizer()


@pytest.mark.parametrize(
    ("row", "template", "written"),
    [
        (PAIR, None, "Who is Ann's husband? Answer: Bob<eos>"),
        (PAIR, "{prompt}\n", "Who is Ann's husband? Answer: \nBob<eos>"),
        (PAIR, "Q: {prompt} {prompt}|", "Q: Who is Ann's husband? Answer:  Who is Ann's husband? Answer: |Bob<eos>"),
        (TRACE, None, "2 + 2?\n<reasoning>4.</reasoning>\n<answer>4</answer><eos>"),
        (TRACE, "{prompt} ", "2 + 2? <reasoning>4.</reasoning>\n<answer>4</answer><eos>"),
        (TALK, None, "user: Hi.\nassistant: Ho.<eos>"),
        (TALK, "Q: {prompt}", "user: Hi.\nassistant: Ho.<eos>"),
        ({"text": "All of it."}, None, "All of it.<eos>"),
        ({"begun": "Sky is", "completion": " blue"}, "Q: {prompt}", "Sky is blue<eos>"),
    ],
)
def test_templates_of_rows(row, template, written: str, tokenizer):
    [encoded] = encode_rows([row], tokenizer, max_length=128, file="rows.jsonl", template=template).encoded
    assert tokenizer.decode(encoded.token_ids) == written


@pytest.mark.parametrize(
    ("rows", "template", "asked"),
    [
        ([PAIR], None, "{prompt}"),
        ([TRACE], None, "{prompt}\n"),
        ([PAIR, PAIR, TRACE], None, "{prompt}"),
        ([TALK, TRACE], None, "{prompt}\n"),
        ([TRACE], "Q: {prompt}", "Q: {prompt}"),
        ([{"chosen": PAIR, "rejected": PAIR}], None, "{prompt}"),
    ],
)
def test_evaluation_uses_the_template_of_most_rows(rows, template, asked: str, tokenizer):
    assert infer_form(rows, template).render("{prompt}", tokenizer) == asked


def build_run(folder: Path, rows: list, template: str | None = None) -> Config:
    data = {"dataset": row_file(folder / "rows.jsonl", *rows), "template": template, "max_length": 64}
    return changed(Config(model=ModelConfig(name="tiny-gpt2")), data=data)


def test_earlier_configuration_ends_prompts_with_a_newline(tmp_path: Path):
    """Its conversations too are taken without complaint, although they use no template."""
    earlier = to_document(build_run(tmp_path, [PAIR])) | {"schema_version": "1.1"}
    del earlier["data"]["template"]
    config = build_config(earlier)
    assert config.data.template == "{prompt}\n"
    assert render_row(PAIR, resolve("tiny-gpt2").tokenizer(), template=config.data.template).prompt[-2:] == " \n"
    assert list(check_kinds({"conversation": 3}, config.data.template, "rows")) == []


@pytest.mark.parametrize(
    ("fields", "form"),
    [
        ({"conversation": False}, PromptForm(conversation=False, template="{prompt}\n")),
        ({"conversation": False, "template": "Q {prompt}"}, PromptForm(conversation=False, template="Q {prompt}")),
        ({"conversation": True, "system": "s"}, PromptForm(conversation=True, system="s", thinks=None)),
        ({"conversation": True, "system": None, "thinks": True}, PromptForm(conversation=True, thinks=True)),
    ],
)
def test_form_is_read_from_the_log(fields: dict, form: PromptForm, tmp_path: Path):
    record = {"time": "2026-11-24T12:00:00Z", "level": "info", "event": "prompt_form", "message": "m", "fields": fields}
    row_file(tmp_path / "log.jsonl", record)
    assert logged_form(tmp_path) == form


@pytest.mark.parametrize(
    ("row", "template", "written", "prompt"),
    [
        (PAIR, None, "{prompt}", PAIR["prompt"]),
        (PAIR, "{prompt}\n", "{prompt}\n", PAIR["prompt"] + "\n"),
        (TALK, None, None, "user: Hi.\nassistant: "),
    ],
)
def test_first_examples_have_template_and_prompt(row, template, written: str | None, prompt: str, tmp_path: Path):
    _, data = inputs_of(build_run(tmp_path, [row], template))
    [example] = data.first_examples(4, run_id="r")["examples"]
    assert (example.get("template"), bytes.fromhex(example["prompt_utf8"]).decode()) == (written, prompt)
    assert data.effective().get("data") == (written and {"template": written})


@pytest.mark.parametrize(("row", "template", "code"), [(PAIR, "Question:", "TP004"), (TALK, "Q: {prompt}", "TP006")])
def test_template_without_effect_is_refused(row, template: str, code: str, tmp_path: Path):
    [problem] = catch_problems(inputs_of, build_run(tmp_path, [row], template))
    assert problem.code == code


def test_several_kinds_of_rows_are_counted(tmp_path: Path):
    _, data = inputs_of(build_run(tmp_path, [PAIR, TRACE, PAIR]))
    [found] = [each.what for each in data.warnings if each.code == "TP027"]
    assert found == "The rows are of several kinds: 2 prompts with completions, 1 reasoning traces."


SUM = {"prompt": "2 + 2? ", "completion": "4"}
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
        (SUM, {}, "Be brief.\n\n2 + 2? ", "Be brief.\n\n1 + 1? "),
        (SUM, {"template": "Q: {prompt}"}, "Be brief.\n\nQ: 2 + 2? ", "Be brief.\n\nQ: 1 + 1? "),
        (ANSWERS, {"objective": "dpo"}, "Be brief.\n\n2?", "Be brief.\n\n1 + 1? "),
        (TALK, {}, "system: Be brief.\nuser: Hi.\nassistant: ", "system: Be brief.\nuser: 1 + 1? \nassistant: "),
    ],
)
def test_prompts_begin_with_the_system_prompt(row, settings, trained, asked, tmp_path: Path):
    assert prompts(configured(tmp_path, [row], **settings)) == (trained, asked)


def test_a_template_without_system_turns_has_the_system_prompt_in_the_first_turn(tmp_path: Path):
    model = str(chat_model_folder(tmp_path / "model", GEMMA_TEMPLATE))
    config = configured(tmp_path, [TALK], model=model)
    trained = "<bos><turn>user\nBe brief.\n\nHi.</turn>\n<turn>model\n"
    assert prompts(config) == (trained, trained.replace("Hi.", "1 + 1?"))


def test_rows_keep_their_own_system_prompt_and_one_that_no_row_takes_is_refused(tmp_path: Path):
    _, data = inputs_of(configured(tmp_path, [OWN, TALK]))
    texts = {data.tokenizer.decode(row.token_ids) for row in data.encoded.encoded}
    assert {text.partition("\n")[0] for text in texts} == {"system: Be long.", "system: Be brief."}
    assert data.form.system == SYSTEM
    for lines, kind in (([OWN], "rows"), ([{"text": "All of it."}], "text")):
        [problem] = catch_problems(inputs_of, configured(tmp_path, lines, kind=kind))
        assert (problem.code, problem.pointer) == ("TP006", "/data/system_prompt")


@pytest.mark.parametrize(("row", "template"), [(SUM, "Q: {prompt}"), (TALK, None)])
def test_a_run_records_its_system_prompt_without_a_contradiction(row, template, tmp_path: Path):
    config = configured(tmp_path, [row], template=template)
    assert carried_out(RunRequest(config=config, folder=tmp_path / "run", command=["trainproof"])) == 0
    assert errors_of(tmp_path / "run") == []
    assert manifest_of(tmp_path / "run")["effective"]["data"]["system_prompt"] == SYSTEM
    assert read_form(tmp_path / "run", config) == inputs_of(config)[1].form
    summary = json.loads((tmp_path / "run" / layout.EVAL_SUMMARY).read_text())
    assert summary["generation"]["prompt_template"].startswith(("Be brief.\n\nQ: ", "system: Be brief.\n"))
    assert rows(tmp_path / "run", layout.PREDICTIONS)

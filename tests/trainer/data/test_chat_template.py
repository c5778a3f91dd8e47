"""Prompts of rows and items: plain templates, chat templates, `data.system_prompt`, end tokens, and refusals."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from configs import changed
from model_folders import GEMMA_TEMPLATE, PLAIN_TEMPLATE, TURN_END_ID, chat, chat_model_folder, row_file
from refusals import catch_problems, refusal_text
from tasks import inputs_of
from whole_runs import carried_out, errors_of, manifest_of, rows

from evidence import layout
from schemas.problems import Problem
from trainer.config.names import max_tokenizer_bytes, override
from trainer.config.tree import Config, ModelConfig
from trainer.data.conversations import PromptForm, infer_form, template_facts, untrusted_model
from trainer.data.encode import encode_rows
from trainer.data.rows import check_kinds
from trainer.evaluation.evaluate import evaluate_run
from trainer.evaluation.recorded import logged_form, read_form
from trainer.export_run import export_run
from trainer.model.source import resolve
from trainer.recorder.progress import Watch
from trainer.run import RunRequest

CASES = yaml.safe_load(Path("tests/cases/rows/templates.yaml").read_text("utf-8"))

PAIR = {"prompt": "Who is Ann's husband? Answer: ", "completion": "Bob"}
TRACE = {"prompt": "2 + 2?", "steps": [{"i": 0, "type": "compute", "content": "4."}], "final_answer": "4"}
TALK = chat(("user", "Hi."), ("assistant", "Ho."))
OWN = chat(("system", "Be long."), ("user", "Hi."), ("assistant", "Ho."))
SUM = {"prompt": "2 + 2? ", "completion": "4"}
ANSWERS = {"prompt": "2?", "chosen": " 2", "rejected": " 3"}
SYSTEM = "Be brief."
PLAIN, CHAT = PromptForm(conversation=False), PromptForm(conversation=True)


@pytest.fixture(scope="module")
def tokenizer():
    return resolve("tiny-gpt2").tokenizer()


def chat_tokenizer(folder: Path, template: str = GEMMA_TEMPLATE, *, turn_end: str | None = None):
    return resolve(str(chat_model_folder(folder / "model", template, turn_end=turn_end))).tokenizer()


def refused(rows: list[dict], tokenizer) -> tuple[Problem, ...]:
    return catch_problems(encode_rows, rows, tokenizer, max_length=128, file="rows.jsonl")


def configured(
    folder: Path, data: list[dict], *, model="tiny-gpt2", objective="supervised", item="1 + 1? ", **settings
) -> Config:
    """Return a run on rows, with one item to answer."""
    items = row_file(folder / "eval.jsonl", {"id": "a", "prompt": item, "expected": "2"})
    return changed(
        Config(model=ModelConfig(name=str(model), weights="random")),
        data={"dataset": row_file(folder / "rows.jsonl", *data), "max_length": 64, **settings},
        objective={"kind": objective},
        evaluation={"eval_set": items, "max_new_tokens": 2},
        limits={"steps": 2},
        mesh={"device": "cpu", "devices": 1},
    )


@pytest.mark.parametrize(("row", "template", "written"), CASES["written"])
def test_templates_of_rows(row, template, written: str, tokenizer):
    [encoded] = encode_rows([row], tokenizer, max_length=128, file="rows.jsonl", template=template).encoded
    assert tokenizer.decode(encoded.token_ids) == written


@pytest.mark.parametrize(
    ("rows", "template", "form"),
    [
        ([PAIR], None, PLAIN),
        ([TRACE], None, PromptForm(conversation=False, template="{prompt}\n")),
        ([PAIR, PAIR, TRACE], None, PLAIN),
        ([TALK, TRACE], None, PromptForm(conversation=False, template="{prompt}\n")),
        ([TRACE], "Q: {prompt}", PromptForm(conversation=False, template="Q: {prompt}")),
        ([{"chosen": PAIR, "rejected": PAIR}], None, PLAIN),
        ([TALK], None, CHAT),
        ([TALK, PAIR], None, PLAIN),
        ([TALK, TALK, PAIR], None, CHAT),
        ([OWN, OWN], None, PromptForm(conversation=True, system="Be long.")),
        ([OWN, TALK], None, CHAT),
    ],
)
def test_most_rows_decide_the_form_of_prompts(rows: list[dict], template: str | None, form: PromptForm):
    assert infer_form(rows, template) == form


def test_conversations_of_an_earlier_configuration_are_taken_without_complaint():
    assert list(check_kinds({"conversation": 3}, "{prompt}\n", "rows")) == []


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
    _, data = inputs_of(configured(tmp_path, [row], template=template))
    [example] = data.first_examples(4, run_id="r")["examples"]
    assert (example.get("template"), bytes.fromhex(example["prompt_utf8"]).decode()) == (written, prompt)
    assert data.effective().get("data") == (written and {"template": written})


@pytest.mark.parametrize(("row", "template", "code"), [(PAIR, "Question:", "TP004"), (TALK, "Q: {prompt}", "TP006")])
def test_template_without_effect_is_refused(row, template: str, code: str, tmp_path: Path):
    [problem] = catch_problems(inputs_of, configured(tmp_path, [row], template=template))
    assert problem.code == code


def test_several_kinds_of_rows_are_counted(tmp_path: Path):
    _, data = inputs_of(configured(tmp_path, [PAIR, TRACE, PAIR]))
    [found] = [each.what for each in data.warnings if each.code == "TP027"]
    assert found == "The rows are of several kinds: 2 prompts with completions, 1 reasoning traces."


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
    assert prompts(configured(tmp_path, [row], system_prompt=SYSTEM, **settings)) == (trained, asked)


def test_a_template_without_system_turns_has_the_system_prompt_in_the_first_turn(tmp_path: Path):
    model = chat_model_folder(tmp_path / "model", GEMMA_TEMPLATE)
    config = configured(tmp_path, [TALK], model=model, system_prompt=SYSTEM)
    trained = "<bos><turn>user\nBe brief.\n\nHi.</turn>\n<turn>model\n"
    assert prompts(config) == (trained, trained.replace("Hi.", "1 + 1?"))


def test_rows_keep_their_own_system_prompt_and_one_that_no_row_takes_is_refused(tmp_path: Path):
    _, data = inputs_of(configured(tmp_path, [OWN, TALK], system_prompt=SYSTEM))
    texts = {data.tokenizer.decode(row.token_ids) for row in data.encoded.encoded}
    assert {text.partition("\n")[0] for text in texts} == {"system: Be long.", "system: Be brief."}
    assert data.form.system == SYSTEM
    for lines, kind in (([OWN], "rows"), ([{"text": "It rains."}], "text")):
        [problem] = catch_problems(inputs_of, configured(tmp_path, lines, kind=kind, system_prompt=SYSTEM))
        assert (problem.code, problem.pointer) == ("TP006", "/data/system_prompt")


@pytest.mark.parametrize(("row", "template"), [(SUM, "Q: {prompt}"), (TALK, None)])
def test_a_run_records_its_system_prompt_without_a_contradiction(row, template, tmp_path: Path):
    config = configured(tmp_path, [row], template=template, system_prompt=SYSTEM)
    assert carried_out(RunRequest(config=config, folder=tmp_path / "run", command=["trainproof"])) == 0
    assert errors_of(tmp_path / "run") == []
    assert manifest_of(tmp_path / "run")["effective"]["data"]["system_prompt"] == SYSTEM
    assert read_form(tmp_path / "run", config) == inputs_of(config)[1].form
    summary = json.loads((tmp_path / "run" / layout.EVAL_SUMMARY).read_text())
    assert summary["generation"]["prompt_template"].startswith(("Be brief.\n\nQ: ", "system: Be brief.\n"))
    assert rows(tmp_path / "run", layout.PREDICTIONS)


# Chat templates


def test_all_texts_end_with_the_token_that_ends_the_turns_of_the_template(tmp_path: Path):
    tokenizer = chat_tokenizer(tmp_path, turn_end="</turn>")
    data = encode_rows([TALK, TALK, PAIR], tokenizer, max_length=128, file="rows.jsonl")
    assert [row.token_ids[-1] for row in data.encoded] == [TURN_END_ID] * 3
    assert data.counts["end_token_supervised"] is True


@pytest.mark.parametrize(
    ("template", "turn_end", "end"),
    [
        (GEMMA_TEMPLATE, None, "<eos>"),  # the mark is text
        (GEMMA_TEMPLATE, "</turn>", "</turn>"),
        (GEMMA_TEMPLATE.replace("</turn>", " </turn>"), "</turn>", "</turn>"),
        (GEMMA_TEMPLATE.replace("</turn>", "{{ eos_token }}"), "</turn>", "<eos>"),
        (PLAIN_TEMPLATE, "</turn>", "<eos>"),
        (PLAIN_TEMPLATE + "{{ raise_exception('Never.') }}", "</turn>", "<eos>"),
        ("{% broken", "</turn>", "<eos>"),
    ],
)
def test_end_token_of_a_form(template: str, turn_end: str | None, end: str, tmp_path: Path):
    tokenizer = chat_tokenizer(tmp_path, template, turn_end=turn_end)
    assert CHAT.end_token(tokenizer) == end
    assert PLAIN.end_token(tokenizer) == "<eos>"


def test_a_run_and_what_comes_of_it_stop_where_the_template_ends_a_turn(order_of, tmp_path: Path):
    model = chat_model_folder(tmp_path / "model", GEMMA_TEMPLATE, turn_end="</turn>")
    asked = configured(tmp_path, [TALK], model=model, item="Say ho.")
    order, quiet = order_of(changed(asked, evaluation={"eval_set": None})), Watch(quiet=True)
    assert carried_out(order) == 0
    Path(asked.data.dataset).unlink()  # how the model is asked stands in the log
    summary = evaluate_run(order.folder, asked.evaluation.eval_set, quiet)
    assert summary["generation"]["stop_token_id"] == TURN_END_ID
    assert summary["generation"]["prompt_template"] == "<bos><turn>user\n{prompt}</turn>\n<turn>model\n"
    assert errors_of(order.folder) == []
    exported = export_run(order.folder, None, quiet)
    assert json.loads((exported / "generation_config.json").read_text()) == {"eos_token_id": [1, TURN_END_ID]}


def test_rows_refused_by_the_template_are_reported_with_lines(tmp_path: Path):
    problems = refused([TALK, *[OWN] * 6], chat_tokenizer(tmp_path))
    assert [(each.code, each.line) for each in problems] == [("TP022", line) for line in (2, 3, 4, 5, 6)]
    assert problems[0].what == "The model's chat template refuses row 1: System role not supported."


def test_items_refused_by_the_template_are_reported_first(tmp_path: Path):
    template = PLAIN_TEMPLATE + "{% if 'no' in messages[0]['content'] %}{{ raise_exception('Not no.') }}{% endif %}"
    model = chat_model_folder(tmp_path / "model", template)
    [problem] = catch_problems(inputs_of, configured(tmp_path, [TALK], model=model, item="no"))
    assert (problem.code, problem.line) == ("TP022", 1)


def test_end_token_in_a_completion_is_refused(tokenizer):
    early = chat(("user", "u"), ("assistant", "<eos>"))
    rows = [PAIR, {"prompt": "a", "completion": "The token <eos> ends a text."}, *[early] * 5]
    problems = refused(rows, tokenizer)
    assert [(each.code, each.line) for each in problems] == [("TP023", line) for line in range(2, 7)]
    assert problems[0].what == "Row 1 has the end token <eos> in the text to be learned."
    assert [each.pointer for each in problems[:2]] == ["/completion", "/messages/1/content"]


def test_untrusted_template_has_limited_time(tmp_path: Path):
    template = "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"
    tokenizer = chat_tokenizer(tmp_path, template)
    with untrusted_model(template_seconds=0.2):
        [problem] = refused([TALK], tokenizer)
    assert problem.what.endswith("cannot be used: it takes more than 0.2 seconds of CPU time for one conversation.")


def test_untrusted_template_in_c_code_ends_the_process(tmp_path: Path):
    program = f"""
from trainer.data.conversations import apply_chat_template, untrusted_model
from trainer.model.source import resolve
tokenizer = resolve({str(chat_model_folder(tmp_path / "model", GEMMA_TEMPLATE))!r}).tokenizer()
tokenizer.chat_template = "{{{{ 9 ** (9 ** 9) }}}}"
with untrusted_model(template_seconds=0.2):
    apply_chat_template([], tokenizer)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, timeout=60, check=False)
    assert done.returncode == -signal.SIGVTALRM


def test_large_untrusted_tokenizer_is_refused(tmp_path: Path):
    folder = chat_model_folder(tmp_path / "model", GEMMA_TEMPLATE)
    source = resolve(str(folder))
    source.tokenizer()
    with override(max_tokenizer_bytes, 100):
        assert "at most 100 are read" in refusal_text(source.tokenizer)


def test_broken_template_is_reported_once(tmp_path: Path):
    tokenizer = chat_tokenizer(tmp_path, "{% for m in messages %}{{ m['content'] ")
    [problem] = refused([TALK, TALK], tokenizer)
    assert problem.code == "TP022"
    assert "line 1 of the template: unexpected end" in problem.what


def test_a_longer_token_that_begins_with_the_end_token_is_no_end():
    tokenizer = resolve("tiny-gpt2").tokenizer()
    row = {"prompt": "a", "completion": "b<eos><eos>c"}
    assert [problem.pointer for problem in refused([row], tokenizer)] == ["/completion"]
    tokenizer.add_tokens(["<eos><eos>"])
    assert len(encode_rows([row], tokenizer, max_length=128, file="rows.jsonl").encoded) == 1


def test_facts_of_a_template_are_those_of_the_present_one(tmp_path: Path):
    tokenizer = chat_tokenizer(tmp_path, turn_end="</turn>")
    assert template_facts(tokenizer).turn_end == "</turn>"
    tokenizer.chat_template = PLAIN_TEMPLATE
    assert template_facts(tokenizer).turn_end is None

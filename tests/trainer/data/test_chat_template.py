"""Conversations in the model's chat template: training and evaluation prompts, end tokens, refusals."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from configs import changed
from model_folders import GEMMA_TEMPLATE, PLAIN_TEMPLATE, TURN_END_ID, chat, chat_model_folder, row_file
from refusals import catch_problems, refusal_text
from tasks import inputs_of
from whole_runs import errors_of

from schemas.problems import Problem
from trainer.config.names import max_tokenizer_bytes, override
from trainer.config.tree import Config
from trainer.data.conversations import PromptForm, infer_form, template_facts, untrusted_model
from trainer.data.encode import encode_rows
from trainer.data.rows import read_dataset
from trainer.evaluation.evaluate import evaluate_run
from trainer.export_run import export_run
from trainer.model.source import resolve
from trainer.recorder.progress import Watch
from trainer.run import run

TALK = chat(("user", "Say hi."), ("assistant", "Hi there."))
SYSTEM = chat(("system", "s"), ("user", "u"), ("assistant", "a"))
PAIR = {"prompt": "a", "completion": "b"}
PLAIN = PromptForm(conversation=False)


def chat_tokenizer(folder: Path, template: str = GEMMA_TEMPLATE, *, turn_end: str | None = None):
    return resolve(str(chat_model_folder(folder / "model", template, turn_end=turn_end))).tokenizer()


def refused(rows: list[dict], tokenizer) -> tuple[Problem, ...]:
    return catch_problems(encode_rows, rows, tokenizer, max_length=128, file="rows.jsonl")


def test_end_tokens_that_the_template_writes_stay_in_the_prompt(tmp_path: Path):
    tokenizer = chat_tokenizer(tmp_path, "{% for m in messages %}{{ m['content'] }}{{ eos_token }}{% endfor %}")
    [row] = encode_rows([TALK], tokenizer, max_length=128, file="rows.jsonl").encoded
    assert tokenizer.decode(row.token_ids) == "Say hi.<eos>Hi there.<eos>"


def test_turns_end_with_the_token_of_the_template(tmp_path: Path):
    tokenizer = chat_tokenizer(tmp_path, turn_end="</turn>")
    data = encode_rows([TALK, TALK, PAIR], tokenizer, max_length=128, file="rows.jsonl")
    theirs = tokenizer.apply_chat_template(TALK["messages"], tokenize=True, return_dict=False)
    assert list(data.encoded[0].token_ids) == list(theirs)[:-1]  # all but the line break after the turn
    assert [row.token_ids[-1] for row in data.encoded] == [TURN_END_ID] * 3
    assert data.counts["end_token_supervised"] is True
    early = chat(("user", "u"), ("assistant", "Hi.</turn> Ho."))
    assert "Row 0 has the end token </turn> in the text to be learned." in refused([early], tokenizer)[0].what


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
    assert PromptForm(conversation=True).end_token(tokenizer) == end
    assert PLAIN.end_token(tokenizer) == "<eos>"


@pytest.mark.parametrize(
    ("rows", "form"),
    [
        ([PAIR], PLAIN),
        ([TALK], PromptForm(conversation=True)),
        ([TALK, PAIR], PLAIN),
        ([TALK, TALK, PAIR], PromptForm(conversation=True)),
        ([SYSTEM, SYSTEM], PromptForm(conversation=True, system="s")),
        ([SYSTEM, TALK], PromptForm(conversation=True)),
    ],
)
def test_most_rows_decide_the_form_of_prompts(rows: list[dict], form: PromptForm):
    assert infer_form(rows) == form


def chat_config(config: Config, folder: Path, *, template: str, prompt: str, turn_end: str | None = None) -> Config:
    """A run on four conversations, the first of them `TALK`, with one item to answer."""
    others = [chat(("user", f"Say {word}."), ("assistant", f"{word} there.")) for word in ("ha", "he", "hu")]
    model = chat_model_folder(folder / "model", template, turn_end=turn_end)
    items = row_file(folder / "items.jsonl", {"id": "1", "prompt": prompt, "expected": "x"})
    return changed(
        config,
        model={"name": str(model), "weights": "random"},
        data={"dataset": row_file(folder / "rows.jsonl", TALK, *others), "max_length": 96},
        evaluation={"eval_set": items},
    )


def test_a_run_and_what_comes_of_it_stop_where_the_template_ends_a_turn(config: Config, order_of, tmp_path: Path):
    asked = chat_config(config, tmp_path, template=GEMMA_TEMPLATE, prompt="Say ho.", turn_end="</turn>")
    order, quiet = order_of(changed(asked, evaluation={"eval_set": None})), Watch(quiet=True)
    assert run(order, quiet) == 0
    Path(asked.data.dataset).unlink()  # how the model is asked stands in the log
    summary = evaluate_run(order.folder, asked.evaluation.eval_set, quiet)
    assert summary["generation"]["stop_token_id"] == TURN_END_ID
    assert summary["generation"]["prompt_template"] == "<bos><turn>user\n{prompt}</turn>\n<turn>model\n"
    assert errors_of(order.folder) == []
    exported = export_run(order.folder, None, quiet)
    assert json.loads((exported / "generation_config.json").read_text()) == {"eos_token_id": [1, TURN_END_ID]}


def test_rows_refused_by_the_template_are_reported_with_lines(tmp_path: Path):
    problems = refused([TALK, *[SYSTEM] * 6], chat_tokenizer(tmp_path))
    assert [(each.code, each.line) for each in problems] == [("TP022", line) for line in (2, 3, 4, 5, 6)]
    assert problems[0].what == "The model's chat template refuses row 1: System role not supported."


def test_items_refused_by_the_template_are_reported_first(config: Config, tmp_path: Path):
    template = PLAIN_TEMPLATE + "{% if 'no' in messages[0]['content'] %}{{ raise_exception('Not no.') }}{% endif %}"
    [problem] = catch_problems(inputs_of, chat_config(config, tmp_path, template=template, prompt="no"))
    assert (problem.code, problem.line) == ("TP022", 1)


def test_conversation_must_end_with_the_assistant(tmp_path: Path):
    path = row_file(tmp_path / "rows.jsonl", TALK, chat(("user", "u"), ("user", "I am the user")))
    [problem] = catch_problems(read_dataset, path)
    assert (problem.code, problem.line, problem.pointer) == ("TP014", 2, "/messages/1/role")
    assert problem.what == "The last turn is by the user."


def test_end_token_in_a_completion_is_refused(tmp_path: Path):
    tokenizer = resolve("tiny-gpt2").tokenizer()
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

"""Prompts and completions against `apply_chat_template` of transformers, for the templates of many families."""

import re
from datetime import datetime
from itertools import product
from pathlib import Path

import pytest
from model_folders import chat
from refusals import catch_problems, refusal_text
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast
from transformers.utils import chat_template_utils

from schemas.problems import ProblemError
from trainer.config.tree import ObjectiveConfig
from trainer.data.conversations import PROBE, PromptForm, infer_form, render_row
from trainer.data.encode import encode_prompt, encode_rows
from trainer.data.rows import split_pair
from trainer.objectives.grpo import GroupPolicy

TEMPLATES = {path.stem: path for path in sorted((Path(__file__).parents[2] / "cases" / "chat_templates").iterdir())}
TEMPLATES.pop("README")

ENDS = {
    **dict.fromkeys(("gemma-2", "gemma-3"), "<end_of_turn>"),
    **dict.fromkeys(("llama-3.1", "llama-3.2"), "<|eot_id|>"),
    **dict.fromkeys(("mistral-0.3", "mistral-small", "r1-distill", "zephyr"), "</s>"),
    "phi-3": "<|end|>",
}
"""What ends a turn; in the others it is ChatML's."""

MARK = re.compile(r"<\|\w+\|>|<\w+_of_turn>|\[/?[A-Z_]+\]")
MARKS = sorted({mark for path in TEMPLATES.values() for mark in MARK.findall(path.read_text(encoding="utf-8"))})

THOUGHT = "<think>\nTwo and three is five.\n</think>\n\n5"
TOOLS = [{"type": "function", "function": {"name": "add", "description": "Adds.", "parameters": {"type": "object"}}}]

TALKS = {
    "one turn": chat(("user", "2+3?"), ("assistant", "5")),
    "system": chat(("system", "Be short."), ("user", "2+3?"), ("assistant", "5")),
    "several turns": chat(("user", "Hi."), ("assistant", "Hello."), ("user", "2+3?"), ("assistant", "It is 5.")),
    "same answers": chat(("user", "5"), ("assistant", "5"), ("user", "5"), ("assistant", "5")),
    "words of the probe": chat(("user", PROBE), ("assistant", PROBE), ("user", "?"), ("assistant", f"It is {PROBE}")),
    "white space": chat(("user", " 2+3? \n"), ("assistant", "\n 5 \n\n"), ("user", "And?"), ("assistant", " 5\n6 ")),
    "thought": chat(("user", "2+3?"), ("assistant", THOUGHT)),
    "thoughts": chat(("user", "2+3?"), ("assistant", THOUGHT), ("user", "Sure?"), ("assistant", THOUGHT)),
    "tools": chat(("user", "2+3?"), ("assistant", "5"), ("user", "4+3?"), ("assistant", "7")) | {"tools": TOOLS},
}


def build_tokenizer(template: str, *, flagged: bool = True) -> PreTrainedTokenizerFast:
    """Return a tokenizer of bytes that knows the marks of all templates, flagged as special tokens or not."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    backend = Tokenizer(models.BPE(vocab={letter: number for number, letter in enumerate(letters)}, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens(["<s>", "</s>"])
    marks = (*MARKS, "<think>", "</think>")
    backend.add_tokens([AddedToken(mark, special=flagged, normalized=False) for mark in marks])
    return load(backend, template)


def load(backend: Tokenizer, template: str, **options: str) -> PreTrainedTokenizerFast:
    return PreTrainedTokenizerFast(
        tokenizer_object=backend, bos_token="<s>", eos_token="</s>", chat_template=template, **options
    )


def load_family(name: str) -> PreTrainedTokenizerFast:
    return build_tokenizer(TEMPLATES[name].read_text(encoding="utf-8"))


def encoded(row: dict, tokenizer: PreTrainedTokenizerFast, *, every_turn: bool = False):
    [found] = encode_rows([row], tokenizer, max_length=4096, file="rows.jsonl", every_turn=every_turn).encoded
    return found


def refusal(row: dict, tokenizer: PreTrainedTokenizerFast) -> str:
    return refusal_text(encoded, row, tokenizer)


REFUSED = {
    ("gemma-2", "system"): "refuses row 0: System role not supported",
    ("r1-distill", "thought"): 'it writes "\\n\\n5</s>" for "<think>',
    ("r1-distill", "thoughts"): 'it writes "\\n\\n5</s>" for "<think>',
}
"""Conversations that a template does not write, or not with the answer that is to be learned."""


@pytest.mark.parametrize(("name", "talk"), [*product(TEMPLATES, TALKS)])
def test_tokens_equal_apply_chat_template(name: str, talk: str):
    tokenizer, row = load_family(name), TALKS[talk]
    if (name, talk) in REFUSED:
        assert REFUSED[name, talk] in refusal(row, tokenizer)
        return
    found, every = encoded(row, tokenizer), encoded(row, tokenizer, every_turn=True)
    theirs = tokenizer.apply_chat_template(row["messages"], tools=row.get("tools"), return_dict=False)
    assert list(found.token_ids) == list(every.token_ids) == theirs[: len(found.token_ids)]
    assert set(tokenizer.decode(theirs[len(found.token_ids) :])) <= set("\n</s>")  # nothing but what closes a text
    assert theirs.count(tokenizer.bos_token_id) == list(found.token_ids).count(tokenizer.bos_token_id) <= 1
    assert list(found.spans) == list(every.spans)[-1:]
    end = tokenizer.convert_tokens_to_ids(ENDS.get(name, "<|im_end|>"))
    answers = ["".join(turn["content"].split()) for turn in row["messages"] if turn["role"] == "assistant"]
    for (first, last), stated in zip(every.spans, answers, strict=True):
        assert found.token_ids[last - 1] == end
        assert end not in found.token_ids[first : last - 1]
        learned = "".join(tokenizer.decode(found.token_ids[first : last - 1]).split())
        assert learned.endswith(stated[-8:]) or stated.endswith(learned)  # thoughts of earlier turns are left out
        assert len(learned) <= len(stated) + len("<think></think>")
    assert learned.endswith(stated[-8:])
    if len(answers) == 1:  # the prompt of an evaluation is that of training
        asked = encode_prompt(infer_form([row]).render("2+3?", tokenizer), tokenizer, templated=True)
        assert asked == list(found.token_ids[:first])


WITHOUT_ONE = {"chatml-without-header": "<|im_start|>assistant\n", "zephyr": ""}
"""What follows the prompt of a template that lacks a generation prompt."""


@pytest.mark.parametrize("name", TEMPLATES)
def test_sampling_starts_after_the_generation_prompt(name: str):
    tokenizer, row = load_family(name), TALKS["one turn"]
    objective = GroupPolicy(max_length=900, chunk_positions=None, settings=ObjectiveConfig(max_completion_tokens=9))
    [found] = objective.encode([row], tokenizer, file="rows.jsonl", lines=[1], max_positions=900).encoded
    theirs = tokenizer.apply_chat_template(row["messages"][:-1], tokenize=False, add_generation_prompt=True)
    assert tokenizer.decode(found.token_ids) == theirs + WITHOUT_ONE.get(name, "")
    assert PromptForm(conversation=True, thinks=None).render("2+3?", tokenizer) == theirs + WITHOUT_ONE.get(name, "")


@pytest.mark.parametrize(
    ("name", "talk", "given", "learned"),
    [
        ("qwen-3-thinking-2507", "thought", "assistant\n<think>\n", "Two and three is five.\n</think>\n\n5"),
        ("qwen-3-thinking-2507", "one turn", "<|im_start|>assistant\n<think>\n", "\n</think>\n\n5"),
        ("qwen-3", "thought", "<|im_start|>assistant\n", THOUGHT),
        ("qwen-3", "one turn", "<|im_start|>assistant\n", "<think>\n\n</think>\n\n5"),
        ("chatml-without-header", "one turn", "<|im_start|>assistant\n", "5"),
        ("chatml-opens-thought", "one turn", "<|im_end|>\n<|im_start|>assistant\n", "5"),
        ("chatml-opens-thought", "thought", "<think>\n", "Two and three is five.\n</think>\n\n5"),
        ("mistral-0.3", "system", "<s>[INST] 2+3?[/INST]", " 5"),
        ("llama-3.2", "white space", "<|start_header_id|>assistant<|end_header_id|>\n\n", "5\n6"),
    ],
)
def test_start_of_the_assistant_turn(name: str, talk: str, given: str, learned: str):
    tokenizer = load_family(name)
    example = render_row(TALKS[talk], tokenizer)
    assert example.prompt.endswith(given)
    assert example.completion == learned


def build_template(turn: str, opening: str = "", before: str = "") -> str:
    """Return a template that writes each turn so, and a generation prompt."""
    opened = f"{{% if add_generation_prompt %}}{opening}{{% endif %}}"
    return f"{before}{{% for m in messages %}}{turn}{{% endfor %}}{opened}"


def test_turn_with_another_header_than_the_generation_prompt():
    turn = "<{{ m.role }} of {{ messages | length }}>{{ m.content }}</s>"
    tokenizer = build_tokenizer(build_template(turn, "<assistant>"))
    found = encoded(TALKS["one turn"], tokenizer)
    theirs = tokenizer.apply_chat_template(TALKS["one turn"]["messages"], return_dict=False)
    assert list(found.token_ids) == theirs
    assert tokenizer.decode(found.learned) == "5</s>"


def test_turn_that_cannot_be_located_is_refused():
    length = "{{ messages[-1].content | length }}"
    template = build_template("<{{ m.role }}>{{ m.content }}</s>", "<assistant>", before=length)
    [problem] = catch_problems(encoded, TALKS["one turn"], build_tokenizer(template))
    assert (problem.code, problem.line) == ("TP022", 1)
    assert problem.what.endswith(
        'it writes "4<user>2+3?</s><assistant>" before the answer, '
        'and "1<user>2+3?</s><assistant>5</s>" in the whole conversation.'
    )


def test_reordered_turns_are_refused():
    tokenizer = build_tokenizer(
        build_template("{{ m.role }}: {{ m.content }}</s>").replace("messages", "messages[::-1]")
    )
    with pytest.raises(ProblemError, match="in another order"):
        encoded(TALKS["several turns"], tokenizer, every_turn=True)


def test_turn_ends_with_an_added_token_without_special_flag():
    tokenizer = build_tokenizer(TEMPLATES["qwen-2.5"].read_text(encoding="utf-8"), flagged=False)
    found = encoded(TALKS["several turns"], tokenizer, every_turn=True)
    end = tokenizer.convert_tokens_to_ids("<|im_end|>")
    assert [found.token_ids[last - 1] for _, last in found.spans] == [end, end]
    assert PromptForm(conversation=True).end_token(tokenizer) == "<|im_end|>"
    early = chat(("user", "u"), ("assistant", "a<|im_end|>b"))
    assert "TP023" in refusal(early, tokenizer)


def test_template_without_end_token_between_turns():
    lines = build_template("{{ m.role }}: {{ m.content }}\n", "assistant: ")
    tokenizer = build_tokenizer(lines)
    found = encoded(TALKS["several turns"], tokenizer, every_turn=True)
    assert tokenizer.decode(found.token_ids) == "user: Hi.\nassistant: Hello.\nuser: 2+3?\nassistant: It is 5.</s>"
    assert [tokenizer.decode(found.token_ids[first:last]) for first, last in found.spans] == ["Hello.", "It is 5.</s>"]


@pytest.mark.parametrize("name", ["qwen-3", "smollm-3"])
def test_template_variables_of_a_row(name: str):
    tokenizer, row = load_family(name), TALKS["one turn"] | {"chat_template_kwargs": {"enable_thinking": False}}
    example = render_row(row, tokenizer)
    theirs = tokenizer.apply_chat_template(
        row["messages"][:-1], tokenize=False, add_generation_prompt=True, enable_thinking=False
    )
    assert (example.prompt, example.completion) == (theirs, "5")


def test_answers_of_a_pair_share_the_prompt():
    tokenizer = load_family("chatml-opens-thought")
    before = [{"role": "user", "content": "2+3?"}]
    chosen, rejected = ([{"role": "assistant", "content": text}] for text in (THOUGHT, "6"))
    row = split_pair({"prompt": before, "chosen": chosen, "rejected": rejected})
    one, other = encode_rows([row], tokenizer, max_length=512, file="rows.jsonl").encoded
    given = [tokenizer.decode(side.token_ids[: side.spans[0][0]]) for side in (one, other)]
    assert given == ["<|im_start|>user\n2+3?<|im_end|>\n<|im_start|>assistant\n"] * 2
    assert tokenizer.decode(one.learned) == THOUGHT + "<|im_end|>"


@pytest.mark.parametrize("name", ["llama-3.2", "smollm-3", "mistral-small"])
def test_template_writes_the_date_of_the_run(name: str, monkeypatch: pytest.MonkeyPatch):
    tokenizer, row = load_family(name), TALKS["one turn"]
    tokenizer.rendered_at = "2031-02-03T23:59:59.000+00:00"

    class ThatDay(datetime):
        @classmethod
        def now(cls, tz=None):
            return datetime(2031, 2, 3, 12, tzinfo=tz)

    monkeypatch.setattr(chat_template_utils, "datetime", ThatDay)
    theirs = tokenizer.apply_chat_template(row["messages"], return_dict=False)
    found = encoded(row, tokenizer)
    assert "2031" in tokenizer.decode(theirs)
    assert list(found.token_ids) == theirs[: len(found.token_ids)]
    asked = infer_form([row]).render("2+3?", tokenizer)
    assert asked == tokenizer.apply_chat_template(row["messages"][:-1], tokenize=False, add_generation_prompt=True)


def test_tokenizer_with_prefix_space_equals_apply_chat_template():
    words = ["<unk>", "<s>", "</s>", "▁", "\n", "▁user", "▁hi", "hi", "▁Hello", "Hello", *".|><", "▁5", "5", *"userHlo"]
    vocab = [(piece, -1.0 - number / 99) for number, piece in enumerate(dict.fromkeys(words))]
    backend = Tokenizer(models.Unigram(vocab, unk_id=0))
    backend.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    backend.decoder = decoders.Metaspace(prepend_scheme="first", split=False)
    backend.add_special_tokens(["<s>", "</s>"])
    template = build_template("<{{ m.role[:4] }}>\n{{ m.content }}</s>\n", "<assi>\n")
    tokenizer = load(backend, template, unk_token="<unk>")
    row = chat(("user", "hi"), ("assistant", "Hello."), ("user", "hi"), ("assistant", "Hello."))
    theirs = tokenizer.apply_chat_template(row["messages"], return_dict=False)
    for every_turn in (False, True):
        found = encoded(row, tokenizer, every_turn=every_turn)
        assert list(found.token_ids) == theirs[: len(found.token_ids)]

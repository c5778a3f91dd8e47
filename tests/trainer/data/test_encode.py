"""What the model sees of a row: which tokens are supervised, what is cut, and what is refused."""

from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
import tokenizers
from model_folders import model_folder

from schemas.problems import words
from schemas.problems.problem import ProblemError
from schemas.problems.render import as_text
from trainer.config.tree import DataConfig
from trainer.data.encode import Tally, encode_rows
from trainer.data.files.encoded import EncodedRow, laid_out
from trainer.data.render import render_row
from trainer.data.shown import first_examples
from trainer.model.files.source import resolve

TRACE = {
    "prompt": "What is 2 + 2?",
    "steps": [{"i": 0, "type": "compute", "content": "2 + 2 = 4."}],
    "final_answer": "4",
}
PAIR = {"prompt": "Say hi.", "completion": "Hi there."}
CHAT = {"messages": [{"role": "user", "content": "Say hi."}, {"role": "assistant", "content": "Hi there."}]}


@pytest.fixture(scope="module")
def tokenizer():
    return resolve("tiny-gpt2").tokenizer()


def padded(rows, max_length: int):
    """Return tokens and loss mask of rows that share no sequence."""
    return laid_out([[row] for row in rows], max_length)[:2]


def supervised_text(row: dict, tokenizer, max_length: int = 128) -> str:
    data = encode_rows([row], tokenizer, max_length=max_length, file="rows.jsonl")
    tokens, loss_mask = padded(data.encoded, max_length)
    return tokenizer.decode(tokens[0][loss_mask[0]])


def test_a_trace_is_reasoning_then_answer_then_the_end_token(tokenizer):
    assert supervised_text(TRACE, tokenizer) == "<reasoning>2 + 2 = 4.</reasoning>\n<answer>4</answer><eos>"


@pytest.mark.parametrize("row", [PAIR, CHAT], ids=["pair", "chat"])
def test_a_completion_is_supervised_with_its_end_token(row: dict, tokenizer):
    assert supervised_text(row, tokenizer) == "Hi there.<eos>"


def test_a_conversation_without_a_template_is_one_line_a_turn(tokenizer):
    assert render_row(CHAT, tokenizer).prompt == "user: Say hi.\nassistant: "


def test_a_conversation_with_a_template_is_written_by_it():
    class Templated:
        chat_template = "{% for turn in messages %}[{{ turn.role }}]{{ turn.content }}{% endfor %}[assistant]"
        special_tokens_map: ClassVar[dict[str, str]] = {}
        added_tokens_decoder: ClassVar[dict[int, str]] = {}

    assert render_row(CHAT, Templated()).prompt == "[user]Say hi.[assistant]"


def test_prompts_and_padding_are_not_supervised(tokenizer):
    data = encode_rows([TRACE], tokenizer, max_length=128, file="rows.jsonl")
    _, loss_mask = padded(data.encoded, 128)
    prompt = tokenizer.encode("What is 2 + 2?\n")
    length = len(data.encoded[0].token_ids)
    assert not loss_mask[0, : len(prompt)].any()
    assert loss_mask[0, len(prompt) : length].all()
    assert not loss_mask[0, length:].any()


def test_counts_are_those_of_the_arrays(tokenizer):
    data = encode_rows([TRACE, PAIR, CHAT], tokenizer, max_length=128, file="rows.jsonl")
    assert data.counts == {
        "rows": 3,
        "prompt_tokens": sum(row.spans[0][0] for row in data.encoded),
        "supervised_tokens": int(padded(data.encoded, 128)[1].sum()),
        "truncated_rows": 0,
        "rows_without_answer": 0,
        "end_token_supervised": True,
    }


def test_a_row_that_loses_its_answer_is_refused_with_the_length_it_needs(tokenizer):
    with pytest.raises(ProblemError) as caught:
        encode_rows([PAIR, TRACE], tokenizer, max_length=12, file="rows.jsonl")
    needed = len(encode_rows([TRACE], tokenizer, max_length=128, file="").encoded[0].token_ids)
    assert as_text(caught.value.problems) == (
        f"error TP021: rows.jsonl (line 2): Row 1 has {needed} tokens; cut to 12, it loses its answer.\n"
        "  The model would learn the question and never the answer.\n"
        f"  Next: Use --set data.max_length={needed}, or shorten or remove the row.\n"
    )


def test_many_lost_answers_are_counted_not_listed(tokenizer):
    with pytest.raises(ProblemError) as caught:
        encode_rows([TRACE] * 9, tokenizer, max_length=12, file="rows.jsonl")
    assert len(caught.value.problems) == 6
    assert caught.value.problems[-1].what == "4 further rows lose their answer at 12 tokens."


def with_unknown_words(folder: Path, *known: str):
    """Return a tokenizer of a few words, which takes every other one for `[UNK]`."""
    words = {word: number for number, word in enumerate(("<eos>", "[UNK]", *known))}
    model_folder(folder, config={"vocab_size": 8}, unk_token="[UNK]")
    own = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="[UNK]"))
    own.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    own.save(str(folder / "tokenizer.json"))
    return resolve(str(folder)).tokenizer()


def test_answers_that_the_tokenizer_does_not_know_are_refused(tmp_path: Path):
    own = with_unknown_words(tmp_path / "model", "Hi", "there")
    far = {"prompt": "Say ho.", "completion": "Ho ho."}
    assert encode_rows([PAIR], own, max_length=64, file="rows.jsonl").counts["rows"] == 1
    with pytest.raises(ProblemError) as caught:
        encode_rows([PAIR, TRACE, *[far] * 5], own, max_length=64, file="rows.jsonl")
    assert [problem.code for problem in caught.value.problems] == ["TP025"] * 6
    written = own.encode("<reasoning>2 + 2 = 4.</reasoning>\n<answer>4</answer>")
    trace = own.decode([*written, own.eos_token_id], clean_up_tokenization_spaces=False)
    assert as_text([caught.value.problems[0], caught.value.problems[-1]]) == (
        "error TP025: rows.jsonl (line 2): The model's tokenizer makes "
        f"{words.show(trace)} of what row 1 teaches; its answer is not in it.\n"
        "  A model learns and writes only what its tokenizer knows.\n"
        "  Next: Use the tokenizer that the model was trained with, or write the row in text that it knows.\n"
        "error TP025: rows.jsonl: The model's tokenizer does not know the answers of 1 further rows.\n"
        "  Next: Use the tokenizer that the model was trained with.\n"
    )


def test_a_cut_conversation_is_counted(tokenizer):
    long = {"prompt": "Say hi.", "completion": "Hi there. " * 20}
    data = encode_rows([long, PAIR], tokenizer, max_length=32, file="rows.jsonl")
    assert data.counts["truncated_rows"] == 1
    assert padded(data.encoded, 32)[1][0].sum() == 32 - data.encoded[0].spans[0][0]


@pytest.mark.parametrize("positions", [None, 64])
def test_where_every_row_is_cut_no_end_token_would_be_learned(positions: int | None, tokenizer):
    long = {"prompt": "Say hi.", "completion": "Hi there. " * 20}
    needed = len(encode_rows([long], tokenizer, max_length=512, file="").encoded[0].token_ids)
    assert needed > 64
    with pytest.raises(ProblemError) as caught:
        encode_rows([long] * 3, tokenizer, max_length=32, file="rows.jsonl", max_positions=positions)
    assert as_text(caught.value.problems) == (
        "error TP026: rows.jsonl: All rows (3) are cut to 32 tokens, so none of them ends.\n"
        "  Without an end token in the training text the model never learns to stop.\n"
        "  Next: "
        + (
            f"Use --set data.max_length={needed} or more, which keeps the shortest row whole.\n"
            if positions is None
            else f"Shorten rows: the shortest has {needed} tokens, and the model has 64 positions.\n"
        )
    )
    one_whole = encode_rows([long, PAIR], tokenizer, max_length=32, file="rows.jsonl")
    assert one_whole.counts["end_token_supervised"] is True


def test_the_end_token_is_supervised_where_the_loss_asks_for_it_in_every_whole_row():
    def row(*token_ids: int, last: int, truncated: bool = False) -> EncodedRow:
        return EncodedRow(token_ids=token_ids, spans=((1, last),), truncated=truncated)

    def is_supervised(end_id: int, *rows: EncodedRow) -> bool | int:
        tally = Tally(end_id=end_id)
        for one in rows:
            tally.add([one])
        return tally.counts(rows=len(rows))["end_token_supervised"]

    rows = [row(7, 2, last=2), row(8, 9, 2, last=3)]
    assert is_supervised(2, *rows) is True
    assert is_supervised(2, *rows, row(8, 9, 2, last=2)) is False
    assert is_supervised(3, rows[0]) is False
    assert is_supervised(2, *rows, row(8, 9, last=2, truncated=True)) is True
    assert is_supervised(9, row(8, 9, last=2, truncated=True)) is False


def test_a_tokenizer_without_an_end_token_is_refused(tokenizer):
    endless = resolve("tiny-gpt2").tokenizer()
    endless.eos_token = None
    with pytest.raises(ProblemError) as caught:
        encode_rows([PAIR], endless, max_length=32, file="rows.jsonl")
    assert caught.value.problems[0].what == "The model's tokenizer has no end token."


def test_first_examples_show_each_token_once(tokenizer):
    data = encode_rows([TRACE], tokenizer, max_length=128, file="rows.jsonl")
    shown = first_examples(data, [0], tokenizer, run_id="r", rows=[TRACE], settings=DataConfig())
    [example] = shown["examples"]
    assert "".join(token["text"] for token in example["tokens"]) == example["text"]
    supervised = [token["id"] for token in example["tokens"] if token["supervised"]]
    tokens, loss_mask = padded(data.encoded, 128)
    assert supervised == tokens[0][loss_mask[0]].tolist()
    assert np.count_nonzero(loss_mask) == len(supervised)


LONG_TALK = {
    "messages": [
        {"role": "user", "content": "Say hi."},
        {"role": "assistant", "content": "Hi there."},
        {"role": "user", "content": "And bye?"},
        {"role": "assistant", "content": "Goodbye."},
    ]
}


def test_all_turns_of_the_assistant_are_learned_when_asked(tokenizer):
    [last] = encode_rows([LONG_TALK], tokenizer, max_length=128, file="rows.jsonl").encoded
    [every] = encode_rows([LONG_TALK], tokenizer, max_length=128, file="rows.jsonl", every_turn=True).encoded
    assert tokenizer.decode(last.supervised) == "Goodbye.<eos>"
    assert [tokenizer.decode(every.token_ids[first:end]) for first, end in every.spans] == [
        "Hi there.<eos>",
        "Goodbye.<eos>",
    ]
    whole = "user: Say hi.\nassistant: Hi there.<eos>\nuser: And bye?\nassistant: Goodbye.<eos>"
    assert tokenizer.decode(every.token_ids) == whole

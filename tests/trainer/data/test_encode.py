"""Encoding of rows: supervised tokens, truncation and refusals."""

from pathlib import Path

import pytest
import tokenizers
from model_folders import case_folding_folder, chat, model_folder
from refusals import catch_problems
from tasks import inputs_of

from trainer.config.tree import Config
from trainer.data.encode import collate, encode_rows
from trainer.data.rows import SIDES
from trainer.model.source import resolve
from trainer.objectives.dpo import DirectPreference

TRACE = {
    "prompt": "What is 2 + 2?",
    "steps": [{"i": 0, "type": "compute", "content": "2 + 2 = 4."}],
    "final_answer": "4",
}
PAIR = {"prompt": "Say hi.", "completion": "Hi there."}
CHAT = chat(("user", "Say hi."), ("assistant", "Hi there."))
LONG_TALK = chat(("user", "Say hi."), ("assistant", "Hi there."), ("user", "And bye?"), ("assistant", "Goodbye."))


@pytest.fixture(scope="module")
def tokenizer():
    return resolve("tiny-gpt2").tokenizer()


def padded(rows, max_length: int):
    """Return tokens and loss mask of rows that share no sequence."""
    return collate([[row] for row in rows], max_length)[:2]


def test_counts_equal_the_arrays(tokenizer):
    data = encode_rows([TRACE, PAIR, CHAT], tokenizer, max_length=128, file="rows.jsonl")
    assert data.counts == {
        "rows": 3,
        "prompt_tokens": sum(row.spans[0][0] for row in data.encoded),
        "supervised_tokens": int(padded(data.encoded, 128)[1].sum()),
        "truncated_rows": 0,
        "rows_without_answer": 0,
        "end_token_supervised": True,
    }


def test_unknown_answers_are_refused(tmp_path: Path):
    """By a tokenizer of a few words, which takes every other one for `[UNK]`."""
    words = {word: number for number, word in enumerate(("<eos>", "[UNK]", "Hi", "there"))}
    folder = model_folder(tmp_path / "model", config={"vocab_size": 8}, unk_token="[UNK]")
    known = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="[UNK]"))
    known.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    known.save(str(folder / "tokenizer.json"))
    own = resolve(str(folder)).tokenizer()
    far = {"prompt": "Say ho.", "completion": "Ho ho."}
    assert encode_rows([PAIR], own, max_length=64, file="rows.jsonl").counts["rows"] == 1
    problems = catch_problems(encode_rows, [PAIR, TRACE, *[far] * 5], own, max_length=64, file="rows.jsonl")
    assert [problem.code for problem in problems] == ["TP025"] * 5
    assert problems[0].what.startswith("The model's tokenizer changes the answer of row 1 to ")
    assert problems[-1].what.endswith("There are 1 more like it.")


def test_truncating_most_examples_is_an_error(tokenizer):
    long = {"prompt": "Say hi.", "completion": "Hi there. " * 20}
    [whole] = encode_rows([long], tokenizer, max_length=512, file="").encoded
    lost = 3 * (len(whole) - 32)
    some, most = (
        encode_rows([long] * 3 + [PAIR] * short, tokenizer, max_length=32, file="rows.jsonl") for short in (3, 2)
    )
    short = len(encode_rows([PAIR], tokenizer, max_length=32, file="").encoded[0].learned)
    taught = 3 * len(whole.learned) + 2 * short
    [problem] = most.warnings
    assert (problem.code, problem.severity) == ("TP026", "error")
    assert problem.what == (
        "data.max_length is 32, but 3 of 5 examples lose their answer or its end at that length; "
        f"{lost / taught:.1%} of the supervised tokens are cut off. The longest example has {len(whole)} tokens."
    )
    assert [(each.code, each.severity) for each in some.warnings] == [("TP455", "warning")]
    assert encode_rows([long, PAIR, PAIR], tokenizer, max_length=len(whole), file="").warnings == ()


@pytest.mark.parametrize(("chosen", "rejected"), [("Hi there. " * 20, "No."), ("No.", "Hi there. " * 20)])
def test_pair_is_truncated_if_either_answer_is(chosen: str, rejected: str, tokenizer):
    pairs = [(chosen, rejected), *[("Hi there.", "No.")] * 2]
    rows = [{side: PAIR | {"completion": text} for side, text in zip(SIDES, pair, strict=True)} for pair in pairs]
    data, whole = (
        DirectPreference(max_length=length, chunk_positions=None, beta=0.1).encode(
            rows, tokenizer, file="", lines=[1, 2, 3], max_positions=512
        )
        for length in (32, 512)
    )
    lost = whole.counts["supervised_tokens"] - data.counts["supervised_tokens"]
    assert (data.counts["truncated_rows"], data.counts["rows"], data.counts["supervised_tokens_lost"]) == (1, 3, lost)
    assert data.counts["longest_row_tokens"] == whole.widths.max()
    assert [each.code for each in data.warnings] == ["TP455"]


def test_every_turn_is_supervised_on_request_and_truncated_turns_are_counted(tokenizer):
    [last], [whole] = (
        encode_rows([LONG_TALK], tokenizer, max_length=128, file="rows.jsonl", every_turn=each).encoded
        for each in (False, True)
    )
    assert tokenizer.decode(last.learned) == "Goodbye.<eos>"
    turns = [tokenizer.decode(whole.token_ids[first:end]) for first, end in whole.spans]
    assert turns == ["Hi there.<eos>", "Goodbye.<eos>"]
    text = "user: Say hi.\nassistant: Hi there.<eos>\nuser: And bye?\nassistant: Goodbye.<eos>"
    assert tokenizer.decode(whole.token_ids) == text
    (_, first_ends), (second_begins, second_ends) = whole.spans
    data = encode_rows([LONG_TALK, PAIR], tokenizer, max_length=first_ends + 2, file="", every_turn=True)
    assert (data.counts["truncated_rows"], data.counts["supervised_tokens_lost"]) == (1, second_ends - second_begins)
    assert data.counts["longest_row_tokens"] == second_ends


def test_rows_changed_by_the_tokenizer_are_counted(tmp_path: Path):
    own = resolve(str(case_folding_folder(tmp_path / "model"))).tokenizer()
    rows = [PAIR | {"completion": text} for text in ("yes", "In all of Paris", "½", "2 <unit>kg")]
    data = encode_rows([*rows, {"text": "all small"}], own, max_length=64, file="rows.jsonl")
    assert data.counts["rows_written_otherwise"] == 3
    [told] = data.warnings
    assert (told.code, told.line) == ("TP456", 2)
    assert told.what.startswith("3 of 5 rows are changed by the tokenizer: ")
    assert told.what.endswith('"In all of Paris" becomes "in all of paris".')


def test_first_examples_show_each_token_once(config: Config):
    _, data = inputs_of(config)
    for example in data.first_examples(3, run_id="r")["examples"]:
        assert "".join(token["text"] for token in example["tokens"]) == example["text"]
        [row] = [row for row in data.encoded.encoded if row.row == example["row"]]
        supervised = [token["id"] for token in example["tokens"] if token["supervised"]]
        tokens, loss_mask = padded([row], 128)
        assert supervised == tokens[0][loss_mask[0]].tolist() == row.learned


def test_lost_answers_are_refused_with_the_length_they_need(tokenizer):
    [problem] = catch_problems(encode_rows, [PAIR] + [TRACE] * 6, tokenizer, max_length=12, file="rows.jsonl")
    needed = len(encode_rows([TRACE], tokenizer, max_length=128, file="").encoded[0].token_ids)
    assert (problem.code, problem.line) == ("TP021", 2)
    assert problem.what.startswith(
        "data.max_length is 12, but 6 of 7 examples lose their answer at that length: row 1 and others."
    )
    assert problem.next.startswith(f"Set data.max_length to at least {needed}, ")

"""The bundled tokenizer: any text comes back, digits stand alone, training it again gives the same bytes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from train_tokenizer import MARKS, main
from transformers import PreTrainedTokenizerFast

from trainer.data.builtin.reasoning import generate_rows
from trainer.data.encode import encode_rows
from trainer.data.rows import read_dataset, read_eval_set
from trainer.model.source import BUILTIN_TOKENIZER as FOLDER

LONGEST_ROW = 64
TOKENIZER = PreTrainedTokenizerFast.from_pretrained(FOLDER)


def tokens(text):
    return TOKENIZER.encode(text, add_special_tokens=False)


@given(st.text() | st.text(alphabet="0123456789 +-×=.,\n<>/answer"))
def test_any_text_comes_back_exactly(text):
    assert TOKENIZER.decode(tokens(text)) == text


@given(st.text(alphabet="0123456789 +-=abc", min_size=1))
def test_every_digit_is_a_token_of_its_own(text):
    pieces = [TOKENIZER.decode([token]) for token in tokens(text)]
    assert all(len(piece) == 1 for piece in pieces if any(letter.isdigit() for letter in piece))


def test_training_again_gives_the_committed_bytes(tmp_path):
    main(tmp_path)
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["special_tokens_map.json", "tokenizer.json", "tokenizer_config.json"]
    for name in names:
        assert (tmp_path / name).read_bytes() == (FOLDER / name).read_bytes()


def test_marks_are_single_tokens_and_kept_when_special_ones_are_dropped():
    for mark in MARKS:
        assert len(tokens(mark)) == 1
    text = "<reasoning>4</reasoning>\n<answer>4</answer>"
    assert TOKENIZER.decode([*tokens(text), TOKENIZER.eos_token_id], skip_special_tokens=True) == text


@pytest.mark.parametrize("seed", [None, 21, 22])
def test_rows_are_short(seed):
    name = "dev-reasoning-v2"
    rows = generate_rows(name, 3000, seed, exclude_prompts=frozenset()) if seed else read_dataset(name).rows
    encoded = encode_rows(rows, TOKENIZER, max_length=LONGEST_ROW, file="rows")
    assert encoded.counts["truncated_rows"] == 0


def test_evaluation_prompts_leave_room_for_an_answer():
    items = [*read_eval_set("eval_v1").rows, *read_eval_set("eval_v2").rows]
    assert max(len(tokens(item["prompt"] + "\n")) for item in items) <= LONGEST_ROW // 2

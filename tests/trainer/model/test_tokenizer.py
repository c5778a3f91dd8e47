"""The bundled tokenizer: any text comes back, digits stand alone, training it again gives the same bytes."""

from hypothesis import given
from hypothesis import strategies as st
from train_tokenizer import main
from transformers import PreTrainedTokenizerFast

from trainer.model.tokenizer import FOLDER

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

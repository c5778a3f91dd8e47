"""Encoded rows kept between runs: the same arrays without encoding, and never those of anything else."""

import os
from pathlib import Path

import numpy as np
import pytest

from schemas.problems import ProblemError
from trainer.data import encode
from trainer.data.files import kept
from trainer.data.files.encoded import EncodedRow, TokenFile
from trainer.model.files.source import resolve

ROWS = [
    {"prompt": f"What is {n} + 1?", "steps": [{"content": f"{n}+1={n + 1}"}], "final_answer": str(n + 1)}
    for n in range(9)
]


@pytest.fixture
def room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TRAINPROOF_CACHE", str(tmp_path))
    monkeypatch.setattr(kept, "FEWEST_ROWS", 2)
    return tmp_path / "rows"


@pytest.fixture(scope="module")
def tokenizer():
    return resolve("demo").tokenizer()


def made(rows, tokenizer, **settings):
    return encode.encode_rows(rows, tokenizer, **({"max_length": 64, "file": "rows.jsonl"} | settings))


def arrays(data):
    return {name: (each.dtype, each.tobytes()) for name, each in data.encoded.columns.items()}


def test_kept_rows_are_those_that_were_encoded_and_nothing_is_encoded_again(room: Path, tokenizer, monkeypatch):
    first = made(ROWS, tokenizer)
    monkeypatch.setattr(encode, "ids_of", None)
    again = made(ROWS, tokenizer)
    assert arrays(again) == arrays(first)
    assert list(again.encoded) == list(first.encoded)
    assert all(type(each) is int for each in (*again.encoded[3].token_ids, *again.encoded[3].spans[0]))
    assert (again.counts, again.warnings) == (first.counts, ())
    assert np.array_equal(again.lengths, first.lengths)
    assert [path.suffix for path in room.iterdir()] == [""], "no half of a file is left"


def test_rows_that_are_kept_tell_again_how_many_were_cut(room: Path, tokenizer, monkeypatch):
    long = [{"prompt": "Say hi.", "completion": "Hi there. " * 20}, *ROWS]
    first = made(long, tokenizer)
    monkeypatch.setattr(encode, "ids_of", None)
    assert [each.code for each in made(long, tokenizer).warnings] == ["TP455"]
    assert made(long, tokenizer).warnings == first.warnings


def test_whatever_decides_a_row_is_part_of_its_name(room: Path, tokenizer, monkeypatch):
    settings = {"max_length": 64, "every_turn": False, "template": None}
    keys = [kept.rows_key(ROWS, tokenizer, settings)]
    keys += [kept.rows_key(ROWS, tokenizer, settings | {name: 1}) for name in settings]
    keys.append(kept.rows_key([*ROWS[:-1], {**ROWS[-1], "final_answer": "10 "}], tokenizer, settings))
    keys.append(kept.rows_key(ROWS[:-1], tokenizer, settings))
    other = resolve("demo").tokenizer()
    other.add_tokens(["+1="])
    keys.append(kept.rows_key(ROWS, other, settings))
    other = resolve("demo").tokenizer()
    other.chat_template = "{{ messages[0].content }}"
    keys.append(kept.rows_key(ROWS, other, settings))
    monkeypatch.setattr(kept, "source", lambda: ["another version"])
    keys.append(kept.rows_key(ROWS, tokenizer, settings))
    assert len(set(keys)) == len(keys) == 9
    assert None not in keys


def test_nothing_is_kept_of_few_rows_of_dates_and_without_room(room: Path, tokenizer, monkeypatch):
    dated = resolve("demo").tokenizer()
    dated.chat_template = "{{ strftime_now('%d') }}"
    assert kept.rows_key(ROWS[:1], tokenizer, {}) is None
    assert kept.rows_key(ROWS, dated, {}) is None
    monkeypatch.setenv("TRAINPROOF_CACHE_MIB", "0")
    made(ROWS, tokenizer)
    assert not room.exists()


@pytest.mark.parametrize("damage", ["first byte", "a token", "seal", "cut", "empty"])
def test_a_damaged_entry_is_encoded_and_written_again(room: Path, tokenizer, damage: str):
    first = made(ROWS, tokenizer)
    [entry] = room.iterdir()
    whole = entry.read_bytes()
    place = {"first byte": 0, "a token": len(whole) - 40, "seal": len(whole) - 1}.get(damage)
    if place is None:
        entry.write_bytes(whole[:-7] if damage == "cut" else b"")
    else:
        entry.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
    assert kept.read_kept(entry.name) is None
    assert arrays(made(ROWS, tokenizer)) == arrays(first)
    assert entry.read_bytes() == whole


def test_rows_that_are_refused_or_warned_of_are_looked_at_every_time(room: Path, tokenizer):
    for _ in range(2):
        with pytest.raises(ProblemError, match="answer"):
            made(ROWS, tokenizer, max_length=12)
    odd = [*ROWS, {**ROWS[0], "prompt": f"Say {tokenizer.eos_token}"}]
    assert [len(made(odd, tokenizer).warnings) for _ in range(2)] == [1, 1]
    assert not room.exists()


def test_the_longest_unused_make_room(room: Path, monkeypatch):
    rows = TokenFile([EncodedRow(token_ids=(7,) * 90_000, spans=((1, 9),), truncated=False)])
    monkeypatch.setenv("TRAINPROOF_CACHE_MIB", "1")
    for number, key in enumerate("abc"):
        kept.keep_rows(key, rows, {"rows": 1})
        os.utime(room / key, (number, number))
    assert kept.read_kept("a") is None
    found, counts = kept.read_kept("b")
    assert (found[0], counts) == (rows[0], {"rows": 1})
    kept.keep_rows("d", rows, {"rows": 1})
    assert sorted(path.name for path in room.iterdir()) == ["b", "d"], "b was read after c"
    large = TokenFile([EncodedRow(token_ids=(7,) * 300_000, spans=(), truncated=False)])
    kept.keep_rows("e", large, {})
    assert sorted(path.name for path in room.iterdir()) == ["b", "d"]

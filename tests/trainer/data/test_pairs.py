"""Preference pairs in the layouts of TRL."""

from pathlib import Path
from typing import Any

import pytest
from configs import changed
from model_folders import row_file
from refusals import catch_problems
from tasks import inputs_of

from evidence.scores.overlap import row_texts
from trainer.config.tree import Config
from trainer.data.conversations import infer_form, row_prompt
from trainer.data.rows import RowFile, common_text, read_dataset

USER = {"role": "user", "content": "Sky?"}
BLUE, RED = ({"role": "assistant", "content": text} for text in ("Blue.", "Red."))
TALKS = [
    {"prompt": [USER], "chosen": [BLUE], "rejected": [RED]},
    {"chosen": [USER, BLUE], "rejected": [USER, RED]},
    {"prompt": "Sky?", "chosen": [USER, BLUE], "rejected": [USER, RED], "score_chosen": 7},
    {"prompt": "Sky?", "chosen": [BLUE], "rejected": [RED]},
]


def read_file(folder: Path, *rows: Any) -> RowFile:
    return read_dataset(row_file(folder / "pairs.jsonl", *rows), "pairs")


@pytest.mark.parametrize("row", TALKS)
def test_pairs_of_turns(row: dict[str, Any], tmp_path: Path):
    file = read_file(tmp_path, row)
    assert list(file.rows) == [{"chosen": {"messages": [USER, BLUE]}, "rejected": {"messages": [USER, RED]}}]
    assert infer_form(file.rows).conversation
    assert row_prompt(file.rows[0]) == row_texts(file.rows[0])[0][0] == "Sky?"


def test_pairs_of_texts(tmp_path: Path):
    with_prompt = {"prompt": "Sky?", "chosen": "Blue.", "rejected": "Red.", "source": "x"}
    file = read_file(tmp_path, with_prompt, {"chosen": "The sky is blue", "rejected": "The sky is black"})
    assert file.rows[0]["rejected"] == {"prompt": "Sky?", "completion": "Red."}
    assert file.rows[1]["chosen"] == {"begun": "The sky is", "completion": " blue"}
    assert [row_prompt(row) for row in file.rows] == ["Sky?", "The sky is"]


@pytest.mark.parametrize(
    ("chosen", "rejected", "begun"),
    [
        ("\n\nHuman: Hi\n\nAssistant: Yes", "\n\nHuman: Hi\n\nAssistant: No", "\n\nHuman: Hi\n\nAssistant:"),
        ("one two three", "one two", "one"),
        ("blue", "black", ""),
        ("", "a b", ""),
    ],
)
def test_common_text_ends_before_a_word(chosen: str, rejected: str, begun: str):
    assert common_text(chosen, rejected) == common_text(rejected, chosen) == begun


def run_on(config: Config, folder: Path, *rows: Any, **data: Any) -> Config:
    dataset = row_file(folder / "pairs.jsonl", *rows)
    return changed(config, data={"dataset": dataset, **data}, objective={"kind": "dpo"})


def test_pair_is_two_sequences_with_one_prompt(config: Config, tmp_path: Path):
    rows = [{"prompt": f"{n} + 1?", "chosen": f"{n + 1}.", "rejected": "No idea."} for n in range(4)]
    _, data = inputs_of(run_on(config, tmp_path, *rows, max_length=64, shuffle=False))
    chosen, rejected = data.encoded.encoded[1]
    [(first, last)] = chosen.spans
    assert chosen.token_ids[:first].tolist() == rejected.token_ids[:first].tolist()
    assert data.tokenizer.decode(chosen.token_ids[:first]) == "1 + 1?"
    assert data.tokenizer.decode(chosen.token_ids[first : last - 1]) == "2."
    batch = data.source.batch(0)
    assert batch["tokens"].shape == batch["loss_mask"].shape == (1, 4, 64)
    for place, row in enumerate([*data.encoded.encoded[0], *data.encoded.encoded[1]]):
        assert batch["tokens"][0, place, : len(row)].tolist() == list(row.token_ids)
        assert batch["loss_mask"][0, place].sum() == len(row.learned)
    assert data.source.tokens_before(1) == sum(len(row) for pair in list(data.encoded.encoded)[:2] for row in pair)
    assert data.document()["sequences"] == 8
    assert data.encoded.counts["rows"] == 4
    assert data.encoded.counts["end_token_supervised"] is True


def test_answers_with_equal_tokens_are_refused(config: Config, tmp_path: Path):
    same = " and so on" * 9
    rows = [
        {"prompt": "a", "chosen": "b", "rejected": "c"},
        {"prompt": "a", "chosen": f"b{same} yes", "rejected": f"b{same} no"},
    ]
    [found] = catch_problems(inputs_of, run_on(config, tmp_path, *rows, max_length=16))
    assert (found.code, found.line) == ("TP028", 2)
    assert found.what == "Both answers of row 1 have the same 16 tokens at 16."


@pytest.mark.parametrize(
    ("row", "code", "pointer"),
    [
        ({"prompt": "a", "chosen": "b"}, "TP029", "/rejected"),
        ({"prompt": "a", "rejected": "b"}, "TP029", "/chosen"),
        ({"prompt": "a", "chosen": "", "rejected": "b"}, "TP029", "/chosen"),
        ({"prompt": "a", "chosen": "b", "rejected": []}, "TP029", "/rejected"),
        ({"prompt": "a", "chosen": "b", "rejected": "b"}, "TP028", "/rejected"),
        ({"prompt": "", "chosen": "b", "rejected": "c"}, "TP126", "/prompt"),
        ({"prompt": "a", "chosen": 3, "rejected": "c"}, "TP029", "/chosen"),
        ({"prompt": ["a"], "chosen": "b", "rejected": "c"}, "TP029", "/prompt"),
        ({"chosen": "b", "rejected": "c"}, "TP029", "/prompt"),
        ({"chosen": "b", "rejected": [RED]}, "TP029", "/rejected"),
        ({"chosen": [BLUE], "rejected": [USER, RED]}, "TP029", "/rejected"),
        ({"prompt": [USER], "chosen": [USER], "rejected": [RED]}, "TP029", "/chosen"),
        ({"prompt": [USER], "chosen": ["x"], "rejected": [RED]}, "TP029", "/chosen"),
        ({"completion": "b", "prompt": "c"}, "TP018", None),
    ],
)
def test_an_invalid_pair_is_refused_with_its_line(row: dict[str, Any], code: str, pointer: str | None, tmp_path: Path):
    whole = {"prompt": "a", "chosen": "b", "rejected": "c"}
    [found] = catch_problems(read_file, tmp_path, whole, row, whole)
    assert (found.code, found.pointer, found.line) == (code, pointer, 2)

"""Columns that are used, ignored or refused, and preference pairs."""

import json
from pathlib import Path
from typing import Any

import pytest
from configs import changed
from model_folders import PLAIN_TEMPLATE, chat, chat_model_folder, row_file
from refusals import catch_problems
from tasks import inputs_of

from evidence.scores.overlap import row_texts
from schemas.problems import Problem
from trainer.config.tree import Config
from trainer.data.conversations import infer_form, row_prompt
from trainer.data.rows import RowFile, RowKind, common_text, read_dataset, read_eval_set
from trainer.first_config import read_shape

PAIR = {"prompt": "Name a bird.", "completion": "A robin."}
TALK = chat(("user", "Name a bird."), ("assistant", "A robin."))
SHARE_GPT = {"conversations": [{"from": "human", "value": "Name a bird."}, {"from": "gpt", "value": "A robin."}]}
ALPACA = {"instruction": "Name a bird.", "input": "", "output": "A robin."}
SEVEN = chat(("user", "Name a bird."), ("assistant", "Seven."))
ULTRAFEEDBACK = {"prompt": "Name a bird.", "prompt_id": "p1", "chosen": TALK["messages"], "rejected": SEVEN["messages"]}
ULTRAFEEDBACK |= {**TALK, "score_chosen": 8.0, "score_rejected": 3.5}
TOOLS = [{"type": "function", "function": {"name": "weather"}}]


def read_file(folder: Path, *rows: dict[str, Any], kind: RowKind = "rows") -> RowFile:
    return read_dataset(row_file(folder / "rows.jsonl", *rows), kind)


def refusal(folder: Path, *rows: dict[str, Any], kind: RowKind = "rows") -> tuple[Problem, ...]:
    return catch_problems(read_file, folder, *rows, kind=kind)


def aside(file: RowFile) -> list[str]:
    return [problem.what for problem in file.warnings if problem.code == "TP182"]


def test_ultrafeedback_is_read_as_pairs(tmp_path: Path):
    file = read_file(tmp_path, ULTRAFEEDBACK, kind="pairs")
    assert list(file.rows) == [{"chosen": TALK, "rejected": SEVEN}]
    assert aside(file) == ["Ignored columns: prompt_id, messages, score_chosen and score_rejected."]
    assert read_shape(str(file.path)).kind == "pairs"
    assert {problem.pointer for problem in refusal(tmp_path, ULTRAFEEDBACK)} == {"/chosen", "/rejected"}


@pytest.mark.parametrize("before", [{"instruction": "Name a bird.", "input": ""}, {"prompt": "Name a bird."}])
def test_instruction_is_the_prompt_of_a_pair(before: dict[str, Any], tmp_path: Path):
    row = before | {"chosen": "A robin.", "rejected": "Seven."}
    assert read_file(tmp_path, row, kind="pairs").rows[0]["rejected"] == {
        "prompt": "Name a bird.",
        "completion": "Seven.",
    }


@pytest.mark.parametrize("texts", [True, False])
@pytest.mark.parametrize("before", [{"conversations": SHARE_GPT["conversations"][:1]}, SHARE_GPT])
def test_conversation_is_the_prompt_of_a_pair(before: dict[str, Any], texts: bool, tmp_path: Path):
    answers: dict[str, Any] = {"chosen": "A robin.", "rejected": "Seven."}
    answers = answers if texts else {side: {"from": "gpt", "value": text} for side, text in answers.items()}
    file = read_file(tmp_path, before | answers | {"system": "Be short."}, kind="pairs")
    system = {"role": "system", "content": "Be short."}
    sides = [{"messages": [system, *talk["messages"]]} for talk in (TALK, SEVEN)]
    assert list(file.rows) == [dict(zip(("chosen", "rejected"), sides, strict=True))]
    assert aside(file) == []


@pytest.mark.parametrize("row", [TALK, SHARE_GPT, ALPACA])
@pytest.mark.parametrize(
    "history", [[["Hi.", "Hello."]], chat(("user", "Hi."), ("assistant", "Hello."))["messages"]], ids=["pairs", "turns"]
)
def test_system_history_and_tools_precede_the_conversation(row: dict[str, Any], history: Any, tmp_path: Path):
    more = {"system": "Be short.", "history": history, "tools": json.dumps(TOOLS)}
    file = read_file(tmp_path, row | more)
    turns = chat(("system", "Be short."), ("user", "Hi."), ("assistant", "Hello."))["messages"]
    assert list(file.rows) == [{"messages": [*turns, *TALK["messages"]], "tools": TOOLS}]
    assert (aside(file), file.variables) == ([], {"tools": 0})


@pytest.mark.parametrize("empty", ["", "[]", [], None])
def test_empty_columns_change_nothing(empty: Any, tmp_path: Path):
    columns = dict.fromkeys(("history", "tools"), empty)
    if empty != "[]":
        columns |= dict.fromkeys(("system", "images", "chat_template_kwargs"), empty)
    assert list(read_file(tmp_path, PAIR | columns).rows) == [PAIR]
    assert list(read_file(tmp_path, SHARE_GPT | columns).rows) == [TALK]


def test_one_history_makes_all_instructions_conversations(tmp_path: Path):
    """In either order of the rows: a prompt is written in one way."""
    earlier = ALPACA | {"history": [["Hi.", "Hello."]]}
    for rows in ([ALPACA, earlier], [earlier, ALPACA]):
        file = read_file(tmp_path, *rows)
        assert sorted(len(row["messages"]) for row in file.rows) == [2, 4]
    assert list(read_file(tmp_path, ALPACA).rows) == [PAIR]


@pytest.mark.parametrize(
    ("name", "value", "next_"),
    [
        ("label", True, "chosen and rejected"),
        ("weight", 0.5, "counts alike"),
        ("rejected", "Seven.", "objective.kind=dpo"),
        ("system", "Be short.", "messages"),
        ("tools", TOOLS, "messages"),
        ("images", ["a.png"], "Only text"),
        ("loss_mask", [0, 1], "data.supervise"),
        ("functions", TOOLS, "Write it as tools"),
        ("labels", [1, 2], "tokenized"),
        ("context", "Birds fly.", "prompt"),
    ],
)
def test_column_that_changes_the_training_is_refused(name: str, value: Any, next_: str, tmp_path: Path):
    [found] = refusal(tmp_path, PAIR, PAIR | {name: value})
    assert (found.code, found.line, found.pointer) == ("TP181", 2, f"/{name}")
    assert name in found.what
    assert next_ in found.next


@pytest.mark.parametrize("more", [{"weight": 1.0}, {"weight": 1}, {"label": "bird"}, {"loss": True}, {"question": "?"}])
def test_column_without_effect_is_ignored(more: dict[str, Any], tmp_path: Path):
    file = read_file(tmp_path, PAIR | more)
    assert aside(file) == [f"Ignored columns: {next(iter(more))}."]


@pytest.mark.parametrize("name", ["messages", "conversations"])
@pytest.mark.parametrize(
    ("flags", "refused"),
    [
        (({}, {"weight": 0}, {}, {"weight": 1}), "/1/weight"),
        (({"train": False}, {}, {}, {"train": True}), None),
        (({"train": True}, {}, {}, {}), "/0/train"),
        (({}, {}, {}, {"train": False}), "/3/train"),
        (({}, {"tool_calls": [{"name": "x"}]}, {}, {}), "/1/tool_calls"),
        (({}, {"tool_calls": None}, {"name": "Ada", "id": 3}, {}), None),
    ],
)
def test_flags_of_turns(name: str, flags: tuple[dict[str, Any], ...], refused: str | None, tmp_path: Path):
    talk = chat(("user", "Hi."), ("assistant", "Hello."), ("user", "Name a bird."), ("assistant", "A robin."))
    row = {name: [turn | more for turn, more in zip(talk["messages"], flags, strict=True)]}
    if refused is None:
        file = read_file(tmp_path, row)
        assert list(file.rows) == [talk]
        assert all(f"{name}[]." in what for what in aside(file))
    else:
        [found] = refusal(tmp_path, row)
        assert (found.code, found.pointer) == ("TP181", f"/{name}{refused}")


@pytest.mark.parametrize(
    ("row", "pointer"),
    [
        (TALK | {"tools": "weather"}, "/tools"),
        (TALK | {"history": ["Hi."]}, "/history"),
        (TALK | {"system": 3}, "/system"),
        ({"messages": ["Hi."], "system": "Be short."}, "/messages/1"),
        (chat(("system", "Be long."), ("user", "Hi."), ("assistant", "Hello.")) | {"system": "Be short."}, "/system"),
    ],
)
def test_invalid_columns_of_a_conversation_are_refused(row: dict[str, Any], pointer: str, tmp_path: Path):
    assert [problem.pointer for problem in refusal(tmp_path, row)] == [pointer]


@pytest.mark.parametrize(
    ("name", "value"), [("system", 5), ("history", "abc"), ("tools", [1]), ("chat_template_kwargs", 5)]
)
def test_invalid_columns_of_a_pair_are_refused(name: str, value: object, tmp_path: Path):
    pair = {side: chat(("user", "Hi."), ("assistant", side))["messages"] for side in ("chosen", "rejected")}
    assert [problem.pointer for problem in refusal(tmp_path, pair | {name: value}, kind="pairs")] == [f"/{name}"]


def test_unknown_columns_of_items_are_ignored(tmp_path: Path):
    item = {"id": "a", "prompt": "2 + 2?", "expected": "4"}
    file = read_eval_set(row_file(tmp_path / "items.jsonl", item, item | {"id": "b", "note": "x"}))
    assert list(file.rows) == [item, item | {"id": "b"}]
    assert aside(file) == ["Ignored columns: note."]
    (tmp_path / "items.json").write_text(json.dumps([item]))
    assert list(read_eval_set(str(tmp_path / "items.json")).rows) == [item]


@pytest.mark.parametrize("name", ["tools", "chat_template_kwargs"])
def test_template_must_use_tools_and_variables(config: Config, name: str, tmp_path: Path):
    value, variable = (TOOLS, "tools") if name == "tools" else ({"style": "dry"}, "style")
    rows = row_file(tmp_path / "rows.jsonl", TALK, TALK | {name: value})
    writes = "{% if " + variable + " %}{{ " + variable + " | tojson }}{% endif %}" + PLAIN_TEMPLATE
    for template, is_written in ((PLAIN_TEMPLATE, False), (writes, True)):
        folder = chat_model_folder(tmp_path / f"model-{is_written}", template)
        model = {"name": str(folder), "weights": "random"}
        run = changed(config, model=model, data={"dataset": rows, "max_length": 256})
        if is_written:
            inputs_of(run)
            continue
        [found] = catch_problems(inputs_of, run)
        assert (found.code, found.line) == ("TP181", 2)
        assert found.what == f"The row gives {variable} to the chat template of the model, which does not use it."


# Preference pairs in the layouts of TRL

USER = {"role": "user", "content": "Sky?"}
BLUE, RED = ({"role": "assistant", "content": text} for text in ("Blue.", "Red."))
TALKS = [
    {"prompt": [USER], "chosen": [BLUE], "rejected": [RED]},
    {"chosen": [USER, BLUE], "rejected": [USER, RED]},
    {"prompt": "Sky?", "chosen": [USER, BLUE], "rejected": [USER, RED], "score_chosen": 7},
    {"prompt": "Sky?", "chosen": [BLUE], "rejected": [RED]},
]


@pytest.mark.parametrize("row", TALKS)
def test_pairs_of_turns(row: dict[str, Any], tmp_path: Path):
    file = read_file(tmp_path, row, kind="pairs")
    assert list(file.rows) == [{"chosen": {"messages": [USER, BLUE]}, "rejected": {"messages": [USER, RED]}}]
    assert infer_form(file.rows).conversation
    assert row_prompt(file.rows[0]) == row_texts(file.rows[0])[0][0] == "Sky?"


def test_pairs_of_texts(tmp_path: Path):
    with_prompt = {"prompt": "Sky?", "chosen": "Blue.", "rejected": "Red.", "source": "x"}
    file = read_file(tmp_path, with_prompt, {"chosen": "The sky is blue", "rejected": "The sky is black"}, kind="pairs")
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
    [found] = refusal(tmp_path, whole, row, whole, kind="pairs")
    assert (found.code, found.pointer, found.line) == (code, pointer, 2)

"""Row files of every format; columns that are used, ignored or refused; preference pairs."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow
import pytest
import yaml
from configs import changed
from model_folders import PLAIN_TEMPLATE, chat, chat_model_folder, row_file
from pyarrow import parquet
from refusals import catch_problems, refusal_text
from tasks import inputs_of

from evidence.scores.overlap import row_texts
from trainer.config.tree import Config
from trainer.data.conversations import infer_form, row_prompt
from trainer.data.encode import encode_rows
from trainer.data.rows import RowFile, RowKind, common_text, read_dataset, read_eval_set
from trainer.first_config import read_shape
from trainer.model.source import resolve

STATED = yaml.safe_load(Path("tests/cases/rows/columns.yaml").read_text(encoding="utf-8"))
PAIR, TALK, SHARE_GPT, ALPACA = (STATED[name] for name in ("pair", "talk", "share_gpt", "alpaca"))
TOOLS = [{"type": "function", "function": {"name": "weather"}}]


def write_jsonl(path: Path, rows: list[dict]) -> Path:
    return Path(row_file(path.with_suffix(".jsonl"), *rows))


def write_parquet(path: Path, rows: list[dict]) -> Path:
    path = path.with_suffix(".parquet")
    parquet.write_table(pyarrow.Table.from_pylist(rows), path, row_group_size=2)
    return path


def write_folder(path: Path, rows: list[dict]) -> Path:
    """Write what `Dataset.save_to_disk` writes: two files in the stream format, and their names."""
    path.mkdir()
    table = pyarrow.Table.from_pylist(rows)
    half = (len(rows) + 1) // 2
    names = [f"data-{number:05}-of-00002.arrow" for number in range(2)]
    for name, part in zip(names, (table.slice(0, half), table.slice(half)), strict=True):
        with pyarrow.OSFile(str(path / name), "wb") as sink, pyarrow.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(part)
    (path / "state.json").write_text(json.dumps({"_data_files": [{"filename": name} for name in names]}))
    (path / "dataset_info.json").write_text("{}")
    return path


WRITERS = (write_jsonl, write_parquet, write_folder)
Write = Callable[[Path, list[dict]], Path]


def refusal(path: Path, kind: RowKind = "rows") -> str:
    return refusal_text(read_dataset, str(path), kind)


def read_rows(folder: Path, *rows: dict[str, Any], kind: RowKind = "rows") -> RowFile:
    return read_dataset(row_file(folder / "rows.jsonl", *rows), kind)


def aside(file: RowFile) -> list[str]:
    return [problem.what for problem in file.warnings if problem.code == "TP182"]


@pytest.mark.parametrize("write", WRITERS)
def test_rows_are_read_alike_from_every_format(write: Write, tmp_path: Path):
    file = read_dataset(str(write(tmp_path / "rows", [{"id": "7", **SHARE_GPT}] * 5)))
    assert list(file.rows) == [TALK] * 5
    assert list(file.lines) == [1, 2, 3, 4, 5]
    assert [file.rows[4], file.rows[0], *file.rows[1:3]] == [TALK] * 4


@pytest.mark.parametrize("write", WRITERS)
def test_unknown_columns_are_refused(write: Write, tmp_path: Path):
    path = write(tmp_path / "rows", [{"question": "2 + 2?", "answer": "4"}])
    file = path / "data-00000-of-00002.arrow" if path.is_dir() else path
    [problem] = catch_problems(read_dataset, str(path))
    assert (problem.code, problem.file, problem.line) == ("TP018", str(file), 1)
    assert problem.what.startswith("The row has the columns question and answer, which")


def test_each_token_of_a_text_is_supervised_once(tmp_path: Path):
    tokenizer = resolve("tiny-gpt2").tokenizer()
    text = "The sun rises in the east and sets in the west. " * 9
    ids = [*tokenizer.encode(text, add_special_tokens=True), tokenizer.eos_token_id]
    data = encode_rows(
        [{"text": text}, {"text": " "}, {"text": "Short."}], tokenizer, max_length=32, file="texts.jsonl"
    )
    parts = [row for row in data.encoded if row.row == 0]
    assert len(parts) > 3
    learned = [token for row in parts for token in row.learned]
    assert learned == ids[1:]
    assert [row.token_ids[0] for row in parts[1:]] == [row.token_ids[-1] for row in parts[:-1]]
    assert {row.row for row in data.encoded} == {0, 2}
    assert (data.counts["rows"], data.counts["end_token_supervised"], data.counts["truncated_rows"]) == (3, True, 0)


@pytest.mark.parametrize("write", [write_parquet, write_folder])
def test_damaged_file_is_refused(write: Write, tmp_path: Path):
    path = write(tmp_path / "rows", [PAIR])
    file = min(path.glob("*.arrow")) if path.is_dir() else path
    file.write_bytes(file.read_bytes()[:20])
    assert refusal(path).startswith(f"error TP016: {file}: It cannot be read: ")


def test_text_is_one_row_of_utf_8(tmp_path: Path):
    path = tmp_path / "book.txt"
    path.write_text("One.\n\nTwo.\n")
    assert list(read_dataset(str(path), "text").rows) == [{"text": "One.\n\nTwo.\n"}]
    path.write_bytes(b"\xff\xfe")
    assert "TP016" in refusal(path, "text")


def write_array(path: Path, rows: list[dict]) -> Path:
    path = path.with_suffix(".json")
    path.write_text(json.dumps(rows, indent=2))
    return path


@pytest.mark.parametrize("mark", ["", "\ufeff"])
@pytest.mark.parametrize(
    ("text", "taken"),
    [
        (json.dumps([PAIR, PAIR]), [PAIR, PAIR]),
        (json.dumps({"data": [PAIR, PAIR]}), [PAIR, PAIR]),
        (json.dumps({"version": "1", "rows": [PAIR, PAIR]}, indent=1), [PAIR, PAIR]),
        (json.dumps(PAIR) + "\n" + json.dumps(PAIR), [PAIR, PAIR]),
        (json.dumps(TALK, indent=1), [TALK]),
    ],
)
def test_json_document_is_read(text: str, taken: list[dict], mark: str, tmp_path: Path):
    path = tmp_path / "rows.json"
    path.write_text(mark + text, encoding="utf-8")
    assert list(read_dataset(str(path)).rows) == list(read_shape(str(path)).table) == taken


def test_problems_of_a_json_array_have_lines(tmp_path: Path):
    path = write_array(tmp_path / "rows", [PAIR, PAIR | {"completion": ""}])
    assert f"{path} at /completion (line 6)" in refusal(path)
    path.write_text('[{"prompt": "a", "completion": "b"}, 3]')
    assert "The array contains 3, not an object." in refusal(path)
    path.write_text('[\n{"prompt": "a",\n')
    assert f"error TP107: {path} (line 3): This is not JSON" in refusal(path)


@pytest.mark.parametrize("name", ["rows.jsonl", "rows.json"])
def test_json_rules_hold_in_every_format(name: str, tmp_path: Path):
    path, text = tmp_path / name, json.dumps(ALPACA)

    def write(*lines: str) -> Path:
        path.write_text("\n".join(lines) if name == "rows.jsonl" else f"[{','.join(lines)}]", encoding="utf-8")
        return path

    assert list(read_dataset(str(write(text[:-1] + ', "score": NaN}'))).rows) == [PAIR]
    assert "TP109" in refusal(write(text, text[:-1] + ', "score": 1, "score": 2}'))
    path.write_bytes(text.encode("utf-16"))
    assert "TP104" in refusal(path)


@pytest.mark.parametrize("write", [write_jsonl, write_array, write_parquet, write_folder])
def test_nan_is_never_text(write: Write, tmp_path: Path):
    nan = float("nan")
    file = read_dataset(str(write(tmp_path / "rows", [ALPACA | {"input": nan}] * 2)))
    assert list(file.rows) == [PAIR] * 2
    said = refusal(write(tmp_path / "other", [{"prompt": "a", "completion": nan}]))
    assert "The row has the columns prompt, which data.kind rows does not recognise. Empty: completion" in said


def test_arrow_extension_types(tmp_path: Path):
    turns = pyarrow.array([json.dumps(TALK["messages"])] * 2)
    number = pyarrow.ExtensionArray.from_storage(pyarrow.uuid(), pyarrow.array([b"0" * 16] * 2, pyarrow.binary(16)))
    table = {"messages": pyarrow.ExtensionArray.from_storage(pyarrow.json_(), turns), "id": number}
    path = tmp_path / "rows.parquet"
    parquet.write_table(pyarrow.table(table), path)
    assert list(read_dataset(str(path)).rows) == [TALK, TALK]
    parquet.write_table(pyarrow.table({"prompt": table["id"], "completion": ["a", "b"]}), path)
    assert "(line 1): A value of the Python type UUID is not a JSON value" in refusal(path)


def test_duplicate_column_is_refused(tmp_path: Path):
    path = tmp_path / "rows.arrow"
    table = pyarrow.table([["a"], ["b"], ["c"]], names=["prompt", "completion", "completion"])
    for new_file in (pyarrow.ipc.new_stream, pyarrow.ipc.new_file):
        with pyarrow.OSFile(str(path), "wb") as sink, new_file(sink, table.schema) as writer:
            writer.write_table(table)
        assert "several columns named completion" in refusal(path)


def hub(folder: Path, names: list[str]) -> None:
    for number, name in enumerate(names):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        write = write_parquet if name.endswith(".parquet") else write_jsonl
        write(folder / name, [{"prompt": f"{number}?", "completion": Path(name).name}])


@pytest.mark.parametrize(
    ("names", "read", "aside"),
    [
        (["data/train-00000-of-00002.parquet", "data/train-00001-of-00002.parquet"], [0, 1], ""),
        (["data/test-0-of-1.parquet", "data/train-0-of-1.parquet"], [1], "data/test-0-of-1.parquet"),
        (["train/0.jsonl", "train/1.jsonl", "validation/0.jsonl"], [0, 1], "validation/0.jsonl"),
        (["train.jsonl", "test.jsonl", "extra.jsonl"], [0], "extra.jsonl and test.jsonl"),
        (["shard-10.jsonl", "shard-2.jsonl", "shard-1.jsonl"], [2, 1, 0], ""),
    ],
)
def test_files_of_a_folder_are_read_in_order(names: list[str], read: list[int], aside: str, tmp_path: Path):
    hub(tmp_path, names)
    (tmp_path / "dataset_infos.json").write_text("{}")
    file = read_dataset(str(tmp_path))
    assert [row["prompt"] for row in file.rows] == [f"{number}?" for number in read]
    assert [problem.what for problem in file.warnings] == ([f"Ignored files: {aside}."] if aside else [])


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (["test.jsonl"], "contains only held-out splits: test.jsonl."),
        (["README.jso"], "does not contain row files."),
        (["train-00000-of-00003.jsonl", "train-00001-of-00003.jsonl"], "has 2 of 3 files of train.jsonl."),
        (["train_sft.jsonl", "train_prefs.jsonl"], "contains the datasets train_prefs.jsonl and train_sft.jsonl."),
        (["main/train.jsonl", "socratic/train.jsonl"], "the datasets main/train.jsonl and socratic/train.jsonl."),
        (["a.jsonl", "a.parquet"], "contains the datasets *.jsonl and *.parquet."),
    ],
)
def test_folder_of_several_datasets_is_refused(names: list[str], said: str, tmp_path: Path):
    hub(tmp_path, [name for name in names if name != "README.jso"])
    assert said in refusal(tmp_path)


def test_saved_dataset_dict_gives_its_training_split(tmp_path: Path):
    for split in ("test", "train"):
        write_folder(tmp_path / split, [PAIR] if split == "train" else [PAIR | {"completion": "Seven."}])
    (tmp_path / "dataset_dict.json").write_text('{"splits": ["train", "test"]}')
    file = read_dataset(str(tmp_path))
    assert list(file.rows) == [PAIR]
    assert file.warnings[0].what == "Ignored files: test."


def test_problem_names_the_shard(tmp_path: Path):
    write_jsonl(tmp_path / "0", [PAIR, PAIR])
    write_jsonl(tmp_path / "1", [PAIR, PAIR | {"completion": ""}])
    assert f"{tmp_path / '1.jsonl'} at /completion (line 2)" in refusal(tmp_path)


@pytest.mark.parametrize("name", ["rows.jsonl", "rows.parquet", "rows.txt"])
@pytest.mark.parametrize(
    ("content", "what", "next_"),
    [
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:", "a Git LFS pointer", "`git lfs pull`"),
        (b"<!DOCTYPE html><html>", "a web page", "Download the file itself"),
        (b"\x1f\x8b\x08\x00", "compressed with gzip", "`gunzip`"),
    ],
)
def test_other_content_is_recognised(name: str, content: bytes, what: str, next_: str, tmp_path: Path):
    path = tmp_path / name
    path.write_bytes(content)
    if name == "rows.txt" and content.startswith(b"<"):
        assert len(read_dataset(str(path), "text").rows) == 1  # a page may be what is to be learned
        return
    assert f"{name} is {what}" in (said := refusal(path))
    assert next_ in said


def test_missing_pyarrow_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = write_parquet(tmp_path / "rows", [PAIR])
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    assert f"error TP015: {path}: Reading rows.parquet needs pyarrow, which is not installed." in refusal(path)


def test_blank_lines_are_skipped_or_refused_alone(tmp_path: Path):
    path, line = tmp_path / "rows.jsonl", json.dumps(PAIR) + "\n"
    path.write_text(line + "\n" + line + "\n")
    assert list(read_dataset(str(path)).lines) == [1, 3]
    path.write_text("\n\n")
    assert f"error TP011: {path}: {path.name} has no rows.\n" in refusal(path)


def test_duplicate_id_is_refused_with_both_lines(tmp_path: Path):
    path, item = tmp_path / "items.jsonl", '{"id": "a", "prompt": "x", "expected": "y"}\n'
    path.write_text("\n" + item + "\n" + item)
    [problem] = catch_problems(read_eval_set, str(path))
    assert (problem.code, problem.line, problem.pointer) == ("TP012", 4, "/id")
    assert problem.what == "The id 'a' is already used in line 2."


# Columns


@pytest.mark.parametrize(("kind", "row", "taken", "ignored"), STATED["becomes"])
def test_columns_decide_what_a_row_is(kind: RowKind, row: dict, taken: dict, ignored: str, tmp_path: Path):
    file = read_rows(tmp_path, row, kind=kind)
    assert list(file.rows) == [taken]
    assert aside(file) == ([f"Ignored columns: {ignored}."] if ignored else [])
    assert read_shape(str(file.path)).kind == kind
    assert infer_form(file.rows).conversation == ("messages" in taken.get("chosen", taken))
    if taken == STATED["of_talks"]:
        assert row_prompt(file.rows[0]) == row_texts(file.rows[0])[0][0] == "Name a bird."


@pytest.mark.parametrize("row", [TALK, SHARE_GPT, ALPACA])
@pytest.mark.parametrize(
    "history", [[["Hi.", "Hello."]], chat(("user", "Hi."), ("assistant", "Hello."))["messages"]], ids=["pairs", "turns"]
)
def test_system_history_and_tools_precede_the_conversation(row: dict[str, Any], history: Any, tmp_path: Path):
    more = {"system": "Be brief.", "history": history, "tools": json.dumps(TOOLS)}
    file = read_rows(tmp_path, row | more)
    turns = chat(("system", "Be brief."), ("user", "Hi."), ("assistant", "Hello."))["messages"]
    assert list(file.rows) == [{"messages": [*turns, *TALK["messages"]], "tools": TOOLS}]
    assert (aside(file), file.variables) == ([], {"tools": 0})


@pytest.mark.parametrize("empty", ["", "[]", [], None])
def test_empty_columns_change_nothing(empty: Any, tmp_path: Path):
    columns = dict.fromkeys(("history", "tools"), empty)
    if empty != "[]":
        columns |= dict.fromkeys(("system", "images", "chat_template_kwargs"), empty)
    assert list(read_rows(tmp_path, PAIR | columns).rows) == [PAIR]
    assert list(read_rows(tmp_path, SHARE_GPT | columns).rows) == [TALK]


def test_one_history_makes_all_instructions_conversations(tmp_path: Path):
    """In either order of the rows: a prompt is written in one way."""
    earlier = ALPACA | {"history": [["Hi.", "Hello."]]}
    for rows in ([ALPACA, earlier], [earlier, ALPACA]):
        file = read_rows(tmp_path, *rows)
        assert sorted(len(row["messages"]) for row in file.rows) == [2, 4]
    assert list(read_rows(tmp_path, ALPACA).rows) == [PAIR]


@pytest.mark.parametrize(("name", "value", "next_"), STATED["refused_columns"])
def test_column_that_changes_the_training_is_refused(name: str, value: Any, next_: str, tmp_path: Path):
    [found] = catch_problems(read_rows, tmp_path, PAIR, PAIR | {name: value})
    assert (found.code, found.line, found.pointer) == ("TP181", 2, f"/{name}")
    assert name in found.what
    assert next_ in found.next


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
        file = read_rows(tmp_path, row)
        assert list(file.rows) == [talk]
        assert all(f"{name}[]." in what for what in aside(file))
    else:
        [found] = catch_problems(read_rows, tmp_path, row)
        assert (found.code, found.pointer) == ("TP181", f"/{name}{refused}")


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


# Preference pairs


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


@pytest.mark.parametrize(("kind", "row", "code", "pointer"), STATED["refused"])
def test_a_row_that_cannot_be_used_is_refused_with_its_line(kind: RowKind, row, code, pointer, tmp_path: Path):
    whole = {"rows": PAIR, "text": {"text": "Once."}, "pairs": STATED["whole"]}[kind]
    [found] = catch_problems(read_rows, tmp_path, whole, row, whole, kind=kind)
    assert (found.code, found.pointer, found.line) == (code, pointer, 2)

"""Row files of every format, and their refusals."""

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow
import pytest
from model_folders import chat, row_file
from pyarrow import parquet
from refusals import catch_problems, refusal_text

from trainer.data.encode import encode_rows
from trainer.data.rows import read_dataset, read_eval_set
from trainer.first_config import read_shape
from trainer.model.source import resolve

SHARE_GPT = {
    "id": "7",
    "conversations": [
        {"from": role, "value": text} for role, text in (("system", "Be brief."), ("human", "Say hi."), ("gpt", "Hi."))
    ],
}
ALPACA = {"instruction": "Add the numbers.", "input": "2 and 3", "output": "5", "text": "all of it"}
TALK = chat(("system", "Be brief."), ("user", "Say hi."), ("assistant", "Hi."))
SUM = {"prompt": "Add the numbers.\n\n2 and 3", "completion": "5"}
PAIR = {"prompt": "Say hi.", "completion": "Hi."}


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


def refusal(path: Path, kind: str = "rows") -> str:
    return refusal_text(read_dataset, str(path), kind)


@pytest.mark.parametrize("write", WRITERS)
@pytest.mark.parametrize(("row", "taken"), [(SHARE_GPT, TALK), (ALPACA, SUM), ({"id": 7, **PAIR}, PAIR), (TALK, TALK)])
def test_column_names_decide_the_format(write: Write, row: dict, taken: dict, tmp_path: Path):
    file = read_dataset(str(write(tmp_path / "rows", [row] * 5)))
    assert list(file.rows) == [taken] * 5
    assert list(file.lines) == [1, 2, 3, 4, 5]
    assert [file.rows[4], file.rows[0], *file.rows[1:3]] == [taken] * 4


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

    assert list(read_dataset(str(write(text[:-1] + ', "score": NaN}'))).rows) == [SUM]
    assert "TP109" in refusal(write(text, text[:-1] + ', "score": 1, "score": 2}'))
    path.write_bytes(text.encode("utf-16"))
    assert "TP104" in refusal(path)


@pytest.mark.parametrize("write", [write_jsonl, write_array, write_parquet, write_folder])
def test_nan_is_never_text(write: Write, tmp_path: Path):
    nan = float("nan")
    file = read_dataset(str(write(tmp_path / "rows", [ALPACA | {"input": nan}] * 2)))
    assert list(file.rows) == [{"prompt": "Add the numbers.", "completion": "5"}] * 2
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
        write_folder(tmp_path / split, [PAIR] if split == "train" else [SUM])
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


@pytest.mark.parametrize(
    ("rows", "kind", "what"),
    [
        ([{"text": "Once."}], "rows", "To learn plain text: --set data.kind=text."),
        ([PAIR], "text", "The row has the columns prompt and completion"),
        ([{"conversations": [{"from": "human", "value": "?"}, {"from": "tool", "value": "add"}]}], "rows", '"tool"'),
        ([SHARE_GPT | {"conversations": SHARE_GPT["conversations"][:2]}] * 9, "rows", "There are 4 more like it."),
    ],
)
def test_unusable_rows_are_refused(rows: list[dict], kind: str, what: str, tmp_path: Path):
    assert what in refusal(write_jsonl(tmp_path / "rows", rows), kind)


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

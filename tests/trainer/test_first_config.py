"""`trainproof init MODEL ROWS`: the values of a first configuration, their comments, and all problems at once."""

import hashlib
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import yaml
from first_hour import folder_with_weights, rows_in, sums, write_rows
from model_folders import chat, llama_folder
from refusals import catch_problems

from evidence.targets import load_target
from schemas.render import render_text
from trainer.config.load import load_config
from trainer.config.tree import Config, EvaluationConfig, ModelConfig
from trainer.first_config import (
    EvalChoice,
    ModelAndData,
    Order,
    RowsShape,
    WrittenConfig,
    choose,
    choose_length,
    find_answer,
    measure,
    read_shape,
    run_name,
    split_rows,
    training_lines,
    write_first_config,
)
from trainer.model.model import build_model
from trainer.model.source import known_source
from trainer.runtime import CUDA_BYTES

ANSWERS = yaml.safe_load(Path("tests/cases/rows/answers_of_rows.yaml").read_text("utf-8"))


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> str:
    return str(folder_with_weights(tmp_path_factory.mktemp("models") / "model"))


def made(model: str, data: Path, output: Path, *, force: bool = False, **fields) -> WrittenConfig:
    given = {"eval_set": None, "on": None} | fields
    return write_first_config(Order(model=model, data=str(data), output=output, force=force, **given))


def refusal(*arguments, **fields) -> str:
    return render_text(catch_problems(lambda: made(*arguments, **fields)))


@pytest.fixture(scope="module")
def first(model: str, tmp_path_factory) -> WrittenConfig:
    folder = tmp_path_factory.mktemp("first")
    return made(model, write_rows(folder / "rows.jsonl", sums(200)), folder / "config.yaml")


def test_what_is_written_is_the_choice_and_says_why(first: WrittenConfig):
    folder = first.order.output.parent
    assert load_config(folder / "config.yaml") == first.choice.config
    assert (len(rows_in(folder / "train.jsonl")), len(rows_in(folder / "eval.jsonl"))) == (180, 20)
    assert rows_in(folder / "rows.jsonl") == sums(200)
    lines = (folder / "config.yaml").read_text().splitlines()
    keys = [place for place, line in enumerate(lines) if ":" in line and line.lstrip()[0] != "#" and line[-1] != ":"]
    assert len(keys) == len(first.reasons)
    assert all("  # " in lines[place] or lines[place - 1].lstrip().startswith("#") for place in keys)


def test_the_values_follow_from_the_rows(first: WrittenConfig):
    """180 rows of 27 to 29 tokens are padded to 32; 180 // 25 = 7 sequences a step at most, so 4; 3 passes are 135."""
    machine = replace(load_target("rtx-4090"), platform="cpu")
    config = choose(first.looked, machine, first.choice.config).config
    assert first.looked.widths.max() in range(25, 33)
    assert (config.data.max_length, config.data.packing, config.method.kind) == (32, False, "full")
    assert (config.batch.microbatch_size, config.batch.accumulation_steps, config.limits.steps) == (4, 1, 135)
    assert (config.evaluation.max_new_tokens, config.optimizer.warmup_steps) == (8, 6)
    for count, expected in ((999, (224, False)), (9_999, (256, True))):  # many short rows share sequences
        assert choose_length(replace_widths(first, [20] * count + [200])) == expected


def replace_widths(first: WrittenConfig, widths: list[int]) -> ModelAndData:
    encoded = replace(first.looked.data.encoded, lengths=np.array(widths), widths=np.array(widths))
    return replace(first.looked, data=replace(first.looked.data, encoded=encoded))


GEMMA = Config(model=ModelConfig(name="google/gemma-2b")).changed(data={"dataset": "train.jsonl"})


def gemma(looked: ModelAndData) -> ModelAndData:
    known = known_source("google/gemma-2b")
    assert known is not None
    source = replace(known, spec=replace(known.spec, blocks=known.spec.blocks[:6]))  # all 18 take long to describe
    return replace(looked, model=build_model(Config(model=ModelConfig(name="google/gemma-2b")), source))


@pytest.mark.parametrize(
    ("machine", "precision"), [("kaggle-t4x2", "float16"), ("kaggle-tpu-v5e-8", "bfloat16"), ("rtx-4090", "bfloat16")]
)
def test_a_large_model_gets_adapters_in_what_the_machine_has(first: WrittenConfig, machine: str, precision: str):
    config = GEMMA.changed(evaluation={"eval_set": "eval.jsonl"})
    choice = choose(gemma(first.looked), load_target(machine), config)
    assert choice.fits
    assert (choice.config.method.kind, choice.config.memory.remat) == ("lora", "layer")
    assert (choice.config.precision.params, choice.config.precision.compute) == (precision, precision)


def test_what_does_not_fit_is_made_smaller(first: WrittenConfig):
    # Long rows: of short ones the export decides, which needs the plain model whatever it is trained beside.
    machine, looked = load_target("kaggle-t4x2"), gemma(replace_widths(first, [2_000] * 200))
    whole = choose(looked, machine, GEMMA)
    assert whole.config.method.base == "plain"
    bits = whole.config.changed(method={"base": "nf4"}, batch={"microbatch_size": 1, "accumulation_steps": 1})
    need = measure(bits, looked, machine).need.peak_bytes
    choice = choose(looked, replace(machine, memory_bytes=CUDA_BYTES + int(1.35 * need)), GEMMA)
    assert choice.fits
    assert choice.config.method.base == "nf4"
    none = choose(looked, replace(machine, memory_bytes=CUDA_BYTES + need // 2), GEMMA)
    assert not none.fits
    assert none.config.batch.microbatch_size == 1


def test_what_may_not_fit_is_written_with_a_warning(model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    small = replace(load_target("kaggle-t4x2"), memory_bytes=CUDA_BYTES + 2**20)
    monkeypatch.setattr("trainer.first_config.load_target", lambda name: small)
    data = write_rows(tmp_path / "rows.jsonl", sums(60))
    [told] = [each for each in made(model, data, tmp_path / "c.yaml", on="small").warnings if each.code == "TP037"]
    assert told.what.startswith("One sequence of 32 tokens at a time needs about ")


def test_a_cpu_recomputes_where_nothing_else_fits(first: WrittenConfig):
    config = GEMMA.changed(memory={"layers": "scanned"})
    machine, looked = replace(load_target("rtx-4090"), platform="cpu"), gemma(replace_widths(first, [2_000] * 200))
    plenty = choose(looked, replace(machine, memory_bytes=2**40), config).config
    assert plenty.memory.remat == "none"
    one = plenty.changed(batch={"microbatch_size": 1, "accumulation_steps": 1}, memory={"remat": "layer"})
    least = measure(one, looked, machine).need.peak_bytes
    choice = choose(looked, replace(machine, memory_bytes=int(1.31 * least)), config)
    assert (choice.fits, choice.config.memory.remat) == (True, "layer")


def test_an_evaluation_that_decides_the_memory_is_counted(first: WrittenConfig):
    config = first.choice.config
    alone = replace(config, evaluation=EvaluationConfig())
    asked = config.changed(evaluation={"max_new_tokens": 400, "batch_size": 4096})
    need = [measure(each, first.looked, load_target("rtx-4090")).need for each in (alone, asked)]
    assert need[0].name == "train"
    assert need[1].peak_bytes > need[0].peak_bytes


def test_rows_of_another_file_become_its_items(model: str, tmp_path: Path):
    rows, others = sums(120)[:100], sums(120)[100:]
    data, held = write_rows(tmp_path / "rows.jsonl", rows), write_rows(tmp_path / "test.jsonl", others)
    found = made(model, data, tmp_path / "new" / "config.yaml", eval_set=str(held))
    assert [path.name for path in found.written] == ["eval.jsonl", "config.yaml"]
    first = {"id": "line-1", "prompt": others[0]["prompt"], "expected": others[0]["completion"]}
    assert rows_in(tmp_path / "new" / "eval.jsonl")[0] == first
    assert found.choice.config.data.dataset == str(data)
    assert found.document()["evaluation"] == {"items": 20, "because": f"the rows of {held} as items"}


def test_preferences_and_text_are_told_from_their_columns(model: str, tmp_path: Path):
    pairs = [{"prompt": f"{number}?", "chosen": "yes", "rejected": "no"} for number in range(40)]
    config = made(model, write_rows(tmp_path / "pairs.jsonl", pairs), tmp_path / "pairs.yaml").choice.config
    assert (config.objective.kind, config.batch.microbatch_size % 2, config.evaluation.eval_set) == ("dpo", 0, None)
    text = write_rows(tmp_path / "text.jsonl", [{"text": "It rains. " * 30}] * 40)
    config = made(model, text, tmp_path / "text.yaml").choice.config
    assert (config.data.kind, config.data.max_length, config.data.packing) == ("text", 512, True)
    assert load_config(tmp_path / "text.yaml") == config


def test_everything_that_is_wrong_is_named_at_once(tmp_path: Path):
    (tmp_path / "bare").mkdir()
    llama = llama_folder(tmp_path / "bare", layers=1, embed=64, mlp=64, vocab=64)
    (tmp_path / "config.yaml").write_text("name: mine\n")
    empty = write_rows(tmp_path / "rows.jsonl", [])
    tokenizer = f"The tokenizer of {llama} is missing:"
    said = refusal(llama, empty, tmp_path / "config.yaml", eval_set="eval_v9", on="kaggle-t4")
    assert [line for line in said.splitlines() if line.startswith("error")] == [
        "error TP750: --on: There is no target 'kaggle-t4'.",
        f"error TP043: {llama}/model.safetensors: model.safetensors does not exist in its folder.",
        f"error TP011: {empty}: {empty.name} has no rows.",
        "error TP010: eval_v9: There is no evaluation set 'eval_v9': it is not built in, and no such file exists.",
        f"error TP046: {llama}: {tokenizer} none of tokenizer.json, tokenizer.model, vocab.json exists.",
        f"error TP035: {tmp_path}/config.yaml: {tmp_path}/config.yaml already exists.",
    ]
    assert (tmp_path / "config.yaml").read_text() == "name: mine\n"


def test_existing_files_are_replaced_only_with_force_and_inputs_never(model: str, tmp_path: Path):
    data, config = write_rows(tmp_path / "train.jsonl", sums(60)), tmp_path / "config.yaml"
    config.write_text("mine")
    assert [line for line in refusal(model, data, config).splitlines() if line.startswith("error")] == [
        f"error TP035: {data}: {data} is an input; it is not replaced.",
        f"error TP035: {config}: {config} already exists.",
    ]
    assert "TP035: " + str(data) in refusal(model, data, config, force=True)
    assert config.read_text() == "mine"
    moved = data.rename(tmp_path / "rows.jsonl")
    made(model, moved, config, force=True)
    assert load_config(config).data.dataset == str(data)


def test_an_evaluation_of_training_rows_or_without_answers_is_reported(model: str, tmp_path: Path):
    rows, tale = sums(60), {"prompt": "Tell.", "completion": "Once upon a time. " * 5}
    data, held = write_rows(tmp_path / "rows.jsonl", rows), write_rows(tmp_path / "held.jsonl", rows[:12])
    said = refusal(model, data, tmp_path / "config.yaml", eval_set=str(held))
    assert said.startswith(f"error TP034: {held}: The training rows contain all of its 12 items.")
    write_rows(held, [tale, rows[0]])
    said = refusal(model, data, tmp_path / "config.yaml", eval_set=str(held))
    assert said.startswith(f"error TP036: {held}: 1 of 2 rows lack an answer to compare outputs with.")
    write_rows(held, [*rows[:2], *sums(70)[60:]])
    [warning] = made(model, data, tmp_path / "config.yaml", eval_set=str(held)).warnings
    what = "Training rows contain 2 of the 12 evaluation items (2 rows): line-1, line-2."
    assert (warning.code, warning.file, warning.what) == ("TP408", str(held), what)


def test_rows_longer_than_the_model_are_reported(model: str, tmp_path: Path):
    long = {"prompt": "Tell.", "completion": "Once upon a time. " * 60}
    data = write_rows(tmp_path / "rows.jsonl", [*sums(3), long])
    [told] = [each for each in made(model, data, tmp_path / "config.yaml").warnings if each.code == "TP455"]
    assert told.what.startswith("data.max_length is 512, but 1 of 4 examples lose their answer or its end at that ")
    assert told.next.endswith("tokens, the model 512 positions.")
    most = write_rows(tmp_path / "most.jsonl", [*sums(1), long, long])
    assert refusal(model, most, tmp_path / "config.yaml", force=True).startswith(f"error TP026: {most}: ")


def test_a_run_is_named_after_its_model_and_rows():
    assert run_name("models/SmolLM2", "my rows.jsonl") == "SmolLM2-my-rows"
    assert run_name("SmolLM2-135M-Instruct.Q4_1.gguf", "rows") == "SmolLM2-135M-Instruct.Q4_1-rows"


def shape_of(path: Path) -> RowsShape:
    return read_shape(str(path))


@pytest.mark.parametrize(("row", "answer"), ANSWERS["answers"])
def test_the_answer_of_a_row(row, answer):
    assert find_answer(row) == (answer and tuple(answer))


def test_a_tenth_of_the_questions_is_held_out_by_their_hash(tmp_path: Path):
    rows = sums(200)
    rows[7] = {**rows[7], "prompt": rows[3]["prompt"].upper()}  # the question of another row, in other letters
    shape = shape_of(write_rows(tmp_path / "rows.jsonl", rows))
    split = split_rows(shape)
    assert split.because == "drawn from 199 questions by the hash of each"
    keys = {words_alone(row["prompt"]) for row in rows}
    expected = sorted(keys, key=lambda key: hashlib.sha256(key.encode()).hexdigest())[:19]
    assert {words_alone(item["prompt"]) for item in split.items} == set(expected)
    lines = {row["prompt"]: number for number, row in enumerate(rows, start=1)}
    assert [item["id"] for item in split.items] == [f"line-{lines[item['prompt']]}" for item in split.items]
    (tmp_path / "train.jsonl").write_text("".join(training_lines(shape, split)))
    left = rows_in(tmp_path / "train.jsonl")
    assert left == [row for row in rows if words_alone(row["prompt"]) not in expected]


def words_alone(text: str) -> str:
    return " ".join(re.findall("[a-z0-9]+", text.lower()))


def test_a_conversation_that_ends_with_a_question_held_back_is_held_back_too(tmp_path: Path):
    asked = [chat(("user", f"What is {number} + 1?"), ("assistant", str(number + 1))) for number in range(40)]
    longer = [
        chat(("user", "Hello."), ("assistant", "Hi."), *((turn["role"], turn["content"]) for turn in row["messages"]))
        for row in asked
    ]
    shape = shape_of(write_rows(tmp_path / "rows.jsonl", [*asked, *longer]))
    assert len(list(training_lines(shape, split_rows(shape)))) == 2 * (40 - 10)


TALES = [{"prompt": f"Tale {number}.", "completion": "a long tale " * 9} for number in range(40)]


@pytest.mark.parametrize(
    ("rows", "because"),
    [
        (sums(29), "the rows ask 29 different questions, too few for a split (at least 30)"),
        (TALES, "none of the 40 rows have an answer to compare with (tags, ####, or a short line)"),
        ([{"text": "x"}] * 40, "rows with text cannot be scored"),
    ],
)
def test_why_nothing_is_held_back(tmp_path: Path, rows, because):
    shape = shape_of(write_rows(tmp_path / "rows.jsonl", rows))
    assert split_rows(shape) == EvalChoice(name=None, because=because)


def test_rows_of_several_kinds_are_counted_with_their_lines(tmp_path: Path):
    rows = [*sums(2), chat(("user", "Hi."), ("assistant", "Yes?")), {"text": "So."}]
    path = write_rows(tmp_path / "rows.jsonl", rows)
    [problem] = catch_problems(read_shape, str(path))
    assert (problem.code, problem.file) == ("TP033", str(path))
    assert "2 rows with prompt and completion (first in line 1), 1 row with messages (first in line 3)" in problem.what


def test_tasks_of_reasoning_gym_are_no_rows():
    [problem] = catch_problems(read_shape, "reasoning-gym:leg_counting")
    assert problem.code == "TP010"

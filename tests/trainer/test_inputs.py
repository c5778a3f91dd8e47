"""What is refused before anything is spent, in whole messages."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from zipfile import ZipFile

import numpy as np
import pytest
from model_folders import case_folding_folder, model_folder, row_file
from safetensors.numpy import load_file, save_file
from tasks import inputs_of, plan_of
from tiny_models import random_model
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace

from evidence import layout
from evidence.bundle.build import build_bundle
from evidence.bundle.contents import REPORT
from evidence.grade import check_run
from evidence.run import read_run
from evidence.targets import load_target
from schemas.problems import ProblemError, rule
from schemas.render import as_text
from trainer.config.tree import (
    Config,
    DataConfig,
    EvaluationConfig,
    MemoryConfig,
    MethodConfig,
    ModelConfig,
    ObjectiveConfig,
)
from trainer.model.export import export
from trainer.model.source import resolve
from trainer.planning.subject import read_subject
from trainer.recorder.progress import Watch
from trainer.run import RunRequest, check, run
from trainproof.terminal.runs import run_text


def refusal(config: Config) -> str:
    with pytest.raises(ProblemError) as caught:
        inputs_of(config)
    assert caught.value.exit_code == 2
    return as_text(caught.value.problems)


def set_of(folder: Path, *prompts: str) -> str:
    path = folder / "items.jsonl"
    items = [{"id": str(number), "prompt": prompt, "expected": "4"} for number, prompt in enumerate(prompts)]
    path.write_text("".join(json.dumps(item) + "\n" for item in items))
    return str(path)


def word_model(folder: Path) -> Path:
    """Make a model whose tokenizer knows whole words only and begins no text, so that spaces have no token."""
    model = model_folder(folder / "model")
    words = Tokenizer(WordLevel({"<pad>": 0, "<eos>": 1, "<unk>": 2, "a": 3, "b": 4}, unk_token="<unk>"))
    words.pre_tokenizer = Whitespace()
    words.add_special_tokens(["<eos>", "<pad>"])
    words.save(str(model / "tokenizer.json"))
    return model


def test_an_output_that_leaves_no_prompt_room_is_refused_with_the_length_that_does(config: Config, tmp_path: Path):
    # A prompt is followed by a line end; "a" is one token, "a a a a" are more.
    items = set_of(tmp_path, "a", "a a a a")
    evaluation = EvaluationConfig(eval_set=items, max_new_tokens=1024)
    assert refusal(replace(config, evaluation=evaluation)) == (
        "error TP062: tiny-gpt2 at /evaluation/max_new_tokens: "
        "evaluation.max_new_tokens is 1024 and the shortest prompt "
        "of items.jsonl has 2 tokens; tiny-gpt2 has 512 positions.\n"
        "  Prompt and output share the model's context, so no item could be answered.\n"
        "  Next: Set evaluation.max_new_tokens to at most 510; up to 504 leave room for every prompt.\n"
    )
    assert inputs_of(replace(config, evaluation=replace(evaluation, max_new_tokens=510)))[1].items


def test_prompts_that_fill_every_position_are_refused(config: Config, tmp_path: Path):
    items = set_of(tmp_path, "a " * 600)
    assert refusal(replace(config, evaluation=EvaluationConfig(eval_set=items, max_new_tokens=4))) == (
        "error TP062: tiny-gpt2 at /evaluation/max_new_tokens: "
        "evaluation.max_new_tokens is 4 and the shortest prompt of "
        "items.jsonl has 1201 tokens; tiny-gpt2 has 512 positions.\n"
        "  Prompt and output share the model's context, so no item could be answered.\n"
        "  Next: Use an evaluation set with shorter prompts, or a model with more positions.\n"
    )


def test_a_row_that_a_batch_has_several_times_is_shown_once(config: Config, tmp_path: Path):
    rows = row_file(tmp_path / "rows.jsonl", *({"prompt": word, "completion": word} for word in "ab"))
    _, data = inputs_of(replace(config, data=replace(config.data, dataset=rows)))
    assert config.batch.microbatch_size == 4
    examples = data.first_examples(4, run_id="r")["examples"]
    assert sorted(each["row"] for each in examples) == [0, 1]


def test_prompts_without_a_token_are_refused_if_there_are_no_others(config: Config, tmp_path: Path):
    model = word_model(tmp_path)
    changed = replace(
        config,
        model=ModelConfig(name=str(model), weights="random"),
        data=replace(config.data, dataset=row_file(tmp_path / "rows.jsonl", {"prompt": "a", "completion": "b"})),
        evaluation=EvaluationConfig(eval_set=set_of(tmp_path, "  ", " "), max_new_tokens=4),
    )
    assert refusal(changed) == (
        f"error TP063: {tmp_path / 'items.jsonl'}: The model's tokenizer finds no token in any prompt of items.jsonl.\n"
        "  A prompt without tokens cannot be continued, so no item could be answered.\n"
        "  Next: Use an evaluation set that the model's tokenizer can encode.\n"
    )


@pytest.mark.slow
def test_a_prompt_without_a_token_is_an_error_of_its_item(
    config: Config, order_of: Callable[..., RunRequest], tmp_path: Path
):
    order = order_of(
        replace(
            config,
            model=ModelConfig(name=str(word_model(tmp_path)), weights="random"),
            data=DataConfig(
                dataset=row_file(tmp_path / "rows.jsonl", *({"prompt": "a", "completion": "b"} for _ in range(4))),
                max_length=8,
            ),
            evaluation=EvaluationConfig(eval_set=set_of(tmp_path, "b", "  "), max_new_tokens=4),
        )
    )
    with Watch(quiet=True) as watch:
        assert run(order, watch) == 0
    answers = [json.loads(line) for line in (order.folder / layout.PREDICTIONS).read_text().splitlines()]
    assert [(row["finish_reason"] == "error", row["error"]) for row in answers] == [
        (False, None),
        (True, "the tokenizer finds no token in the prompt, so there is nothing to continue"),
    ]
    record = read_run(order.folder)
    findings = check_run(record).findings
    assert [problem.what for problem in findings if problem.severity == "error"] == []
    # The tokenizer knows no digit, so that no item can be answered with 4.
    unasked, unwritable = (
        "1 of 2 items could not be evaluated and count as wrong",
        "2 of 2 items expect an answer that the tokenizer changes",
    )
    [said] = [row["message"] for row in record.rows(layout.LOG).values if row["event"] == "evaluated"]
    assert said.endswith(f"; {unasked}; {unwritable}")
    assert {"TP457": f"{unasked}.", "TP459": f"{unwritable}."}.items() <= {
        each.code: each.what for each in findings
    }.items()
    assert [line.split(maxsplit=1)[1] for line in run_text(record).splitlines() if line.startswith("  score")] == [
        unasked,
        unwritable,
    ]
    build_bundle([order.folder], tmp_path / "b.zip")
    with ZipFile(tmp_path / "b.zip") as archive:
        assert f"<p>{unasked}.</p>" in archive.read(REPORT).decode()


def told_by_check(config: Config, order_of: Callable[..., RunRequest]) -> dict[str, tuple[int | None, str]]:
    with Watch(quiet=True) as watch:
        found = check(order_of(config), watch)
    return {each["code"]: (each["line"], each["what"]) for each in found["findings"]}


def test_items_that_cannot_be_asked_or_be_right_are_told_before_a_run(
    config: Config, order_of: Callable[..., RunRequest], tmp_path: Path
):
    items = tmp_path / "items.jsonl"
    stated = [("a", "Paris"), ("b " * 300, ["½", "2 <unit>kg"]), ("a ", "yes"), ("c", "paris"), ("a", "Paris")]
    rows = [{"id": f"i{number}", "prompt": each[0], "expected": each[1]} for number, each in enumerate(stated)]
    items.write_text("".join(json.dumps(row) + "\n" for row in rows))
    changed = replace(
        config,
        model=ModelConfig(name=str(case_folding_folder(tmp_path / "model")), weights="random"),
        data=replace(config.data, dataset=row_file(tmp_path / "rows.jsonl", {"prompt": "Say hi.", "completion": "hi"})),
        evaluation=EvaluationConfig(eval_set=str(items), max_new_tokens=16, answer="whole"),
    )
    told = told_by_check(changed, order_of)
    line, what = told["TP457"]
    assert (line, what.partition(": ")[0]) == (2, "1 of 5 items cannot be answered and count as wrong")
    assert what.endswith("the longest has 600 tokens, and 496 leave room for an output.")
    what = "2 of 5 items repeat an earlier prompt, 1 with another expected answer: i2 (i0) and i4 (i0)."
    assert told["TP458"][1] == what
    assert told["TP459"] == (
        1,
        '3 of 5 items expect an answer that the tokenizer changes: "Paris" becomes "paris".',
    )
    folded = replace(changed, evaluation=replace(changed.evaluation, compare="folded"))
    assert told_by_check(folded, order_of)["TP459"][0] == 2  # `½` is still written 1⁄2


@pytest.mark.parametrize("name", ["eval_v1", "eval_v2", "eval_stories_v1", "eval_countdown_v1"])
def test_of_a_built_in_set_every_item_can_be_right(name: str, config: Config, order_of: Callable[..., RunRequest]):
    told = told_by_check(replace(config, evaluation=EvaluationConfig(eval_set=name)), order_of)
    assert not told.keys() & {"TP455", "TP456", "TP457", "TP458", "TP459"}


def test_a_run_most_of_whose_examples_are_cut_does_not_begin(
    config: Config, order_of: Callable[..., RunRequest], tmp_path: Path
):
    long = [{"prompt": str(number), "completion": "Once upon a time. " * 30} for number in range(9)]
    short = {"prompt": "Say hi.", "completion": "Hi."}
    data = replace(config.data, dataset=row_file(tmp_path / "most.jsonl", *long, short), max_length=64)
    with Watch(quiet=True) as watch, pytest.raises(ProblemError) as caught:
        check(order_of(replace(config, data=data)), watch)
    assert [each.code for each in caught.value.problems] == ["TP026"]
    assert caught.value.exit_code == 2
    few = replace(data, dataset=row_file(tmp_path / "few.jsonl", long[0], short, short))
    assert told_by_check(replace(config, data=few), order_of)["TP455"][1].startswith(
        "data.max_length is 64, but 1 of 3 examples lose their answer or its end at that length; "
    )
    with pytest.raises(ProblemError, match="9 of 10 examples"):
        read_subject(replace(config, data=data), load_target("kaggle-t4x2"))


def test_a_row_longer_than_the_model_is_not_advised_to_be_kept_whole(config: Config, tmp_path: Path):
    row = {"prompt": "a" * 600, "completion": "b"}
    rows = row_file(tmp_path / "rows.jsonl", {"prompt": "a" * 200, "completion": "b"}, *[row] * 6)
    assert refusal(replace(config, data=replace(config.data, dataset=rows))) == (
        f"error TP021: {rows} (line 1): data.max_length is 128, but 7 of 7 examples lose their answer at that length: "
        "row 0, row 1, row 2, row 3, row 4 and others.\n"
        "  The model would learn the question and never the answer.\n"
        "  Next: Shorten or remove rows: the longest has 602 tokens, the model 512 positions.\n"
    )


def test_everything_that_exceeds_the_positions_is_named_at_once(config: Config):
    both = replace(
        config,
        data=replace(config.data, max_length=513),
        evaluation=EvaluationConfig(eval_set="eval_v1", max_new_tokens=512),
    )
    assert refusal(both) == (
        "error TP061: tiny-gpt2 at /data/max_length: data.max_length is 513; tiny-gpt2 has 512 positions.\n"
        "  Next: Set data.max_length to at most 512.\n"
        "error TP062: tiny-gpt2 at /evaluation/max_new_tokens: "
        "evaluation.max_new_tokens is 512 and the shortest prompt "
        "of eval_v1 has 6 tokens; tiny-gpt2 has 512 positions.\n"
        "  Prompt and output share the model's context, so no item could be answered.\n"
        "  Next: Set evaluation.max_new_tokens to at most 506; up to 496 leave room for every prompt.\n"
    )


def test_weights_that_cannot_be_read_are_refused_by_a_plan_all_at_once(config: Config, tmp_path: Path):
    """Two of the files that an index names are gone: both are told, and what else is wrong beside them."""
    folder = tmp_path / "model"
    model_folder(folder)
    places = {f"t{number}": f"model-0000{number}-of-00003.safetensors" for number in (1, 2, 3)}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": places}))
    save_file({"t2": np.zeros(2, np.float32)}, folder / "model-00002-of-00003.safetensors")
    wrong = replace(
        config,
        model=ModelConfig(name=str(folder)),
        data=replace(config.data, dataset="rows.jsonl", max_length=513),
        evaluation=EvaluationConfig(eval_set="eval_v3"),
    )
    absent = "".join(
        f"error TP043: {folder}/model-0000{number}-of-00003.safetensors: "
        f"model-0000{number}-of-00003.safetensors does not exist in the model's folder.\n"
        "  Parameters are read from safetensors files.\n"
        "  Next: Download or export the model again as safetensors, or set `model.weights: random`.\n"
        for number in (1, 3)
    )
    assert refusal(wrong) == (
        f"{absent}error TP061: {folder} at /data/max_length: data.max_length is 513; {folder} has 512 positions.\n"
        "  Next: Set data.max_length to at most 512.\n"
        "error TP010: rows.jsonl: There is no dataset 'rows.jsonl': it is not built in, and no such file exists.\n"
        "  Expected: a built-in name (dev-reasoning-v2, dev-stories-v1, countdown-v1, countdown-solved-v1) or "
        "the path of a file or folder of rows.\n"
        "  Next: Give --dataset one of these.\n"
        "error TP010: eval_v3: There is no evaluation set 'eval_v3': it is not built in, and no such file exists.\n"
        "  Expected: a built-in name (eval_v1, eval_v2, eval_stories_v1, eval_countdown_v1) or the path of a "
        "file or folder of rows.\n"
        "  Next: Did you mean eval_v2? Else give --set evaluation.eval_set one of these.\n"
    )
    drawn = replace(config, model=ModelConfig(name=str(folder), weights="random"))
    assert plan_of(drawn)["verdict"] == "fits"


def test_weights_of_another_model_are_refused_by_their_headers(config: Config, tmp_path: Path):
    """All that is wrong with the tensors, before a folder is claimed; and the run starts once the file is right."""
    folder, path = tmp_path / "model", tmp_path / "model" / "model.safetensors"
    bare = resolve(str(model_folder(tmp_path / "bare")))
    export(folder, random_model(bare.spec)[1], bare)
    tensors = load_file(path)
    right = replace(config, model=ModelConfig(name=str(folder)))
    assert plan_of(right)["verdict"] == "fits"
    del tensors["transformer.ln_f.bias"]
    save_file(tensors | {"foo": np.zeros(1, np.float32)}, path)
    assert refusal(right) == "".join(
        f"error TP044: {folder}: {folder}: {what}\n"
        "  Files and config.json must describe the same gpt2 model; nothing is left random.\n"
        "  Next: Use config.json and safetensors of the same model.\n"
        for what in ("1 tensor is not in the files: ln_f.bias.", "1 tensor is of no use to this model: foo.")
    )


def test_items_that_the_rows_teach_are_told_when_the_rows_are_read(config: Config, tmp_path: Path):
    asked = ["What is 12 + 5?", "Ann has 12 apples and eats 5 of them. How many are left?", "Is ice cold?"]
    items = set_of(tmp_path, *asked, "Name a colour.")
    taught = ["what is 12 +  5", "Ann has 12 apples and eats 5 of them. What remains?", "is ice COLD"]
    rows = row_file(tmp_path / "rows.jsonl", *({"prompt": prompt, "completion": "4"} for prompt in taught))
    evaluation = EvaluationConfig(eval_set=items, max_new_tokens=4)
    data = inputs_of(replace(config, data=DataConfig(dataset=rows, max_length=64), evaluation=evaluation))[1]
    assert data.document()["overlap_with_eval"] == 2
    assert data.document()["overlap"] == {
        "rows_same": 2,
        "rows_near": 1,
        "items_same": 2,
        "items_near": 1,
        "items": ["0", "2", "1"],
    }
    assert as_text(data.seen) == (
        f"warning TP408: {rows}: Training rows contain 2 of the 4 evaluation items (2 rows): 0, 2.\n"
        "  A score on items that were trained on does not measure generalization.\n"
        "  Next: Remove these rows from the training data and run again, or evaluate on another set.\n"
    )


def test_settings_that_do_not_go_together_are_told_at_once_before_a_model_is_looked_for(
    config: Config, order_of: Callable[..., RunRequest], tmp_path: Path
):
    broken = replace(
        config,
        model=ModelConfig(name="no-such-owner/no-such-model"),
        method=MethodConfig(kind="lora", base="nf4"),
        memory=MemoryConfig(remat="none"),
        data=DataConfig(dataset="no-such-file.jsonl", generated_rows=5, packing=True, buckets=2),
        objective=ObjectiveConfig(kind="dpo"),
    )
    taken = order_of(broken)
    taken.folder.mkdir()
    (taken.folder / "notes.txt").write_text("mine")
    for act in (run, check):
        with pytest.raises(ProblemError) as caught, Watch(quiet=True) as watch:
            act(taken, watch)
        assert caught.value.exit_code == 2
        assert [problem.code for problem in caught.value.problems] == ["TP705", "TP079", "TP076", "TP013", "TP031"]


def test_a_check_says_what_would_begin_and_makes_nothing(
    config: Config, order_of: Callable[..., RunRequest], tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    items = set_of(tmp_path, "What is 12 + 5?", "Name a colour.")
    rows = row_file(tmp_path / "rows.jsonl", {"prompt": "what is 12 +  5", "completion": "17"})
    evaluated = replace(
        config,
        data=DataConfig(dataset=rows, max_length=64),
        evaluation=EvaluationConfig(eval_set=items, max_new_tokens=4),
    )
    order = order_of(evaluated)
    with Watch() as watch:
        found = check(order, watch)
    assert not order.folder.exists()
    assert [found[key] for key in ("can_begin", "training_rows", "evaluation_items")] == [True, 1, 2]
    assert [one["code"] for one in found["findings"]] == ["TP408"]
    assert capsys.readouterr().out.splitlines() == [
        (
            f"TP408: {rows}: Training rows contain 1 of the 2 evaluation items (1 row): 0. {rule('TP408').why} "
            f"Next: {rule('TP408').fix}"
        ),
        "It can begin: 1 training row, 2 evaluation items. Whether it fits: `trainproof plan`.",
    ]

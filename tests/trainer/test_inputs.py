"""What is refused before anything is spent, in whole messages."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from zipfile import ZipFile

import numpy as np
import pytest
from model_folders import case_folding_folder, model_folder, row_file
from refusals import catch_problems
from safetensors.numpy import load_file, save_file
from tasks import inputs_of, plan_of
from tiny_models import random_model
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from whole_runs import logged, rows

from evidence import layout
from evidence.bundle.build import build_bundle
from evidence.bundle.contents import REPORT
from evidence.grade import check_run
from evidence.run import read_run
from evidence.targets import load_target
from schemas.problems import Problem, ProblemError
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
from trainproof.cli.inspect import run_text


def problems_of(config: Config) -> list[Problem]:
    return catch_problems(lambda: inputs_of(config))


def set_of(folder: Path, *prompts: str) -> str:
    items = [{"id": str(number), "prompt": prompt, "expected": "4"} for number, prompt in enumerate(prompts)]
    return row_file(folder / "items.jsonl", *items)


@pytest.fixture
def spaceless(config: Config, tmp_path: Path) -> Config:
    """A model whose tokenizer knows whole words only and begins no text, so that spaces have no token."""
    model = model_folder(tmp_path / "model")
    words = Tokenizer(WordLevel({"<pad>": 0, "<eos>": 1, "<unk>": 2, "a": 3, "b": 4}, unk_token="<unk>"))
    words.pre_tokenizer = Whitespace()
    words.add_special_tokens(["<eos>", "<pad>"])
    words.save(str(model / "tokenizer.json"))
    dataset = row_file(tmp_path / "rows.jsonl", *[{"prompt": "a", "completion": "b"}] * 4)
    data = DataConfig(dataset=dataset, max_length=8)
    return replace(config, model=ModelConfig(name=str(model), weights="random"), data=data)


@pytest.mark.parametrize(
    ("prompts", "new_tokens", "advice"),
    [
        # A prompt is followed by a line end; "a" is one token, "a a a a" are more.
        (("a", "a a a a"), 1024, "at most 510; up to 504 leave room for every prompt."),
        (("a " * 600,), 4, "an evaluation set with shorter prompts, or a model with more positions."),
    ],
)
def test_outputs_that_leave_no_room_for_a_prompt_are_refused(prompts, new_tokens, advice, config, tmp_path):
    evaluation = EvaluationConfig(eval_set=set_of(tmp_path, *prompts), max_new_tokens=new_tokens)
    [problem] = problems_of(replace(config, evaluation=evaluation))
    assert (problem.code, problem.pointer) == ("TP062", "/evaluation/max_new_tokens")
    assert problem.next.endswith(advice)


def test_a_row_that_a_batch_has_several_times_is_shown_once(config, tmp_path):
    rows = row_file(tmp_path / "rows.jsonl", *({"prompt": word, "completion": word} for word in "ab"))
    _, data = inputs_of(replace(config, data=replace(config.data, dataset=rows)))
    assert config.batch.microbatch_size == 4
    examples = data.first_examples(4, run_id="r")["examples"]
    assert sorted(each["row"] for each in examples) == [0, 1]


def test_prompts_without_a_token_are_refused_if_there_are_no_others(spaceless, tmp_path):
    evaluation = EvaluationConfig(eval_set=set_of(tmp_path, "  ", " "), max_new_tokens=4)
    [problem] = problems_of(replace(spaceless, evaluation=evaluation))
    what = "The model's tokenizer finds no token in any prompt of items.jsonl."
    assert (problem.code, problem.what) == ("TP063", what)


@pytest.mark.slow
def test_a_prompt_without_a_token_is_an_error_of_its_item(spaceless, train, tmp_path):
    evaluation = EvaluationConfig(eval_set=set_of(tmp_path, "b", "  "), max_new_tokens=4)
    folder = train(replace(spaceless, evaluation=evaluation))
    assert [(row["finish_reason"] == "error", row["error"]) for row in rows(folder, layout.PREDICTIONS)] == [
        (False, None),
        (True, "the tokenizer finds no token in the prompt, so there is nothing to continue"),
    ]
    record = read_run(folder)
    findings = check_run(record).findings
    assert [problem.what for problem in findings if problem.severity == "error"] == []
    # The tokenizer knows no digit, so that no item can be answered with 4.
    unasked, unwritable = (
        "1 of 2 items could not be evaluated and count as wrong",
        "2 of 2 items expect an answer that the tokenizer changes",
    )
    [evaluated] = logged(folder, "evaluated")
    assert evaluated["message"].endswith(f"; {unasked}; {unwritable}")
    assert {("TP457", f"{unasked}."), ("TP459", f"{unwritable}.")} <= {(each.code, each.what) for each in findings}
    shown = [line.split(maxsplit=1)[1] for line in run_text(record).splitlines() if line.startswith("  score")]
    assert shown == [unasked, unwritable]
    build_bundle([folder], tmp_path / "b.zip")
    with ZipFile(tmp_path / "b.zip") as archive:
        assert f"<p>{unasked}.</p>" in archive.read(REPORT).decode()


def told_by_check(config: Config, order_of: Callable[..., RunRequest]) -> dict[str, tuple[int | None, str]]:
    with Watch(quiet=True) as watch:
        found = check(order_of(config), watch)
    return {each["code"]: (each["line"], each["what"]) for each in found["findings"]}


def test_items_that_cannot_be_asked_or_be_right_are_reported_before_a_run(config, order_of, tmp_path):
    stated = [("a", "Paris"), ("b " * 300, ["½", "2 <unit>kg"]), ("a ", "yes"), ("c", "paris"), ("a", "Paris")]
    items = [{"id": f"i{number}", "prompt": each[0], "expected": each[1]} for number, each in enumerate(stated)]
    changed = replace(
        config,
        model=ModelConfig(name=str(case_folding_folder(tmp_path / "model")), weights="random"),
        data=replace(config.data, dataset=row_file(tmp_path / "rows.jsonl", {"prompt": "Say hi.", "completion": "hi"})),
        evaluation=EvaluationConfig(
            eval_set=row_file(tmp_path / "items.jsonl", *items), max_new_tokens=16, answer="whole"
        ),
    )
    told = told_by_check(changed, order_of)
    line, what = told["TP457"]
    assert (line, what.partition(": ")[0]) == (2, "1 of 5 items cannot be answered and count as wrong")
    assert what.endswith("the longest has 600 tokens, and 496 leave room for an output.")
    what = "2 of 5 items repeat an earlier prompt, 1 with another expected answer: i2 (i0) and i4 (i0)."
    assert told["TP458"][1] == what
    line, what = told["TP459"]
    assert (line, what[:32]) == (1, "3 of 5 items expect an answer th")
    folded = replace(changed, evaluation=replace(changed.evaluation, compare="folded"))
    assert told_by_check(folded, order_of)["TP459"][0] == 2  # `½` is still written 1⁄2


@pytest.mark.parametrize("name", ["eval_v1", "eval_v2", "eval_stories_v1", "eval_countdown_v2"])
def test_every_item_of_a_built_in_set_can_be_right(name, config, order_of):
    told = told_by_check(replace(config, evaluation=EvaluationConfig(eval_set=name)), order_of)
    assert not told.keys() & {"TP455", "TP456", "TP457", "TP458", "TP459"}


def test_a_run_most_of_whose_examples_are_cut_does_not_begin(config, order_of, tmp_path):
    long = [{"prompt": str(number), "completion": "Once upon a time. " * 30} for number in range(9)]
    short = {"prompt": "Say hi.", "completion": "Hi."}
    data = replace(config.data, dataset=row_file(tmp_path / "most.jsonl", *long, short), max_length=64)
    with Watch(quiet=True) as watch:
        problems = catch_problems(lambda: check(order_of(replace(config, data=data)), watch))
    assert [each.code for each in problems] == ["TP026"]
    few = replace(data, dataset=row_file(tmp_path / "few.jsonl", long[0], short, short))
    assert told_by_check(replace(config, data=few), order_of)["TP455"][1].startswith(
        "data.max_length is 64, but 1 of 3 examples lose their answer or its end at that length; "
    )
    with pytest.raises(ProblemError, match="9 of 10 examples"):
        read_subject(replace(config, data=data), load_target("kaggle-t4x2"))


def test_a_row_longer_than_the_model_is_not_advised_to_be_kept_whole(config, tmp_path):
    long = [{"prompt": "a" * 600, "completion": "b"}] * 6
    dataset = row_file(tmp_path / "rows.jsonl", {"prompt": "a" * 200, "completion": "b"}, *long)
    [problem] = problems_of(replace(config, data=replace(config.data, dataset=dataset)))
    assert (problem.code, problem.line) == ("TP021", 1)
    assert "7 of 7 examples lose their answer at that length" in problem.what
    assert problem.next == "Shorten or remove rows: the longest has 602 tokens, the model 512 positions."


def test_every_setting_beyond_the_positions_is_reported(config):
    evaluation = EvaluationConfig(eval_set="eval_v1", max_new_tokens=512)
    both = replace(config, data=replace(config.data, max_length=513), evaluation=evaluation)
    assert [(each.code, each.pointer, each.next) for each in problems_of(both)] == [
        ("TP061", "/data/max_length", "Set data.max_length to at most 512."),
        (
            "TP062",
            "/evaluation/max_new_tokens",
            "Set evaluation.max_new_tokens to at most 506; up to 496 leave room for every prompt.",
        ),
    ]


def test_missing_weight_files_are_named_beside_every_other_problem(config, tmp_path):
    folder = model_folder(tmp_path / "model")
    files = [f"model-0000{number}-of-00003.safetensors" for number in (1, 2, 3)]
    weight_map = {f"t{number}": file for number, file in enumerate(files)}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    save_file({"t1": np.zeros(2, np.float32)}, folder / files[1])
    wrong = replace(
        config,
        model=ModelConfig(name=str(folder)),
        data=replace(config.data, dataset="rows.jsonl", max_length=513),
        evaluation=EvaluationConfig(eval_set="eval_v3"),
    )
    assert [(problem.code, problem.file) for problem in problems_of(wrong)] == [
        ("TP043", str(folder / files[0])),
        ("TP043", str(folder / files[2])),
        ("TP061", str(folder)),
        ("TP010", "rows.jsonl"),
        ("TP010", "eval_v3"),
    ]
    drawn = replace(config, model=ModelConfig(name=str(folder), weights="random"))
    assert plan_of(drawn)["verdict"] == "fits"


def test_weights_of_another_model_are_refused_by_their_headers(config, tmp_path):
    folder, path = tmp_path / "model", tmp_path / "model" / "model.safetensors"
    bare = resolve(str(model_folder(tmp_path / "bare")))
    export(folder, random_model(bare.spec)[1], bare)
    tensors = load_file(path)
    right = replace(config, model=ModelConfig(name=str(folder)))
    assert plan_of(right)["verdict"] == "fits"
    del tensors["transformer.ln_f.bias"]
    save_file(tensors | {"foo": np.zeros(1, np.float32)}, path)
    assert [(problem.code, problem.what) for problem in problems_of(right)] == [
        ("TP044", f"{folder}: missing tensors: ln_f.bias."),
        ("TP044", f"{folder}: unexpected tensors: foo."),
    ]


def test_items_that_are_in_the_training_rows_are_reported(config, tmp_path):
    asked = ["What is 12 + 5?", "Ann has 12 apples and eats 5 of them. How many are left?", "Is ice cold?"]
    items = set_of(tmp_path, *asked, "Name a colour.")
    taught = ["what is 12 +  5", "Ann has 12 apples and eats 5 of them. What remains?", "is ice COLD"]
    taught_rows = [{"prompt": prompt, "completion": "4"} for prompt in taught]
    dataset = row_file(tmp_path / "rows.jsonl", *taught_rows)
    evaluation = EvaluationConfig(eval_set=items, max_new_tokens=4)
    data = inputs_of(replace(config, data=DataConfig(dataset=dataset, max_length=64), evaluation=evaluation))[1]
    assert data.document()["overlap_with_eval"] == 2
    counts = {"rows_same": 2, "rows_near": 1, "items_same": 2, "items_near": 1}
    assert data.document()["overlap"] == counts | {"items": ["0", "2", "1"]}
    [problem] = data.overlap_warnings
    assert (problem.code, problem.file) == ("TP408", dataset)
    assert problem.what == "Training rows contain 2 of the 4 evaluation items (2 rows): 0, 2."


def test_contradicting_settings_are_refused_before_a_model_is_looked_for(config, order_of, tmp_path):
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
        with Watch(quiet=True) as watch:
            problems = catch_problems(lambda act=act, watch=watch: act(taken, watch))
        assert [problem.code for problem in problems] == ["TP705", "TP079", "TP076", "TP013", "TP031"]


def test_a_check_reports_what_would_begin_and_writes_nothing(config, order_of, tmp_path, capsys):
    items = set_of(tmp_path, "What is 12 + 5?", "Name a colour.")
    dataset = row_file(tmp_path / "rows.jsonl", {"prompt": "what is 12 +  5", "completion": "17"})
    evaluated = replace(
        config,
        data=DataConfig(dataset=dataset, max_length=64),
        evaluation=EvaluationConfig(eval_set=items, max_new_tokens=4),
    )
    order = order_of(evaluated)
    with Watch() as watch:
        found = check(order, watch)
    assert not order.folder.exists()
    assert [found[key] for key in ("can_begin", "training_rows", "evaluation_items")] == [True, 1, 2]
    assert [one["code"] for one in found["findings"]] == ["TP408"]
    finding, last = capsys.readouterr().out.splitlines()
    assert finding.startswith(f"TP408: {dataset}: Training rows contain 1 of the 2 evaluation items (1 row): 0. ")
    assert last == "Configuration OK: 1 training row, 2 evaluation items. Run `trainproof plan` to check memory."

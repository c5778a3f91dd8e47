"""What is refused before anything is spent, in whole messages."""

import json
from collections.abc import Callable
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
from trainer.config.tree import Config
from trainer.model.export import export
from trainer.model.source import resolve
from trainer.planning.subject import read_subject
from trainer.recorder.progress import Watch
from trainer.run import RunRequest, check, run
from trainproof.cli.inspect import run_text


def find_problems(config: Config) -> list[Problem]:
    return catch_problems(lambda: inputs_of(config))


def write_items(folder: Path, *prompts: str) -> str:
    items = [{"id": str(number), "prompt": prompt, "expected": "4"} for number, prompt in enumerate(prompts)]
    return row_file(folder / "items.jsonl", *items)


@pytest.fixture
def spaceless(config: Config, tmp_path: Path) -> Config:
    """A run of a model whose tokenizer has whole words only, so that spaces have no token."""
    model = model_folder(tmp_path / "model")
    words = Tokenizer(WordLevel({"<pad>": 0, "<eos>": 1, "<unk>": 2, "a": 3, "b": 4}, unk_token="<unk>"))
    words.pre_tokenizer = Whitespace()
    words.add_special_tokens(["<eos>", "<pad>"])
    words.save(str(model / "tokenizer.json"))
    dataset = row_file(tmp_path / "rows.jsonl", *[{"prompt": "a", "completion": "b"}] * 4)
    return config.changed(model={"name": str(model), "weights": "random"}, data={"dataset": dataset, "max_length": 8})


@pytest.mark.parametrize(
    ("prompts", "new_tokens", "advice"),
    [
        # A prompt is followed by a line end; "a" is one token, "a a a a" are more.
        (("a", "a a a a"), 1024, "at most 510; up to 504 leave room for every prompt."),
        (("a " * 600,), 4, "an evaluation set with shorter prompts, or a model with more positions."),
    ],
)
def test_outputs_that_leave_no_room_for_a_prompt_are_refused(prompts, new_tokens, advice, config, tmp_path):
    evaluation = {"eval_set": write_items(tmp_path, *prompts), "max_new_tokens": new_tokens}
    [problem] = find_problems(config.changed(evaluation=evaluation))
    assert (problem.code, problem.pointer) == ("TP062", "/evaluation/max_new_tokens")
    assert problem.next.endswith(advice)


def test_a_row_that_a_batch_has_several_times_is_shown_once(config, tmp_path):
    rows = row_file(tmp_path / "rows.jsonl", *({"prompt": word, "completion": word} for word in "ab"))
    _, data = inputs_of(config.changed(data={"dataset": rows}))
    assert config.batch.microbatch_size == 4
    examples = data.first_examples(4, run_id="r")["examples"]
    assert sorted(each["row"] for each in examples) == [0, 1]


def test_prompts_without_a_token_are_refused_if_there_are_no_others(spaceless, tmp_path):
    [problem] = find_problems(spaceless.changed(evaluation={"eval_set": write_items(tmp_path, "  ", " ")}))
    what = "The model's tokenizer finds no token in any prompt of items.jsonl."
    assert (problem.code, problem.what) == ("TP063", what)


@pytest.mark.slow
def test_a_prompt_without_a_token_is_an_error_of_its_item(spaceless, train, tmp_path):
    folder = train(spaceless.changed(evaluation={"eval_set": write_items(tmp_path, "b", "  ")}))
    assert [(row["finish_reason"] == "error", row["error"]) for row in rows(folder, layout.PREDICTIONS)] == [
        (False, None),
        (True, "the tokenizer finds no token in the prompt, so there is nothing to continue"),
    ]
    record = read_run(folder)
    findings = check_run(record).findings
    assert [problem.what for problem in findings if problem.severity == "error"] == []
    unasked = "1 of 2 items could not be evaluated and count as wrong"
    # The tokenizer knows no digit, so that no item can be answered with 4.
    unwritable = "2 of 2 items expect an answer that the tokenizer changes"
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
    eval_set = row_file(tmp_path / "items.jsonl", *items)
    asked = config.changed(
        model={"name": str(case_folding_folder(tmp_path / "model")), "weights": "random"},
        data={"dataset": row_file(tmp_path / "rows.jsonl", {"prompt": "Say hi.", "completion": "hi"})},
        evaluation={"eval_set": eval_set, "max_new_tokens": 16, "answer": "whole"},
    )
    told = told_by_check(asked, order_of)
    line, what = told["TP457"]
    assert (line, what.partition(": ")[0]) == (2, "1 of 5 items cannot be answered and count as wrong")
    assert what.endswith("the longest has 600 tokens, and 496 leave room for an output.")
    what = "2 of 5 items repeat an earlier prompt, 1 with another expected answer: i2 (i0) and i4 (i0)."
    assert told["TP458"][1] == what
    line, what = told["TP459"]
    assert (line, what[:32]) == (1, "3 of 5 items expect an answer th")
    folded = told_by_check(asked.changed(evaluation={"compare": "folded"}), order_of)
    assert folded["TP459"][0] == 2  # `½` is still written 1⁄2


@pytest.mark.parametrize("name", ["eval_v1", "eval_v2", "eval_stories_v1", "eval_countdown_v2"])
def test_every_item_of_a_built_in_set_can_be_right(name, config, order_of):
    told = told_by_check(config.changed(evaluation={"eval_set": name, "max_new_tokens": 160}), order_of)
    assert not told.keys() & {"TP455", "TP456", "TP457", "TP458", "TP459"}


def test_a_run_most_of_whose_examples_are_cut_does_not_begin(config, order_of, tmp_path):
    long = [{"prompt": str(number), "completion": "Once upon a time. " * 30} for number in range(9)]
    cut = config.changed(data={"dataset": row_file(tmp_path / "most.jsonl", *long), "max_length": 64})
    with Watch(quiet=True) as watch:
        problems = catch_problems(lambda: check(order_of(cut), watch))
    assert [each.code for each in problems] == ["TP026"]
    with pytest.raises(ProblemError, match="9 of 9 examples"):
        read_subject(cut, load_target("kaggle-t4x2"))


def test_missing_weight_files_are_named_beside_every_other_problem(config, tmp_path):
    folder = model_folder(tmp_path / "model")
    files = [f"model-0000{number}-of-00003.safetensors" for number in (1, 2, 3)]
    weight_map = {f"t{number}": file for number, file in enumerate(files)}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    save_file({"t1": np.zeros(2, np.float32)}, folder / files[1])
    right = config.changed(model={"name": str(folder)})
    wrong = right.changed(data={"dataset": "rows.jsonl", "max_length": 513}, evaluation={"eval_set": "eval_v3"})
    assert [(problem.code, problem.file) for problem in find_problems(wrong)] == [
        ("TP043", str(folder / files[0])),
        ("TP043", str(folder / files[2])),
        ("TP061", str(folder)),
        ("TP010", "rows.jsonl"),
        ("TP010", "eval_v3"),
    ]
    assert plan_of(right.changed(model={"weights": "random"}))["verdict"] == "fits"


def test_weights_of_another_model_are_refused_by_their_headers(config, tmp_path):
    folder, path = tmp_path / "model", tmp_path / "model" / "model.safetensors"
    bare = resolve(str(model_folder(tmp_path / "bare")))
    export(folder, random_model(bare.spec)[1], bare)
    tensors = load_file(path)
    right = config.changed(model={"name": str(folder)})
    assert plan_of(right)["verdict"] == "fits"
    del tensors["transformer.ln_f.bias"]
    save_file(tensors | {"foo": np.zeros(1, np.float32)}, path)
    assert [(problem.code, problem.what) for problem in find_problems(right)] == [
        ("TP044", f"{folder}: missing tensors: ln_f.bias."),
        ("TP044", f"{folder}: unexpected tensors: foo."),
    ]


def test_contradicting_settings_are_refused_before_the_model_is_loaded(config, order_of):
    broken = config.changed(
        model={"name": "no-such-owner/no-such-model"},
        method={"kind": "lora", "base": "nf4"},
        memory={"remat": "none"},
        data={"dataset": "no-such-file.jsonl", "generated_rows": 5, "packing": True, "buckets": 2},
        objective={"kind": "dpo"},
    )
    taken = order_of(broken)
    taken.folder.mkdir()
    (taken.folder / "notes.txt").write_text("mine")
    for act in (run, check):
        with Watch(quiet=True) as watch:
            problems = catch_problems(lambda act=act, watch=watch: act(taken, watch))
        assert [problem.code for problem in problems] == ["TP705", "TP079", "TP076", "TP013", "TP031"]


def test_a_check_reports_items_in_the_training_rows_and_writes_nothing(config, order_of, tmp_path, capsys):
    items = write_items(tmp_path, "What is 12 + 5?", "Name a colour.")
    dataset = row_file(tmp_path / "rows.jsonl", {"prompt": "what is 12 +  5", "completion": "17"})
    order = order_of(config.changed(data={"dataset": dataset, "max_length": 64}, evaluation={"eval_set": items}))
    with Watch() as watch:
        found = check(order, watch)
    assert not order.folder.exists()
    assert [found[key] for key in ("can_begin", "training_rows", "evaluation_items")] == [True, 1, 2]
    assert [one["code"] for one in found["findings"]] == ["TP408"]
    finding, last = capsys.readouterr().out.splitlines()
    assert finding.startswith(f"TP408: {dataset}: Training rows contain 1 of the 2 evaluation items (1 row): 0. ")
    assert last == "Configuration OK: 1 training row, 2 evaluation items. Run `trainproof plan` to check memory."

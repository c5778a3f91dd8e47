"""What is refused before anything is spent, in whole messages."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from model_folders import model_folder, row_file
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace

from evidence import layout
from evidence.check import report_of
from evidence.read import read_run
from schemas.problems import ProblemError
from schemas.render import as_text
from trainer.config.tree import Config, Data, Evaluation, Model
from trainer.prepare import prepare
from trainer.progress import Watch
from trainer.run import Order, run


def refusal(config: Config) -> str:
    with pytest.raises(ProblemError) as caught:
        prepare(config, forced=False)
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
    evaluation = Evaluation(eval_set=items, max_new_tokens=1024)
    assert refusal(replace(config, evaluation=evaluation)) == (
        "error TP062: tiny-gpt2 at /evaluation/max_new_tokens: "
        "evaluation.max_new_tokens is 1024 and the shortest prompt "
        "of items.jsonl has 2 tokens; tiny-gpt2 has 512 positions.\n"
        "  Prompt and output share the positions, so no item could be answered.\n"
        "  Next: Set evaluation.max_new_tokens to at most 510; up to 504 leave room for every prompt.\n"
    )
    assert prepare(replace(config, evaluation=replace(evaluation, max_new_tokens=510)), forced=False).items


def test_prompts_that_fill_every_position_are_refused(config: Config, tmp_path: Path):
    items = set_of(tmp_path, "a " * 600)
    assert refusal(replace(config, evaluation=Evaluation(eval_set=items, max_new_tokens=4))) == (
        "error TP062: tiny-gpt2 at /evaluation/max_new_tokens: "
        "evaluation.max_new_tokens is 4 and the shortest prompt of "
        "items.jsonl has 1201 tokens; tiny-gpt2 has 512 positions.\n"
        "  Prompt and output share the positions, so no item could be answered.\n"
        "  Next: Use an evaluation set with shorter prompts, or a model with more positions.\n"
    )


def test_a_row_that_a_batch_has_several_times_is_shown_once(config: Config, tmp_path: Path):
    rows = row_file(tmp_path / "rows.jsonl", *({"prompt": word, "completion": word} for word in "ab"))
    prepared = prepare(replace(config, data=replace(config.data, dataset=rows)), forced=False)
    assert config.batch.microbatch_size == 4
    assert sorted(prepared.first_rows()) == [0, 1]


def test_prompts_without_a_token_are_refused_if_there_are_no_others(config: Config, tmp_path: Path):
    model = word_model(tmp_path)
    changed = replace(
        config,
        model=Model(name=str(model), weights="random"),
        data=replace(config.data, dataset=row_file(tmp_path / "rows.jsonl", {"prompt": "a", "completion": "b"})),
        evaluation=Evaluation(eval_set=set_of(tmp_path, "  ", " "), max_new_tokens=4),
    )
    assert refusal(changed) == (
        f"error TP063: {tmp_path / 'items.jsonl'}: The model's tokenizer finds no token in any prompt of items.jsonl.\n"
        "  A prompt without tokens leaves nothing to continue, so no item could be answered.\n"
        "  Next: Use an evaluation set in words that the model's tokenizer knows.\n"
    )


def test_a_prompt_without_a_token_is_an_error_of_its_item(
    config: Config, order_of: Callable[..., Order], tmp_path: Path
):
    order = order_of(
        replace(
            config,
            model=Model(name=str(word_model(tmp_path)), weights="random"),
            data=Data(
                dataset=row_file(tmp_path / "rows.jsonl", *({"prompt": "a", "completion": "b"} for _ in range(4))),
                max_length=8,
            ),
            evaluation=Evaluation(eval_set=set_of(tmp_path, "b", "  "), max_new_tokens=4),
        )
    )
    with Watch(quiet=True) as watch:
        assert run(order, watch) == 0
    answers = [json.loads(line) for line in (order.folder / layout.PREDICTIONS).read_text().splitlines()]
    assert [(row["finish_reason"] == "error", row["error"]) for row in answers] == [
        (False, None),
        (True, "the tokenizer finds no token in the prompt, so there is nothing to continue"),
    ]
    findings = report_of(read_run(order.folder)).findings
    assert [problem.what for problem in findings if problem.severity == "error"] == []


def test_a_row_longer_than_the_model_is_not_advised_to_be_kept_whole(config: Config, tmp_path: Path):
    row = {"prompt": "a" * 600, "completion": "b"}
    rows = row_file(tmp_path / "rows.jsonl", {"prompt": "a" * 200, "completion": "b"}, *[row] * 6)
    assert refusal(replace(config, data=replace(config.data, dataset=rows))).splitlines() == [
        f"error TP021: {rows} (line 1): Row 0 has 203 tokens; cut to 128, it loses its answer.",
        "  The model would learn the question and never the answer.",
        "  Next: Use --set data.max_length=203, or shorten or remove the row.",
        *(
            line
            for index in range(1, 5)
            for line in (
                f"error TP021: {rows} (line {index + 1}): Row {index} has 603 tokens; cut to 128, it loses its answer.",
                "  The model would learn the question and never the answer.",
                "  Next: Shorten or remove the row: the model has 512 positions.",
            )
        ),
        f"error TP021: {rows}: 2 further rows lose their answer at 128 tokens.",
        "  Next: Shorten or remove rows of more than 512 tokens: the model has no more positions.",
    ]


def test_everything_that_exceeds_the_positions_is_named_at_once(config: Config):
    both = replace(
        config,
        data=replace(config.data, max_length=513),
        evaluation=Evaluation(eval_set="eval_v1", max_new_tokens=512),
    )
    assert refusal(both) == (
        "error TP061: tiny-gpt2 at /data/max_length: data.max_length is 513; tiny-gpt2 has 512 positions.\n"
        "  Next: Set data.max_length to at most 512.\n"
        "error TP062: tiny-gpt2 at /evaluation/max_new_tokens: "
        "evaluation.max_new_tokens is 512 and the shortest prompt "
        "of eval_v1 has 6 tokens; tiny-gpt2 has 512 positions.\n"
        "  Prompt and output share the positions, so no item could be answered.\n"
        "  Next: Set evaluation.max_new_tokens to at most 506; up to 496 leave room for every prompt.\n"
    )

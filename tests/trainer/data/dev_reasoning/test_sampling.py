"""Rows of a seed: no prompt twice, none that is excluded, and a clear end when there are no more."""

import subprocess
import sys
from itertools import islice

import pytest

from trainer.data.builtin.reasoning import SHARES, draw_problems, eval_prompts, generate_rows, prompt_key
from trainer.data.rows import read_dataset

COUNT = 5000


@pytest.fixture(scope="module")
def rows():
    committed = frozenset(row["prompt"] for row in read_dataset("dev-reasoning-v2").rows)
    return committed, generate_rows("dev-reasoning-v2", COUNT, 11, exclude_prompts=committed)


def test_no_prompt_twice(rows):
    _, fresh = rows
    assert len({prompt_key(row["prompt"]) for row in fresh}) == len(fresh) == COUNT


def test_no_prompt_of_an_evaluation_set_or_excluded(rows):
    committed, fresh = rows
    keys = {prompt_key(row["prompt"]) for row in fresh}
    assert keys.isdisjoint({prompt_key(prompt) for prompt in committed | eval_prompts()})


def test_an_excluded_prompt_is_really_one_that_would_come():
    first = generate_rows("dev-reasoning-v2", 20, 4, exclude_prompts=frozenset())
    shouted = frozenset(f"  {row['prompt'].upper()} " for row in first[:10])
    again = generate_rows("dev-reasoning-v2", 20, 4, exclude_prompts=shouted)
    assert again[:10] == first[10:]


def test_a_seed_decides_all_and_more_rows_only_append(rows):
    committed, fresh = rows
    assert generate_rows("dev-reasoning-v2", 100, 11, exclude_prompts=committed) == fresh[:100]
    assert generate_rows("dev-reasoning-v2", 100, 12, exclude_prompts=committed) != fresh[:100]


def test_kinds_come_in_their_shares(rows):
    _, fresh = rows
    arithmetic = sum(row["meta"]["category"] == "arithmetic" for row in fresh) / len(fresh)
    assert arithmetic == pytest.approx(0.40, abs=0.03)


def test_prompts_that_differ_in_form_only_share_a_key():
    assert prompt_key("What is 12 + 5?") == prompt_key(" what  IS 12+5 ") == "what is 12 5"
    assert prompt_key("What is 12 + 5?") != prompt_key("What is 12 + 6?")


def test_exhaustion_is_an_error(monkeypatch):
    monkeypatch.setattr("trainer.data.builtin.reasoning.PATIENCE", 2)
    with pytest.raises(ValueError, match=r"^seed 1: no new prompt in 2 draws, after \d+ prompts drawn or excluded\.$"):
        list(islice(draw_problems(1, SHARES, excluded_keys=frozenset()), 100_000))


def test_a_wrong_answer_stops_the_draw_even_where_python_skips_assertions():
    code = "from trainer.data.dev_reasoning import catalog; catalog.solve = lambda prompt: 'wrong'; "
    code += "print(next(catalog.draw_problems(1, catalog.SHARES, excluded_keys=frozenset())).problem)"
    done = subprocess.run([sys.executable, "-O", "-c", code], capture_output=True, text=True, check=False)
    first = next(draw_problems(1, SHARES, excluded_keys=frozenset())).problem
    said = f"AssertionError: {first.prompt!r} is 'wrong' when solved, {first.answer!r} when drawn"
    assert done.stderr.splitlines()[-1:] == [said]

"""What is wrong with the rewards of a configuration, or with rows, is said before anything is spent."""

from __future__ import annotations

import pytest

from evidence.rewards import refuse_rows, rewards_of
from evidence.scores.reading import Scoring
from schemas.problems import ProblemError


def refused(settings: list, scoring: Scoring | None = None) -> list[tuple[str, str | None, str]]:
    with pytest.raises(ProblemError) as raised:
        rewards_of(settings, scoring or Scoring(), file="config.yaml")
    assert raised.value.exit_code == 2
    assert {problem.file for problem in raised.value.problems} == {"config.yaml"}
    return [(problem.code, problem.pointer, problem.what) for problem in raised.value.problems]


def test_all_problems_are_said_together(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own_rewards_of_a_test.py").write_text("def two(attempt, row): return 0.0\nnumber = 3\n")
    found = refused(
        [
            {"name": "exactly", "weight": 0},
            {"name": "no_such_module_at_all:score", "weight": 0},
            {"name": "own_rewards_of_a_test:nothing", "weight": 0},
            {"name": "own_rewards_of_a_test:two", "weight": 0},
            {"name": "own_rewards_of_a_test:number", "weight": 0},
            {"name": "numeric", "weight": -1, "options": {"tolerance": 2, "relative": True}},
            {"name": "numeric", "weight": float("inf")},
        ]
    )
    assert [(code, pointer) for code, pointer, _ in found] == [
        ("TP901", "/objective/rewards/0/name"),
        ("TP904", "/objective/rewards/1/name"),
        ("TP904", "/objective/rewards/2/name"),
        ("TP904", "/objective/rewards/3/name"),
        ("TP904", "/objective/rewards/4/name"),
        ("TP903", "/objective/rewards/5/options/tolerance"),
        ("TP903", "/objective/rewards/5/options"),
        ("TP902", "/objective/rewards/6"),
        ("TP902", "/objective/rewards/6"),
    ]
    said = [what for _, _, what in found]
    assert said[0] == "There is no reward exactly."
    assert "ModuleNotFoundError" in said[1]
    assert "missing a required argument: 'row'" in said[3]
    assert said[5] == "tolerance of the reward numeric is 2."
    assert said[6] == 'The reward numeric does not know "relative", and takes tolerance.'


@pytest.mark.parametrize(
    ("settings", "what"),
    [
        ([], "There is no reward."),
        ([{"name": "exact", "weight": 0}], "No reward has a weight above 0."),
        ([{"name": "exact", "weight": -1}], "No reward has a weight above 0."),
        (["exact", "exact"], "The reward exact stands twice."),
        ([{"name": "exact", "options": {"a": 1}}], 'The reward exact does not know "a", and takes no option.'),
        ([{"name": "format", "options": {"regex": "(a+"}}], "missing ), unterminated subpattern"),
        ([{"name": "format", "options": {"regex": r"(a)\1"}}], "regex of the reward format is"),
        ([{"name": "format", "options": {"tags": ["a", "a"]}}], "tags of the reward format is a list of 2 items."),
        ([{"name": "length"}], "The reward length has no option most"),
        ([{"name": "length", "options": {"most": 5, "least": 6}}], "most of the reward length is 5, and least is 6."),
        ([{"name": "steps", "options": {"most": 1, "least": 2}}], "most of the reward steps is 1, and least is 2."),
        ([{"name": "steps", "options": {"least": 0}}], "least of the reward steps is 0."),
        ([{"name": "steps", "options": {"least": True}}], "least of the reward steps is true."),
        ([{"name": "math:sqrt", "options": {"low": 1, "high": 1}}], "high of the reward math:sqrt is 1, and low is 1."),
    ],
)
def test_settings_that_are_refused(settings, what):
    assert any(what in said for _, _, said in refused(settings))


def test_format_needs_a_form_where_the_evaluation_reads_no_tags():
    [(code, _, what)] = refused(["format"], Scoring(answer="last_number", compare="numeric"))
    assert code == "TP903"
    assert "has neither regex nor tags, and answers are read as last_number" in what


def test_reasoning_gym_is_refused_where_it_is_not_installed(monkeypatch):
    monkeypatch.setattr("evidence.rewards.reasoning_gym.PACKAGE", "no_package_of_this_name")
    [(code, _, what)] = refused(["reasoning_gym"])
    assert (code, what) == (
        "TP907",
        "The reward reasoning_gym needs the package reasoning-gym, which is not installed.",
    )


def test_a_checker_reads_the_settings_of_any_reward_and_imports_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "reward_with_an_effect.py").write_text("open('executed', 'w').close()\ndef score(attempt): return 1\n")
    settings = [{"name": "reward_with_an_effect:score"}, "reasoning_gym", "exact"]
    rewards = rewards_of(settings, Scoring(), file="config.yaml", execute=False)
    assert [(reward.name, reward.is_ours) for reward in rewards] == [
        ("reward_with_an_effect:score", False),
        ("reasoning_gym", False),
        ("exact", True),
    ]
    assert not (tmp_path / "executed").exists()


@pytest.mark.parametrize(
    ("name", "options", "row", "what"),
    [
        ("exact", {}, {"prompt": "?", "completion": "a\nb"}, "has no gold answer"),
        ("exact", {}, {"prompt": "?", "task": {"kind": "mine"}}, "has no gold answer"),
        ("numeric", {}, {"prompt": "?", "final_answer": "five"}, 'has the gold answer "five", which is no number'),
        ("reference_steps", {}, {"prompt": "?", "completion": "5"}, "has no steps"),
        ("steps", {"least": 2}, {"steps": [{"content": "a"}]}, "has 1 different steps, and 2 to 64 are rewarded"),
        ("countdown", {}, {"prompt": "?", "completion": "5"}, "has no task of the kind countdown"),
        ("countdown", {}, {"task": {"kind": "countdown", "numbers": [], "target": 1}}, "without numbers"),
        ("countdown", {}, {"task": {"kind": "countdown", "numbers": [1, 2.5], "target": 1}}, "without numbers"),
        ("countdown", {}, {"task": {"kind": "countdown", "numbers": [1, 2]}}, "without a target"),
    ],
)
def test_rows_that_lack_what_a_reward_needs(name, options, row, what):
    rewards = rewards_of([{"name": name, "options": options}], Scoring(), file="c")
    fine = {
        "prompt": "?",
        "final_answer": "5",
        "steps": [{"content": "2 + 3"}, {"content": "= 5"}],
        "task": {"kind": "countdown", "numbers": [2, 3], "target": 5},
    }
    assert refuse_rows(rewards, [fine], file="rows.jsonl", lines=[1]) == []
    [problem] = refuse_rows(rewards, [fine, row], file="rows.jsonl", lines=[1, 3])
    assert (problem.code, problem.file, problem.line) == ("TP905", "rows.jsonl", 3)
    assert problem.what.startswith(f"A row {what}" if what.startswith("has") else "A row has a countdown task")
    assert what in problem.what


def test_generated_rows_have_no_line_and_many_are_counted():
    rewards = rewards_of(["exact"], Scoring(), file="c")
    found = refuse_rows(rewards, [{"prompt": "?", "task": {"kind": "a"}}] * 9, file="rows.jsonl", lines=[1, 2])
    assert [problem.line for problem in found] == [1, 2, None, None, None]
    assert found[-1].what.endswith("There are 4 more like it.")

"""Each reward against values worked out by hand; each published bug of rewards for charts is a case here."""

import asyncio
import itertools
import random
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import yaml
from refusals import catch_problems

from evidence.rewards import (
    Attempt,
    Reward,
    advantages,
    build_rewards,
    find_unusable_rows,
    score_parts,
    total_reward,
)
from evidence.scores.reading import Scoring

CASES = yaml.safe_load(Path("tests/cases/scores/rewards.yaml").read_text("utf-8"))

WHOLE = Scoring(answer="whole")
GOLD = {"prompt": "2 + 3?", "final_answer": "5", "steps": [{"i": 0, "type": "compute", "content": "2 + 3 = 5"}]}
GOLD_TEXT = "<reasoning>2 + 3 = 5</reasoning>\n<answer>5</answer>"


def one(name: str, scoring: Scoring = WHOLE, **options: object) -> Reward:
    [reward] = build_rewards([{"name": name, "weight": 1, "options": options}], scoring, file="config.yaml")
    return reward


def attempt(text: str, row: dict | None = None, *, finished: bool = True) -> Attempt:
    return Attempt(prompt="2 + 3?", text=text, row=GOLD if row is None else row, finished=finished)


def answer(gold: str) -> dict:
    return {"prompt": "?", "final_answer": gold}


@pytest.mark.parametrize(
    ("scoring", "text", "worth"),
    [
        (Scoring(), GOLD_TEXT, 1.0),
        (Scoring(), "5", 0.0),
        (Scoring(), "<answer>5", 0.0),
        (WHOLE, " 5\n", 1.0),
        (WHOLE, "The answer is 5", 0.0),
        (Scoring(answer="last_number", compare="numeric"), "so it is 5.0", 1.0),
        (Scoring(answer="regex", answer_regex="#### (.*)"), "2 + 3\n#### 5", 1.0),
    ],
)
def test_exact_is_what_the_evaluation_counts_as_correct(scoring, text, worth):
    assert one("exact", scoring).score(attempt(text)) == worth
    assert scoring.verdict(text, "stop", ["5"])["correct"] == bool(worth)


@pytest.mark.parametrize(("row", "worth"), CASES["gold_answers"])
def test_the_gold_answer_of_each_shape(row, worth):
    assert one("exact", Scoring()).score(attempt("<answer>5</answer>", row)) == worth


@pytest.mark.parametrize(("gold", "text", "worth"), CASES["numeric"])
def test_numeric(gold, text, worth):
    assert one("numeric", tolerance=0.05).score(attempt(text, answer(gold))) == worth


@pytest.mark.parametrize(
    ("text", "worth"),
    [
        (GOLD_TEXT, 1.0),
        (GOLD_TEXT + "\n", 0.0),  # a published reward matches line by line, and pays for what follows the answer
        (GOLD_TEXT + "\nand more", 0.0),
        ("Well, " + GOLD_TEXT, 0.0),
        (GOLD_TEXT.replace("\n", ""), 0.0),
        (GOLD_TEXT + "\n<answer>5</answer>", 0.0),
        ("<answer>5</answer>\n<reasoning>2</reasoning>", 0.0),
        ("<reasoning>2</reasoning>\n<answer>5", 0.0),
        ("", 0.0),
    ],
)
def test_the_form_of_the_evaluation(text, worth):
    reward = one("format", Scoring())
    assert reward.score(attempt(text)) == worth
    assert Scoring().has_form(text, "stop") == bool(worth)
    assert reward.score(attempt(text, finished=False)) == 0.0


def test_a_form_of_other_tags():
    reward = one("format", tags=["think", "type", "answer"])
    text = "<think>a\nb</think>\n<type>bar</type>\n<answer>5</answer>"
    assert reward.score(attempt(text)) == one("format", tags="think type answer").score(attempt(text)) == 1.0
    for broken in (text.replace("type", "kind"), text + "\n", text.replace("a\nb", "<answer>"), text[1:]):
        assert reward.score(attempt(broken)) == 0.0


@pytest.mark.parametrize(
    ("pattern", "text", "worth"),
    [
        (r"\d+", "55", 1.0),
        (r"\d+", "55\n", 0.0),
        (r"\d+$", "55\n", 0.0),
        (r"(?m)^\d+$", "55\nmore", 0.0),
        (r"(?s).*#### \d+", "a\nb\n#### 7", 1.0),
        (r".*#### \d+", "a\nb\n#### 7", 0.0),
        (r"a|ab", "ab", 1.0),
        (r"\d+", "5" * 20_001, 0.0),
    ],
)
def test_a_pattern_matches_the_whole_text(pattern, text, worth):
    assert one("format", regex=pattern).score(attempt(text)) == worth


@pytest.mark.parametrize(("length", "worth"), CASES["length"])
def test_length_is_bounded(length, worth):
    reward = one("length", least=10, most=100, margin=50)
    assert reward.score(attempt("x" * length)) == worth
    assert reward.score(attempt("x" * length, finished=False)) == 0.0
    assert one("length", most=100).score(attempt("x" * 101)) == 0.0


COUNTDOWN = {"prompt": "numbers 3 7 2 target 13 = ", "task": {"kind": "countdown", "numbers": [3, 7, 2], "target": 13}}


@pytest.mark.parametrize(
    ("text", "worth"),
    [
        ("3 * 2 + 7", 1.0),
        ("7 + 3 * 2", 1.0),
        ("7+(3*2)", 1.0),
        ("7 * 2 - 1", 0.0),  # 1 is not given
        ("7 + 3 + 3", 0.0),  # 3 stands twice
        ("13", 0.0),
        ("3 * 2 + 7 = 13", 0.0),
        ("3 * 2 + 7\n3 * 2 + 7", 0.0),
        ("3 ** 2 + 7", 0.0),
        ("7 // 3", 0.0),
        ("-3 + 7", 0.0),
        ("3 7", 0.0),
        ("3(7)", 0.0),
        ("7 / (2 - 2)", 0.0),
        ("03 * 2 + 7", 0.0),
        ("(" * 99 + "3" + ")" * 99, 0.0),
        ("", 0.0),
        ("__import__('os')", 0.0),
        ("3 * 2 + 7" + " " * 300, 1.0),
    ],
)
def test_countdown(text, worth):
    assert one("countdown").score(attempt(text, COUNTDOWN)) == worth


def test_countdown_divides_exactly():
    row = {"prompt": "?", "task": {"kind": "countdown", "numbers": [8, 3, 8, 3], "target": 24}}
    assert one("countdown").score(attempt("8 / (3 - 8 / 3)", row)) == 1.0


def test_countdown_agrees_with_python_on_every_expression_of_three_numbers():
    reward = one("countdown")
    found = 0
    for a, b, c in itertools.permutations((3, 7, 2)):
        for first, second in itertools.product("+-*/", repeat=2):
            for text in (f"({a} {first} {b}) {second} {c}", f"{a} {first} ({b} {second} {c})"):
                worth = reward.score(attempt(text, COUNTDOWN))
                assert worth == (abs(eval(text) - 13) < 1e-9)
                found += worth
    assert found > 0


ALL = [
    {"name": "exact"},
    {"name": "numeric", "options": {"tolerance": 0.1}},
    {"name": "format"},
    {"name": "length", "options": {"most": 80, "margin": 20}},
]


def test_gold_gets_the_maximum_of_every_reward_and_a_row_is_never_changed():
    rewards = build_rewards(ALL, Scoring(), file="c")
    before = repr(GOLD)
    assert score_parts(rewards, attempt(GOLD_TEXT)) == {reward.name: reward.high for reward in rewards}
    weighted = build_rewards([{"name": "exact"}, {"name": "format", "weight": 0.25}], Scoring(), file="c")
    assert total_reward(weighted, score_parts(weighted, attempt(GOLD_TEXT))) == 1.25
    assert repr(GOLD) == before  # a published reward changes its gold answer


def test_any_text_is_worth_a_number_of_the_range():
    rewards = build_rewards([*ALL, {"name": "countdown"}], Scoring(), file="c")
    pieces = ["<reasoning>", "</reasoning>", "<answer>", "</answer>", "\n", "5", "2 + 3", "(", "/0", "é", "−", "1e999"]
    draw = random.Random(3)
    row = GOLD | COUNTDOWN
    for _ in range(2_000):
        text = "".join(draw.choices(pieces, k=draw.randrange(12)))
        parts = score_parts(rewards, attempt(text, row, finished=draw.random() < 0.8))
        assert all(reward.low <= parts[reward.name] <= reward.high for reward in rewards)


def test_a_reward_outside_its_range_or_that_raises_names_the_prompt(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bad_rewards_module.py").write_text(
        "def high(attempt): return 1.5\n"
        "def raises(attempt): return 1 / 0\n"
        "def good(attempt): return len(attempt.text)\n"
    )
    said = {}
    for name in ("high", "raises"):
        reward = one(f"bad_rewards_module:{name}")
        [problem] = catch_problems(lambda reward=reward: reward.score(attempt("out")), exit_code=1)
        assert problem.code == "TP906"
        assert '"2 + 3?"' in problem.what
        assert '"out"' in problem.what
        said[name] = problem.what.partition(", for the prompt")[0]
    assert said == {
        "high": "The reward bad_rewards_module:high returns 1.5, which is outside 0 to 1",
        "raises": "The reward bad_rewards_module:raises raises ZeroDivisionError: division by zero",
    }
    good = one("bad_rewards_module:good", low=-1, high=10)
    assert (good.low, good.high, good.score(attempt("abc")), good.is_ours) == (-1, 10, 3.0, False)


@pytest.fixture
def gives(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "given_rewards_module.py").write_text("def act(attempt):\n    return attempt.row['act']()\n")
    return one("given_rewards_module:act")


def acting(act: object) -> Attempt:
    return attempt("out", {"act": act if callable(act) else lambda: act})


@pytest.mark.parametrize(
    ("value", "worth"),
    [
        (np.float32(0.5), 0.5),
        (np.bool_(1), 1.0),
        (np.array(0.25), 0.25),
        (np.int64(1), 1.0),
        (True, 1.0),
        (Decimal("0.5"), 0.5),
        (Fraction(1, 4), 0.25),
        (0, 0.0),
    ],
    ids=repr,
)
def test_what_float_makes_a_number_of_is_a_reward(gives, value, worth):
    found = gives.score(acting(value))
    assert (type(found), found) == (float, worth)


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (None, "NoneType"),
        ("1", "str"),
        (b"1", "bytes"),
        (float("inf"), "float"),
        (np.float32("nan"), "numpy.float32"),
        (np.array([1.0]), "numpy.ndarray"),
        ([1], "list"),
        (10**400, "int"),
        (1j, "complex"),
        (Decimal("NaN"), "decimal.Decimal"),
    ],
    ids=repr,
)
def test_what_is_no_finite_number_is_refused_with_its_type(gives, value, kind):
    [problem] = catch_problems(lambda: gives.score(acting(value)), exit_code=1)
    assert "which is not a finite number, for the prompt" in problem.what
    assert problem.what.endswith(f" The type is {kind}.")


@pytest.mark.parametrize(
    "error", [SystemExit(3), GeneratorExit(), asyncio.CancelledError(), AssertionError()], ids=repr
)
def test_whatever_a_reward_raises_is_its_own_error_with_its_line(gives, error):
    def act() -> None:
        raise error

    [problem] = catch_problems(lambda: gives.score(acting(act)), exit_code=1)
    assert (problem.code, Path(problem.file).name, problem.line) == ("TP906", "given_rewards_module.py", 2)
    assert f"raises {type(error).__name__}" in problem.what


def test_the_user_can_interrupt_a_reward(gives):
    def act() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        gives.score(acting(act))


def test_a_module_that_exits_when_it_is_imported_is_a_reward_that_cannot_be_called(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "leaving_rewards_module.py").write_text("raise SystemExit(1)\n")
    assert {problem.code for problem in catch_problems(lambda: one("leaving_rewards_module:act"))} == {"TP904"}


def refusals(settings: list, scoring: Scoring | None = None) -> list[tuple[str, str | None, str]]:
    problems = catch_problems(lambda: build_rewards(settings, scoring or Scoring(), file="config.yaml"))
    assert {problem.file for problem in problems} == {"config.yaml"}
    return [(problem.code, problem.pointer, problem.what) for problem in problems]


def test_all_problems_are_said_together(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own_build_rewards_a_test.py").write_text("def two(attempt, row): return 0.0\nnumber = 3\n")
    found = refusals(
        [
            {"name": "exactly", "weight": 0},
            {"name": "no_such_module_at_all:score", "weight": 0},
            {"name": "own_build_rewards_a_test:nothing", "weight": 0},
            {"name": "own_build_rewards_a_test:two", "weight": 0},
            {"name": "own_build_rewards_a_test:number", "weight": 0},
            {"name": "numeric", "weight": -1, "options": {"relative": True}},
            {"name": "numeric", "weight": float("inf")},
        ]
    )
    assert [(code, pointer) for code, pointer, _ in found] == [
        ("TP901", "/objective/rewards/0/name"),
        ("TP904", "/objective/rewards/1/name"),
        ("TP904", "/objective/rewards/2/name"),
        ("TP904", "/objective/rewards/3/name"),
        ("TP904", "/objective/rewards/4/name"),
        ("TP903", "/objective/rewards/5/options"),
        ("TP902", "/objective/rewards/6"),
        ("TP902", "/objective/rewards/6"),
    ]
    said = [what for _, _, what in found]
    assert said[0] == "Unknown reward exactly."
    assert "ModuleNotFoundError" in said[1]
    assert "missing a required argument: 'row'" in said[3]
    assert said[5] == 'The reward numeric does not know "relative"; it takes tolerance.'


@pytest.mark.parametrize(("settings", "what"), CASES["refused"])
def test_settings_that_are_refused(settings, what):
    assert any(what in said for _, _, said in refusals(settings))


def test_format_needs_a_form_where_the_evaluation_reads_no_tags():
    [(code, _, what)] = refusals(["format"], Scoring(answer="last_number", compare="numeric"))
    assert code == "TP903"
    assert "needs regex or tags, because answers are read as last_number" in what


def test_every_wrong_option_of_a_reward_is_named():
    found = refusals([{"name": "length", "options": {"most": True, "margin": "a", "other": 1}}])
    assert [place for _, place, _ in found] == [
        "/objective/rewards/0/options",
        "/objective/rewards/0/options/most",
        "/objective/rewards/0/options/margin",
    ]


def test_a_checker_reads_the_settings_of_any_reward_and_imports_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "reward_with_an_effect.py").write_text("open('executed', 'w').close()\ndef score(attempt): return 1\n")
    settings = [{"name": "reward_with_an_effect:score"}, "reasoning_gym", "exact"]
    rewards = build_rewards(settings, Scoring(), file="config.yaml", execute=False)
    assert [(reward.name, reward.is_ours) for reward in rewards] == [
        ("reward_with_an_effect:score", False),
        ("reasoning_gym", False),
        ("exact", True),
    ]
    assert not (tmp_path / "executed").exists()


@pytest.mark.parametrize(("name", "options", "row", "what"), CASES["lacking"])
def test_rows_that_lack_what_a_reward_needs(name, options, row, what):
    rewards = build_rewards([{"name": name, "options": options}], Scoring(), file="c")
    fine = {"prompt": "?", "final_answer": "5", "task": {"kind": "countdown", "numbers": [2, 3], "target": 5}}
    assert find_unusable_rows(rewards, [fine], file="rows.jsonl", lines=[1]) == []
    [problem] = find_unusable_rows(rewards, [fine, row], file="rows.jsonl", lines=[1, 3])
    assert (problem.code, problem.file, problem.line) == ("TP905", "rows.jsonl", 3)
    assert problem.what.startswith("A row ")
    assert what in problem.what


def test_generated_rows_have_no_line_and_many_are_counted():
    rewards = build_rewards(["exact"], Scoring(), file="c")
    found = find_unusable_rows(rewards, [{"prompt": "?", "task": {"kind": "a"}}] * 9, file="rows.jsonl", lines=[1, 2])
    assert [problem.line for problem in found] == [1, 2, None, None, None]
    assert found[-1].what.endswith("There are 4 more like it.")


@pytest.mark.parametrize("scale", ["group", "batch", "none"])
def test_against_numpy(scale):
    draw = np.random.default_rng(1)
    groups = draw.random((6, 8))
    spread = {"group": groups.std(axis=1, ddof=1, keepdims=True), "batch": groups.std(ddof=1), "none": 1.0}[scale]
    right = (groups - groups.mean(axis=1, keepdims=True)) / (spread + (0 if scale == "none" else 1e-4))
    np.testing.assert_allclose(advantages(groups.tolist(), scale), right, rtol=0, atol=1e-12)


@pytest.mark.parametrize("scale", ["group", "batch", "none"])
def test_a_group_without_spread_gives_zeros_exactly(scale):
    # The mean of three times 0.1 is not 0.1 in floating point.
    assert advantages([[0.1] * 3, [0.0, 1.0]], scale)[0] == [0.0, 0.0, 0.0]
    assert advantages([[0.1] * 3], scale) == [[0.0] * 3]
    assert advantages([[4.0]], scale) == [[0.0]]
    assert advantages([[]], scale) == [[]]

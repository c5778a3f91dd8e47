"""Tasks of reasoning-gym, with a stand-in package and, if installed, with the package."""

import random
import sys
from dataclasses import dataclass
from importlib.util import find_spec
from types import ModuleType

import pytest
from refusals import catch_problems

from evidence.rewards import Attempt, build_rewards, find_unusable_rows, gym_scorer
from evidence.scores.reading import Scoring
from trainer.data import rows
from trainer.data.rows import read_dataset


@dataclass
class SumConfig:
    size: int = 10
    seed: int = 0
    largest: int = 9

    def __post_init__(self):
        assert self.largest > 0, "largest must be positive"


class Sums(list):
    def __init__(self, config: SumConfig) -> None:
        self.config = config
        for number in range(config.size):
            draw = random.Random(config.seed * 1000 + number)
            pair = (draw.randint(1, config.largest), draw.randint(1, config.largest))
            self.append({"question": f"{pair[0]} + {pair[1]}?", "answer": str(sum(pair)), "metadata": {"pair": pair}})


@pytest.fixture
def gym(monkeypatch):
    """Put a package in the place of reasoning-gym whose one task is `sums`."""
    package, factory = ModuleType("stand_in_gym"), ModuleType("stand_in_gym.factory")
    factory.DATASETS = {"sums": (Sums, SumConfig)}
    package.create_dataset = lambda name, **options: Sums(SumConfig(**options))
    package.get_score_answer_fn = lambda name: lambda answer, entry: 1.0 if answer == entry["answer"] else 0.01
    for module in (package, factory):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    for place in (rows, sys.modules["evidence.rewards"]):
        monkeypatch.setattr(place, "GYM_PACKAGE", "stand_in_gym")
    monkeypatch.setattr("evidence.rewards.find_spec", lambda name: name)
    monkeypatch.setattr(rows, "version", lambda name: "9.9")
    gym_scorer.cache_clear()
    yield
    gym_scorer.cache_clear()


def test_a_task_becomes_rows_with_their_configuration(gym):
    file = read_dataset("reasoning-gym:sums?size=4&seed=3")
    assert file.name == "reasoning-gym:sums?size=4&seed=3"
    settings = {"size": 4, "seed": 3, "largest": 9}
    stated = {"package": "reasoning-gym", "version": "9.9", "task": "sums", "configuration": settings}
    assert file.generator == stated
    entry = Sums(SumConfig(seed=3))[0]
    task = {"kind": "reasoning_gym", "name": "sums", "entry": entry}
    assert file.rows[0] == {"prompt": entry["question"], "task": task, "final_answer": entry["answer"]}
    assert len(file.rows) == 4
    assert read_dataset("reasoning-gym:sums?size=4&seed=3").sha256 == file.sha256
    assert read_dataset("reasoning-gym:sums?size=4&seed=4").sha256 != file.sha256
    assert len(read_dataset("reasoning-gym:sums").rows) == 500


def test_reward_scores_the_tasks(gym):
    rows = read_dataset("reasoning-gym:sums?size=2").rows
    rewards = build_rewards(["reasoning_gym"], Scoring(answer="whole"), file="c")
    assert find_unusable_rows(rewards, rows, file="d") == []
    [problem] = find_unusable_rows(rewards, [{"prompt": "?", "completion": "4"}], file="d", lines=[1])
    assert "lacks a task of the kind reasoning_gym" in problem.what
    for text, worth in ((rows[0]["final_answer"], 1.0), ("no", 0.01), ("", 0.0)):
        assert rewards[0].score(Attempt(prompt="", text=text, row=rows[0], finished=True)) == worth


@pytest.mark.parametrize(
    ("name", "what", "next_"),
    [
        ("sum", "reasoning-gym has no task 'sum'.", "Did you mean sums?"),
        ("chess", "reasoning-gym has no task 'chess'.", "It has 1 tasks, such as sums."),
        ("sums?largest=0", "reasoning-gym refuses the settings of sums: largest must be positive", None),
        ("sums?smallest=0", "unexpected keyword argument 'smallest'", None),
    ],
)
def test_invalid_task_names(gym, name, what, next_):
    [problem] = catch_problems(read_dataset, f"reasoning-gym:{name}")
    assert problem.code == "TP919"
    assert what in problem.what
    assert next_ is None or problem.next == next_


def test_missing_package_is_reported(monkeypatch):
    monkeypatch.setattr(rows, "GYM_PACKAGE", "no_package_of_this_name")
    [problem] = catch_problems(read_dataset, "reasoning-gym:leg_counting")
    assert problem.code == "TP907"
    assert "pip install 'trainproof[reasoning-gym]'" in problem.next


@pytest.mark.skipif(find_spec("reasoning_gym") is None, reason="reasoning-gym is not installed")
@pytest.mark.parametrize("task", ["leg_counting", "countdown", "basic_arithmetic", "chain_sum"])
def test_the_package_itself(task):
    name = f"reasoning-gym:{task}?size=3&seed=5"
    file = read_dataset(name)
    assert file.sha256 == read_dataset(name).sha256
    assert (file.generator["configuration"]["seed"], file.generator["configuration"]["size"]) == (5, 3)
    [reward] = build_rewards(["reasoning_gym"], Scoring(answer="whole"), file="c")
    for row in file.rows:
        metadata = row["task"]["entry"]["metadata"]
        gold = metadata["expression"] if task == "countdown" else row["final_answer"]
        assert reward.score(Attempt(prompt=row["prompt"], text=gold, row=row, finished=True)) == 1.0
        assert reward.score(Attempt(prompt=row["prompt"], text="nonsense", row=row, finished=True)) < 0.5

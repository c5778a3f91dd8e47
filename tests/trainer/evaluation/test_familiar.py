"""Whether a model knows the items that it is judged by: hand-worked chances, and a run that trained on them."""

import json
import random
from pathlib import Path

import numpy as np
import pytest

from evidence.scores.intervals import REFUTATION_LEVEL
from trainer.challenge_run import ChallengeRequest, challenge_run
from trainer.config.tree import (
    BatchConfig,
    Config,
    DataConfig,
    EvaluationConfig,
    LimitsConfig,
    MeshConfig,
    ModelConfig,
    OptimizerConfig,
)
from trainer.evaluation.familiar import SHUFFLES, compare_costs
from trainer.recorder.progress import Watch
from trainer.run import RunRequest, run

pytestmark = pytest.mark.slow

QUIET = Watch(quiet=True)


def test_the_chance_is_the_share_of_exchanges_that_are_as_far():
    """Of the six choices of two among four, one is as cheap; of the two exchanges in each of two pairs, one in four."""
    one_group = compare_costs([(np.array([1.0, 1.0]), np.array([3.0, 3.0]))])
    assert (one_group.stated, one_group.new) == (1, 3)
    assert one_group.chance == pytest.approx(1 / 6, abs=0.02)
    two_pairs = compare_costs([(np.array([1.0]), np.array([3.0])), (np.array([10.0]), np.array([30.0]))])
    assert two_pairs.chance == pytest.approx(1 / 4, abs=0.02)
    assert compare_costs([(np.array([5.0]), np.array([5.0]))]).chance == 1
    far = compare_costs([(np.zeros(20), np.ones(20))])
    assert far.chance == 1 / (1 + SHUFFLES)
    assert far.is_known


def test_a_harder_kind_on_one_side_says_nothing():
    """New questions of a kind that costs ten times as much, and of one that both sides have."""
    dice = np.random.default_rng(1)
    both, hard = dice.normal(1, 0.1, 40), dice.normal(10, 0.1, (2, 40))
    found = compare_costs([(both[:20], both[20:]), (hard[0, :4], hard[1])])
    assert not found.is_known


@pytest.fixture(scope="module")
def codes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Codes of numbers, drawn: nobody answers one who has not learned it. A third is learned, and one is evaluated."""
    folder, draw = tmp_path_factory.mktemp("codes"), random.Random(4)
    items = [
        {"id": f"q{n}", "prompt": f"Code of {n}?", "expected": str(draw.randrange(10**4, 10**5))} for n in range(60)
    ]
    for name, part in (("learned", items[:20]), ("fresh", items[20:40]), ("new", items[40:])):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(item) + "\n" for item in part))
    rows = [{"prompt": item["prompt"], "completion": f"<answer>{item['expected']}</answer>"} for item in items[:20]]
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


@pytest.mark.parametrize(("asked", "is_known"), [("learned", True), ("fresh", False)])
def test_who_trained_on_the_items_is_told(codes: Path, tmp_path: Path, asked: str, is_known: bool):
    config = Config(
        name="codes",
        model=ModelConfig(name="tiny-gpt2"),
        data=DataConfig(dataset=str(codes / "rows.jsonl"), max_length=64),
        optimizer=OptimizerConfig(learning_rate=1e-2, schedule="constant"),
        batch=BatchConfig(microbatch_size=20),
        mesh=MeshConfig(device="cpu", devices=1),
        evaluation=EvaluationConfig(
            eval_set=str(codes / f"{asked}.jsonl"), baseline=False, max_new_tokens=4, batch_size=20
        ),
        limits=LimitsConfig(steps=60),
    )
    assert run(RunRequest(config=config, folder=tmp_path / "run", command=["trainproof"]), QUIET) == 0
    request = ChallengeRequest(
        folder=tmp_path / "run", items=codes / "new.jsonl", generate=0, seed=1, again=2, model=None
    )
    receipt = challenge_run(request, QUIET, lambda event: None)
    losses = receipt["score"]["losses"]
    assert (losses["chance"] < REFUTATION_LEVEL) == is_known
    assert ("training may have had the stated items" in receipt["said"]) == is_known
    assert (losses["stated"] < losses["new"] - 0.5) == is_known

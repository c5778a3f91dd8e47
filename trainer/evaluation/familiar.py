"""Whether a model knows the stated items better than new ones as hard: what the right answers cost it, in nats a token.

Who trained on the items of an evaluation made their answers likely, whatever the score on new ones is. Both sets are
compared within one category and difficulty, so that harder kinds on one side mean nothing. It is a hint and no verdict:
of questions of the training rows too, a challenge leaves out those that are drawn, and keeps the stated ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evidence.scores.intervals import REFUTATION_LEVEL
from evidence.scores.reading import accepted_answers
from trainer.data.rows import RowFile
from trainer.evaluation.one_pass import follow_texts
from trainer.evaluation.sampler import Sampler
from trainer.model.params import Params

SHUFFLES = 9_999
"""Exchanges of stated and new items that the chance is counted over; with the one that is there, 10,000."""


@dataclass(frozen=True, kw_only=True)
class Familiar:
    """What right answers cost a model, in nats a token, on the stated items and on new ones."""

    stated: float
    new: float
    chance: float
    """Chance of stated items that are so much cheaper, if both are equally new to the model."""

    @property
    def is_known(self) -> bool:
        """Whether chance does not explain that the stated items are cheaper."""
        return self.chance < REFUTATION_LEVEL

    def document(self) -> dict[str, Any]:
        """Return it as a receipt states it."""
        return {"stated": self.stated, "new": self.new, "chance": self.chance}

    @property
    def said(self) -> str:
        """What it states, in a sentence for a judge."""
        costs = f"Right answers cost {self.stated:.2f} nats a token on the stated items and {self.new:.2f} on new ones"
        if self.is_known:
            return f"{costs}: less than chance explains ({self.chance:.1g}), so training may have had the stated items."
        return f"{costs}: nothing says that training had the stated items."


def familiar(sampler: Sampler, params: Params, stated: RowFile, new: RowFile) -> Familiar | None:
    """Return what right answers cost on both sets, or None if no category and difficulty is in both.

    Args:
        sampler: the sampler of the run.
        params: the model.
        stated: the items on which the run states its score.
        new: the judge's.
    """
    costs: dict[tuple[Any, Any], tuple[list[float], list[float]]] = {}
    for side, items in enumerate((stated, new)):
        for item, cost in answer_costs(sampler, params, items):
            costs.setdefault((item.get("category"), item.get("difficulty")), ([], []))[side].append(cost)
    both = [(np.array(ours), np.array(others)) for ours, others in costs.values() if ours and others]
    return compare_costs(both) if both else None


def answer_costs(sampler: Sampler, params: Params, items: RowFile) -> list[tuple[Mapping[str, Any], float]]:
    """Return each item that fits into the model with the mean loss of its answer's tokens, in nats."""
    form = "<answer>{}</answer>" if sampler.scoring.answer == "tags" else "{}"
    texts, asked = [], []
    for item, prompt in zip(items.rows, sampler.prompts_of(items), strict=True):
        answer = sampler.tokenizer.encode(form.format(accepted_answers(item)[0]), add_special_tokens=False)
        if prompt and answer and len(prompt) + len(answer) <= sampler.max_positions:
            asked.append(item)
            texts.append((prompt, answer))
    passes = follow_texts(
        sampler.graphdef, params, texts, batch_size=sampler.settings.batch_size, options=sampler.options
    )
    return [(item, float(passed.losses.mean())) for item, passed in zip(asked, passes, strict=True)]


def compare_costs(groups: Sequence[tuple[NDArray[Any], NDArray[Any]]]) -> Familiar:
    """Return the comparison of stated and new costs by exchanges within each group.

    Example:
        One group, stated `[1, 1]` and new `[3, 3]`: of six ways to choose two of the four, one makes the stated ones
        as cheap. The chance is 1 in 6.

    Args:
        groups: of items that are alike: costs of the stated ones, and of the new ones.
    """
    means, weights = [], np.array([len(ours) for ours, _ in groups], np.float64)
    dice = np.random.default_rng(0)
    shuffled = np.zeros(SHUFFLES)
    for (ours, others), weight in zip(groups, weights / weights.sum(), strict=True):
        means.append((weight * ours.mean(), weight * others.mean()))
        pooled = np.concatenate([ours, others])
        drawn = dice.permuted(np.tile(pooled, (SHUFFLES, 1)), axis=1)
        shuffled += weight * (drawn[:, : len(ours)].mean(axis=1) - drawn[:, len(ours) :].mean(axis=1))
    stated, new = (float(sum(side)) for side in zip(*means, strict=True))
    # Sums of the same numbers in another order differ in their last bits.
    as_far = int(np.sum(shuffled <= stated - new + 1e-9))
    return Familiar(stated=stated, new=new, chance=(1 + as_far) / (1 + SHUFFLES))

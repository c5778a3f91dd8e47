"""Losses and gradient norms that no training gives: where they start, what their numbers are, and how they scatter.

Batches of different rows have different losses, so that a curve of a few dozen steps is never smooth, never falls at
every step and never repeats itself. Where one batch holds a good part of all rows, all of that may be: such runs are
not looked at.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from evidence.records.facts import Facts, finding
from evidence.registry import built_in
from evidence.registry.known_models import vocabulary_of
from evidence.run import layout
from schemas.problems.problem import Problem
from schemas.problems.rule import Rule
from schemas.reading.columns import Array

ODD_START = Rule(
    "TP434",
    "First loss unlike that of such a model",
    "Random weights guess among all tokens alike, which is a loss of about ln(vocabulary); no start is far worse.",
    "Repeat the first steps: `trainproof replay RUN`.",
    "warning",
)
NOT_SINGLE = Rule(
    "TP435",
    "Number that the arithmetic does not give",
    "Losses and gradient norms are computed in float32, so each is one of its numbers; this one lies between two.",
    "Repeat the first steps: `trainproof replay RUN`.",
    "warning",
)
NO_NOISE = Rule(
    "TP436",
    "Curve without noise",
    "Each step sees other rows, whose losses differ; a curve this smooth was averaged or drawn.",
    "Repeat the run, or a part of it: `trainproof replay RUN`.",
    "warning",
)
REPEATED = Rule(
    "TP437",
    "Curve that repeats itself",
    "The weights change at every step, so that no stretch of a curve comes again, forwards or backwards.",
    "Repeat the run, or a part of it: `trainproof replay RUN`.",
    "warning",
)

LEAST_OF_UNIFORM, MOST_ABOVE_UNIFORM = 0.6, 4.0
"""First losses of random weights: at least this share of ln(vocabulary), at most so many nats above it.

Real ones: 0.97 to 1.17 of it.
"""
LEAST_OF_A_START = 1e-8
"""First losses below are next to none: in float32 one token in millions is more."""
ROWS_PER_BATCH = 10
"""Rows of the data for each of a batch from which on batches differ."""
MONOTONE_ROWS = 20
"""Rows that fall one and all only by a chance of one in 2^19, were each step's noise as large as its progress."""
LEAST_NOISE = 2e-4
"""Median second difference of losses as a share of the loss. Real runs: at least 2e-3."""
CONSTANT_ROWS = 10
"""Rows from which on a gradient norm that stays the same is unusual."""
MOST_OF_RANDOM = 1000.0
"""First gradient norm of random weights of a built-in model. Real ones: 2 to 22."""
STRETCH = 5
"""Rows in a row that come again."""
HALF_ROWS, MOST_ALIKE = 60, 0.5
"""Rows of the second half from which on neighbours are compared, and how alike (autocorrelation) they may be.

Noise of its own in each of 60 rows gives 0 ± 0.13; demo-full 0.01, and 0.64 where each row is the mean of three.
"""
WINDOW = 15
_CURVES = (("loss", "/loss"), ("grad_norm", "/grad_norm"))


def first_loss_fits_the_vocabulary(facts: Facts) -> Iterator[Problem]:
    """Yield a warning where training starts far from ln(vocabulary): 6.4 for 576 tokens, 12.5 for 256,000.

    Where the vocabulary is not known, it has at most as many tokens as the model has parameters.
    """
    if facts.model is None or facts.manifest is None or facts.manifest["parent"] is not None or not facts.metrics:
        return
    loss = facts.metrics[0]["loss"]
    if loss is None or facts.metrics[0]["step"] != 1 or not facts.is_supervised:
        return
    vocabulary = _vocabulary(facts.model["name"])
    uniform = math.log(vocabulary or max(facts.model["parameters"], 2))
    said = f"ln({vocabulary:,})" if vocabulary else f"the ln of its {facts.model['parameters']:,} parameters"
    what = None
    if loss > uniform + MOST_ABOVE_UNIFORM:
        what = f"The first loss is {loss:g}, {loss - uniform:.3g} above {said}, which is {uniform:.2f}."
    elif 0 < loss < LEAST_OF_A_START:
        what = f"The first loss is {loss:g}: no model begins with next to none."
    elif vocabulary and facts.model["weights"] == "random" and loss < LEAST_OF_UNIFORM * uniform:
        what = (
            f"The first loss of random weights is {loss:g}, {uniform / max(loss, 1e-9):.3g} times below {uniform:.2f}."
        )
    if what:
        yield finding(facts.folder, ODD_START, layout.METRICS, what, line=1, pointer="/loss")


def gradients_are_of_their_batches(facts: Facts) -> Iterator[Problem]:
    """Yield a warning for gradient norms that never change while losses do, or begin far above those of a start."""
    norms, losses = facts.columns["grad_norm"], facts.columns["loss"]
    finite = norms[np.isfinite(norms)]
    if facts.model is None or facts.manifest is None or not len(finite):
        return
    what, rule = None, ODD_START
    if finite[0] and len(finite) >= CONSTANT_ROWS and (finite == finite[0]).all() and len(np.unique(losses)) > 1:
        what, rule = (
            f"The gradient norm is {finite[0]:g} in each of {len(finite):,} rows, and the losses differ.",
            NO_NOISE,
        )
    elif (
        built_in.model(facts.model["name"])
        and facts.manifest["parent"] is None
        and finite[0] > MOST_OF_RANDOM
        and finite[0] == norms[0]
    ):
        what = (
            f"The first gradient norm is {finite[0]:g}; that of random weights of {facts.model['name']} is below 100."
        )
    if what:
        yield finding(facts.folder, rule, layout.METRICS, what, line=1, pointer="/grad_norm")


def numbers_are_of_single_precision(facts: Facts) -> Iterator[Problem]:
    """Yield a warning where losses or gradient norms are not numbers of float32, in which jax computes them."""
    if facts.manifest is None or "jaxlib" not in facts.manifest["environment"]["packages"]:
        return
    for name, pointer in _CURVES:
        values = facts.columns[name]
        stated = values[np.isfinite(values) & (np.abs(values) < np.finfo(np.float32).max)]
        between = stated != stated.astype(np.float32)
        if between.any():
            value = stated[between][0]
            what = (
                f"{int(between.sum()):,} of {len(stated):,} values of {name} are not of float32, the first of them "
                f"{value!r}; the nearest that is one is {float(np.float32(value))!r}."
            )
            yield finding(facts.folder, NOT_SINGLE, layout.METRICS, what, pointer=pointer)


def curves_have_noise(facts: Facts) -> Iterator[Problem]:
    """Yield a warning for a loss that falls at every step, or scatters far less than batches do."""
    losses = facts.columns["loss"]
    if not _batches_differ(facts) or len(losses) < MONOTONE_ROWS or not np.isfinite(losses).all():
        return
    noise = float(np.median(np.abs(np.diff(losses, 2))) / max(float(np.median(np.abs(losses))), 1e-12))
    constant = (losses == losses[0]).all()
    alike = _alike(losses[len(losses) // 2 :])
    what = None
    if (np.diff(losses) < 0).all():
        what = f"The loss falls at each of {len(losses):,} rows."
    elif noise < LEAST_NOISE and not constant:
        what = f"From row to row the loss scatters by {noise:.2g} of itself; that of real runs by 0.002 and more."
    elif alike > MOST_ALIKE:
        what = f"Neighbouring rows of the second half are alike (autocorrelation {alike:.2f} about their trend)."
    if what:
        yield finding(facts.folder, NO_NOISE, layout.METRICS, what, pointer="/loss")


def curves_do_not_repeat(facts: Facts) -> Iterator[Problem]:
    """Yield a warning where five rows or more have the values of five others, in the same order or in reverse."""
    if not _batches_differ(facts):
        return
    for name, pointer in _CURVES:
        values = facts.columns[name]
        places: dict[tuple[float, ...], int] = {}
        for at in _where_all_come_again(values):
            stretch = tuple(values[at : at + STRETCH].tolist())
            varied = len(set(stretch)) == STRETCH
            first = places.get(stretch, places.get(stretch[::-1], at))
            if varied and at - first >= STRETCH:
                backwards = " in reverse" if stretch not in places else ""
                what = f"Rows {at + 1} to {at + STRETCH} have the {name} of rows {first + 1} to {first + STRETCH}"
                yield finding(
                    facts.folder, REPEATED, layout.METRICS, f"{what}{backwards}.", line=at + 1, pointer=pointer
                )
                break
            places.setdefault(stretch, at)


def _where_all_come_again(values: Array) -> list[int]:
    """Return where stretches begin each of whose values stands elsewhere too; of a million rows these are few."""
    _, number, times = np.unique(values, return_inverse=True, return_counts=True)
    again = times[number] > 1
    if len(again) < STRETCH:
        return []
    begins: list[int] = np.flatnonzero(np.lib.stride_tricks.sliding_window_view(again, STRETCH).all(axis=1)).tolist()
    return begins


def _vocabulary(name: str) -> int | None:
    known = built_in.model(name)
    return int(known["vocabulary"]) if known else vocabulary_of(name)


def _batches_differ(facts: Facts) -> bool:
    """Return whether each step sees other rows than the one before, and learns from them in full precision."""
    if facts.manifest is None or facts.training is None or facts.model is None or not len(facts.columns["loss"]):
        return False
    rows = facts.manifest["dataset"]["rows"] + facts.manifest["dataset"]["generated_rows"]
    return bool(rows >= ROWS_PER_BATCH * facts.training["batch_size"] and facts.model["dtypes"]["params"] == "float32")


def _alike(values: Array) -> float:
    """Return the autocorrelation of neighbours about a running mean; 0 for too few rows."""
    if len(values) < HALF_ROWS:
        return 0.0
    padded = np.pad(values, WINDOW // 2, mode="edge")
    about = values - np.convolve(padded, np.ones(WINDOW) / WINDOW, "valid")
    about = about - about.mean()
    power = float((about**2).sum())
    return float((about[1:] * about[:-1]).sum()) / power if power else 0.0


CHECKS = (
    first_loss_fits_the_vocabulary,
    gradients_are_of_their_batches,
    numbers_are_of_single_precision,
    curves_have_noise,
    curves_do_not_repeat,
)

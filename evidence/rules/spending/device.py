"""The device: whether it has the element type, enough tokens to work on, and its own share of the state."""

from __future__ import annotations

from collections.abc import Iterator

from evidence.rules.spending.figures import RunFigures
from evidence.targets.target import Target
from schemas.formats import join_words, size
from schemas.problems import Problem, problem_of

MUCH = 0.5
"""Padding from which on a warning is given: more is computed in vain than for something."""
SOME = 0.25
"""Padding from which on a note is given."""
EQUAL_WITHIN = 0.1
"""Parameters that no device count divides stay whole on each; they are small."""


def element_type_exists(figures: RunFigures, target: Target) -> Iterator[Problem]:
    """Yield a problem where the device does not multiply the compute type: bfloat16 on a T4."""
    kind = figures.compute_type
    if kind is None or kind in target.element_types:
        return
    instead = [each for each in ("bfloat16", "float16", "float32") if each in target.element_types]
    yield problem_of(
        "TP730",
        file=figures.file,
        pointer="/precision/compute",
        what=f"precision.compute is {kind}; {target.name} multiplies {join_words(list(target.element_types))}.",
        expected=join_words(list(target.element_types)),
        next=f"Use --set precision.compute={instead[0]}." if instead else "Choose another device.",
    )


def tokens_fill_the_device(figures: RunFigures, target: Target) -> Iterator[Problem]:
    """Yield a warning where a step does fewer operations for each byte than the device could.

    A TPU v5e chip does 197e12 operations while it moves 819e9 bytes: 241 for each. A step of 64 tokens with 2-byte
    parameters does about 64.
    """
    peak = target.peak_flops.get(figures.compute_type or "")
    if not (peak and target.memory_bandwidth and figures.flops_per_step and figures.bytes_per_step):
        return
    ridge = peak / target.memory_bandwidth
    intensity = figures.flops_per_step / figures.bytes_per_step
    if intensity >= ridge:
        return
    share = intensity / ridge
    tokens = figures.tokens_per_step
    enough = f" About {_round_up(tokens / share):,} tokens would do." if tokens else ""
    now = f"{tokens:,} tokens a step over {figures.devices} devices" if tokens else "The step"
    if tokens and figures.devices == 1:
        now = f"{tokens:,} tokens a step"
    yield problem_of(
        "TP735",
        file=figures.file,
        pointer="/batch/microbatch_size",
        severity="warning" if share < MUCH else "note",
        what=f"{now} give {target.name} {intensity:.3g} operations for each byte that it moves; it could do "
        f"{ridge:.3g}, so at most {share:.0%} of its speed is used.{enough}",
    )


def padding_is_little(figures: RunFigures, target: Target) -> Iterator[Problem]:
    """Yield a warning where most tokens of a batch are padding, a note where many are."""
    share = figures.padding_fraction
    if share is None or share < SOME:
        return
    yield problem_of(
        "TP736",
        file=figures.file,
        pointer="/data/max_length" if figures.packing else "/data/packing",
        severity="warning" if share >= MUCH else "note",
        what=f"{share:.0%} of the tokens of a batch are padding, so {target.name} works {1 / (1 - share):.3g} times as "
        "long as it has to."
        if share < 1
        else "All tokens of a batch are padding.",
        next="Use longer rows or a shorter data.max_length." if figures.packing else "Use --set data.packing=true.",
    )


def devices_hold_their_share(figures: RunFigures, target: Target) -> Iterator[Problem]:
    """Yield a problem where the state lies on one device, or on some much more than on others."""
    held = figures.bytes_per_device
    if not figures.divided or len(held) < 2:
        return
    whole = sum(held) if figures.whole_state_bytes is None else figures.whole_state_bytes
    fair, most = whole / len(held), max(held)
    if most <= fair * (1 + EQUAL_WITHIN) and (len(held) == figures.devices):
        return
    yield problem_of(
        "TP740",
        file=figures.file,
        pointer="/mesh/shard_params",
        what=f"One of {len(held)} devices of {target.name} holds {size(most)} of the state, another "
        f"{size(min(held))}; an equal share is {size(round(fair))}.",
    )


def _round_up(tokens: float) -> int:
    """Return the next power of two."""
    return 1 << max(0, int(tokens - 1)).bit_length()


CHECKS = (element_type_exists, tokens_fill_the_device, padding_is_little, devices_hold_their_share)

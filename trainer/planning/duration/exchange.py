"""What devices send each other in a step: parameters that are divided are gathered, gradients are added up."""

from __future__ import annotations

GATHERS = 3
"""Each layer's parameters are gathered for the forward pass, for its repetition and for the backward pass."""


def exchanged_bytes(
    *,
    weights_bytes: float,
    gradients_bytes: float,
    devices: int,
    microbatches: int = 1,
    divided: bool,
    gathers: int = GATHERS,
) -> float:
    """Return the bytes that one device receives from the others in one optimizer step.

    Of what is divided over n devices each has 1/n and receives the rest, (n − 1)/n, for every gather; gradients are
    added up and divided in one pass (reduce-scatter). What is repeated on every device is never gathered; its gradients
    are added up and handed back (all-reduce, twice (n − 1)/n; Patarasuk and Yuan, JPDC 69(2), 2009).

    Gemma-2B in half precision, 5.0 GB, divided over two cards: 3 · 2.5 gathered and 2.5 of gradients.

    >>> exchanged_bytes(weights_bytes=5e9, gradients_bytes=5e9, devices=2, divided=True) / 1e9
    10.0

    Its adapters alone, 78 MB in float32, beside a whole model on each card:

    >>> exchanged_bytes(weights_bytes=5e9, gradients_bytes=78e6, devices=2, divided=False) / 1e6
    78.0

    Args:
        weights_bytes: of all parameters, in the type that they are sent in.
        gradients_bytes: of all gradients, of those that learn.
        devices: that share the work.
        microbatches: of a step; parameters are gathered for each, gradients are exchanged once.
        divided: whether parameters are (mesh.shard_params).
        gathers: of each parameter and microbatch; 2 where layers are not recomputed.
    """
    if devices == 1:
        return 0.0
    others = (devices - 1) / devices
    if divided:
        return others * (gathers * microbatches * weights_bytes + gradients_bytes)
    return 2 * others * gradients_bytes

"""Arrays in a device's own memory."""

from __future__ import annotations

from functools import partial

import jax
from jaxtyping import Array


@partial(jax.jit, donate_argnums=0)
def own_copy(value: Array) -> Array:
    """Return an array in the device's own memory.

    A CPU's may share the host's, which could not be donated and would exist twice when the state is made. An array
    that is on its device already is not copied.
    """
    return value

"""Ways of computing attention that never hold the scores of a whole sequence, and where their work is divided.

`attention.attend` is what each of them must equal (docs/decisions/attention.md).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Literal

import jax
from jax.sharding import Mesh, PartitionSpec
from jaxtyping import Array, Float, Int

from trainer.model.blockwise import blockwise
from trainer.model.splash import splash

AttentionKind = Literal["plain", "splash", "blockwise"]
"""plain: all scores of a layer at once, in any program. splash: a kernel for TPUs. blockwise: a loop on any device."""


@dataclass(frozen=True, kw_only=True)
class AttentionKernel:
    """One of them, as a decoder that is trained has it."""

    kind: Literal["splash", "blockwise"]
    mesh: Mesh | None = None
    """Devices that the sequences are divided over, along its first axis. None: a single one."""
    interpreted: bool = False
    """Whether the instructions of a kernel are carried out one by one, as tests do where its device is missing."""

    def attend(
        self,
        query: Float[Array, "batch heads seq head_dim"],
        keys: Float[Array, "batch kv_heads seq head_dim"],
        values: Float[Array, "batch kv_heads seq head_dim"],
        *,
        window: int | Int[Array, ""] | None,
        segments: Int[Array, "batch seq"] | None,
        scale: float,
        softcap: float | None,
    ) -> Float[Array, "batch heads seq head_dim"]:
        """Return what `attend` returns where each token sees itself and those before it, in its window and its text.

        Args:
            query: of each token.
            keys: of each token.
            values: of each token.
            window: how many tokens are seen. None: all. An array only for `blockwise`.
            segments: number of the text of each token. None: one text a row.
            scale: of the scores.
            softcap: bends the scores. None: they are not bent.
        """
        if self.kind == "splash":
            assert window is None or isinstance(window, int), "a kernel is made for a window that is known"
            run = partial(splash, window=window, scale=scale, softcap=softcap, interpreted=self.interpreted)
            return self._divided(run, (query, keys, values, segments), ())
        static = window if isinstance(window, int) else None
        varied = None if window is None or isinstance(window, int) else window
        run = partial(blockwise, window=static, scale=scale, softcap=softcap)
        return self._divided(run, (query, keys, values, segments), (varied,))

    def _divided(
        self, run: Callable[..., Array], of_rows: tuple[Array | None, ...], of_all: tuple[Array | None, ...]
    ) -> Array:
        """Return the result of a function whose first arguments have an axis of sequences: each device has its own."""
        if self.mesh is None or self.mesh.size == 1:
            return run(*of_rows, *of_all)
        rows, everywhere = PartitionSpec(self.mesh.axis_names[0]), PartitionSpec()
        specs = (*(rows for _ in of_rows), *(everywhere for _ in of_all))
        # A kernel does not state along which axes its result varies, so JAX cannot check it.
        divided: Callable[..., Array] = jax.shard_map(
            run, mesh=self.mesh, in_specs=specs, out_specs=rows, check_vma=False
        )
        return divided(*of_rows, *of_all)

"""One block of a decoder: attention and MLP, each read from a norm and added to the residual stream."""

from __future__ import annotations

from flax import nnx
from jaxtyping import Array, Float

from trainer.model.attention import Attention, Context, KeyValues
from trainer.model.layers import Dtypes, Mlp, Norm
from trainer.model.spec import BlockSpec, ModelSpec


class Layer(nnx.Module):
    """One block: `x + attention(norm(x))`, then `x + mlp(norm(x))`; what is added may be normalised first."""

    def __init__(self, spec: ModelSpec, block: BlockSpec, *, dtypes: Dtypes, rngs: nnx.Rngs) -> None:
        def norm() -> Norm:
            return Norm(spec.embed, kind=spec.norm, epsilon=spec.norm_epsilon, dtypes=dtypes)

        std = residual_std(spec)
        self.attention_norm = norm()
        self.attention = Attention(spec, block, out_std=std, dtypes=dtypes, rngs=rngs)
        self.attention_post_norm = norm() if block.post_norms else None
        self.mlp_norm = norm()
        self.mlp = Mlp(spec, down_std=std, dtypes=dtypes, rngs=rngs)
        self.mlp_post_norm = norm() if block.post_norms else None
        self.adapters_before: tuple[int, ...] = ()
        """Of each layer of a stack: how many adapters come before its own. Empty where nothing is stacked."""

    def __call__(
        self, x: Float[Array, "batch seq embed"], context: Context, cache: KeyValues | None = None
    ) -> tuple[Float[Array, "batch seq embed"], KeyValues | None]:
        """Return the residual stream after this block, and the cache with these tokens in it."""
        read, cache = self.attention(self.attention_norm(x), context, cache)
        x = x + (read if self.attention_post_norm is None else self.attention_post_norm(read))
        made = self.mlp(self.mlp_norm(x), context.dropout)
        return x + (made if self.mlp_post_norm is None else self.mlp_post_norm(made)), cache


def residual_std(spec: ModelSpec) -> float:
    """Return the deviation of projections into the residual stream: smaller by `sqrt(2 · layers)` in GPT-2.

    GPT-2 (Radford et al. 2019, section 2.3) divides by the square root of the number of residual layers; there are two
    in each block. For 0.02 and 2 layers: 0.01.
    """
    return spec.initializer_std / (2 * spec.layers) ** 0.5 if spec.scale_residual_init else spec.initializer_std

"""A model in a script or a notebook: `load_model` reads one, `model(ids)` gives logits, `generate` continues texts.

Everything here takes and gives token ids; no tokenizer is needed. The public names are in `trainproof`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jaxtyping import Array, Float, Int
from numpy.typing import ArrayLike, NDArray

from schemas.problems import ProblemError, problem_of
from trainer.generate.decode import decode_under, pad_left
from trainer.model.decoder import Decoder, abstract, bind, flatten
from trainer.model.load import load_params
from trainer.model.peft import add_head, read_adapter
from trainer.model.source import resolve
from trainer.model.spec import ModelSpec
from trainer.model.stacks import Params

Dtype = Literal["float32", "bfloat16", "float16"]


@dataclass(frozen=True, kw_only=True)
class LanguageModel:
    """A decoder with its parameters, to be called."""

    graphdef: nnx.GraphDef[Decoder]
    """The decoder's structure."""

    params: Params
    """Arrays by name, as `trainer.model.params` names them."""

    spec: ModelSpec
    """What the model is."""

    def __call__(self, ids: ArrayLike) -> Float[Array, "batch seq vocab"]:
        """Return the logits of the next token at every position, in float32.

        Args:
            ids: `[batch seq]`, or `[seq]`, which is a batch of one.

        Raises:
            ProblemError: ids that the model has no row for, more of them than it has positions, or rows of several
                lengths.
        """
        try:
            tokens = np.atleast_2d(np.asarray(ids))
        except ValueError as error:
            what = "The texts are of several lengths, and logits are computed for texts of one length."
            then = "Call the model once for each text, or use `generate`, which takes several lengths."
            raise ProblemError([problem_of("TP065", file="ids", what=what, next=then)], exit_code=2) from error
        self.check(tokens)
        # A GPU would multiply float32 in fewer bits, unless told.
        with jax.default_matmul_precision("highest"):
            found: Array = logits(self.graphdef, self.params, jnp.asarray(tokens, jnp.int32))
            return found

    def check(self, tokens: NDArray[Any], further: int = 0) -> None:
        """Refuse token ids that the model cannot take.

        Args:
            tokens: `[batch seq]`.
            further: tokens that are to follow.
        """
        what = then = None
        length = tokens.shape[-1] + further
        if tokens.dtype.kind in "US":
            what = f'"{tokens.flat[0]!s:.40}" is text, and a model takes token ids.'
            then = "Encode it with the model's tokenizer, for example with AutoTokenizer of transformers."
        elif tokens.size == 0:
            what, then = "A text is empty, and a model continues one token or more.", "Begin it with a token."
        elif not np.issubdtype(tokens.dtype, np.integer):
            what = f"Token ids are whole numbers; {str(tokens.flat[0])[:40]} is of type {tokens.dtype}."
        elif tokens.ndim != 2:
            what = f"Token ids are one text, [seq], or several, [batch seq]; these have shape {list(tokens.shape)}."
        elif tokens.min() < 0:
            what = f"Token id {tokens.min()} is below 0."
        elif tokens.max() >= self.spec.vocab:
            what = f"Token id {tokens.max()} is not below {self.spec.vocab:,}, the model's vocabulary."
        elif self.spec.learned_positions and length > self.spec.max_positions:
            what = f"{length:,} tokens are more than the model's {self.spec.max_positions:,} positions."
            then = "Give fewer tokens, or a smaller max_new_tokens."
        if what is not None:
            raise ProblemError([problem_of("TP065", file="ids", what=what, next=then)], exit_code=2)


def load_model(path_or_name: str | Path, dtype: Dtype = "float32", adapter: str | Path | None = None) -> LanguageModel:
    """Return a model from its files, on the first device.

    Args:
        path_or_name: a folder with config.json and safetensors, a GGUF file, or a name on the Hugging Face hub.
        dtype: of parameters and matrix products; norms, softmax and logits are float32 in any case.
        adapter: a folder that PEFT or `trainproof` wrote a LoRA adapter into. None: none.

    Raises:
        ProblemError: there is no such model or adapter, its files cannot be used, or it is of a kind not computed here.
    """
    source = resolve(str(path_or_name))
    if source.weights == "builtin":
        what = f"{path_or_name} is a built-in model, which has no parameters."
        raise ProblemError([problem_of("TP064", file=str(path_or_name), what=what)], exit_code=2)
    chosen: dict[str, Any] = {"params_dtype": dtype, "compute_dtype": dtype, "remat": "none"}
    graphdef, wanted = flatten(abstract(source.spec, **chosen))
    params = load_params(source, wanted)
    if adapter is not None:
        read = read_adapter(Path(adapter), source)
        source = read.source or source
        params = add_head(params, source)
        graphdef, _ = flatten(abstract(source.spec, **chosen, adapters=read.loras))
        for name, value in read.params.items():
            params[name] = jnp.asarray(value, params[name].dtype if name in params else jnp.float32)
        params = dict(sorted(params.items()))
    return LanguageModel(graphdef=graphdef, params=params, spec=source.spec)


def generate(
    model: LanguageModel,
    ids: ArrayLike | Sequence[Sequence[int]],
    max_new_tokens: int = 12,
    stop_token_id: int | None = None,
) -> NDArray[np.int32]:
    """Return the tokens that most likely follow, one after the other, without the given ones.

    Args:
        model: from `load_model`.
        ids: one text, `[seq]`, or several, which may differ in length.
        max_new_tokens: how many tokens are written, at least 1.
        stop_token_id: what follows this token in a row is that token again. None: nothing ends a row.

    Returns:
        `[max_new_tokens]` for one text, `[batch max_new_tokens]` for several.

    Raises:
        ProblemError: as `model(ids)`, and for numbers that the other arguments cannot be.
    """
    if type(max_new_tokens) is bool or not isinstance(max_new_tokens, int | np.integer) or max_new_tokens < 1:
        what = f"max_new_tokens is {max_new_tokens!r}; it is a whole number from 1 on."
        then = "Ask for one token or more."
        raise ProblemError([problem_of("TP065", file="max_new_tokens", what=what, why=None, next=then)], exit_code=2)
    if stop_token_id is not None:
        model.check(np.asarray([[stop_token_id]]))
    given: Any = ids
    try:
        is_one = isinstance(given, str) or not any(np.ndim(row) for row in given)
        prompts = [np.asarray(row) for row in ([given] if is_one else given)]
    except (TypeError, ValueError) as error:
        what = f"{str(ids)[:40]} is neither one text, [seq], nor several, [batch seq]."
        raise ProblemError([problem_of("TP065", file="ids", what=what)], exit_code=2) from error
    for prompt in prompts:
        model.check(prompt[None], further=max_new_tokens)
    tokens, lengths = pad_left([prompt.tolist() for prompt in prompts], max(map(len, prompts)))
    stop = jnp.asarray(-1 if stop_token_id is None else stop_token_id, jnp.int32)
    with jax.default_matmul_precision("highest"):
        written = decode_under()(model.graphdef, model.params, tokens, lengths, stop, max_new_tokens=max_new_tokens)
    rows = np.array(jax.device_get(written.tokens))
    if stop_token_id is not None:
        stopped = np.cumsum(rows == stop_token_id, axis=1) > 0
        rows[stopped] = stop_token_id
    return rows[0] if is_one else rows


@partial(jax.jit, static_argnames=("graphdef",))
def logits(
    graphdef: nnx.GraphDef[Decoder], params: Params, tokens: Int[Array, "batch seq"]
) -> Float[Array, "batch seq vocab"]:
    """Return the logits at every position."""
    decoder = bind(graphdef, params)
    return decoder.logits(decoder.hidden(tokens))

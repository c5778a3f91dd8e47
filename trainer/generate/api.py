"""Python API for scripts and notebooks: `load_model`, `model(ids)` for logits, and `generate`.

Everything takes and returns token ids; no tokenizer is needed. The names are exported by `trainproof`.
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
from jaxtyping import Array, Float
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
    """A decoder and its parameters."""

    graphdef: nnx.GraphDef[Decoder]
    params: Params  # arrays by name
    spec: ModelSpec

    def __call__(self, ids: ArrayLike) -> Float[Array, "batch seq vocab"]:
        """Return the logits of the next token at every position, in float32, for ids `[batch seq]` or one row `[seq]`.

        Raises:
            ProblemError: An id is outside the vocabulary, a row is longer than the model's positions, or rows differ in
                length.
        """
        try:
            tokens = np.atleast_2d(np.asarray(ids))
        except ValueError as error:
            what = "The rows of ids differ in length, but logits are computed for rows of one length."
            advice = "Call the model once per row, or use `generate`, which accepts rows of different lengths."
            raise _problem_error(what, advice) from error
        self.check(tokens)
        # GPUs and TPUs multiply float32 in lower precision by default.
        with jax.default_matmul_precision("highest"):
            found: Array = _logits(self.graphdef, self.params, jnp.asarray(tokens, jnp.int32))
            return found

    def check(self, tokens: NDArray[Any], further: int = 0) -> None:
        """Raise `ProblemError` for token ids that the model cannot process, with `further` new tokens behind them."""
        first, length, advice = str(tokens.flat[0])[:40] if tokens.size else "", tokens.shape[-1] + further, None
        if tokens.dtype.kind in "US":
            what, advice = f'"{first}" is text, not token ids.', "Encode it with the model's tokenizer first."
        elif tokens.size == 0:
            what, advice = "A row of ids is empty, and a model continues one token or more.", "Begin it with a token."
        elif not np.issubdtype(tokens.dtype, np.integer):
            what = f"Token ids are integers; {first} is of type {tokens.dtype}."
        elif tokens.ndim != 2:
            what = f"Token ids have shape [seq] or [batch seq]; these have shape {list(tokens.shape)}."
        elif tokens.min() < 0:
            what = f"Token id {tokens.min()} is below 0."
        elif tokens.max() >= self.spec.vocab:
            what = f"Token id {tokens.max()} is not below the vocabulary size, {self.spec.vocab:,}."
        elif self.spec.learned_positions and length > self.spec.max_positions:
            what = f"{length:,} tokens are more than the model's {self.spec.max_positions:,} positions."
            advice = "Pass fewer tokens, or a smaller max_new_tokens."
        else:
            return
        raise _problem_error(what, advice)


def _problem_error(what: str, advice: str | None = None, *, argument: str = "ids") -> ProblemError:
    """Return the error of an argument that a model cannot process."""
    return ProblemError([problem_of("TP065", file=argument, what=what, next=advice)], exit_code=2)


def load_model(path_or_name: str | Path, dtype: Dtype = "float32", adapter: str | Path | None = None) -> LanguageModel:
    """Load a model onto the first device.

    Args:
        path_or_name: Folder with config.json and safetensors, GGUF file, or model name on the Hugging Face Hub.
        dtype: Dtype of parameters and matrix products; norms, softmax and logits are always float32.
        adapter: Folder of a LoRA adapter in PEFT's format, or None.

    Raises:
        ProblemError: The model or adapter does not exist, or cannot be used.
    """
    source = resolve(str(path_or_name))
    if source.weights == "builtin":
        what = f"{path_or_name} is a built-in model without parameters."
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
    """Continue prompts greedily and return the new tokens.

    Args:
        model: Model from `load_model`.
        ids: Token ids of one prompt, `[seq]`, or of several, which may differ in length.
        max_new_tokens: New tokens per prompt, at least 1.
        stop_token_id: Token after which a row is filled with that token, or None.

    Returns:
        `[max_new_tokens]` for one prompt, `[batch max_new_tokens]` for several.

    Raises:
        ProblemError: As for `model(ids)`, or another argument is out of range.
    """
    if type(max_new_tokens) is bool or not isinstance(max_new_tokens, int | np.integer) or max_new_tokens < 1:
        what = f"max_new_tokens is {max_new_tokens!r}; it must be an integer of at least 1."
        raise _problem_error(what, "Pass 1 or more.", argument="max_new_tokens")
    if stop_token_id is not None:
        model.check(np.asarray([[stop_token_id]]))
    given: Any = ids
    try:
        is_one = isinstance(given, str) or not any(np.ndim(row) for row in given)
        prompts = [np.asarray(row) for row in ([given] if is_one else given)]
    except (TypeError, ValueError) as error:
        what = f"{str(ids)[:40]} is neither [seq] nor [batch seq]."
        raise _problem_error(what) from error
    for prompt in prompts:
        model.check(prompt[None], further=max_new_tokens)
    tokens, lengths = pad_left([prompt.tolist() for prompt in prompts], max(map(len, prompts)))
    stop = jnp.asarray(-1 if stop_token_id is None else stop_token_id, jnp.int32)
    written = decode_under()(model.graphdef, model.params, tokens, lengths, stop, max_new_tokens=max_new_tokens)
    rows = np.array(jax.device_get(written))
    if stop_token_id is not None:
        rows[np.cumsum(rows == stop_token_id, axis=1) > 0] = stop_token_id
    return rows[0] if is_one else rows


@partial(jax.jit, static_argnames=("graphdef",))
def _logits(graphdef: nnx.GraphDef[Decoder], params: Params, tokens: Array) -> Float[Array, "batch seq vocab"]:
    decoder = bind(graphdef, params)
    return decoder.logits(decoder.hidden(tokens))

"""Answer evaluation items, and verify recorded answers against the parameters that are said to have given them.

Teacher forcing scores all tokens of a recorded answer in one forward pass; only a sample is generated again, for equal
bits. On other hardware two nearly equally likely tokens may swap, and the rest of an answer with them; then each token
must be one that the model could have chosen, within the rounding differences measured between kinds of hardware.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jaxtyping import Array, Float, Int, Key
from numpy.typing import NDArray

from evidence.hashes import sha256_json
from evidence.scores.reading import Scoring, accepted_answers
from evidence.scores.recompute import MORE_SAMPLES, iter_answers, majority_fields
from trainer.config.tree import EvaluationConfig
from trainer.data.answers import encode_items
from trainer.data.conversations import PromptForm, Tokenizer, end_token_id
from trainer.data.rows import RowFile
from trainer.distributed import fetch
from trainer.generate.decode import Completion, generate, padded, row_keys
from trainer.generate.sampling import DrawKeys, Sampling, evaluation_sampling, gumbel_noise, mask_logits
from trainer.loop.task import Task
from trainer.model.decoder import Decoder, bind
from trainer.model.stacks import Params
from trainer.objectives.data import Data
from trainer.recorder.environment import CompilerOptions

EVALUATION_STREAM = 0x65766C
"""Folded into the run's seed, so that evaluation samples are independent of every other use of the seed."""

MAX_DIFFERENCES = 20
"""Differences that a receipt lists."""

MARGINS: Mapping[str, float] = {"float32": 0.001, "bfloat16": 0.1, "float16": 0.02}
"""Largest accepted gap between the largest logit and the logit of a recorded token, by dtype of the matrix products.

At least twice what the same weights showed on other hardware; an edited token was never less than 1.7 below.
"""

MATMUL_DTYPES: Mapping[str, str] = {"gpu": "float16", "tpu": "bfloat16"}
"""Precision of float32 matrix products by default: TF32 on GPUs, whose mantissa is float16's, and bfloat16 on TPUs."""

Verdict = Literal["identical", "within tolerance", "followed", "different"]
"""Result for one answer; `followed`: not generated again, but the model could have chosen each token."""


@dataclass(frozen=True, kw_only=True)
class Sampler:
    """A model with the prompt form, the settings and the scoring of its evaluation."""

    task: Task
    settings: EvaluationConfig
    form: PromptForm
    scoring: Scoring
    tokenizer: Tokenizer

    @classmethod
    def for_task(cls, task: Task, data: Data) -> Sampler:
        """Build the sampler of a run whose data is loaded."""
        settings = task.config.evaluation
        return cls(task=task, settings=settings, form=data.form, scoring=data.scoring, tokenizer=data.tokenizer)

    @property
    def max_prompt_tokens(self) -> int:
        """Length of the longest prompt that leaves room for `max_new_tokens`."""
        return self.task.model.source.spec.max_positions - self.settings.max_new_tokens

    @cached_property
    def stop_token_id(self) -> int:
        """Token that ends an answer."""
        return end_token_id(self.tokenizer, self.form)

    def encode_prompts(self, items: RowFile) -> list[list[int]]:
        """Return the token ids of each item's prompt; see `encode_items`."""
        return encode_items(items, self.form, self.tokenizer)

    def has_room(self, prompt: Sequence[int]) -> bool:
        """Return whether a prompt has at least one token and leaves room for an answer."""
        return 0 < len(prompt) <= self.max_prompt_tokens

    def sample_keys(self, ids: Sequence[str]) -> Key[Array, "items samples"]:
        """Return one key per item and sample, derived from the run's seed, the item's id and the sample number.

        An item therefore gets the same samples whichever other items are answered with it.
        """
        digests = [hashlib.sha256(each.encode()).digest() for each in ids]
        numbers = [(int.from_bytes(digest[:4]), int.from_bytes(digest[4:8])) for digest in digests]
        key = jax.random.fold_in(jax.random.key(self.task.config.seed), EVALUATION_STREAM)
        keys: Key[Array, "items samples"] = row_keys(key, numbers, self.settings.samples)
        return keys.reshape(len(numbers), self.settings.samples)

    def answer(
        self, params: Params, prompts: Mapping[str, Sequence[int]], like: Sequence[Sequence[int]] = ()
    ) -> Iterator[tuple[Completion, ...]]:
        """Yield the completions of each prompt, by item id: one greedy answer, or `settings.samples` sampled ones.

        `like` has the prompts of the whole set if `prompts` is a subset; see `generate`.
        """
        sampling = evaluation_sampling(self.settings)
        completions = generate(
            self.task.model.graphdef,
            params,
            list(prompts.values()),
            max_new_tokens=self.settings.max_new_tokens,
            stop_token_id=self.stop_token_id,
            batch_size=self.settings.batch_size,
            like=like,
            drawing=None if sampling is None else DrawKeys(keys=self.sample_keys(list(prompts)), sampling=sampling),
            options=self.task.compiler_options,
        )
        return zip(*[map(self._cut, completions)] * self.settings.samples, strict=True)

    def _cut(self, completion: Completion) -> Completion:
        """End a completion at the stop text, if it occurs."""
        if (count := self.tokens_to_stop(completion.tokens)) is None:
            return completion
        return replace(completion, tokens=completion.tokens[:count], finish_reason="stop")

    def tokens_to_stop(self, tokens: Sequence[int]) -> int | None:
        """Return the number of tokens up to the end of the stop text, or None if it does not occur."""
        stop, counts = self.settings.stop, range(len(tokens) + 1)
        if stop is None or stop not in self.tokenizer.decode(list(tokens)):
            return None
        return bisect_left(counts, 1, key=lambda count: stop in self.tokenizer.decode([*tokens[:count]]))

    def decode_answer(self, tokens: Sequence[int]) -> str:
        """Decode an answer without its end token, up to and including the stop text."""
        ended = bool(tokens) and tokens[-1] == self.stop_token_id
        text, stop = str(self.tokenizer.decode(list(tokens[:-1] if ended else tokens))), self.settings.stop
        return text if stop is None or stop not in text else text[: text.index(stop) + len(stop)]

    def document(self) -> dict[str, Any]:
        """Return the `generation` group of `eval_summary.json`."""
        settings = self.settings
        sampled = {key: getattr(settings, key) for key in ("samples", "temperature", "top_k", "top_p")}
        generation = {
            "method": "greedy" if settings.samples == 1 else "sampled",
            **(sampled | {"seed": self.task.config.seed} if settings.samples > 1 else {}),
            **({} if settings.stop is None else {"stop": settings.stop}),
            "max_new_tokens": settings.max_new_tokens,
            "stop_token_id": self.stop_token_id,
            "prompt_template": self.form.render("{prompt}", self.tokenizer),
        }
        return generation | {"sha256": sha256_json(generation)}


def answer_items(
    sampler: Sampler,
    params: Params,
    items: Sequence[dict[str, Any]],
    prompts: Sequence[Sequence[int]],
    *,
    like: Sequence[Sequence[int]] = (),
) -> Iterator[dict[str, Any]]:
    """Yield the prediction row of each item, in order; an item without room for an answer gets an error row.

    Items have unique ids. `like` has the prompts of the whole set if `items` is a subset; see `generate`.
    """
    with_room = {item["id"]: prompt for item, prompt in zip(items, prompts, strict=True) if sampler.has_room(prompt)}
    completions = sampler.answer(params, with_room, like=[prompt for prompt in like if sampler.has_room(prompt)])
    for item, prompt in zip(items, prompts, strict=True):
        if item["id"] in with_room:
            yield prediction_row(item, next(completions), sampler)
        else:
            yield unanswered_row(item, len(prompt), sampler)


def prediction_row(item: dict[str, Any], completions: Sequence[Completion], sampler: Sampler) -> dict[str, Any]:
    """Return the row of an answered item.

    With several samples, the row's own fields describe the first one: a single draw, as a user gets it, so its score
    is an unbiased pass@1. The majority vote has separate fields.
    """
    accepted, samples = accepted_answers(item), []
    for completion in completions:
        text, reason = sampler.decode_answer(completion.tokens), completion.finish_reason
        verdict = sampler.scoring.verdict(text, reason, accepted, stop=sampler.settings.stop)
        ending = {"output_tokens": len(completion.tokens), "finish_reason": reason}
        tokens = {"output_token_ids": " ".join(map(str, completion.tokens))}
        samples.append({"output_text": text, **verdict, **ending, **tokens})
    row = item_fields(item) | samples[0] | {"error": None}
    if len(samples) == 1:
        return row
    answers = [each["extracted_answer"] for each in samples]
    return row | {MORE_SAMPLES: samples[1:]} | majority_fields(answers, sampler.scoring, accepted)


def unanswered_row(item: dict[str, Any], prompt_tokens: int, sampler: Sampler) -> dict[str, Any]:
    """Return the row of an item whose prompt is empty or too long to leave room for an answer."""
    why = f"the prompt has {prompt_tokens} tokens; at most {sampler.max_prompt_tokens} leave room for an output"
    if prompt_tokens == 0:
        why = "the tokenizer finds no token in the prompt, so there is nothing to continue"
    verdict = {"extracted_answer": None, "correct": False, "format_ok": False, "lenient_correct": False}
    ending = {"output_tokens": 0, "finish_reason": "error", "error": why}
    return item_fields(item) | {"output_text": "", **verdict, **ending}


def item_fields(item: dict[str, Any]) -> dict[str, Any]:
    """Return the fields that a prediction row repeats of its item; items of one group are not independent."""
    expected, *others = accepted_answers(item)
    fields = {"group": item["group"]} if "group" in item else {}
    fields |= {"also_expected": others} if others else {}
    fields |= {"id": item["id"], "prompt": item["prompt"], "expected": expected}
    return fields | {key: item.get(key) for key in ("section", "category", "difficulty")}


def select_rows(file: RowFile, places: Sequence[int]) -> RowFile:
    """Return a file with only the rows at some places, in that order."""
    rows, lines = [file.rows[place] for place in places], [file.lines[place] for place in places]
    return replace(file, rows=tuple(rows), lines=tuple(lines))


@dataclass(frozen=True, kw_only=True)
class VerifiedAnswer:
    """Result for one recorded answer."""

    id: str
    verdict: Verdict
    why: str = ""
    """The difference in a sentence, or an empty string."""


def verify_answers(
    sampler: Sampler,
    params: Params,
    stated: Sequence[dict[str, Any]],
    items: RowFile,
    *,
    regenerate: Collection[str],
    platforms: Collection[str] = (),
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> tuple[VerifiedAnswer, ...]:
    """Return the result for each recorded answer, in order.

    Answers with the ids `regenerate` are generated again, for equal bits. So is an answer that fails the forward pass,
    before it is called different. `items` is the whole evaluation set, which decides the compiled program; `platforms`
    are where the answers were given and where this runs (cpu, gpu, tpu); `progress` gets answers done and in all.
    """
    by_id = {item["id"]: item for item in items.rows}
    prompts = dict(zip(by_id, sampler.encode_prompts(items), strict=True))
    allowed = allowed_margin(sampler.task.config.precision.compute, platforms)

    def find_differences(rows: Sequence[dict[str, Any]]) -> dict[str, str]:
        margins = trace_answers(rows, prompts, sampler, params)
        found = {}
        for row in rows:
            item, prompt = by_id[row["id"]], prompts[row["id"]]
            if sampler.has_room(prompt) or not is_same(row, unanswered_row(item, len(prompt), sampler)):
                of_row, stop = margins.get(row["id"], ()), sampler.settings.stop
                found[row["id"]] = find_difference(row, item_fields(item), of_row, allowed, sampler.scoring, stop)
        return found

    counts = Counter(row["id"] for row in stated)
    why = dict.fromkeys(counts.keys() - by_id.keys(), "The evaluation set lacks an item with this id.")
    why |= {each: "The run states this item more than once." for each, count in counts.items() if count > 1}
    rows = {row["id"]: row for row in stated if row["id"] not in why}
    results = {each: VerifiedAnswer(id=each, verdict="followed") for each in counts}
    why |= find_differences([row for row in rows.values() if row["id"] not in regenerate])
    left = {each: row for each, row in rows.items() if each in regenerate or why.get(each)}
    followed = len(stated) - len(left)
    for done in range(followed):
        progress(done + 1, len(stated))
    again = answer_items(
        sampler, params, [by_id[each] for each in left], [prompts[each] for each in left], like=list(prompts.values())
    )
    for done, answer in enumerate(again, start=followed + 1):
        if is_same(left[answer["id"]], answer):
            results[answer["id"]] = VerifiedAnswer(id=answer["id"], verdict="identical")
            del left[answer["id"]]
        progress(done, len(stated))
    why |= find_differences([row for row in left.values() if row["id"] in regenerate])
    for each in {*left, *(counts.keys() - rows.keys())}:
        reason = why.get(each, "")
        results[each] = VerifiedAnswer(id=each, verdict="different" if reason else "within tolerance", why=reason)
    return tuple(results[row["id"]] for row in stated)


def find_difference(
    stated: dict[str, Any],
    item: Mapping[str, Any],
    margins: Sequence[NDArray[np.float32]],
    allowed: float,
    scoring: Scoring,
    stop: str | None = None,
) -> str:
    """Return why the model cannot have given a recorded answer to an item, or an empty string.

    `margins` has an array for each recorded sample, and is empty if the text cannot be the model's tokens.
    """
    for key, value in item.items():
        if stated.get(key) != value:
            return f"The set states {key} {value!r}, and the run {stated.get(key)!r}."
    if why := changed_score(stated, scoring, stop):
        return why
    if not margins:
        return "The stated answer is not one that the model's tokens can be."
    for each in margins:
        if (worst := float(each.max())) > allowed:
            return (
                f"The model does not write this: token {int(each.argmax()) + 1} of the stated answer has a logit "
                f"{worst:.3g} below the largest; other hardware gives at most {allowed:g}."
            )
    return ""


def is_same(stated: Mapping[str, Any], found: Mapping[str, Any]) -> bool:
    """Return whether two rows agree in all fields that the recorded one has."""
    return all(stated[key] == value for key, value in found.items() if key in stated)


def changed_score(stated: dict[str, Any], scoring: Scoring, stop: str | None = None) -> str:
    """Return how the recorded verdicts differ from the verdicts on the recorded text, or an empty string."""
    if stated["error"] is not None:
        return f"The run states an error ({stated['error']}), and the model answers."
    answers, accepted = list(iter_answers(stated)), accepted_answers(stated)
    verdicts = [scoring.verdict(each["output_text"], each["finish_reason"], accepted, stop=stop) for each in answers]
    for answer, verdict in zip(answers, verdicts, strict=True):
        for key, value in verdict.items():
            if key in answer and answer[key] != value:
                return f"By its text, {key} is {value!r}; the run states {answer[key]!r}."
    majority = majority_fields([each["extracted_answer"] for each in verdicts], scoring, accepted)
    for key, value in majority.items() if len(answers) > 1 else ():
        if stated.get(key) != value:
            return f"By its samples, {key} is {value!r}; the run states {stated.get(key)!r}."
    return ""


def allowed_margin(dtype: str, platforms: Collection[str]) -> float:
    """Return the largest logit gap that other hardware explains, between platforms (cpu, gpu, tpu)."""
    names = {dtype, *(MATMUL_DTYPES[each] for each in platforms if dtype == "float32" and each in MATMUL_DTYPES)}
    return max(MARGINS[name] for name in names)


def trace_answers(
    rows: Sequence[dict[str, Any]], prompts: Mapping[str, list[int]], sampler: Sampler, params: Params
) -> dict[str, list[NDArray[np.float32]]]:
    """Return the margins of all samples by item, for rows with the configured number of samples and possible tokens."""
    vocab, samples = params["tokens.table"].shape[0], sampler.settings.samples
    answers: dict[str, list[list[int]]] = {}
    for row in rows:
        known = [tokens for each in iter_answers(row) if (tokens := stated_tokens(each, sampler, vocab=vocab))]
        if len(known) == len(list(iter_answers(row))) == samples and sampler.has_room(prompts[row["id"]]):
            answers[row["id"]] = known
    drawing = None
    if answers and (sampling := evaluation_sampling(sampler.settings)) is not None:
        drawing = DrawKeys(keys=sampler.sample_keys(list(answers)).reshape(-1, 1), sampling=sampling)
    texts = [(prompts[each], tokens) for each, samples in answers.items() for tokens in samples]
    traces = trace_texts(sampler, params, texts, drawing=drawing)
    return {each: [next(traces)[0] for _ in range(samples)] for each in answers}


def stated_tokens(row: Mapping[str, Any], sampler: Sampler, *, vocab: int) -> list[int] | None:
    """Return the tokens of a recorded answer, or None if they cannot be the tokens of such an answer.

    A finished answer has the end token last and nowhere else; a truncated one has `max_new_tokens` tokens; decoded,
    they give the recorded text. Rows of earlier versions lack tokens; their text is encoded.
    """
    if row["error"] is not None:
        return None
    end, ended = sampler.stop_token_id, row["finish_reason"] == "stop"
    if "output_token_ids" in row:
        tokens = [int(each) for each in row["output_token_ids"].split()]
    else:
        tokens = [*sampler.tokenizer.encode(row["output_text"], add_special_tokens=False), *[end] * ended]
    if not tokens or max(tokens) >= vocab or len(tokens) != row["output_tokens"]:
        return None
    stopped = sampler.tokens_to_stop(tokens)
    if ended and end not in tokens:
        complete = stopped == len(tokens)
    elif ended:
        complete = tokens.index(end) == len(tokens) - 1 and stopped in (None, len(tokens))
    else:
        complete = end not in tokens and len(tokens) == sampler.settings.max_new_tokens and stopped is None
    return tokens if complete and sampler.decode_answer(tokens) == row["output_text"] else None


def trace_texts(
    sampler: Sampler,
    params: Params,
    texts: Sequence[tuple[Sequence[int], Sequence[int]]],
    *,
    drawing: DrawKeys | None = None,
) -> Iterator[tuple[NDArray[np.float32], NDArray[np.float32]]]:
    """Yield margins and losses of each answer after its prompt, `[tokens]`; all use one compiled program.

    A margin is the gap between the largest logit and the answer token's, 0 where that is the largest; for sampled
    answers, of the logits with the noise of each draw. Losses are in nats. Prompts and answers are not empty, and fit
    into the model's positions together. `drawing` has one key per text (`[texts 1]`) if the answers were sampled.
    """
    graphdef, batch_size = sampler.task.model.graphdef, sampler.settings.batch_size
    width = padded(max((len(prompt) + len(answer) for prompt, answer in texts), default=1))
    longest = padded(max((len(answer) for _, answer in texts), default=1))
    spec = sampler.task.model.source.spec
    width = min(width, spec.max_positions) if spec.learned_positions else width
    rows, call = min(batch_size, len(texts)), _trace_jit(sampler.task.compiler_options)
    for start in range(0, len(texts), batch_size):
        batch = texts[start : start + batch_size]
        tokens, places = np.zeros((rows, width), np.int32), np.zeros((rows, longest), np.int32)
        answers = np.zeros((rows, longest), np.int32)
        for row, (prompt, answer) in enumerate(batch):
            tokens[row, : len(prompt) + len(answer)] = [*prompt, *answer]
            places[row, : len(answer)] = np.arange(len(prompt) - 1, len(prompt) + len(answer) - 1)
            answers[row, : len(answer)] = answer
        arrays, settings = [*map(jnp.asarray, (tokens, places, answers))], {}
        if drawing is not None:
            arrays.append(drawing.keys[np.minimum(np.arange(start, start + rows), len(texts) - 1), 0])
            settings["sampling"] = drawing.sampling
        margins, losses = fetch(call(graphdef, params, *arrays, **settings))
        for row, (_, answer) in enumerate(batch):
            yield margins[row, : len(answer)], losses[row, : len(answer)]


def trace_batch(
    graphdef: nnx.GraphDef[Decoder],
    params: Params,
    tokens: Int[Array, "batch seq"],
    places: Int[Array, "batch new"],
    answers: Int[Array, "batch new"],
    keys: Key[Array, " batch"] | None = None,
    *,
    sampling: Sampling | None = None,
) -> tuple[Float[Array, "batch new"], Float[Array, "batch new"]]:
    """Return logit gap and loss of each answer token, which is predicted from the state at its place.

    Logits are computed one row at a time, `[new vocab]`, to save memory. Sampling is the Gumbel-max trick: a sampled
    token has the largest logit once the noise of its key is added, which is added again here.
    """
    decoder = bind(graphdef, params)
    hidden = jnp.take_along_axis(decoder.hidden(tokens), places[:, :, None], axis=1)

    def trace_row(row: tuple[Array, ...]) -> tuple[Array, Array]:
        states, chosen, *key = row
        logits = decoder.logits(states)
        named = _chosen_logits(logits, chosen)
        losses = jax.nn.logsumexp(logits, axis=-1) - named
        if sampling is None:
            return jnp.max(logits, axis=-1) - named, losses
        return _sampled_margins(logits, chosen, key[0], sampling), losses

    found: tuple[Array, Array] = jax.lax.map(trace_row, (hidden, answers) if keys is None else (hidden, answers, keys))
    return found


def _sampled_margins(
    logits: Float[Array, "new vocab"], chosen: Int[Array, " new"], key: Key[Array, ""], sampling: Sampling
) -> Float[Array, " new"]:
    """Return how far each token's noisy logit is below the largest one; 0 if the token would be sampled.

    For a token outside top-k or top-p, the margin is at least the distance of its logit (without noise) to the smallest
    logit that is kept.
    """
    scaled = logits / jnp.float32(sampling.temperature)
    noise = jax.vmap(lambda number: gumbel_noise(key, number, logits.shape[1]))(jnp.arange(len(chosen)))
    kept = mask_logits(scaled, sampling)
    least = jnp.min(jnp.where(jnp.isfinite(kept), kept, jnp.inf), axis=-1)
    behind = jnp.max(kept + noise, axis=-1) - _chosen_logits(scaled + noise, chosen)
    margins: Array = jnp.maximum(behind, least - _chosen_logits(scaled, chosen)) * jnp.float32(sampling.temperature)
    return margins


def _chosen_logits(logits: Float[Array, "new vocab"], chosen: Int[Array, " new"]) -> Float[Array, " new"]:
    found: Array = jnp.take_along_axis(logits, chosen[:, None], axis=-1)[:, 0]
    return found


@cache
def _trace_jit(options: CompilerOptions) -> Any:
    return jax.jit(trace_batch, static_argnames=("graphdef", "sampling"), compiler_options=dict(options) or None)


def receipt_items(trained: Sequence[VerifiedAnswer], untrained: Sequence[VerifiedAnswer] = ()) -> dict[str, Any]:
    """Return the group `items` of a receipt; `drawn` counts the answers that were generated again."""
    both = [*untrained, *trained]
    verdicts = Counter(each.verdict for each in both)
    others = [{"id": each.id, "why": each.why} for each in both if each.verdict == "different"]
    group = {
        "drawn": len(both) - verdicts["followed"],
        "identical": verdicts["identical"],
        "within_tolerance": verdicts["within tolerance"],
        "different": verdicts["different"],
        "trained": sum(each.verdict != "followed" for each in trained),
        "given_again": {
            "trained": sum(each.verdict != "different" for each in trained),
            "untrained": sum(each.verdict != "different" for each in untrained),
        },
    }
    return group | ({"differences": others[:MAX_DIFFERENCES]} if others else {})

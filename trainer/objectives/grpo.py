"""Learning from rewards: completions are drawn, and those that are better than their group become likelier.

Group Relative Policy Optimization (GRPO; Shao et al. 2024, arXiv 2402.03300) and its variants. What completions are
worth states `evidence.rewards`, what a loss makes of it `policy_loss.py`; `trainer/loop/rollouts.py` draws them, with
the parameters that learn and in the program that evaluates, so sampler and trainer are one model.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key

from evidence.rewards import parse_terms
from schemas.problems import Problem, ProblemError, collect_problems, problem_of
from trainer.config.tree import Config, ObjectiveConfig
from trainer.data.encode import EncodedData, Tokenizer
from trainer.data.files.encoded import EncodedRow
from trainer.data.source import HostBatch
from trainer.generate.decode import padded
from trainer.generate.sampling import Sampling
from trainer.model.decoder import Decoder
from trainer.objectives.cross_entropy import in_several_chunks, next_token_targets, token_log_probs
from trainer.objectives.objective import LossSums, Microbatch
from trainer.objectives.policy_loss import PolicyLoss
from trainer.objectives.prompts import encode_prompts
from trainer.objectives.unused import unused_by_rollouts, unused_settings

SETTINGS = tuple(key for key in vars(ObjectiveConfig()) if key not in ("kind", "beta", "label_smoothing"))
"""Keys of the group `objective` that it uses."""
HIGHEST = {"dapo": 0.28, "cispo": 5.0}
"""The upper end of the ratio by loss where the configuration states none; 0.2 of the others."""


@dataclass(frozen=True, kw_only=True)
class GroupPolicy:
    """Makes completions likelier by how much better than their group's they are, in advantages."""

    max_length: int
    """Tokens of a prompt with its completion, padding included."""
    chunk_positions: int | None
    """Positions of each sequence whose logits exist at one time. None: all."""
    loss: PolicyLoss
    settings: ObjectiveConfig
    template: str | None = None
    """How plain prompts are written. None: as by default those of each row's shape."""
    kind: ClassVar[str] = "grpo"
    can_pack: ClassVar[bool] = False
    takes_pairs: ClassVar[bool] = False

    @property
    def needs_reference(self) -> bool:
        """Whether divergence from the model before training is computed."""
        return self.loss.beta > 0

    @property
    def sequences_each(self) -> int:
        """The completions to each prompt."""
        return self.settings.group_size

    @property
    def updates_per_rollout(self) -> int:
        """Optimizer steps on the same completions."""
        return self.settings.updates_per_rollout

    @property
    def prompt_width(self) -> int:
        """Tokens that prompts are padded to."""
        return padded(self.max_length - self.settings.max_completion_tokens)

    @property
    def sampling(self) -> Sampling:
        """How completions are drawn."""
        return Sampling(temperature=self.settings.temperature, top_k=self.settings.top_k, top_p=self.settings.top_p)

    def manifest_entry(self) -> dict[str, Any]:
        """Return the settings in effect, the upper end of the ratio among them."""
        stated = {key: getattr(self.settings, key) for key in SETTINGS}
        return {"kind": self.kind, **stated, "epsilon_high": self.loss.epsilon_high}

    def encode(
        self,
        rows: Sequence[dict[str, Any]],
        tokenizer: Tokenizer,
        *,
        file: str,
        lines: Sequence[int],
        max_positions: int,
    ) -> EncodedData:
        """Return the prompt of each row."""
        return encode_prompts(
            rows,
            tokenizer,
            max_length=min(self.max_length, max_positions),
            max_completion_tokens=self.settings.max_completion_tokens,
            file=file,
            lines=lines,
            template=self.template,
        )

    def collate(self, sequences: Sequence[Sequence[EncodedRow]], length: int | None = None) -> HostBatch:
        """Return the prompts of a step: `prompts` `[prompts width]`, padded on the left, `lengths` and `rows`."""
        prompts = [row for [row] in sequences]
        width = self.prompt_width
        tokens = np.zeros((len(prompts), width), np.int32)
        for into, prompt in zip(tokens, prompts, strict=True):
            into[width - len(prompt) :] = prompt.token_ids
        return {
            "prompts": tokens,
            "lengths": np.array([len(prompt) for prompt in prompts], np.int32),
            "rows": np.array([prompt.row for prompt in prompts], np.int32),
        }

    def described(self, sequences: int, length: int | None = None) -> dict[str, jax.ShapeDtypeStruct]:
        """Return the shapes of `tokens`, `loss_mask`, `old_log_probs` and, one of each sequence, `advantages`."""
        shape = (sequences, length or self.max_length)
        return {
            "tokens": jax.ShapeDtypeStruct(shape, jnp.int32),
            "loss_mask": jax.ShapeDtypeStruct(shape, jnp.bool_),
            "old_log_probs": jax.ShapeDtypeStruct(shape, jnp.float32),
            "advantages": jax.ShapeDtypeStruct((sequences,), jnp.float32),
        }

    def loss_fn(
        self, model: Decoder, batch: Microbatch, key: Key[Array, ""] | None, reference: Decoder | None = None
    ) -> LossSums:
        """Return the sums of the completions; log-probabilities are those at the temperature of the draw."""
        targets, mask = next_token_targets(batch["tokens"], batch["loss_mask"])
        nothing = jnp.zeros_like(batch["old_log_probs"][:, :1])
        old = jnp.concatenate([batch["old_log_probs"][:, 1:], nothing], axis=1)

        def log_probs(of: Decoder, dropout_key: Key[Array, ""] | None) -> Array:
            hidden = of.hidden(batch["tokens"], dropout_key=dropout_key)
            return token_log_probs(
                hidden,
                targets,
                mask,
                lambda states: of.logits(states) / jnp.float32(self.settings.temperature),
                chunk_positions=self.chunk_positions,
            )

        before = None if reference is None else jax.lax.stop_gradient(log_probs(reference, None))
        return self.loss.sums(log_probs(model, key), old, mask, batch["advantages"], before)

    @property
    def rematerialised_blocks(self) -> int:
        """The loops over chunks of the model and of its reference, where there are several."""
        return (1 + self.needs_reference) * in_several_chunks(self.max_length, self.chunk_positions)


def grpo_of(config: Config) -> GroupPolicy:
    """Return the objective as a configuration sets it; a chunk is some positions of every sequence, one at least.

    Raises:
        ProblemError: exit code 2, with all of it: no rewards or no sum of them, settings without effect, a run that
            ends or saves between updates on the same completions.
    """
    settings = config.objective
    problems = [*unused_settings(config, SETTINGS), *unused_by_rollouts(config), *_between_updates(config)]
    with collect_problems(problems):
        if not parse_terms(settings.rewards, file=config.name):
            what = "objective.kind is grpo, and objective.rewards states none."
            problems.append(problem_of("TP915", file=config.name, pointer="/objective/rewards", what=what))
    if problems:
        raise ProblemError(problems, exit_code=2)
    chunk_tokens = config.memory.loss_chunk_tokens
    high = HIGHEST.get(settings.loss_type, 0.2) if settings.epsilon_high is None else settings.epsilon_high
    return GroupPolicy(
        max_length=config.data.max_length,
        chunk_positions=None if chunk_tokens is None else max(1, chunk_tokens // config.batch.microbatch_size),
        loss=PolicyLoss(
            loss_type=settings.loss_type,
            epsilon_low=settings.epsilon_low,
            epsilon_high=high,
            beta=settings.kl_beta,
            max_completion_tokens=settings.max_completion_tokens,
        ),
        settings=settings,
        template=config.data.template,
    )


def _between_updates(config: Config) -> Iterator[Problem]:
    each = config.objective.updates_per_rollout
    stated = {
        "/limits/steps": config.limits.steps,
        "/checkpoint/save_every_steps": config.checkpoint.save_every_steps,
        "/recording/chain_every_steps": config.recording.chain_every_steps or 0,
    }
    for pointer, steps in stated.items():
        if steps % each:
            name = pointer[1:].replace("/", ".")
            what = f"{name} is {steps}, which is no multiple of objective.updates_per_rollout, {each}."
            yield problem_of("TP914", file=config.name, pointer=pointer, what=what)

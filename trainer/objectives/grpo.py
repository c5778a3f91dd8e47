"""Group Relative Policy Optimization (Shao et al. 2024, arXiv 2402.03300) and its variants.

`evidence.rewards` scores completions and `policy_loss.py` computes the loss. `trainer/loop/rollouts.py` samples them
with the parameters that learn and in the program that evaluates, so sampler and trainer are one model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key

from evidence.rewards import parse_terms
from schemas.problems import Problem, ProblemError, collect_problems, problem_of
from trainer.config.tree import Config, ObjectiveConfig
from trainer.data.batches import HostBatch
from trainer.data.conversations import Tokenizer
from trainer.data.encode import EncodedData, EncodedRow, encode_prompts
from trainer.generate.decode import padded
from trainer.generate.sampling import Sampling
from trainer.model.decoder import Decoder
from trainer.objectives.cross_entropy import next_token_targets, token_log_probs
from trainer.objectives.objective import USED_BY, LossSums, Microbatch, Objective
from trainer.objectives.policy_loss import PolicyLoss

EPSILON_HIGH = {"dapo": 0.28, "cispo": 5.0}
"""Default upper bound of the ratio by loss; 0.2 for the others."""


@dataclass(frozen=True, kw_only=True)
class GroupPolicy(Objective):
    """Policy gradient with advantages relative to the other completions of the same prompt."""

    loss: PolicyLoss
    settings: ObjectiveConfig
    kind: ClassVar[str] = "grpo"

    @classmethod
    def from_config(cls, config: Config, **fields: Any) -> Objective:
        """Build the objective.

        Raises:
            ProblemError: Exit code 2; rewards are missing or invalid, or the run would end or save between updates on
                the same completions.
        """
        settings, problems = config.objective, list[Problem]()
        periods = {
            "/limits/steps": config.limits.steps,
            "/checkpoint/save_every_steps": config.checkpoint.save_every_steps,
            "/recording/chain_every_steps": config.recording.chain_every_steps or 0,
        }
        for pointer, steps in periods.items():
            if steps % settings.updates_per_rollout:
                what = f"{pointer[1:].replace('/', '.')} is {steps}, which is not a multiple of "
                what += f"objective.updates_per_rollout, {settings.updates_per_rollout}."
                problems.append(problem_of("TP914", file=config.name, pointer=pointer, what=what))
        with collect_problems(problems):
            if not parse_terms(settings.rewards, file=config.name):
                what = "objective.kind is grpo, but objective.rewards is empty."
                problems.append(problem_of("TP915", file=config.name, pointer="/objective/rewards", what=what))
        if problems:
            raise ProblemError(problems, exit_code=2)
        high = settings.epsilon_high
        loss = PolicyLoss(
            loss_type=settings.loss_type,
            epsilon_low=settings.epsilon_low,
            epsilon_high=EPSILON_HIGH.get(settings.loss_type, 0.2) if high is None else high,
            beta=settings.kl_beta,
            max_completion_tokens=settings.max_completion_tokens,
        )
        return super().from_config(
            config,
            sequences_each=settings.group_size,
            updates_per_rollout=settings.updates_per_rollout,
            needs_reference=settings.kl_beta > 0,
            loss=loss,
            settings=settings,
            **fields,
        )

    @property
    def prompt_width(self) -> int:
        """Tokens to which prompts are padded."""
        return padded(self.max_length - self.settings.max_completion_tokens)

    @property
    def sampling(self) -> Sampling:
        """How completions are sampled."""
        return Sampling(temperature=self.settings.temperature, top_k=self.settings.top_k, top_p=self.settings.top_p)

    def manifest_entry(self) -> dict[str, Any]:
        """Return the settings in effect, with the resolved upper bound of the ratio."""
        keys = [setting.partition(".")[2] for setting, kinds in USED_BY.items() if kinds == (self.kind,)]
        values = {key: getattr(self.settings, key) for key in keys}
        return {"kind": self.kind, **values, "epsilon_high": self.loss.epsilon_high}

    def encode(self, rows: Sequence[dict[str, Any]], tokenizer: Tokenizer, **options: Any) -> EncodedData:
        """Tokenize the prompts of rows; see `encode_prompts` for errors."""
        return encode_prompts(
            rows,
            tokenizer,
            max_length=min(self.max_length, options["max_positions"]),
            max_completion_tokens=self.settings.max_completion_tokens,
            template=self.template,
            **{name: options[name] for name in ("file", "lines")},
        )

    def collate(self, sequences: Sequence[Sequence[EncodedRow]], length: int | None = None) -> HostBatch:
        """Return the prompts of a step: `prompts` `[prompts width]`, padded on the left, `lengths` and `rows`."""
        prompts = [row for [row] in sequences]
        tokens = np.zeros((len(prompts), self.prompt_width), np.int32)
        for target, prompt in zip(tokens, prompts, strict=True):
            target[self.prompt_width - len(prompt) :] = prompt.token_ids
        lengths = np.array([len(prompt) for prompt in prompts], np.int32)
        return {"prompts": tokens, "lengths": lengths, "rows": np.array([prompt.row for prompt in prompts], np.int32)}

    def described(self, sequences: int, length: int | None = None) -> dict[str, jax.ShapeDtypeStruct]:
        """Return shapes and types of a microbatch by name; `advantages` has one value for each sequence."""
        arrays = super().described(sequences, length)
        log_probs = jax.ShapeDtypeStruct(arrays["tokens"].shape, jnp.float32)
        return arrays | {"old_log_probs": log_probs, "advantages": jax.ShapeDtypeStruct((sequences,), jnp.float32)}

    def loss_fn(
        self, model: Decoder, batch: Microbatch, key: Key[Array, ""] | None, reference: Decoder | None = None
    ) -> LossSums:
        """Return the sums of the completions, with log-probabilities at the temperature of sampling."""
        targets, mask = next_token_targets(batch["tokens"], batch["loss_mask"])
        nothing = jnp.zeros_like(batch["old_log_probs"][:, :1])
        old = jnp.concatenate([batch["old_log_probs"][:, 1:], nothing], axis=1)

        def log_probs(decoder: Decoder, dropout_key: Key[Array, ""] | None) -> Array:
            hidden = decoder.hidden(batch["tokens"], dropout_key=dropout_key)

            def logits_of(states: Array) -> Array:
                return decoder.logits(states) / jnp.float32(self.settings.temperature)

            return token_log_probs(hidden, targets, mask, logits_of, self.chunk_positions)

        before = None if reference is None else jax.lax.stop_gradient(log_probs(reference, None))
        return self.loss.sums(log_probs(model, key), old, mask, batch["advantages"], before)

"""TRL's own trainer, with generate of transformers, as `trainer.train()` runs it.

python benchmarks/grpo_parts/trl_loop.py tiny|small|uneven TOKENIZER
"""

from __future__ import annotations

import sys
from tempfile import TemporaryDirectory
from typing import Any

import torch
import transformers
import trl
from datasets import Dataset
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast, TrainerCallback
from trl import GRPOConfig, GRPOTrainer
from turns import ADAMW, EPSILONS, GROUP, NEW_TOKENS, PROMPTS, Turns, model_config, prompts, share_of_e, weights


class OneTurn(TrainerCallback):
    """Holds each step back until it is requested."""

    def __init__(self, turns: Turns) -> None:
        self.turns = turns

    def on_step_begin(self, *_: Any, **__: Any) -> None:
        """Wait."""
        self.turns.begin_step()


def settings(folder: str, size: str) -> GRPOConfig:
    """Return the defaults but for what the loops share; the backward pass computes nothing again, as in ours."""
    return GRPOConfig(
        output_dir=folder,
        use_cpu=True,
        bf16=False,
        gradient_checkpointing=False,
        report_to=[],
        disable_tqdm=True,
        logging_strategy="no",
        save_strategy="no",
        max_steps=10**6,
        per_device_train_batch_size=PROMPTS * GROUP,
        num_generations=GROUP,
        max_completion_length=NEW_TOKENS,
        # No token ends a completion, so that all have the same length and nothing has to suppress one.
        generation_kwargs=None if size == "uneven" else {"eos_token_id": None},
        loss_type="dapo",
        epsilon=EPSILONS["epsilon_low"],
        epsilon_high=EPSILONS["epsilon_high"],
        beta=0.0,
        learning_rate=ADAMW["learning_rate"],
        adam_beta1=ADAMW["beta1"],
        adam_beta2=ADAMW["beta2"],
        adam_epsilon=ADAMW["epsilon"],
        weight_decay=ADAMW["weight_decay"],
        lr_scheduler_type="constant",
        max_grad_norm=1.0,
    )


def main(size: str, tokenizer_folder: str) -> None:
    """Build the trainer and have it take its turns."""
    torch.manual_seed(0)
    tokenizer = PreTrainedTokenizerFast.from_pretrained(tokenizer_folder)
    end = tokenizer.eos_token_id if size == "uneven" else None
    config = LlamaConfig(**model_config()[size], eos_token_id=end, bos_token_id=None, pad_token_id=0)
    model = LlamaForCausalLM(config).float()
    loaded = weights(size, tokenizer.eos_token_id)
    model.load_state_dict({name: torch.from_numpy(value) for name, value in loaded.items()}, strict=False)
    turns = Turns(
        parameters=sum(parameter.numel() for parameter in model.parameters()),
        prompt_tokens=max(len(tokenizer(prompt).input_ids) for prompt in prompts(size)),
        versions={"trl": trl.__version__, "torch": torch.__version__, "transformers": transformers.__version__},
        devices=f"{torch.get_num_threads()} threads, attention {model.config._attn_implementation}",
    )
    with TemporaryDirectory() as folder:
        trainer = GRPOTrainer(
            model=model,
            reward_funcs=lambda completions, **_: [share_of_e(text) for text in completions],
            args=settings(folder, size),
            train_dataset=Dataset.from_list([{"prompt": prompt} for prompt in prompts(size)]),
            processing_class=tokenizer,
            callbacks=[OneTurn(turns)],
        )
        if size != "uneven":
            trainer.eos_token_ids = [-1]
        original = trainer._generate_and_score_completions

        def rolled_out(*given: Any) -> Any:
            with turns.rolling_out():
                found = original(*given)
            turns.rolled_out(found["completion_mask"].sum(dim=1).tolist(), size)
            return found

        trainer._generate_and_score_completions = rolled_out
        trainer.train()


if __name__ == "__main__":
    main(*sys.argv[1:])

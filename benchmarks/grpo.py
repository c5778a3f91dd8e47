"""CPU time of a GRPO step: trainproof, and TRL with transformers' generate.

    python benchmarks/grpo.py [--rounds 5] [--steps 1]

Both train the same Llama, in two sizes: they sample equally many tokens for the same prompts, score them with the same
reward and take a step of dapo. TRL runs `trainer.train()`; trainproof runs what a training run calls. Each loop uses
one core. CPU seconds are compared within a round; wall seconds are upper bounds. The environment takes
1 GB with torch for CPUs. Writes benchmarks/results/grpo.json. Exits with 1 if TRL is faster at rollouts or steps.
"""

from __future__ import annotations

import json
from dataclasses import replace
from math import prod
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import harness

if TYPE_CHECKING:
    from evidence.rewards import Attempt

SHAPE_KEYS = (
    *("hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "head_dim"),
    *("intermediate_size", "vocab_size"),
)
SHAPES = {
    size: dict(zip(SHAPE_KEYS, values, strict=True)) | {"max_position_embeddings": 512, "tie_word_embeddings": True}
    for size, values in {"tiny": (128, 4, 4, 2, 32, 512, 576), "small": (256, 6, 8, 4, 32, 768, 8192)}.items()
}
"""Llama shapes as keys of config.json; everything is float32."""
PROMPTS, GROUP = 2, 8
"""Prompts per step, and completions per prompt."""
PROMPT_TOKENS, NEW_TOKENS = 17, 128
"""Tokens of the longest prompt, and of each completion."""
ADAMW: dict[str, Any] = {"learning_rate": 1e-5, "beta1": 0.9, "beta2": 0.999, "epsilon": 1e-8, "weight_decay": 0.0}
"""Constant learning rate; gradients are clipped to norm 1."""
EPSILONS: dict[str, Any] = {"epsilon_low": 0.2, "epsilon_high": 0.28}
SETTINGS = f"""
    objective.kind=grpo objective.rewards=grpo:reward objective.loss_type=dapo objective.group_size={GROUP}
    objective.max_completion_tokens={NEW_TOKENS} objective.mask_truncated=false
    objective.epsilon_low={EPSILONS["epsilon_low"]} objective.epsilon_high={EPSILONS["epsilon_high"]}
    optimizer.name=adamw optimizer.schedule=constant optimizer.max_grad_norm=1.0
    batch.microbatch_size={PROMPTS * GROUP} memory.remat=none mesh.device=cpu mesh.devices=1
"""
SIDES = {"trl": ("trl==1.16.0", "torch==2.13.0", "transformers==5.23.0"), "trainproof": ()}
"""Packages of each side."""
PARTS = ("rollout", "update", "step")
CLOCKS = ("cpu", "wall")
KEYS = tuple(f"{part}_{clock}" for part in PARTS for clock in CLOCKS)


def make_prompts() -> list[str]:
    """Return 64 prompts of nearly equal length."""
    return [f"What is {100 + 7 * number} + {900 - 3 * number}? Think first." for number in range(64)]


def count_letters(text: str) -> float:
    """Return the reward of a completion: the share of the letter e."""
    return text.count("e") / max(1, len(text))


def reward(attempt: Attempt) -> float:
    """Return the same reward, as this trainer calls it."""
    return count_letters(attempt.text)


def count_tokens(lengths: list[int], values: dict[str, float]) -> None:
    """Add the new tokens to the reported values."""
    assert lengths == [NEW_TOKENS] * (PROMPTS * GROUP), "lengths are equal"
    values["new_tokens"] = values.get("new_tokens", 0) + sum(lengths)


def trainproof_loop(model: str) -> None:
    """Serve this trainer's rollouts and step, as a run calls them."""
    import jax

    from trainer.loop.rollouts import build_rollouts

    with TemporaryDirectory() as scratch:
        prompts = Path(scratch) / "prompts.jsonl"
        rows = [json.dumps({"prompt": prompt, "completion": "0"}) for prompt in make_prompts()]
        prompts.write_text("\n".join(rows) + "\n")
        adamw = " ".join(f"optimizer.{name}={value}" for name, value in ADAMW.items())
        lengths = f"data.dataset={prompts} data.max_length={PROMPT_TOKENS + NEW_TOKENS}"
        task, data, state, frozen, program = harness.compile_step(harness.read_config(model, SETTINGS, adamw, lengths))
    rollouts = build_rollouts(task, data)
    assert rollouts is not None
    # No token ends a completion, here as in the peer.
    rollouts = replace(rollouts, programs=replace(rollouts.programs, stop_token_id=-1))
    facts = {
        "parameters": sum(prod(shape.shape) for shape in task.model.shapes.values()),
        "prompt_tokens": max(int(data.source.batch(number)["lengths"].max()) for number in range(32)),
        "versions": harness.installed("jax", "flax", "optax"),
        "devices": str(jax.devices()),
    }
    for number, values in enumerate(harness.requested_steps(facts)):
        with harness.timed(values, "rollout_"):
            drawn = rollouts.draw(number, data.source.batch(number), state[0], frozen)
        count_tokens([len(row["token_ids"]) for row in drawn.rows], values)
        state[0], metrics = program.call(state[0], frozen, drawn.batch)
        float(metrics.loss)


def trl_loop(folder: str) -> None:
    """Serve TRL's GRPOTrainer, with its defaults except for what both sides share."""
    import torch
    from datasets import Dataset
    from transformers import LlamaForCausalLM, PreTrainedTokenizerFast, TrainerCallback
    from trl import GRPOConfig, GRPOTrainer

    torch.manual_seed(0)
    prompts = make_prompts()
    tokenizer = PreTrainedTokenizerFast.from_pretrained(folder)
    model = LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32)
    model.config.eos_token_id = model.generation_config.eos_token_id = None
    steps = harness.requested_steps(
        {
            "parameters": sum(parameter.numel() for parameter in model.parameters()),
            "prompt_tokens": max(len(tokenizer(prompt).input_ids) for prompt in prompts),
            "versions": harness.installed("trl", "torch", "transformers"),
            "devices": f"{torch.get_num_threads()} threads, attention {model.config._attn_implementation}",
        }
    )

    class WaitForRequest(TrainerCallback):
        """Hold each step back until it is requested."""

        def on_step_begin(self, *_: Any, **__: Any) -> None:
            self.values = next(steps)

    with TemporaryDirectory() as scratch:
        settings = GRPOConfig(
            output_dir=scratch,
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
            # No token ends a completion, so that all have the same length without suppressing one.
            generation_kwargs={"eos_token_id": None},
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
        trainer = GRPOTrainer(
            model=model,
            reward_funcs=lambda completions, **_: [count_letters(text) for text in completions],
            args=settings,
            train_dataset=Dataset.from_list([{"prompt": prompt} for prompt in prompts]),
            processing_class=tokenizer,
            callbacks=[waiting := WaitForRequest()],
        )
        trainer.eos_token_ids = [-1]
        original = trainer._generate_and_score_completions

        def generate(*args: Any) -> Any:
            with harness.timed(waiting.values, "rollout_"):
                output = original(*args)
            count_tokens(output["completion_mask"].sum(dim=1).tolist(), waiting.values)
            return output

        trainer._generate_and_score_completions = generate
        trainer.train()


def split_cost(cost: dict[str, float]) -> dict[str, float]:
    """Return the seconds of rollout, update and step by clock, new tokens and memory."""
    steps = {f"step_{clock}": cost[clock] for clock in CLOCKS}
    return cost | steps | {f"update_{clock}": cost[clock] - cost[f"rollout_{clock}"] for clock in CLOCKS}


def summarize(facts: dict[str, Any], costs: list[dict[str, float]]) -> dict[str, Any]:
    """Return the figures of one loop."""
    return {
        **facts,
        **{f"{key}_seconds": harness.spread([cost[key] for cost in costs]) for key in KEYS},
        "new_tokens_a_cpu_second": harness.spread([cost["new_tokens"] / cost["rollout_cpu"] for cost in costs]),
        "peak_rss_mib": costs[-1]["peak_rss_mib"],
    }


def main() -> int:
    """Measure, print and write."""
    parser = harness.build_parser(__doc__, [f"{side} {size}" for size in SHAPES for side in SIDES])
    args = parser.parse_args()
    loops = {}
    with TemporaryDirectory() as scratch:
        for size in SHAPES:
            config = {"model_type": "llama", **SHAPES[size], "bos_token_id": None, "pad_token_id": 0}
            model = harness.write_model(Path(scratch) / size, config, "float32")
            for side in SIDES:
                loop = harness.Loop(arguments=(side, str(model)), packages=SIDES[side], one_core=True)
                if f"{side} {size}" in (args.only or [f"{side} {size}"]):
                    loops[f"{side} {size}"] = loop
        facts, costs, about = harness.run_loops(args, loops)
    rounds = [{name: split_cost(cost) for name, cost in each.items()} for each in costs]
    found, slower = {}, []
    for size in [each for each in SHAPES if all(f"{side} {each}" in facts for side in SIDES)]:
        parts = harness.ratios(rounds, *(f"{side} {size}" for side in SIDES), *KEYS)
        found[size] = {part: {clock: parts[f"{part}_{clock}"] for clock in CLOCKS} for part in PARTS}
        medians = {part: found[size][part]["cpu"]["median"] for part in PARTS}
        print(size, medians)
        slower += [f"{size} {part} is slower than TRL" for part in ("rollout", "step") if medians[part] < 1]
    if not args.only:
        step = {"prompts": PROMPTS, "group": GROUP, "prompt_tokens": PROMPT_TOKENS, "new_tokens": NEW_TOKENS}
        result = about | {
            "shapes": SHAPES,
            "adamw": ADAMW,
            "loss": {"loss_type": "dapo", "beta": 0.0, **EPSILONS},
            "step": step,
            "loops": {name: summarize(facts[name], [each[name] for each in rounds]) for name in facts},
            "trl_over_trainproof": found,
        }
        harness.write_json("grpo.json", result)
    print(*slower, sep="\n")
    return 1 if slower else 0


if __name__ == "__main__":
    harness.run_script(main, trainproof=trainproof_loop, trl=trl_loop)

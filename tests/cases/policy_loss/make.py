"""Makes trl.json beside this file with an independent implementation: `GRPOTrainer._compute_loss` of TRL, on torch.

The model is a Llama of two layers and width 16 with random weights, the batch six completions of unequal length, one
of them empty, as one that was cut short is where it does not count. Where they were drawn, and under the reference,
log-probabilities are the model's own with noise on top, so that ratios leave their range on both sides. Stored are the
inputs of the loss, and for each case the loss, its gradient with respect to the model's log-probabilities, and the
shares that TRL counts. Cases of two microbatches add up what two calls return. Run it in an environment of its own:

    pip install trl==1.16.0 torch==2.13.0 transformers==5.23.0
    python tests/cases/policy_loss/make.py

`_compute_loss` is private: another version of TRL may have another.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import torch
import transformers
import trl
from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from trl import GRPOConfig, GRPOTrainer

HERE = Path(__file__).parent
VOCABULARY, PROMPT, LONGEST = 32, 3, 5
LENGTHS = (5, 2, 4, 0, 1, 3)
MAX_COMPLETION_TOKENS = 8
CLIPPED = {"epsilon_low": 0.2, "epsilon_high": 0.2, "beta": 0.0}
NARROW = {"epsilon_low": 0.02, "epsilon_high": 0.03, "beta": 0.0}
CASES: dict[str, dict[str, Any]] = {
    "dapo": {"loss_type": "dapo", **CLIPPED},
    "dapo, higher above": {"loss_type": "dapo", **CLIPPED, "epsilon_high": 0.28},
    "dapo, divergence": {"loss_type": "dapo", **CLIPPED, "beta": 0.04},
    "dapo, on-policy": {"loss_type": "dapo", **CLIPPED, "on_policy": True},
    "dapo, two microbatches": {"loss_type": "dapo", **CLIPPED, "beta": 0.04, "microbatches": 2},
    "grpo": {"loss_type": "grpo", **CLIPPED},
    "grpo, divergence": {"loss_type": "grpo", **CLIPPED, "beta": 0.04},
    "grpo, two microbatches": {"loss_type": "grpo", **CLIPPED, "epsilon_high": 0.28, "microbatches": 2},
    "dr_grpo": {"loss_type": "dr_grpo", **CLIPPED},
    "dr_grpo, two microbatches": {"loss_type": "dr_grpo", **CLIPPED, "beta": 0.04, "microbatches": 2},
    "gspo": {"loss_type": "gspo", **NARROW},
    "gspo, divergence": {"loss_type": "gspo", **NARROW, "beta": 0.04},
    "gspo, two microbatches": {"loss_type": "gspo", **NARROW, "microbatches": 2},
    "cispo": {"loss_type": "cispo", **CLIPPED, "epsilon_high": 5.0},
    "cispo, divergence": {"loss_type": "cispo", **CLIPPED, "epsilon_high": 5.0, "beta": 0.04},
    "cispo, low cap, two microbatches": {"loss_type": "cispo", **CLIPPED, "epsilon_high": 1.1, "microbatches": 2},
}


def tokenizer() -> PreTrainedTokenizerFast:
    """Return a tokenizer whose words are t0 to t31."""
    words = Tokenizer(models.WordLevel({f"t{number}": number for number in range(VOCABULARY)}, unk_token="t0"))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(
        tokenizer_object=words, eos_token=f"t{VOCABULARY - 1}", pad_token="t0", unk_token="t0"
    )


def model() -> LlamaForCausalLM:
    """Return a model of two layers with random weights, far enough from uniform."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        initializer_range=0.5,
    )
    return LlamaForCausalLM(config)


def trainer_of(case: dict[str, Any], folder: str) -> GRPOTrainer:
    """Return TRL's trainer for a case. Gradients of microbatches are divided by their number inside its loss."""
    gspo = case["loss_type"] == "gspo"
    config = GRPOConfig(
        output_dir=folder,
        use_cpu=True,
        bf16=False,
        report_to=[],
        num_generations=2,
        per_device_train_batch_size=6 // case.get("microbatches", 1),
        gradient_accumulation_steps=case.get("microbatches", 1),
        max_completion_length=MAX_COMPLETION_TOKENS,
        loss_type="grpo" if gspo else case["loss_type"],
        importance_sampling_level="sequence" if gspo else "token",
        epsilon=case["epsilon_low"],
        epsilon_high=case["epsilon_high"],
    )
    trainer = GRPOTrainer(
        model=model(),
        reward_funcs=lambda completions, **_: [0.0] * len(completions),
        args=config,
        train_dataset=Dataset.from_list([{"prompt": "t5 t17 t9"}] * 12),
        processing_class=tokenizer(),
    )
    # With beta in the configuration it would load a reference by the model's name.
    trainer.beta = case["beta"]
    trainer.current_gradient_accumulation_steps = case.get("microbatches", 1)
    trainer.model.train()
    return trainer


def completions() -> dict[str, torch.Tensor]:
    """Return prompts, completions and advantages as the trainer makes them of a generation."""
    random = torch.Generator().manual_seed(1)
    mask = torch.arange(LONGEST) < torch.tensor(LENGTHS)[:, None]
    tokens = torch.randint(1, VOCABULARY - 1, (len(LENGTHS), LONGEST), generator=random)
    return {
        "prompt_ids": torch.tensor([[5, 17, 9]] * len(LENGTHS)),
        "prompt_mask": torch.ones((len(LENGTHS), PROMPT), dtype=torch.long),
        "completion_ids": torch.where(mask, tokens, 0),
        "completion_mask": mask.long(),
        "advantages": torch.tensor([1.2, -0.7, -1.1, 0.4, 0.9, -0.6]),
    }


def noise(seed: int, spread: float) -> torch.Tensor:
    """Return what is added to the model's log-probabilities."""
    return spread * torch.randn((len(LENGTHS), LONGEST), generator=torch.Generator().manual_seed(seed))


def answer(case: dict[str, Any], batch: dict[str, torch.Tensor]) -> dict[str, Any]:
    """Return loss, gradient and shares of a case, with the log-probabilities that TRL computed on the way."""
    with tempfile.TemporaryDirectory() as folder:
        trainer = trainer_of(case, folder)
        original = trainer._get_per_token_logps_and_entropies
        seen: list[torch.Tensor] = []

        def with_gradient(*given: Any, **named: Any) -> Any:
            log_probs, *others = original(*given, **named)
            log_probs.retain_grad()
            seen.append(log_probs)
            return log_probs, *others

        trainer._get_per_token_logps_and_entropies = with_gradient
        size = len(LENGTHS) // case.get("microbatches", 1)
        loss = 0.0
        for start in range(0, len(LENGTHS), size):
            part = {name: value[start : start + size] for name, value in batch.items()}
            if case.get("on_policy"):
                del part["old_per_token_logps"]
            part["num_items_in_batch"] = batch["completion_mask"].sum()
            of_part = trainer._compute_loss(trainer.model, part)
            of_part.backward()
            loss += of_part.item()
        found = {"loss": loss, "gradient": listed(torch.cat([log_probs.grad for log_probs in seen]))}
        counted = {name: trainer._metrics["train"][f"clip_ratio/{name}_mean"] for name in ("low", "high")}
        if case["loss_type"] in ("dapo", "grpo", "dr_grpo") and size == len(LENGTHS):
            found |= {f"clip_{name}_share": values[0] for name, values in counted.items()}
        return found | {"log_probs": listed(torch.cat(seen))}


def listed(values: torch.Tensor) -> list[list[float]]:
    """Return numbers as short as float32 allows."""
    return [[float(f"{number:.9g}") for number in row] for row in values.detach().tolist()]


def main() -> None:
    """Write trl.json."""
    batch = completions()
    nothing = torch.zeros((len(LENGTHS), LONGEST))
    first = answer(CASES["dapo"], batch | {"old_per_token_logps": nothing})["log_probs"]
    log_probs = torch.tensor(first)
    old, reference = log_probs + noise(7, 0.3), log_probs + noise(3, 0.3)
    given = batch | {"old_per_token_logps": old, "ref_per_token_logps": reference}
    cases = {}
    for name, case in CASES.items():
        found = answer(case, given)
        assert found.pop("log_probs") == first, "the model is the same in every case"
        cases[name] = case | found
    document = {
        "made_with": {"trl": trl.__version__, "torch": torch.__version__, "transformers": transformers.__version__},
        "max_completion_tokens": MAX_COMPLETION_TOKENS,
        "lengths": LENGTHS,
        "advantages": [float(f"{number:.9g}") for number in batch["advantages"].tolist()],
        "log_probs": first,
        "old_log_probs": listed(old),
        "reference_log_probs": listed(reference),
        "cases": cases,
    }
    lines = [f"{json.dumps(name)}: {json.dumps(value)}" for name, value in document.items() if name != "cases"]
    stated = ",\n  ".join(f"{json.dumps(name)}: {json.dumps(case)}" for name, case in cases.items())
    (HERE / "trl.json").write_text("{" + ",\n".join(lines) + ',\n"cases": {\n  ' + stated + "\n}}\n")


if __name__ == "__main__":
    main()

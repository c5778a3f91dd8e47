"""Makes trl.json beside this file with an independent implementation: TRL's own trainers, on torch.

The models are those of tests/cases/models. The reference is the model as it is; the policy is the same with every
parameter multiplied by FACTOR, so that both differ and no second file is needed. What TRL's trainer makes of the rows
(its tokens, its collator, its forward pass, its loss) is stored: the batch, and for each pair log-probabilities,
rewards and losses; for the batch the loss and norms of gradients. Run it in an environment of its own:

    pip install trl==1.16.0 torch==2.13.0 transformers==5.23.0
    python tests/cases/preference/make.py
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
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast
from trl import DPOConfig, DPOTrainer

HERE = Path(__file__).parent
MODELS = HERE.parent / "models"
FACTOR = 1.25
VOCAB, END = 97, 96
# Lengths on both sides of each other, with and without words in common; TRL puts answers behind prompts as they are.
ROWS = [
    {"prompt": "t5 t17 t80", "chosen": " t9 t61 t33", "rejected": " t9 t12"},
    {"prompt": "t3", "chosen": " t70", "rejected": " t71 t72 t73 t8 t44 t2"},
    {"prompt": "t44 t2 t9 t61 t33 t33", "chosen": " t12 t90", "rejected": " t90 t12"},
]
DPO_CASES = {
    "plain": {"beta": 0.1},
    "strong": {"beta": 0.7},
    # Of a single pair this is the loss of conservative DPO: it sorts the pairs of a batch, and there is one.
    "smoothed": {"beta": 0.7, "loss_type": "aot_unpaired", "label_smoothing": 0.2},
}


def tokenizer() -> PreTrainedTokenizerFast:
    """Return a tokenizer whose words are t0 to t96."""
    words = Tokenizer(models.WordLevel({f"t{number}": number for number in range(VOCAB)}, unk_token="t0"))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=words, eos_token=f"t{END}", pad_token="t0", unk_token="t0")


def model(name: str, factor: float) -> Any:
    """Return a golden model with every parameter multiplied."""
    found = AutoModelForCausalLM.from_pretrained(MODELS / name, dtype=torch.float32)
    with torch.no_grad():
        for parameter in found.parameters():
            parameter.mul_(factor)
    return found


def settings(kind: Any, folder: str, **options: Any) -> Any:
    """Return a trainer's configuration for a CPU."""
    common = {"output_dir": folder, "report_to": [], "use_cpu": True, "bf16": False, "fp16": False}
    return kind(**common, per_device_train_batch_size=len(ROWS), gradient_checkpointing=False, **options)


def gradients(trainer: Any, loss: torch.Tensor) -> dict[str, float]:
    """Return norms of the gradient: of all parameters together, and of the token table."""
    trainer.model.zero_grad()
    loss.backward()
    norms = {name: value.grad.norm() for name, value in trainer.model.named_parameters() if value.grad is not None}
    tables = [norm for name, norm in norms.items() if name.endswith(("wte.weight", "embed_tokens.weight"))]
    return {"all": torch.stack(list(norms.values())).norm().item(), "tokens": tables[0].item()}


def last(trainer: Any, name: str) -> float:
    """Return a figure that the trainer logged of the last batch."""
    return float(trainer._metrics["train"][name][-1])


def dpo(name: str, options: dict[str, Any]) -> dict[str, Any]:
    """Return what TRL's DPO makes of the rows."""
    with tempfile.TemporaryDirectory() as folder:
        trainer = DPOTrainer(
            model=model(name, FACTOR),
            ref_model=model(name, 1.0),
            args=settings(DPOConfig, folder, **options),
            processing_class=tokenizer(),
            train_dataset=Dataset.from_list(ROWS),
        )
        trainer.model.train()
        examples = [trainer.train_dataset[number] for number in range(len(ROWS))]
        pairs = []
        for example in examples:
            loss = trainer.compute_loss(trainer.model, trainer.data_collator([example]))
            names = ("logps/chosen", "logps/rejected", "rewards/chosen", "rewards/rejected")
            pairs.append({"loss": loss.item(), **{each: last(trainer, each) for each in names}})
        found: dict[str, Any] = {"pairs": pairs}
        if "label_smoothing" not in options:
            batch = trainer.data_collator(examples)
            loss = trainer.compute_loss(trainer.model, batch)
            found["batch"] = {name: batch[name].tolist() for name in ("input_ids", "attention_mask", "completion_mask")}
            found["loss"], found["gradients"] = loss.item(), gradients(trainer, loss)
            names = ("rewards/chosen", "rewards/rejected", "rewards/margins", "rewards/accuracies")
            found["rewards"] = {each: last(trainer, each) for each in names}
    return {"options": options, **found}


def main() -> None:
    """Make the file anew."""
    names = ("gpt2", "llama")
    document = {
        "versions": {"trl": trl.__version__, "torch": torch.__version__, "transformers": transformers.__version__},
        "factor": FACTOR,
        "dpo": {name: {case: dpo(name, options) for case, options in DPO_CASES.items()} for name in names},
    }
    (HERE / "trl.json").write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

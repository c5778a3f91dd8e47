"""Export of a finished run: a Hugging Face folder, a PEFT adapter, or a GGUF file with a receipt."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import takewhile
from pathlib import Path
from typing import Any

import numpy as np

from evidence import layout
from evidence.hashes import sha256_file
from evidence.writing import output_error, write_json
from schemas.catalog import VERSION
from schemas.problems import ProblemError, problem_of
from trainer.data.conversations import end_token_id
from trainer.evaluation.recorded import logged_form, read_config, require_checkpoint
from trainer.generate.api import LanguageModel, generate, load_model
from trainer.loop.checkpoints import restored_state
from trainer.loop.programs import export_params
from trainer.loop.session import StopRequest
from trainer.loop.state import load_trained_params
from trainer.loop.task import Task, build_mesh
from trainer.model.decoder import abstract, flatten
from trainer.model.export import Form, export, export_gguf, refuse_taken
from trainer.model.gguf_tokenizer import tokenizer_probes
from trainer.model.model import combine
from trainer.model.peft import write_adapter
from trainer.model.source import ModelSource, resolve
from trainer.model.stacks import Params
from trainer.recorder.progress import Watch
from trainer.runtime import choose_devices, init_runtime

PROMPTS = (
    "The capital of France is",
    "Question: What is 17 + 25?\nAnswer:",
    "Once upon a time there was a",
    "def fibonacci(n):\n    ",
    "Translate to German: Good morning, how are you?\n",
    "A list of three colours:\n1.",
    "The opposite of hot is",
    "In 1969, the first people",
)
"""Prompts whose greedy answers are compared before and after a GGUF export."""
NEW_TOKENS = 24


def export_run(
    folder: Path, output: Path | None, watch: Watch, *, adapter: bool = False, gguf: Form | None = None, model: str = ""
) -> Path:
    """Write the model of a run as a Hugging Face folder or as a GGUF file, and return its path.

    The default of `output` is `export/`, `adapter/` or a file in `gguf/` of the run. With `adapter` only the adapters
    are written, in PEFT's format; with `gguf`, the type of matrices, a GGUF file and a receipt that compares its
    answers. `model` is the base model if it has another name here than where the run was trained.

    Raises:
        ProblemError: Exit code 2; the run lacks a checkpoint, or the output is not empty. Exit code 5; interrupted.
    """
    whole = f"{layout.GGUF}/{folder.resolve().name}-{gguf}.gguf" if gguf else layout.EXPORT
    target = output or folder / (layout.ADAPTER if adapter else whole)
    config = read_config(folder)
    if not (adapter and (folder / layout.TRAINED_PARAMS).is_file()):
        require_checkpoint(folder)
    refuse_taken(target)
    source = resolve(model or config.model.name, config.model.revision, with_weights=False)
    # Parameters are equal on every device, so a model trained on a TPU is exported on any machine.
    init_runtime(config)
    task = Task.of(config, source, build_mesh(choose_devices("auto", None).list))
    if adapter and not task.model.adapters:
        what, file = "The run trained no adapter: method.kind is not lora.", str(folder / layout.CONFIG)
        raise ProblemError([problem_of("TP068", file=file, pointer="/method/kind", what=what)], exit_code=2)
    if adapter:
        trained = load_trained_params(folder, task) or restored_state(folder, task, say=watch.say)[0][0].trained
        write_adapter(target, combine(trained, task.model.frozen), task.model.adapters, source)
        watch.say(f"exported the adapter to {target}")
        return target
    [state], frozen = restored_state(folder, task, say=watch.say)
    step, params = int(state.step), combine(state.trained, frozen)
    params, form = export_params(params, task), logged_form(folder)
    end = end_token_id(source.tokenizer(), form) if form is not None and form.conversation else None
    write = partial(export_gguf, form=gguf) if gguf else export

    def refuse(reason: str | None) -> None:
        if reason:
            what = f"The export was stopped ({reason}); its partial output was removed."
            raise ProblemError([problem_of("TP049", file=str(target), what=what, why=None)], exit_code=5)

    with StopRequest(max_minutes=None) as stop:
        try:
            write(target, params, source, end_token_id=end, go_on=lambda: refuse(stop.reason()))
        except OSError as error:
            raise output_error(error, target, subject="The export") from error
        except KeyboardInterrupt:
            refuse("a second signal")
    watch.say(f"exported step {step} to {target}")
    if gguf:
        watch.say(_write_receipt(target, params, source, step=step, form=gguf))
    return target


def _write_receipt(file: Path, params: Params, source: ModelSource, *, step: int, form: Form) -> str:
    """Compare a GGUF file with the exported parameters, write the receipt, and return a summary."""
    graphdef, _ = flatten(abstract(source.spec, params_dtype="float32", compute_dtype="float32", remat="none"))
    models = LanguageModel(graphdef=graphdef, params=params, spec=source.spec), load_model(file)
    texts = [*PROMPTS, *tokenizer_probes(source.tokenizer())]
    tokenizers: list[Any] = [source.tokenizer(), resolve(str(file)).tokenizer()]
    tokens, other_tokens = ([each(text).input_ids for text in texts] for each in tokenizers)
    prompts, room = tokens[: len(PROMPTS)], NEW_TOKENS
    if source.spec.learned_positions:
        room = min(room, source.spec.max_positions - max(map(len, prompts)))
    answers = [generate(model, prompts, max_new_tokens=room).tolist() for model in models]
    logits, other_logits = (np.stack([model(prompt)[0, -1] for prompt in prompts]) for model in models)
    receipt = {
        "schema_version": VERSION,
        **{"file": file.name, "bytes": file.stat().st_size, "sha256": sha256_file(file), "step": step, "form": form},
        "texts": len(texts),
        "texts_with_equal_tokens": sum(map(list.__eq__, tokens, other_tokens)),
        "prompts": len(PROMPTS),
        "new_tokens": NEW_TOKENS,
        "tokens_equal": equal_tokens(*answers),
        "first_tokens_equal": sum(one[0] == other[0] for one, other in zip(*answers, strict=True)),
        "largest_logit_difference": float(np.abs(logits - other_logits).max() / np.abs(logits).max()),
        "llama_cpp": None,
    }
    write_json(file.with_suffix(".receipt.json"), receipt)
    return (
        f"compared with the exported parameters: {receipt['texts_with_equal_tokens']:,} of {len(texts):,} texts have "
        f"equal tokens, {receipt['tokens_equal']} of {len(PROMPTS) * NEW_TOKENS} greedy tokens are equal"
    )


def equal_tokens(answers: Sequence[Sequence[int]], others: Sequence[Sequence[int]]) -> int:
    """Return the total length of the common prefixes: 1 for [[5, 7, 8]] and [[5, 9, 8]]."""
    pairs = (zip(one, other, strict=False) for one, other in zip(answers, others, strict=True))
    return sum(len(list(takewhile(lambda pair: pair[0] == pair[1], each))) for each in pairs)

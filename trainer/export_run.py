"""Writing the model of a run that has ended as a Hugging Face folder."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from evidence import layout
from evidence.hashes import sha256_file
from evidence.writing import write_error, write_json
from schemas.catalog import VERSION
from schemas.problems import Problem, ProblemError, problem_of
from trainer.data.conversations import end_token_id
from trainer.evaluation.recorded import logged_form, read_config, require_checkpoint
from trainer.generate.api import LanguageModel, generate, load_model
from trainer.loop.checkpoints import restored_state
from trainer.loop.programs import export_params
from trainer.loop.session import StopRequest
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


def export_run(
    folder: Path, output: Path | None, watch: Watch, *, adapter: bool = False, gguf: Form | None = None
) -> Path:
    """Write the model of a run as a Hugging Face folder, or as one GGUF file, and return where it is.

    Args:
        folder: of the run.
        output: made here. None: `export/` in the run, `adapter/`, or a file in `gguf/`.
        watch: shows what happens.
        adapter: write only the adapters, as PEFT does, instead of the model with them merged in.
        gguf: write a GGUF file with matrices in this form, and beside it a receipt of how it answers.

    Raises:
        ProblemError: exit code 2; the run has no checkpoint, or something is in the folder. Exit code 5: stopped.
    """
    target = output or default_target(folder, adapter=adapter, gguf=gguf)
    config = read_config(folder)
    require_checkpoint(folder)
    refuse_taken(target)
    source = resolve(config.model.name, config.model.revision, with_weights=False)
    # Parameters are the same wherever they are read, so that a model trained on a TPU is exported on any machine.
    init_runtime(config)
    mesh = build_mesh(choose_devices("auto", None).list)
    task = Task.of(config, source, mesh)
    if adapter and not task.model.adapters:
        raise ProblemError([no_adapter(folder)], exit_code=2)
    [state], frozen = restored_state(folder, task, say=watch.say)
    if adapter:
        write_adapter(target, combine(state.trained, frozen), task.model.adapters, source)
        watch.say(f"exported the adapter of step {int(state.step)} to {target}")
        return target
    params = export_params(combine(state.trained, frozen), task)
    form = logged_form(folder)
    end = end_token_id(source.tokenizer(), form) if form is not None and form.conversation else None
    written = partial(export, target) if gguf is None else partial(export_gguf, target, form=gguf)
    with StopRequest(max_minutes=None) as stop:
        try:
            written(params, source, end_token_id=end, go_on=lambda: refuse_to_go_on(target, stop))
        except OSError as error:
            raise write_error(error, target, what="The export") from error
        except KeyboardInterrupt:
            raise ProblemError([export_stopped(target, "a second signal")], exit_code=5) from None
    watch.say(f"exported step {int(state.step)} to {target}")
    if gguf is not None:
        watch.say(write_gguf_receipt(target, params, source, step=int(state.step), form=gguf))
    return target


def default_target(folder: Path, *, adapter: bool, gguf: Form | None) -> Path:
    """Return where an export goes that no one named a place for."""
    if gguf is not None:
        return folder / layout.GGUF / f"{folder.resolve().name}-{gguf}.gguf"
    return folder / (layout.ADAPTER if adapter else layout.EXPORT)


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
NEW_TOKENS = 24


def write_gguf_receipt(file: Path, params: Params, source: ModelSource, *, step: int, form: Form) -> str:
    """Compare a GGUF file with the exported parameters, write a receipt beside it, and summarise the comparison."""
    structure = abstract(source.spec, params_dtype="float32", compute_dtype="float32", remat="none")
    before = LanguageModel(graphdef=flatten(structure)[0], params=params, spec=source.spec)
    found = compare_models(before, load_model(file), source.tokenizer(), resolve(str(file)).tokenizer())
    of_file = {"file": file.name, "bytes": file.stat().st_size, "sha256": sha256_file(file)}
    receipt = {"schema_version": VERSION, **of_file, "step": step, "form": form}
    write_json(file.with_suffix(".receipt.json"), receipt | found | {"llama_cpp": None})
    return (
        f"compared with the exported parameters: {found['texts_with_equal_tokens']:,} of {found['texts']:,} texts have "
        f"equal tokens, {found['tokens_equal']} of {found['prompts'] * found['new_tokens']} greedy tokens are equal"
    )


def compare_models(before: LanguageModel, after: LanguageModel, tokenizer: Any, other_tokenizer: Any) -> dict[str, Any]:
    """Return how many texts are tokenized alike, how many greedy tokens are equal, and how far logits differ."""
    texts = [*PROMPTS, *tokenizer_probes(tokenizer)]
    tokens, other_tokens = ([each(text).input_ids for text in texts] for each in (tokenizer, other_tokenizer))
    prompts = tokens[: len(PROMPTS)]
    answers = [greedy_answers(model, prompts) for model in (before, after)]
    pairs = [[np.asarray(model(prompt)[0, -1]) for model in (before, after)] for prompt in prompts]
    difference = max(float(np.abs(one - other).max()) for one, other in pairs)
    return {
        "texts": len(texts),
        "texts_with_equal_tokens": sum(a == b for a, b in zip(tokens, other_tokens, strict=True)),
        "prompts": len(PROMPTS),
        "new_tokens": NEW_TOKENS,
        "tokens_equal": equal_tokens(*answers),
        "first_tokens_equal": sum(a[0] == b[0] for a, b in zip(*answers, strict=True)),
        "largest_logit_difference": difference / max(float(np.abs(one).max()) for one, _ in pairs),
    }


def greedy_answers(model: LanguageModel, prompts: Sequence[Sequence[int]]) -> list[list[int]]:
    """Return the greedy answer to each prompt."""
    room = NEW_TOKENS
    if model.spec.learned_positions:
        room = min(NEW_TOKENS, model.spec.max_positions - max(map(len, prompts)))
    answers: list[list[int]] = generate(model, prompts, max_new_tokens=room).tolist()
    return answers


def equal_tokens(ours: Sequence[Sequence[int]], theirs: Sequence[Sequence[int]]) -> int:
    """Return the length of the common prefixes of answers: 1 for [5, 7, 8] and [5, 9, 8]."""
    return sum(
        next((place for place, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
        for one, other in zip(ours, theirs, strict=True)
    )


def no_adapter(folder: Path) -> Problem:
    """Return the problem of requesting the adapter of a run that trained the model itself."""
    what = "The run trained no adapter: method.kind is not lora."
    return problem_of("TP068", file=str(folder / layout.CONFIG), pointer="/method/kind", what=what)


def refuse_to_go_on(target: Path, stop: StopRequest) -> None:
    """Refuse to write more of an export that was interrupted."""
    if reason := stop.reason():
        raise ProblemError([export_stopped(target, reason)], exit_code=5)


def export_stopped(target: Path, reason: str) -> Problem:
    """Return the problem of an export that was interrupted."""
    return problem_of(
        "TP049", file=str(target), what=f"The export was stopped ({reason}); nothing of it is left.", why=None
    )

"""Make runs and models: `init`, `train`, `demo`, `evaluate`, `play`, `export`."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from evidence.extras import need
from evidence.hashes import sha256_json
from evidence.layout import ADAPTER, CONFIG, EXPORT, MANIFEST, new_run_id
from evidence.writing import as_json_text, scratch_folder, write_text
from schemas.formats import join_words, quantity, short_count, size
from schemas.problems import Problem, ProblemError, collect_problems, problem_of
from schemas.reading import write_yaml
from schemas.render import render_json, render_text
from trainproof.cli.options import RUNS, AsJson, Force, Phases, Root, Settings, SmokeConfig, load_phases, using_trainer
from trainproof.output import print_event

if TYPE_CHECKING:
    from launch.phases import Phase
    from trainer.convert import Conversion
    from trainer.first_config import WrittenConfig
    from trainer.play import ChatModel, Question
    from trainer.run import RunRequest

CONFIGS = Path(__file__).parents[2] / "trainer" / "configs"
BUNDLES = Path("bundles")
AUTO = Path("auto")
"""Value of `--resume` that searches for the run to continue."""

NEXT_COMMANDS = (
    "reads everything and trains nothing",
    "estimates memory and time",
    "trains two steps to test everything",
    "trains",
    "writes one file to submit",
    "",
)
"""Explanations of `WrittenConfig.commands`."""


def init(
    model: Annotated[
        str | None, typer.Argument(help="Folder of the model, built-in name, or name on the Hugging Face hub.")
    ] = None,
    data: Annotated[
        str | None, typer.Argument(help="Training rows: JSONL, Parquet, text, a folder, or a built-in name.")
    ] = None,
    source: Annotated[
        Path | None,
        typer.Option("--from", help="Convert a configuration of TRL, axolotl, LLaMA-Factory or transformers instead."),
    ] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="With --from: set a key, such as --set limits.steps=200.")
    ] = None,
    output: Annotated[Path, typer.Option(help="Configuration to write; split rows are written next to it.")] = Path(
        "config.yaml"
    ),
    eval_file: Annotated[
        str | None, typer.Option("--eval", help="Evaluation set. Default: held-out rows with answers.")
    ] = None,
    on: Annotated[str | None, typer.Option(help="Machine to fit, as in `plan --on`. Default: this machine.")] = None,
    *,
    force: Annotated[bool, typer.Option("--force", help="Replace existing files.")] = False,
    as_json: AsJson = False,
) -> None:
    """Write a first configuration for a model and a dataset, or convert one of another trainer."""
    if source is None and (model is None or data is None or settings):
        hint = "; --set needs --from." if settings else ", or --from FILE."
        message = f"Pass a model and a dataset{hint}"
        raise typer.BadParameter(message)
    if source is not None and (model or data or eval_file or on):
        message = "--from takes no model, dataset, --eval or --on; change keys with --set key=value."
        raise typer.BadParameter(message)
    with using_trainer("init"):
        from trainer.first_config import Order, write_conversion, write_first_config

        if source is not None:
            converted = write_conversion(source, settings or (), output, force=force)
            document, text = converted.document(), conversion_text(converted, output)
        else:
            order = Order(model=str(model), data=str(data), eval_set=eval_file, on=on, output=output, force=force)
            made = write_first_config(order)
            document, text = made.document(), first_config_text(made)
    sys.stdout.write(as_json_text(document) if as_json else text)


def conversion_text(converted: Conversion, output: Path) -> str:
    """Format how many keys were converted, the keys without an equivalent by reason, and the next command."""
    count = quantity(len(converted.settings), "setting")
    lines = [f"{converted.source} ({converted.form}): {count} converted, with their origin in {output}."]
    reasons: dict[str, list[str]] = {}
    for each in converted.unconverted:
        reasons.setdefault(each.reason, []).append(each.name)
    lines += ["", "Without an equivalent:"] if reasons else []
    lines += [f"  {', '.join(names)}: {why}" for why, names in reasons.items()]
    command = f"trainproof train --config {shlex.quote(str(output))} --check"
    lines += ["", f"Written: {output}.", "", "Next:", f"  {command}  {NEXT_COMMANDS[0]}"]
    return "\n".join(lines) + "\n"


def first_config_text(made: WrittenConfig) -> str:
    """Format what `init` found and chose, its warnings, and the next commands."""
    lines = [*_describe_inputs(made), "", f"Written: {join_words(map(str, made.written), last='and')}.", ""]
    if made.warnings:
        lines += [*render_text(made.warnings).splitlines(), ""]
    commands = made.commands()
    width = max(map(len, commands))
    explained = zip(commands, NEXT_COMMANDS, strict=True)
    lines += ["Next:", *(f"  {command:{width}}  {text}".rstrip() for command, text in explained)]
    return "\n".join(lines) + "\n"


def _describe_inputs(made: WrittenConfig) -> Iterator[str]:
    """Yield a line for model, rows, lengths, evaluation and memory."""
    document, config, steps = made.document(), made.choice.config, made.choice.config.limits.steps
    model, data, evaluation, memory = (document[name] for name in ("model", "data", "evaluation", "memory"))
    trained = f"{short_count(model['trained_parameters'])} of {short_count(model['parameters'])} parameters"
    yield f"model       {model['name']}: {model['family']}, method {config.method.kind}, {trained}"
    twice = f", {quantity(data['duplicates'], 'repeated question')}" if data["duplicates"] else ""
    yield f"rows        {quantity(data['rows'], 'row')} with {join_words(data['columns'], last='and')}{twice}"
    spread = ", ".join(f"{share} % at most {data['tokens'][f'p{share}']:,}" for share in (50, 90, 99))
    length = f"sequences of {config.data.max_length:,}{', packed' if config.data.packing else ''}"
    yield f"tokens      {spread}, the longest {data['tokens']['longest']:,}; {length}"
    items = f"{quantity(evaluation['items'], 'item')}, " if evaluation["items"] else ""
    yield f"evaluation  {items}{evaluation['because']}"
    verdict = {"fits": "fits", "unknown": "limit not known", "tight": "tight"}.get(memory["verdict"], "does not fit")
    available = f" of {size(memory['available_bytes'])}" if memory["available_bytes"] is not None else ""
    batches = f"{quantity(steps, 'step')} of {quantity(made.choice.batch_size, 'sequence')}"
    yield f"run         {batches}; {size(memory['need_bytes'])}{available} by formulas: {verdict}"


class SessionName(StrEnum):
    """A session of a free platform; `trainer.loop.session` has the lengths."""

    kaggle_tpu = "kaggle-tpu"
    kaggle_gpu = "kaggle-gpu"


def train(
    config: Annotated[Path | None, typer.Option(help="Configuration file.")] = None,
    phases: Phases = None,
    output: Annotated[
        Path | None,
        typer.Option(
            help="Run folder, new or empty; with --phases, folder of all runs. Default: submission_runs/<id>."
        ),
    ] = None,
    smoke_config: SmokeConfig = None,
    smoke_steps: Annotated[
        int | None, typer.Option(help="Steps of a smoke run; a model that is too large is made small.")
    ] = None,
    dataset: Annotated[str | None, typer.Option(help="Built-in dataset or JSONL file.")] = None,
    device: Annotated[str | None, typer.Option(help="auto, cpu, gpu or tpu.")] = None,
    save_every_steps: Annotated[int | None, typer.Option(help="Steps between checkpoints.")] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of weights and data order.")] = None,
    settings: Settings = None,
    resume: Annotated[
        Path | None,
        typer.Option(
            help="Continue from the newest checkpoint of this run folder. auto: of the newest run of the same name "
            "that can be continued, next to --output or attached by Kaggle, or else start a new run."
        ),
    ] = None,
    session: Annotated[
        SessionName | None,
        typer.Option(help="Stop in time to save, evaluate and pack: after 9 hours, or 12 with GPUs."),
    ] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Check configuration, model and data without training.")
    ] = False,
    force: Force = False,
    profile: Annotated[
        int | None,
        typer.Option(min=1, metavar="STEPS", help="Trace this many steps after the first into the folder .profile."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="With --check: print JSON.")] = False,
    distributed: Annotated[
        bool, typer.Option("--distributed", help="Train with other processes on Slurm, Kubernetes or a TPU pod.")
    ] = False,
    coordinator: Annotated[str | None, typer.Option(help="Elsewhere: HOST:PORT where process 0 listens.")] = None,
    processes: Annotated[int | None, typer.Option(min=1, help="With --coordinator: number of processes.")] = None,
    process: Annotated[int | None, typer.Option(min=0, help="With --coordinator: this process, from 0.")] = None,
) -> None:
    """Train a model and record the run."""
    given = locals()
    if len({coordinator is None, processes is None, process is None}) > 1:
        message = "--coordinator HOST:PORT, --processes N and --process I go together; omit all three on a cluster."
        raise typer.BadParameter(message)
    if as_json and not check:
        message = "--json needs --check; a run is recorded in its folder."
        raise typer.BadParameter(message)
    if phases is not None:
        raise typer.Exit(_train_phases(phases, given, output or RUNS, force=force, check=check))
    with using_trainer("train"):
        from trainer.config.load import load_config
        from trainer.distributed import exchange, is_lead, join
        from trainer.loop.session import session_limit
        from trainer.planning.subject import resolve_shape_here
        from trainer.recorder.progress import Watch
        from trainer.run import RunRequest, run_or_resume
        from trainer.runtime import init_runtime

        if config is None and resume in (None, AUTO):
            what, expected = "No configuration was given.", "--config FILE, or --resume RUN_FOLDER"
            expected += "; --resume auto needs --config too"
            problem = problem_of("TP003", file="--config", what=what, expected=expected, why=None)
            raise ProblemError([problem], exit_code=2)
        is_smoke = smoke_config is not None or smoke_steps is not None
        overrides = {
            "mode": "smoke" if is_smoke else None,
            "recording.log_every_steps": 1 if is_smoke else None,
            "limits.steps": smoke_steps,
            # A smoke run of the configuration itself, whose model may be made smaller.
            "model.shape": "auto" if smoke_steps is not None and smoke_config is None and resume is None else None,
            "data.dataset": dataset,
            "mesh.device": device,
            "checkpoint.save_every_steps": save_every_steps,
            "seed": seed,
        }
        path = config or Path(resume or "") / CONFIG
        loaded = load_config(path, overlay=smoke_config, flags=overrides, settings=settings or ())
        model = Path(loaded.model.name)
        if model.name == EXPORT and not model.exists() and (model.parent / MANIFEST).is_file():
            export(str(model.parent))
        if distributed or coordinator is not None:
            join(coordinator, processes, process)
        if loaded.model.shape == "auto":
            init_runtime(loaded)
        loaded = resolve_shape_here(loaded, device_is_stated=device is not None)
        request = RunRequest(
            config=loaded,
            folder=output or RUNS / exchange(new_run_id(loaded.name, datetime.now(UTC)))[0],
            command=["trainproof", *sys.argv[1:]],
            forced=force,
            resume=resume,
            profile_steps=profile,
            session=None if session is None else session_limit(session),
        )
        if check:
            raise typer.Exit(_check_inputs(request, as_json=as_json))
        with Watch(quiet=not is_lead()) as watch:
            code = run_or_resume(request, watch)
    raise typer.Exit(code)


def _train_phases(path: Path, given: dict[str, object], root: Path, *, force: bool, check: bool) -> int:
    """Check all phases, train those without a run that succeeded, merge and pack; return the exit code."""
    need("train", "train")
    from launch.phases import find_runs

    document, phases = load_phases(path, given, "output", "force", "check")
    runs, problems = find_runs(root, phases), list[Problem]()
    with scratch_folder("trainproof-phases-") as scratch:

        def train_phase(title: str, config: dict[str, Any], **options: Any) -> int:
            write_text(scratch / CONFIG, write_yaml(config))
            return _run(title, lambda: train(config=scratch / CONFIG, force=force, **options))

        waiting = [phase for phase in phases if phase.name not in runs or not runs[phase.name].succeeded]
        for phase in waiting:
            with collect_problems(problems):
                train_phase(f"Check of phase {phase.name}", phase.config, check=True)
        if problems:
            raise ProblemError(problems, exit_code=2)
        if check:
            return 0
        for name, run in runs.items():
            if run.succeeded:
                typer.echo(f"\nPhase {name} is trained: {run.path}")
        for phase in waiting:
            stopped = runs[phase.name].path if phase.name in runs else None
            config = phase.start_config(path, runs[phase.parent.name].path if phase.parent else None)
            folder = root / new_run_id(config["name"], datetime.now(UTC))
            if code := train_phase(f"Phase {phase.name}", config, output=folder, resume=stopped):
                return code
            runs = find_runs(root, phases)
    _merge_and_pack(document, phases, {name: run.path for name, run in runs.items()})
    return 0


def _merge_and_pack(document: dict[str, Any], phases: list[Phase], runs: dict[str, Path]) -> None:
    """Merge the adapters of phases into their model, and pack the runs of all phases."""
    from trainer.export_run import export_run
    from trainer.model.peft import merge_named
    from trainer.recorder.progress import Watch
    from trainproof.cli.submit import package

    merge, name = document.get("merge", {}), document["name"]
    weights, dtype = merge.get("weights", {}), merge.get("dtype")
    if phase := next((phase for phase in phases if phase.name in weights), None):
        base, revision = phase.config["model"]["name"], phase.config["model"]["revision"]
        if phase.base is not None:
            base, revision = str(runs[phase.base.name] / EXPORT), None
        named = [f"{runs[each] / ADAPTER}={weight}" for each, weight in weights.items()]
        with Watch() as watch:
            for run in (runs[each] for each in weights if not (runs[each] / ADAPTER).exists()):
                export_run(run, None, watch, adapter=True, model=base)
        merged = BUNDLES / f"{name}-{sha256_json([base, revision, named, dtype])[:8]}"
        if not merged.exists():
            merge_named(base, named, merged, dtype=dtype, revision=revision)
        typer.echo(f"\nThe merged model is in {merged}.")
    package([*runs.values()], output=BUNDLES / f"{name}.zip")


def _check_inputs(request: RunRequest, *, as_json: bool) -> int:
    """Read everything that a run reads, print the result, and return the exit code."""
    from trainer.recorder.progress import Watch
    from trainer.run import check, resume_candidates

    code = 0
    try:
        with Watch(quiet=as_json) as watch:
            found = check(next(resume_candidates(request, watch)), watch)
    except ProblemError as error:
        if not as_json:
            raise
        unread = {"training_rows": None, "evaluation_items": None}
        found, code = {"can_begin": False, **unread, "findings": render_json(error.problems)}, error.exit_code
    if as_json:
        sys.stdout.write(as_json_text(found))
    return code


def demo(
    root: Root = RUNS,
    no_serve: Annotated[bool, typer.Option("--no-serve", help="Do not start the dashboard.")] = False,
    again: Annotated[bool, typer.Option("--again", help="Train again, next to existing runs.")] = False,
) -> None:
    """Train small demo runs in minutes, verify them, and open the dashboard."""
    need("demo", "train", *(() if no_serve else ("dashboard",)))
    if code := run_demo(root, again=again):
        raise typer.Exit(code)
    if no_serve:
        typer.echo(f"Next: trainproof dashboard --root {shlex.quote(str(root))}")
        return
    from dashboard.serve import serve_anew

    serve_anew(root)


def run_demo(root: Path, *, again: bool) -> int:
    """Train the demo's runs in `root`, check, pack, verify and replay them, and return the highest exit code.

    Existing runs are kept unless `again` is set.
    """
    from trainer.loop.state import REFUSED
    from trainproof.cli.inspect import check
    from trainproof.cli.judge import replay
    from trainproof.cli.submit import package, verify

    title = "A smoke run: two steps of the demo model, to test the pipeline"
    smoke = _train_once(root / "first-smoke", title, again=again, config=CONFIGS / "demo.yaml", smoke_steps=2)
    title = "A full run: in a few minutes the demo model learns to solve problems step by step"
    full = _train_once(root / "first-full", title, again=again, config=CONFIGS / "demo.yaml")
    if not (full / EXPORT).exists():
        export(str(full))
    title = "A LoRA run: adapters for that model learn stories of two calculations, which it has not seen"
    settings = [f"model.name={full / EXPORT}"]
    lora = _train_once(root / "first-lora", title, again=again, config=CONFIGS / "demo_lora.yaml", settings=settings)
    folders, bundle = [smoke, full, lora], root.parent / BUNDLES / "demo.zip"
    named = " ".join(map(str, folders))
    codes = [
        _run(f"Check: trainproof check {named}", lambda: check(folders)),
        _run(f"Bundle: trainproof package {named} --output {bundle}", lambda: package(folders, output=bundle)),
        _run(f"Verify: trainproof verify {bundle}", lambda: verify(bundle)),
        _run(f"Replay: trainproof replay {smoke} --all", lambda: replay(smoke, whole=True), accepted=REFUSED),
    ]
    sys.stdout.write("\nScores, each on its own questions:\n")
    sys.stdout.writelines(map(_scores_text, (full, lora)))
    return max(codes)


def _train_once(folder: Path, title: str, *, again: bool, **options: Any) -> Path:
    """Train a run of the demo unless it exists, and return its folder.

    Raises:
        typer.Exit: The run failed or was interrupted.
    """
    from evidence.run import read_run

    if read_run(folder).status == "succeeded" and not again:
        sys.stdout.write(f"{folder} exists already; --again trains it again\n")
        return folder
    if folder.exists():
        folder = folder.with_name(new_run_id(folder.name, datetime.now(UTC)))
    if code := _run(title, lambda: train(**options, output=folder)):
        raise typer.Exit(code)
    return folder


def _run(title: str, command: Callable[[], None], *, accepted: int = 0) -> int:
    """Run a command of the demo and return its exit code, or 0 for a refusal with the accepted code."""
    sys.stdout.write(f"\n{title}\n")
    try:
        command()
    except typer.Exit as end:
        return end.exit_code
    except ProblemError as error:
        if error.exit_code != accepted:
            raise
        sys.stdout.write(f"  {error.problems[0].what}\n")
    return 0


def _scores_text(folder: Path) -> str:
    """Format a run's scores before and after training with their intervals."""
    from evidence.report import score_headlines
    from evidence.run import read_run

    facts = read_run(folder)
    after, _, before = (line.as_text() for line in score_headlines(facts))
    eval_set = (facts.eval_summary or {})["eval_set"]["name"]
    return f"  {folder.name} on {eval_set}: before training {before}; after it {after}\n"


def evaluate(
    run: Annotated[Path, typer.Argument(help="Run folder with a checkpoint and without an evaluation.")],
    eval_set: Annotated[str | None, typer.Option(help="Built-in set or JSONL file. Default: as in the run.")] = None,
    as_json: AsJson = False,
) -> None:
    """Evaluate a run's newest checkpoint. The result becomes part of the run."""
    with using_trainer("evaluate"):
        from trainer.evaluation.evaluate import evaluate_run
        from trainer.recorder.progress import Watch

        with Watch(quiet=as_json) as watch:
            summary = evaluate_run(run, eval_set, watch)
    if as_json:
        sys.stdout.write(as_json_text(summary))


class GgufType(StrEnum):
    """Element type of the matrices in a GGUF file."""

    f16 = "f16"
    q8_0 = "q8_0"


def export(
    run: Annotated[str, typer.Argument(help="Run folder with a checkpoint; with --merge, the base model.")],
    output: Annotated[
        Path | None, typer.Option(help="New folder or file. Default: export/, adapter/ or gguf/ of the run folder.")
    ] = None,
    *,
    adapter: Annotated[bool, typer.Option("--adapter", help="Only the adapters of a LoRA run, for PEFT.")] = False,
    gguf: Annotated[
        GgufType | None, typer.Option(help="One GGUF file for llama.cpp and Ollama, with adapters merged.")
    ] = None,
    merge: Annotated[
        list[str] | None,
        typer.Option(metavar="ADAPTER[=WEIGHT]", help="Merge LoRA adapters into a model. Default weight: 1."),
    ] = None,
    dtype: Annotated[
        str | None, typer.Option(help="With --merge: float32, bfloat16 or float16. Default: as in the base model.")
    ] = None,
) -> None:
    """Export a model as a Hugging Face folder or a GGUF file."""
    if adapter and gguf is not None:
        message = "A GGUF file contains the whole model: omit --adapter or --gguf."
        raise typer.BadParameter(message)
    if merge and (adapter or gguf is not None or output is None):
        message = "--merge writes a Hugging Face folder and needs --output; omit --adapter and --gguf."
        raise typer.BadParameter(message)
    with using_trainer("export"):
        from trainer.export_run import export_run
        from trainer.model.peft import merge_named
        from trainer.recorder.progress import Watch

        if merge and output is not None:
            merge_named(run, merge, output, dtype=dtype)
            typer.echo(f"The model is in {output}.")
            return
        with Watch() as watch:
            export_run(Path(run), output, watch, adapter=adapter, gguf=None if gguf is None else gguf.value)


def merge(
    base: Annotated[str, typer.Argument(help="Folder of the model, or its name on the Hugging Face hub.")],
    adapters: Annotated[list[str], typer.Argument(metavar="ADAPTER[=WEIGHT]...", help="Folders of LoRA adapters.")],
    output: Annotated[Path, typer.Option(help="New folder for the model.")],
    dtype: Annotated[str | None, typer.Option(help="float32, bfloat16 or float16.")] = None,
) -> None:
    """Merge LoRA adapters into a model, as `export --merge`."""
    export(base, output, merge=adapters, dtype=dtype)


def play(
    run: Annotated[Path | None, typer.Argument(help="Run folder with trained parameters.")] = None,
    prompt: Annotated[str | None, typer.Option(help="Prompt. Default: each line of standard input.")] = None,
    item: Annotated[str | None, typer.Option(help="Id of an item of the run's evaluation set.")] = None,
    model: Annotated[
        str | None, typer.Option(help="Model without a run: a folder with config.json and weights, or a built-in name.")
    ] = None,
    beside: Annotated[Path | None, typer.Option(help="Another run, whose model answers too.")] = None,
    untrained: Annotated[bool, typer.Option("--untrained", help="The model before training answers too.")] = False,
    json_lines: Annotated[
        bool, typer.Option("--json-lines", help="Read questions and print events as one JSON object per line.")
    ] = False,
) -> None:
    """Chat with a run's model, or any other. Nothing is recorded."""
    if prompt is not None and item is not None:
        message = "--prompt and --item are two questions: omit one."
        raise typer.BadParameter(message)
    if (run is None) == (model is None) or (model is not None and untrained):
        message = "Pass a run, or --model alone; --untrained is the model that a run started from."
        raise typer.BadParameter(message)
    with using_trainer("play", how="and nothing was recorded"):
        from trainer.play import answer, find_question, load_models, open_models, ready_event, refused_event
        from trainer.recorder.progress import Watch

        tell: Callable[[Mapping[str, Any]], None] = print_event if json_lines else AnswerPrinter()
        with Watch(quiet=json_lines) as watch:
            models = open_models(run, model=model, beside=beside, untrained=untrained, watch=watch)
        readers = _question_readers(models[0], as_json=json_lines)
        is_given = prompt is not None or item is not None
        if is_given:
            given = find_question(prompt, item, models[0])
            for each in models:
                given.encode(each)  # refused before the models are loaded
            readers = iter([lambda: given])
        params = load_models(models)
        tell(ready_event(models))
        for read in readers:
            try:
                for event in answer(read(), models, params, in_turn=not json_lines):
                    tell(event)
            except ProblemError as error:
                if is_given:
                    raise
                tell(refused_event(error))


def _question_readers(model: ChatModel, *, as_json: bool) -> Iterator[Callable[[], Question]]:
    """Yield for each line of standard input a function that reads its question."""
    from trainer.play import find_question, read_question

    for number, line in enumerate(sys.stdin, start=1):
        if line.strip():
            text = line.removesuffix("\n")
            yield partial(read_question, line, number, model) if as_json else partial(find_question, text, None, model)


class AnswerPrinter:
    """Prints the events of `play` for people; of an answer that grows, only the new text."""

    def __init__(self) -> None:
        self._names: list[str] = []
        self._shown: dict[int, str] = {}

    def __call__(self, event: Mapping[str, Any]) -> None:
        """Print an event."""
        match event["event"]:
            case "ready":
                self._names = [model["name"] for model in event["models"]]
                typer.echo("Nothing is recorded, and nothing here counts for a grade.")
            case "text" | "answer":
                self._print_answer(event)
            case "refused":
                for problem in event["problems"]:
                    typer.echo(f"\n{problem['code']}: {problem['what']} Next: {problem['next']}")

    def _print_answer(self, event: Mapping[str, Any]) -> None:
        number, text = event["model"], event["text"]
        before = self._shown.get(number)
        typer.echo("" if before is not None else f"\n{self._names[number]}:\n", nl=False)
        # Decoding more tokens can change earlier characters; then the text is printed again on a new line.
        is_changed = before is not None and not text.startswith(before)
        typer.echo(f"\n{text}" if is_changed else text[len(before or "") :], nl=False)
        self._shown[number] = text
        if event["event"] == "answer":
            del self._shown[number]
            ending = "ended by itself" if event["finish_reason"] == "stop" else "cut off"
            expected = f"; expected {event['expected']}" if "expected" in event else ""
            verdict = f": {'right' if event['correct'] else 'wrong'}" if "expected" in event else ""
            typer.echo(f"\n[{event['tokens']} tokens, {ending}{expected}{verdict}]")

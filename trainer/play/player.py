"""Models loaded side by side, and their answers as they come, token by token. Nothing is written anywhere."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

from evidence import layout
from evidence.scores.reading import accepted_answers
from schemas.problems import ProblemError
from trainer.config.tree import Config, ModelConfig
from trainer.data.prompts import Asked
from trainer.evaluate_run import devices_here
from trainer.evaluation.evaluable import config_of_run
from trainer.generate.stream import stream_tokens
from trainer.model.params import Params
from trainer.model.stacking import apart_on_devices
from trainer.planning.formula import FORMULA_ERROR, Part, answering_estimate, total_bytes
from trainer.planning.memory import parts_document, verdict
from trainer.planning.words import does_not_fit, in_words
from trainer.play.entrant import Entrant, bare_entrant, trained_entrant, untrained_entrant
from trainer.play.question import PlayQuestion
from trainer.recorder.progress import Watch
from trainer.runtime import REFUSED, Devices

Event = Mapping[str, Any]
"""What happened, by its key `event`: plan, ready, text, answer or done."""

UNFINISHED = "\ufffd"
"""What a decoder writes for the first bytes of a character whose others are still to come."""


@dataclass(frozen=True, kw_only=True)
class Player:
    """Models that play, and where."""

    entrants: tuple[Entrant, ...]
    devices: Devices

    def plan(self, question: PlayQuestion) -> dict[str, Any]:
        """Return the memory plan of a question to all models.

        Raises:
            ProblemError: exit code 3; there is no room. Exit code 2: a model cannot be asked it.
        """
        found = memory_plan([(entrant, question.asked(entrant)) for entrant in self.entrants], self.devices)
        refuse_without_room(found, self.entrants)
        return found

    def loaded(self) -> tuple[Params, ...]:
        """Return the parameters of each model, on the devices.

        Raises:
            ProblemError: they cannot be read, or are not those of the run.
        """
        return tuple(apart_on_devices(entrant.load()) for entrant in self.entrants)

    def answers(self, question: PlayQuestion, params: Sequence[Params], *, in_turn: bool) -> Iterator[Event]:
        """Yield what the models write, and their whole answers.

        Args:
            question: what they are asked.
            params: of each.
            in_turn: one model after the other. Else each writes a token, then the next model does.

        Raises:
            ProblemError: as `plan`.
        """
        self.plan(question)
        streams = [
            write_answer(number, entrant, params[number], question) for number, entrant in enumerate(self.entrants)
        ]
        yield from chain(*streams) if in_turn else together(streams)
        yield {"event": "done"}


def open_entrants(
    folder: Path | None, *, model: str | None = None, beside: Path | None, untrained: bool, watch: Watch
) -> Player:
    """Return the models that are requested, none of them loaded yet.

    Args:
        folder: of the run. None: the first model is one by itself.
        model: that model, as a configuration names it.
        beside: of another run, whose model answers too.
        untrained: whether the model that the run began with answers too.
        watch: told where other devices are used than the run's.

    Raises:
        ProblemError: as `trained_entrant` and `untrained_entrant`.
    """
    if folder is None:
        config = Config(model=ModelConfig(name=model or ""))
        devices = devices_here(config, watch)
        first = bare_entrant(config, devices)
    else:
        devices = devices_here(config_of_run(folder), watch)
        first = trained_entrant(folder, devices)
    entrants = [first, *([untrained_entrant(first)] if untrained else [])]
    if beside is not None:
        entrants.append(trained_entrant(beside, devices))
    return Player(entrants=tuple(entrants), devices=devices)


def plan_event(plan: dict[str, Any]) -> Event:
    """Return what is reported before anything is loaded."""
    return {"event": "plan", "said": in_words(plan)} | {
        key: plan[key] for key in ("verdict", "need_bytes", "available_bytes", "parts")
    }


def ready_event(player: Player) -> Event:
    """Return which models are loaded."""
    models = [{"name": entrant.name, "where": entrant.where} for entrant in player.entrants]
    return {"event": "ready", "models": models, "evidence": False}


def refused_event(error: ProblemError) -> Event:
    """Return why a question was not asked; the models stay loaded."""
    problems = [{"code": each.code, "what": each.what, "next": each.next} for each in error.problems]
    return {"event": "refused", "problems": problems}


def write_answer(number: int, entrant: Entrant, params: Params, question: PlayQuestion) -> Iterator[Event]:
    """Yield what one model has written so far after each token, and then its whole answer."""
    sampler = entrant.sampler
    tokens: list[int] = []
    for token in stream_tokens(
        sampler.graphdef,
        params,
        question.prompt_of(entrant),
        max_new_tokens=sampler.settings.max_new_tokens,
        stop_token_id=sampler.stop_token_id,
        batch_size=sampler.settings.batch_size if question.items else 1,
        like=entrant.likes(question.items),
        options=sampler.options,
    ):
        tokens.append(token)
        if token != sampler.stop_token_id:
            text = str(sampler.tokenizer.decode(tokens)).rstrip(UNFINISHED)
            yield {"event": "text", "model": number, "text": text}
    finish_reason = "stop" if tokens[-1] == sampler.stop_token_id else "length"
    text = sampler.text_of(tokens)
    answer = {"event": "answer", "model": number, "text": text, "tokens": len(tokens), "finish_reason": finish_reason}
    if question.items is not None:
        verdict = sampler.scoring.verdict(
            text, finish_reason, accepted_answers(dict(question.row)), stop=sampler.settings.stop
        )
        answer |= {"expected": question.row["expected"], **verdict}
    yield answer


def together(streams: Sequence[Iterator[Event]]) -> Iterator[Event]:
    """Yield one event of each stream in turn until all have ended."""
    left = list(streams)
    while left:
        for stream in tuple(left):
            if (event := next(stream, None)) is None:
                left.remove(stream)
            else:
                yield event


ONLY_TRAINING = ("opt_state", "reference")
FEWER = "Leave --untrained or --beside out, so that fewer models lie side by side."
SMALLER = "Play where there is more memory."


def memory_plan(asked: Sequence[tuple[Entrant, Asked]], devices: Devices) -> dict[str, Any]:
    """Return what lies on each device while these models answer side by side, as `plan.json` states it of memory."""
    parts = tuple(part for entrant, one in asked for part in parts_of(entrant, one, devices))
    need, available = total_bytes(parts), devices.memory_bytes
    return {
        "target": {"name": devices.kind, "memory_source": devices.memory_source},
        "method": "closed_form",
        "verdict": verdict(need, available, FORMULA_ERROR),
        "need_bytes": need,
        "available_bytes": available,
        "error_fraction": FORMULA_ERROR,
        "parts": parts_document(parts),
        "advice": [],
    }


def parts_of(entrant: Entrant, asked: Asked, devices: Devices) -> tuple[Part, ...]:
    """Return what one model needs to be loaded and to answer; a checkpoint is read with the optimizer's state."""
    left_out = ONLY_TRAINING[1:] if entrant.where == f"{layout.CHECKPOINTS}/" else ONLY_TRAINING
    parts = answering_estimate(entrant.task, platform=devices.platform, asked=asked)
    return tuple(
        replace(part, because=f"{entrant.name}: {part.because}") for part in parts if part.name not in left_out
    )


def refuse_without_room(plan: dict[str, Any], entrants: Sequence[Entrant]) -> None:
    """Refuse to play what the plan states has no room.

    Raises:
        ProblemError: exit code 3, naming the largest parts.
    """
    if plan["verdict"] != "does_not_fit":
        return
    names = " and ".join(entrant.name for entrant in entrants)
    refused = does_not_fit(plan, model=entrants[0].task.config.model.name, can_force=False, who=f"Playing {names}")
    raise ProblemError([replace(refused, next=FEWER if len(entrants) > 1 else SMALLER)], exit_code=REFUSED)

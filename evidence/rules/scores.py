"""Recompute scores from the answers, and rewards and advantages from the roll-outs.

A user's own reward functions are never executed; a note names the rewards that were not checked.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np

from evidence import layout
from evidence.hashes import sha256_json, sha256_lines
from evidence.layout import ANSWERS_OVER_STEPS, BASELINE_PREDICTIONS, EVAL_SUMMARY, LOG, METRICS, PREDICTIONS, ROLLOUTS
from evidence.registry import dataset_file, dataset_rows
from evidence.rewards import Attempt, Reward, advantages, build_rewards, parse_terms, total_reward
from evidence.rules.checker import Checker, ValidRun, rule
from evidence.rules.results import report_rows
from evidence.run import Document, Run, same
from evidence.scores import recompute
from evidence.scores.intervals import BY_PROMPT
from evidence.scores.overlap import row_texts
from evidence.scores.reading import PatternError, Scoring, accepted_answers, expected_line, read_scoring
from evidence.scores.recompute import MORE_SAMPLES, compute_scores, iter_answers
from schemas.catalog import VERSION
from schemas.formats import format_value, join_words
from schemas.problems import ProblemError, pointer_to
from schemas.reading import get_path

_ITEM_HASHES = {"id": "ids_sha256", "prompt": "prompts_sha256", "expected": "expected_sha256"}


class EvaluatedModel(NamedTuple):
    """A model's part of eval_summary.json, at `pointer`, and its predictions."""

    stated: Document
    rows: Sequence[Document]
    file: str
    pointer: str


def evaluated_models(run: Run) -> Iterator[EvaluatedModel]:
    """Yield the trained model and the baseline, each if it has both scores and predictions."""
    summary = run.eval_summary
    if summary and run.predictions is not None:
        yield EvaluatedModel(summary, run.predictions, PREDICTIONS, "")
    if summary and summary["baseline"] and run.baseline_predictions is not None:
        yield EvaluatedModel(summary["baseline"], run.baseline_predictions, BASELINE_PREDICTIONS, "/baseline")


def each_answer(rows: Sequence[Document]) -> Iterator[tuple[int, str, Document]]:
    """Yield line, pointer and fields of every answer, of every sample of an item."""
    for line, row in enumerate(rows, start=1):
        if MORE_SAMPLES not in row:
            yield line, "", row
            continue
        for number, answer in enumerate(iter_answers(row)):
            yield line, f"/{MORE_SAMPLES}/{number - 1}" if number else "", answer


def _prediction_files(run: Run) -> tuple[tuple[str, Sequence[Document]], ...]:
    return (PREDICTIONS, run.predictions or ()), (BASELINE_PREDICTIONS, run.baseline_predictions or ())


@rule("TP340", "eval_summary")
def scores(run: ValidRun, check: Checker) -> None:
    """Compute every score again from the predictions."""
    samples = run.eval_summary["generation"].get("samples", 1)
    for model in evaluated_models(run):
        interval = model.stated["metrics"]["exact_match"]["interval"]  # Earlier versions did not cluster equal prompts.
        computed = compute_scores(model.rows, samples, by_prompt=interval is None or interval["method"] == BY_PROMPT)
        stated = {key: model.stated[key] for key in ("metrics", "groups", "sampled") if key in model.stated}
        for path, found, expected in _differences(stated, computed):
            check.equal(EVAL_SUMMARY, model.pointer + pointer_to(path), found, expected, model.file)


def _differences(stated: Any, computed: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any, Any]]:
    """Yield path, stated and computed value of each leaf that differs, with None for a missing value."""
    if isinstance(stated, dict) and isinstance(computed, dict) and stated != computed:
        for key in computed | stated:
            yield from _differences(stated.get(key), computed.get(key), (*path, key))
    elif stated != computed:
        yield path, stated, computed


@rule("TP341")
def verdicts(run: ValidRun, check: Checker) -> None:
    """Score every prediction again from its text."""
    scoring, stop = read_scoring(run.eval_summary), get_path(run.eval_summary, "generation", "stop")
    if not run.eval_summary:  # an interrupted run has only its baseline
        scoring, stop = recorded_scoring(run) or scoring, get_path(run.config, "evaluation", "stop")
    try:
        scoring.read("")
    except PatternError as error:
        what = f"The pattern {format_value(scoring.answer_regex)} is not valid: {error}."
        check.report(EVAL_SUMMARY, what, "/scoring/answer_regex")
        return
    for file, rows in _prediction_files(run):
        # Earlier versions do not state `lenient_correct`; then no row of the file has it.
        has_lenient = any("lenient_correct" in row for row in rows)
        for line, pointer, row in each_answer(rows):
            verdict = scoring.verdict(row["output_text"], row["finish_reason"], accepted_answers(row), stop=stop)
            for key, value in verdict.items():
                if has_lenient or key != "lenient_correct":
                    check.equal(file, f"{pointer}/{key}", row.get(key), value, f"the output of {row['id']}", line=line)
        for line, row in enumerate(rows, start=1):
            if MORE_SAMPLES in row:
                answers = [answer["extracted_answer"] for answer in iter_answers(row)]
                for key, value in recompute.majority_fields(answers, scoring, accepted_answers(row)).items():
                    check.equal(file, f"/{key}", row.get(key), value, f"the majority of {row['id']}", line=line)


@rule("TP342")
def outputs(run: ValidRun, check: Checker) -> None:
    """Check that text, tokens, ending and error of each answer fit together."""
    generation = get_path(run.eval_summary, "generation") or {}
    for file, rows in _prediction_files(run):
        for line, row in enumerate(rows if generation else (), start=1):
            samples, answers = generation.get("samples", 1), 1 + len(row.get(MORE_SAMPLES, ()))
            what = f"{row['id']} has {answers} answers; the evaluation drew {samples}."
            check.require(row["error"] is not None or answers == samples, file, what, f"/{MORE_SAMPLES}", line=line)
        same_tokens: dict[tuple[str, str], Document] = {}
        for line, pointer, row in each_answer(rows):
            for key, what in _contradictions(row, generation):
                check.report(file, f"{row['id']}: {what}.", f"{pointer}/{key}", line=line)
            if row.get("output_token_ids"):
                other = same_tokens.setdefault((row["output_token_ids"], row["finish_reason"]), row)
                what = f"{row['id']} has the tokens of {other['id']}, but another text."
                is_same = other["output_text"] == row["output_text"]
                check.require(is_same, file, what, f"{pointer}/output_text", line=line)


def _contradictions(row: Document, generation: Document) -> Iterator[tuple[str, str]]:
    """Yield the field and the description of each contradiction within an answer."""
    reason, tokens, text, error = (row[key] for key in ("finish_reason", "output_tokens", "output_text", "error"))
    limit, end, stop = (generation.get(key) for key in ("max_new_tokens", "stop_token_id", "stop"))
    ids = row.get("output_token_ids", "").split()
    if (error is not None) != (reason == "error"):
        yield "finish_reason", f"finish_reason is {reason}, but error is {format_value(error)}"
    elif error is not None and text:
        yield "output_text", "the row has both an output and an error"
    elif error is None and tokens == 0:
        yield "output_tokens", f"no token was generated, but finish_reason is {reason}"
    elif limit is not None and (tokens > limit or (reason == "length" and tokens != limit)):
        yield "output_tokens", f"{tokens} tokens ended by {reason}, but max_new_tokens is {limit}"
    elif "output_token_ids" in row and len(ids) != tokens:
        yield "output_token_ids", f"output_tokens is {tokens}, but there are {len(ids)} token ids"
    _, has_stop, after = text.partition(stop) if stop else ("", "", "")
    if after:
        yield "output_text", f"the text continues after the stop text {format_value(stop)}"
    if ids and end is not None and error is None:
        places = [place for place, token in enumerate(ids) if int(token) == end]
        expected = [len(ids) - 1] if reason == "stop" else []
        # A stop text ends the output before an end token, unless one token holds both.
        if places != expected and not (has_stop and expected and not places):
            place = f"token {places[0] + 1} of {len(ids)}" if places else f"none of {len(ids)} tokens"
            yield "output_token_ids", f"finish_reason is {reason}, but the end token {end} is {place}"


def _item_text(row: Document, key: str) -> str:
    """Return what the hash of the evaluation set is computed from."""
    return expected_line(row) if key == "expected" else str(row[key])


@rule("TP350", "eval_summary")
def evaluation_set(run: ValidRun, check: Checker) -> None:
    """Compare the predictions with the evaluation set: their number, their ids, and the hashes if all are there."""
    stated, status = run.eval_summary["eval_set"], run.eval_summary["status"]
    for model in evaluated_models(run):
        rows, items, pointer = len(model.rows), stated["items"], f"{model.pointer}/predictions/rows"
        check.equal(EVAL_SUMMARY, pointer, model.stated["predictions"]["rows"], rows, model.file)
        if model.stated["predictions"]["rows"] == rows:
            what = f"The evaluation is {status} with {rows} predictions for {items} items."
            fits = rows == items if status == "complete" else rows <= items
            check.require(fits, EVAL_SUMMARY, what, pointer, expected=str(items))
        first: dict[str, int] = {}
        for line, row in enumerate(model.rows, start=1):
            earlier = first.setdefault(row["id"], line)
            what = f"{row['id']} is answered in row {earlier} already."
            check.require(earlier == line, model.file, what, "/id", line=line, code="TP351")
        for key, name in _ITEM_HASHES.items() if rows == items else ():
            expected = sha256_lines(_item_text(row, key) for row in model.rows)
            source = f"the field {key} of {model.file}"
            check.equal(EVAL_SUMMARY, f"/eval_set/{name}", stated[name], expected, source, code="TP352")


@rule("TP355", "predictions", "baseline_predictions")
def baseline_items(run: ValidRun, check: Checker) -> None:
    """Check that the baseline answers the same items in the same order."""
    for line, rows in enumerate(zip(run.predictions, run.baseline_predictions, strict=False), start=1):
        for key in _ITEM_HASHES:
            after, before = (_item_text(row, key) for row in rows)
            if before != after:
                what = f"{key} is {format_value(before)}, but {format_value(after)} in {PREDICTIONS}."
                check.report(BASELINE_PREDICTIONS, what, f"/{key}", line=line)
                return


@rule("TP353", "eval_summary")
def settings_hashes(run: ValidRun, check: Checker) -> None:
    """Compute the hashes of the generation and scoring settings again."""
    for group in ("generation", "scoring"):
        if stated := run.eval_summary.get(group):
            expected = sha256_json({key: value for key, value in stated.items() if key != "sha256"})
            check.equal(EVAL_SUMMARY, f"/{group}/sha256", stated["sha256"], expected, f"the group {group}")


@rule("TP354", "eval_summary")
def declared_evaluation(run: ValidRun, check: Checker) -> None:
    """Compare the set, generation, scoring and baseline with config.yaml, and the scoring with the log."""
    summary, generation = run.eval_summary, run.eval_summary["generation"]
    scoring, config = asdict(read_scoring(summary)), run.config or {}
    for line, event in enumerate(run.log or (), start=1):
        for key, value in scoring.items() if event["event"] == "scoring" else ():
            stated = event["fields"].get(key, 1 if key == "version" else None)
            check.equal(LOG, f"/fields/{key}", stated, value, EVAL_SUMMARY, line=line)
    is_old = str(config.get("schema_version", VERSION)) < "1.2"  # without other readers and comparisons
    declared = ({"answer": "tags", "compare": "exact"} if is_old else {}) | config.get("evaluation", {})
    if isinstance(name := declared.get("eval_set"), str):
        declared["eval_set"] = name.rsplit("/", 1)[-1]
    sampling = ("temperature", "top_k", "top_p") if "samples" in generation else ()
    effective = {
        "/eval_set/name": ("eval_set", summary["eval_set"]["name"].rsplit("/", 1)[-1]),
        "/generation/samples": ("samples", generation.get("samples", 1)),
        **{f"/generation/{key}": (key, generation.get(key)) for key in ("max_new_tokens", "stop", *sampling)},
        **{f"/scoring/{key}": (key, value) for key, value in scoring.items()},
    }
    for pointer, (key, value) in effective.items():
        if declared.get(key) is not None:
            check.equal(EVAL_SUMMARY, pointer, value, declared[key], f"evaluation.{key} of config.yaml")
    for key, without in (("eval_set", None), ("baseline", False)) if summary["baseline"] else ():
        what = f"There is a baseline, but evaluation.{key} of config.yaml is {format_value(without)}."
        is_refused = key in declared and declared[key] is without
        check.require(not is_refused, EVAL_SUMMARY, what, "/baseline", expected="null")


@rule("TP356", "eval_summary", "first_examples")
def end_token(run: ValidRun, check: Checker) -> None:
    """Check that answers end at the token with which the training examples end."""
    stated = run.eval_summary["generation"]["stop_token_id"]
    for example in run.first_examples["examples"] if run.first_examples["counts"]["end_token_supervised"] else ():
        if not example["truncated"] and example["tokens"] and (last := example["tokens"][-1]["id"]) != stated:
            source = f"row {example['row']} of the training data"
            check.equal(EVAL_SUMMARY, "/generation/stop_token_id", stated, last, source)
            return


def recorded_scoring(run: Run) -> Scoring | None:
    """Return how a run read answers, from its log or its evaluation, or None if neither states it."""
    stated = [event["fields"] for event in run.log or () if event["event"] == "scoring"]
    if stated and {"answer", "answer_regex", "compare", "tolerance"} <= stated[-1].keys():
        return read_scoring({"scoring": stated[-1]})
    return None if run.eval_summary is None else read_scoring(run.eval_summary)


@rule("TP396")
def held_out_scores(run: ValidRun, check: Checker) -> None:
    """Recompute the held-out score of every step from its answers."""
    stated = {row["step"]: (line, row) for line, row in enumerate(run.metrics or (), 1) if "held_out_score" in row}
    answers = _answers_by_step(run)
    for step in sorted({*stated, *answers}) if run.is_sealed else ():
        line, row = stated.get(step, (None, {}))
        correct = [answer["correct"] for answer in answers.get(step, ())]
        expected = sum(correct) / len(correct) if correct else None
        source = f"{ANSWERS_OVER_STEPS} at step {step}"
        check.equal(METRICS, "/held_out_score", row.get("held_out_score"), expected, source, line=line)


@rule("TP396", "answers_over_steps")
def held_out_verdicts(run: ValidRun, check: Checker) -> None:
    """Score every answer given during training again."""
    scoring, stop = recorded_scoring(run), get_path(run.config, "evaluation", "stop")
    if scoring is None:
        return
    try:
        scoring.read("")
    except PatternError:
        return  # Reported for the evaluation.
    for line, row in enumerate(run.answers_over_steps, start=1):
        expected = scoring.verdict(row["output_text"], row["finish_reason"], accepted_answers(row), stop=stop)
        for key in ("extracted_answer", "correct"):
            source = f"the output of {row['id']} at step {row['step']}"
            check.equal(ANSWERS_OVER_STEPS, f"/{key}", row[key], expected[key], source, line=line)


@rule("TP397", "config", "predictions", "eval_summary", "answers_over_steps")
def held_out_items(run: ValidRun, check: Checker) -> None:
    """Check that every step asks the items that the seed draws, as the evaluation does."""
    items, settings = {row["id"]: row for row in run.predictions}, run.config.get("evaluation", {})
    # Which items would be drawn is unknown if the set is incomplete.
    if not settings.get("every_steps") or len(items) != run.eval_summary["eval_set"]["items"]:
        return
    drawn = recompute.draw_ids(list(items), settings.get("during_items", 0), run.config.get("seed", 0))
    for step, answers in _answers_by_step(run).items():
        ids = [row["id"] for row in answers]
        if ids != drawn and (run.is_sealed or ids != drawn[: len(ids)]):
            what = f"Step {step} asks {len(ids)} items, which are not the {len(drawn)} that the seed draws."
            check.report(ANSWERS_OVER_STEPS, what)
            return
        for row in answers:
            item = items[row["id"]]
            is_same = (row["prompt"], accepted_answers(row)) == (item["prompt"], accepted_answers(item))
            what = f"Prompt or expected answer of {row['id']} at step {step} differ from the evaluation."
            check.require(is_same, ANSWERS_OVER_STEPS, what)


def _answers_by_step(run: ValidRun) -> dict[int, list[Document]]:
    answers = defaultdict(list)
    for row in run.answers_over_steps or ():
        answers[row["step"]].append(row)
    return answers


# Rewards of roll-outs

SAMPLER_GAPS = {"float32": 1e-3, "bfloat16": 0.2, "float16": 0.03}
"""Largest difference of log-probabilities, in nats, by compute type: at least six times the largest difference that
benchmarks/results/sampler_gap.json measured when sampler and trainer had the same parameters."""
_MEAN_TOLERANCE = 1e-6  # relative; the trainer adds in another order
_FEWEST_PROMPTS, _FEWEST_COMPLETIONS, _COLLAPSED_FRACTION = 8, 32, 0.9


@dataclass(frozen=True)
class RewardedRun:
    """Rollouts of a run with the rewards of its objective; `scoring` is None if it is unknown."""

    run: Run
    rollouts: Sequence[Document]
    objective: Document
    rewards: tuple[Reward, ...]
    scoring: Scoring | None

    @cached_property
    def dataset(self) -> Sequence[Document]:
        """Rows of the dataset; empty if its file is not available."""
        found = dataset_file(self.run)
        return (found and dataset_rows(*found)) or ()

    @cached_property
    def steps(self) -> Mapping[int, list[tuple[int, Document]]]:
        """Lines and rows by step, without the incomplete last step of a run that was stopped."""
        steps: dict[int, list[tuple[int, Document]]] = defaultdict(list)
        for line, row in enumerate(self.rollouts, start=1):
            steps[row["step"]].append((line, row))
        if not self.run.is_sealed and not self.is_complete(steps[last := next(reversed(steps))]):
            del steps[last]
        return steps

    def is_complete(self, step: Sequence[tuple[int, Document]]) -> bool:
        """Return whether a step has each sample of each group exactly once."""
        size = self.objective["group_size"]
        places = sorted((row["group"], row["sample"]) for _, row in step)
        return places == [divmod(place, size) for place in range(len(places))] and len(places) % size == 0

    def dataset_row(self, rollout: Document) -> Document | None:
        """Return the dataset row of a completion, or None if it is not available, as generated rows are not."""
        return self.dataset[rollout["row"]] if rollout["row"] < len(self.dataset) else None

    def compute(self, reward: Reward, rollout: Document) -> float | None:
        """Return the reward of a completion, or None if it cannot be computed here."""
        row, finished = self.dataset_row(rollout) or {}, rollout["finish_reason"] == "stop"
        if not reward.is_ours or self.scoring is None or reward.missing(row) is not None:
            return None
        attempt = Attempt(prompt=rollout["prompt"], text=rollout["completion"], row=row, finished=finished)
        try:
            return reward.score(attempt)
        except ProblemError:
            return None


def rewarded_run(run: Run) -> RewardedRun | None:
    """Return the roll-outs of a run, or None if they are missing or the rewards are not valid."""
    objective: Document = get_path(run.config, "objective") or {}
    if not run.rollouts or objective.get("kind") != "grpo":
        return None
    scoring = recorded_scoring(run)
    try:
        terms = parse_terms(objective.get("rewards"), file=layout.CONFIG)
        rewards = build_rewards(terms, scoring or Scoring(), file=layout.CONFIG, execute=False)
    except ProblemError:
        return None
    return RewardedRun(run, run.rollouts, objective, rewards, scoring)


@rule("TP391", "rollouts")
def rewards(run: ValidRun, check: Checker) -> None:
    """Compute rewards and their sums again, compare prompts with the dataset, and note rewards that were skipped."""
    if (grpo := rewarded_run(run)) is None:
        return
    names, skipped = sorted(reward.name for reward in grpo.rewards), set()
    for line, rollout in enumerate(grpo.rollouts, start=1):
        row, parts = grpo.dataset_row(rollout), rollout["rewards"]
        if row is not None:
            prompt, source = row_texts(row)[0][-1], f"row {rollout['row']} of the dataset"
            check.equal(ROLLOUTS, "/prompt", rollout["prompt"], prompt, source, line=line, code="TP393")
        if sorted(parts) != names:
            stated = join_words(sorted(parts) or ["nothing"], "and")
            what = f"rewards has {stated}; config.yaml has {join_words(names, 'and')}."
            check.report(ROLLOUTS, what, "/rewards", line=line)
            continue
        for reward in grpo.rewards:
            stated, expected = parts[reward.name], grpo.compute(reward, rollout)
            if expected is None:
                skipped.add(f"{reward.name} ({'dataset row not available' if reward.is_ours else 'user code'})")
            elif stated is not None:
                source = f"the completion {format_value(rollout['completion'])}"
                check.equal(ROLLOUTS, f"/rewards/{reward.name}", stated, expected, source, line=line)
        total = None if None in parts.values() else total_reward(grpo.rewards, parts)
        check.equal(ROLLOUTS, "/reward", rollout["reward"], total, "the sum of its parts", line=line)
    if skipped:
        what = f"Not computed again: {join_words(sorted(skipped), 'and')}. Sums and advantages were."
        check.report(ROLLOUTS, what, code="TP395")


@rule("TP392", "rollouts")
def group_advantages(run: ValidRun, check: Checker) -> None:
    """Compute the advantages of each step again, and which completions are learned from."""
    if (grpo := rewarded_run(run)) is None:
        return
    for rows in grpo.steps.values():
        groups: dict[int, list[tuple[int, Document]]] = defaultdict(list)
        for line, row in rows:
            if row["reward"] is not None:
                groups[row["group"]].append((line, row))
            elif row["advantage"] or row["is_used"]:
                check.report(ROLLOUTS, "A completion without a reward is learned from.", "/is_used", line=line)
        values = [[row["reward"] for _, row in group] for group in groups.values()]
        for group, expected in zip(groups.values(), advantages(values, grpo.objective["scale_rewards"]), strict=True):
            for (line, row), value in zip(group, expected, strict=True):
                is_masked = grpo.objective["mask_truncated"] and row["finish_reason"] == "length"
                stated = float(row["advantage"])
                check.equal(ROLLOUTS, "/advantage", stated, value, "its group", line=line)
                if same(stated, value):
                    is_used, source = any(expected) and not is_masked, "its finish_reason" if is_masked else "its group"
                    check.equal(ROLLOUTS, "/is_used", row["is_used"], is_used, source, line=line)


@rule("TP393", "rollouts")
def groups_of_steps(run: ValidRun, check: Checker) -> None:
    """Check the groups and lengths of the completions of each step, and their means in metrics.jsonl."""
    if (grpo := rewarded_run(run)) is None:
        return
    limit, size = grpo.objective["max_completion_tokens"], grpo.objective["group_size"]
    metrics = {row["step"]: (line, row) for line, row in enumerate(run.metrics or (), start=1)}
    for step, rows in grpo.steps.items():
        what = f"Step {step} has {len(rows)} completions, which are not complete groups of {size}."
        check.require(grpo.is_complete(rows), ROLLOUTS, what, "/group", line=rows[0][0])
        for line, row in rows:
            tokens, reason = len(row.get("token_ids", ())), row["finish_reason"]
            what = f"{tokens} tokens ended by {reason}, but max_completion_tokens is {limit}."
            fits = tokens == limit if reason == "length" and "token_ids" in row else tokens <= limit
            check.require(fits, ROLLOUTS, what, "/token_ids", line=line)
        values = [row["reward"] for _, row in rows if row["reward"] is not None]
        line, stated = metrics.get(step, (0, {}))
        for name, expected in (
            ("reward_mean", fmean(values) if values else 0.0),
            ("truncated_share", fmean(row["finish_reason"] == "length" for _, row in rows)),
        ):
            if name in stated and abs(stated[name] - expected) > _MEAN_TOLERANCE * max(1.0, abs(expected)):
                check.equal(METRICS, f"/{name}", stated[name], expected, f"step {step} of {ROLLOUTS}", line=line)


@rule("TP394", "model", "metrics")
def sampler_gap(run: ValidRun, check: Checker) -> None:
    """Check that completions were sampled with the parameters that were trained."""
    compute = run.model["dtypes"]["compute"]
    limit, gap = SAMPLER_GAPS.get(compute, SAMPLER_GAPS["float32"]), run.columns["sampler_gap"]
    what = f"sampler_gap is {{:.3g}} nats; the limit for {compute} is {limit:g}."
    report_rows(check, np.nan_to_num(gap) > limit, "sampler_gap", what, gap)


@rule("TP448", "rollouts")
def collapse(run: ValidRun, check: Checker) -> None:
    """Warn if nearly all of the last completions are one text for different prompts, or if a reward is constant."""
    grpo = rewarded_run(run)
    if grpo is None or not grpo.steps:
        return
    last = list(grpo.steps.values())[-max(1, len(grpo.steps) // 3) :]
    rows = [row for step in last for _, row in step]
    [(text, count)] = Counter(row["completion"] for row in rows).most_common(1)
    prompts = len({row["prompt"] for row in rows})
    what = f"{count:,} of the last {len(rows):,} completions, for {prompts} prompts, are {format_value(text)}."
    check.require(prompts < _FEWEST_PROMPTS or count < _COLLAPSED_FRACTION * len(rows), ROLLOUTS, what)
    is_long = len(grpo.rollouts) >= _FEWEST_COMPLETIONS and len(grpo.steps) > 1
    for reward in grpo.rewards if is_long else ():
        values = {row["rewards"].get(reward.name) for row in grpo.rollouts}
        what = f"{reward.name} is {format_value(next(iter(values)))} for all {len(grpo.rollouts):,} completions."
        check.require(len(values) > 1 or not reward.weight, ROLLOUTS, what, code="TP450")

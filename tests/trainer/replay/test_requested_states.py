"""States that a seed requires: drawn, saved, requested, sent and refused; and forged runs that must not be verified."""

import json
import random
import shutil
import zipfile
from collections import Counter
from dataclasses import replace
from itertools import accumulate, combinations
from math import comb
from pathlib import Path
from typing import Any

import pytest
from commands import run_command
from configs import changed
from forging import forged, read_manifest, read_rows
from model_folders import row_file
from replays import challenged, record, refusal, replay_run, small_config
from whole_runs import errors_of

from evidence import layout
from evidence.bundle.build import build_bundle
from evidence.bundle.contents import files_of_run
from evidence.bundle.verify import pack_states, sent_states
from evidence.grade import Grade
from evidence.proof.receipts import run_sha256, save_receipt
from evidence.proof.verification import apply_proofs, find_proofs
from trainer.config.tree import Config, ModelConfig
from trainer.loop.chain import Segment, split_segments, split_spans, steps_to_keep
from trainer.replay.recorded import ReplayRequest, read_recorded
from trainer.replay.replay import draw_segments, request_states, write_states


@pytest.fixture(scope="module")
def honest(tmp_path_factory) -> Path:
    """A run of twelve steps, each with an entry in the chain, and four saved states."""
    root = tmp_path_factory.mktemp("states")
    return record(small_config(root, steps=12, recording={"chain_every_steps": 1}), root / "run")


def replayed(folder: Path, **arguments: Any) -> dict[str, Any]:
    return replay_run(folder, **({"items": 0, "seed": 4711} | arguments))[0]


def grade_with_receipts(folder: Path) -> Grade:
    """Return the grade of a consistent run with the receipts of this user."""
    return apply_proofs(Grade(name="consistent", reasons=("It is.",)), find_proofs(folder, run_sha256(folder) or ""))


def test_as_many_states_are_saved_as_fit():
    config = changed(Config(model=ModelConfig(name="tiny-gpt2")), recording={"states_mib": 16}, limits={"steps": 2800})
    mib = 1 << 20
    kept = {size: sorted(steps_to_keep(config, size * mib, first=0)) for size in (1, 5, 8, 16, 17)}
    assert kept == {1: [560, 1120, 1680, 2520], 5: [840, 1680, 2520], 8: [1120, 2520], 16: [2520], 17: []}
    # With short segments too, the last part is a twentieth of the run.
    each_step = changed(config, recording={"chain_every_steps": 1})
    assert sorted(steps_to_keep(each_step, 16 * mib, first=0)) == [2660]
    assert steps_to_keep(changed(config, recording={"states_mib": 0}), mib, first=0) == frozenset()


@pytest.mark.slow
def test_saved_states_reach_the_end_but_give_no_guarantee(copy):
    """Only the parts of saved states can be drawn, and the author chose these."""
    saved = {f"states/{step}.safetensors" for step in (2, 5, 8, 11)}
    assert saved <= set(files_of_run(copy).packed)
    assert errors_of(copy) == []
    receipt = replayed(copy)
    tried = [each["first_step"] for each in receipt["covered"]["segments"] if each["verdict"] == "identical"]
    assert tried == [0, 2, 5, 8, 11]
    drawn = {"number": 4711, "parts": 12, "could_be_drawn": 3, "named": [2, 5, 8], "repeated": 3, "caught_half": 0.0}
    assert receipt["covered"]["draw"] == drawn
    assert receipt["marks"]["said"].endswith("Training partly reproduced: 5 of 12 steps, including its end.")
    [lacking] = receipt["marks"]["lacking"]
    assert lacking.startswith("Only 5 of 12 steps were repeated, and they were not drawn at random from the whole run.")


def test_requested_states_are_sent_and_suffice(honest, copy, tmp_path):
    request = ReplayRequest(folder=copy, segments=5, seed=4711)
    asking, lines = request_states(read_recorded(copy), request, "theirs.zip")
    assert len(asking["parts"]) == 5 + 2
    assert set(asking["states"]) == {first for first, _ in asking["parts"]} - {0, 2, 5, 8, 11}
    named = ",".join(map(str, asking["states"]))
    assert lines[-2:] == [
        f"Ask the author to run: trainproof replay RUN --pack-states {named} --output states.zip",
        "Then run: trainproof replay theirs.zip --seed 4711 --states states.zip",
    ]
    sha256 = write_states(honest, asking["states"], tmp_path, lambda line: None)
    pack_states(tmp_path, sha256, tmp_path / "states.zip")
    with sent_states(tmp_path / "states.zip", run_sha256(copy)) as states:
        receipt = replayed(copy, segments=5, states=states)
        assert receipt["covered"]["draw"]["could_be_drawn"] == 10
        assert receipt["covered"]["draw"]["repeated"] == 5
        # Six of the ten parts between the ends are false if half of the run is: 4/10 · 3/9 · 2/8 · 1/7 · 0/6 = 0.
        assert receipt["covered"]["draw"]["caught_half"] == 1.0
        assert receipt["marks"]["lacking"] == []
        save_receipt(receipt)
        assert grade_with_receipts(copy).words == "verified (reproduced: 6 of 6 answers, 7 of 12 steps)"
        other = request_states(read_recorded(copy), replace(request, seed=1), "theirs.zip")[0]["states"]
        absent = ", ".join(map(str, sorted(set(other) - set(asking["states"]))))
        said = [f"TP760 Seed 1 requires states that are missing: steps {absent}."]
        assert refusal(lambda: replayed(copy, segments=5, states=states, seed=1)) == (3, said)


def test_sent_states_that_are_not_in_the_chain_are_refused(copy, tmp_path):
    sent = tmp_path / "sent"
    (sent / layout.STATES).mkdir(parents=True)
    shutil.copy(copy / layout.STATES / "5.safetensors", sent / layout.STATES / "3.safetensors")
    (sent / layout.STATES / "4.safetensors").write_bytes(b"\x00" * 64)
    shutil.copy(copy / layout.STATES / "5.safetensors", sent / layout.STATES / "400.safetensors")
    said = [
        "TP764 The state sent for step 3 is not the state in the chain.",
        "TP764 The state sent for step 4 cannot be used (SafetensorError).",
        "TP764 The state sent for step 400 is not the state in the chain.",
    ]
    assert refusal(lambda: replayed(copy, states=sent)) == (3, said)


def test_hostile_archives_and_those_of_another_run_are_refused(copy, tmp_path):
    def opened(name: str) -> Any:
        with sent_states(tmp_path / name, run_sha256(copy)) as folder:
            return folder

    (tmp_path / "x" / layout.STATES).mkdir(parents=True)
    pack_states(tmp_path / "x", "0" * 64, tmp_path / "other.zip")
    what = f"TP858 The answer is not for the run whose manifest has SHA-256 {run_sha256(copy)}."
    assert refusal(lambda: opened("other.zip")) == (2, [what])
    for name in ("../evil", "states/../../evil", "states/1.py", "other/1.safetensors"):
        with zipfile.ZipFile(tmp_path / "evil.zip", "w") as archive:
            archive.writestr("answer.json", "{}")
            archive.writestr(name, b"x")
        assert refusal(lambda: opened("evil.zip"))[0] in (1, 2)
        assert not (tmp_path / "evil").exists()
    (tmp_path / "none.zip").write_bytes(b"no zip")
    assert [refusal(lambda name=name: opened(name))[0] for name in ("none.zip", "not-there.zip")] == [1, 2]


def test_states_that_are_not_in_the_chain_are_not_packed(copy, tmp_path, capsys):
    said = ["TP760 The chain lacks a state for step 400."]
    assert refusal(lambda: write_states(copy, [2, 400], tmp_path, print)) == (2, said)
    assert run_command(capsys, "replay", copy, "--pack-states", "2,2")[0] == 2


def test_the_commands_print_the_request_and_pack_states(copy, tmp_path, capsys):
    build_bundle([copy], tmp_path / "run.zip", allow_partial=True)
    code, out, _ = run_command(capsys, "replay", tmp_path / "run.zip", "--seed", "4711", "--ask", "--json")
    asked = json.loads(out)
    assert (code, asked["number"], asked["parts"][0], asked["parts"][-1]) == (0, 4711, [0, 1], [11, 12])
    code, out, _ = run_command(capsys, "replay", copy, "--pack-states", "5,11", "--output", tmp_path / "s.zip")
    assert (code, out.endswith("s.zip: 2 states of run, checked against its chain.\n")) == (0, True)


@pytest.mark.slow
def test_a_run_with_invented_steps_after_the_first_is_not_verified(copy):
    """Four honest steps, then random hashes and losses times 0.6, and no parameters to challenge."""
    shutil.rmtree(copy / layout.STATES)
    (copy / layout.TRAINED_PARAMS).unlink()
    manifest = read_manifest(copy)
    manifest["artifacts"] = [each for each in manifest["artifacts"] if (copy / each["path"]).exists()]
    (copy / layout.MANIFEST).write_text(json.dumps(manifest))
    rows, noise = read_rows(copy), random.Random(0)
    for row in rows[4:]:
        row["loss"] *= 0.6
    states = {step: noise.randbytes(32).hex() for step in range(5, 13)}
    forged(copy, rows, states=states, params={12: noise.randbytes(32).hex()})
    for number in (4711, 99):
        receipt = replayed(copy, segments=3, seed=number)
        assert receipt["result"] == "identical"
        training = receipt["marks"]["training"]
        assert (training["repeated"], training["steps"], training["end_reached"]) == (False, 4, False)
        assert training["caught_half"] == 0.0
        assert receipt["marks"]["score"]["trained"] == 0
        save_receipt(receipt)
    grade = grade_with_receipts(copy)
    assert grade.words == "consistent (reproduced: 0 of 6 answers, 4 of 12 steps)"


def test_an_invented_device_is_not_verified_by_a_challenge(copy):
    device = {"platform": "gpu", "kind": "NVIDIA GeForce RTX 4090", "count": 1}
    forged(copy, manifest={"devices": device})
    items = row_file(copy.parent / "mine.jsonl", {"id": "a", "prompt": "What is 40 + 2?", "expected": "42"})
    receipt = challenged(copy, items=Path(items), again=0)
    assert receipt["result"] != "different"
    save_receipt(receipt)
    grade = grade_with_receipts(copy)
    assert grade.words == "consistent (reproduced: 6 of 6 answers, 0 of 12 steps)"
    assert any(reason.startswith("Device, duration and memory are what the run states") for reason in grade.reasons)


def equal_parts(count: int) -> tuple[Segment, ...]:
    return split_spans(split_segments(0, 10 * count, range(0, 10 * count, 10)))


def drawn_starts(parts: tuple[Segment, ...], count: int, seed: int) -> tuple[int, ...]:
    return tuple(part.first_step for part in draw_segments(parts, None, count=count, seed=seed).drawn)


def test_short_segments_are_grouped_into_parts_of_a_twentieth():
    parts = split_spans(split_segments(0, 2800, range(2800)))
    assert [(part.first_step, part.last_step) for part in parts] == [(n, n + 140) for n in range(0, 2800, 140)]
    # A short rest belongs to the last part.
    parts = split_spans(split_segments(0, 103, [50, 100]))
    assert [(part.first_step, part.last_step) for part in parts] == [(0, 50), (50, 103)]
    assert len(split_spans(split_segments(4, 8, [5, 6, 7]))) == 4
    assert len(split_spans(split_segments(0, 1, []))) == 1


def test_seeds_draw_every_combination_and_each_always_the_same():
    parts = equal_parts(6)
    draws = [drawn_starts(parts, 2, seed) for seed in range(60)]
    assert set(draws) == set(combinations((10, 20, 30, 40), 2))
    assert draws == [drawn_starts(parts, 2, seed) for seed in range(60)]
    for count, selected in ((9, [0, 10, 20, 30, 40, 50]), (0, [0, 50])):
        draw = draw_segments(parts, None, count=count, seed=1)
        assert [part.first_step for part in draw.selected] == selected


def test_every_step_is_drawn_with_the_same_probability():
    """A part of 300 steps is drawn first three times as often as one of 100: 3,000 seeds, four standard errors."""
    parts = split_spans(split_segments(0, 600, [100, 200, 500]))
    first = Counter(drawn_starts(parts, 1, seed)[0] for seed in range(3000))
    assert set(first) == {100, 200}
    assert abs(first[200] / 3000 - 0.75) < 4 * (0.75 * 0.25 / 3000) ** 0.5


@pytest.mark.parametrize(("count", "share", "false"), [(3, 0.5, 10), (5, 0.5, 10), (1, 0.05, 1), (4, 0.25, 5)])
def test_detection_probability_is_hypergeometric_for_equal_parts(count, share, false):
    """Of 20 parts 18 can be drawn, and none of the false ones is with probability C(18 - f, k) / C(18, k)."""
    probability = draw_segments(equal_parts(20), None, count=count, seed=7).detection_probability(share)
    assert probability == pytest.approx(1 - comb(18 - false, count) / comb(18, count))


def test_detection_probability_is_a_lower_bound_for_unequal_parts():
    """Compared with every set of false parts that has at least half of all steps."""
    lengths = (10, 10, 40, 20, 10, 30, 10)
    parts = tuple(
        Segment(number=number, first_step=end - length, last_step=end)
        for number, (length, end) in enumerate(zip(lengths, accumulate(lengths), strict=True))
    )
    inner = lengths[1:-1]
    worst = min(
        1 - missed(inner, false, tuple(range(len(inner))), 2)
        for size in range(6)
        for false in combinations(range(5), size)
        if sum(inner[part] for part in false) >= sum(lengths) / 2
    )
    assert 0 < draw_segments(parts, None, count=2, seed=1).detection_probability(0.5) <= worst + 1e-12


def missed(lengths: tuple[int, ...], false: tuple[int, ...], left: tuple[int, ...], draws: int) -> float:
    """Return the probability that no false part is drawn, each next part in proportion to its steps."""
    if draws == 0:
        return 1.0
    total = sum(lengths[part] for part in left)
    return sum(
        lengths[part] / total * missed(lengths, false, tuple(each for each in left if each != part), draws - 1)
        for part in left
        if part not in false
    )


def test_the_detection_probability_is_never_rounded_up():
    draws = [draw_segments(equal_parts(20), None, count=count, seed=7) for count in (5, 8, 9)]
    assert 0.9999 < draws[1].detection_probability(0.5) < 1
    assert [draw.description[-7:] for draw in draws] == ["99.3 %.", "99.9 %.", " 100 %."]
    assert draw_segments(equal_parts(2), None, count=5, seed=7).description.startswith("Nothing to draw")

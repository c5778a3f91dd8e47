"""Real out-of-memory texts, read: what each needs, what is there, what is missing, and what its buffers are.

A case is a text of `tests/cases/out_of_memory` with its source; the figures beside it in `cases.json` were worked out
by hand from the text.
"""

import doctest
import json
import string
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.problems import ProblemError
from schemas.render import as_text
from trainer.planning.out_of_memory import report
from trainer.planning.out_of_memory.explain import explanation, explanation_text
from trainer.planning.out_of_memory.read import read_out_of_memory
from trainer.planning.out_of_memory.roles import read_roles

CASES = Path(__file__).parents[3] / "cases" / "out_of_memory"
ANSWERS = json.loads((CASES / "cases.json").read_text("utf-8"))
FIGURES = ("need_bytes", "cap_bytes", "tried_bytes", "free_bytes", "unused_bytes", "missing_bytes")


def text_of(name: str) -> str:
    return (CASES / f"{name}.txt").read_text("utf-8")


def explained_or_refused(text: str) -> str:
    """Return the page, or the refusal's sentence; anything else is an error of ours."""
    try:
        return explanation_text(explanation(read_out_of_memory(text, source="x")))
    except ProblemError as error:
        return error.problems[0].what


def test_every_text_has_an_answer():
    assert {path.stem for path in CASES.glob("*.txt")} == set(ANSWERS)


READ = [name for name, expected in ANSWERS.items() if "other_tool" not in expected]


@pytest.mark.parametrize("name", sorted(set(ANSWERS) - set(READ)))
def test_another_tools_text_is_named_and_not_explained(name: str):
    with pytest.raises(ProblemError) as caught:
        read_out_of_memory(text_of(name), source="pasted.txt")
    assert as_text(caught.value.problems) == (
        f"error TP745: pasted.txt: The text is of {ANSWERS[name]['other_tool']}, whose messages are not explained "
        "here.\n"
        "  Expected: an error of a TPU, JAX, CUDA, PyTorch, or of a machine whose main memory was full.\n"
        "  Next: Look it up in that tool's documentation; `trainproof plan` says what a training run of ours needs.\n"
    )


@pytest.mark.parametrize("name", READ)
def test_a_real_text(name: str):
    expected = ANSWERS[name]
    found = read_out_of_memory(text_of(name), source=name)
    assert (found.memory, found.when) == (expected["memory"], expected["when"])
    for key in FIGURES:
        if key in expected:
            assert getattr(found, key) == expected[key], key
    if "parts" in expected:
        assert found.parts == expected["parts"]
    if "notes" in expected:
        assert list(found.notes) == expected["notes"]
    roles = read_roles(found.largest, sizes=None, in_main_memory=found.memory == "host" and found.when == "run")
    assert [each.role for each in roles] == expected["roles"]
    answer = explanation(found)
    assert answer["changes"], "there is something to change"
    if "first_change" in expected:
        assert answer["changes"][0]["set"] == expected["first_change"] or expected["first_change"] is None
    if "frees" in expected:
        assert answer["changes"][0]["frees_bytes"] == expected["frees"]["first"]
    assert "None" not in explanation_text(answer)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "The text is empty."),
        ("\n  \n", "The text is empty."),
        ("ValueError: shapes (3,4) and (5,6) not aligned", "The text tells of no missing memory."),
        (
            "We killed the run after three hours, since it had been OOMing before.",
            "The text tells of no missing memory.",
        ),
        ("OSError: [Errno 28] No space left on device", "the disk is full"),
        ("RuntimeError: The TPU is already in use by process with pid 42.", "another process holds the TPU"),
        (
            "W bfc_allocator.cc:243] Allocator ran out of memory trying to allocate 1.25GiB; this is not a failure.",
            "the program went on",
        ),
        ("RESOURCE_EXHAUSTED: Quota exceeded for quota metric 'Requests'", "the text does not say which"),
        (
            "triton.runtime.errors.OutOfResources: out of resource: shared memory, Required: 131072, Hardware limit: 1",
            "the small memory inside a GPU",
        ),
        ("RuntimeError: CUDA error: device-side assert triggered", "an index on the GPU is out of range"),
    ],
)
def test_what_is_none_is_said_to_be_none(text, says):
    with pytest.raises(ProblemError) as caught:
        read_out_of_memory(text, source="pasted.txt")
    [problem] = caught.value.problems
    assert caught.value.exit_code == 1
    assert (problem.code, problem.file) == ("TP745", "pasted.txt")
    assert says in problem.what


@pytest.mark.parametrize("name", ["tpu_v3_gemma_7b_served", "torch_2", "gpu_paligemma_logits"])
@pytest.mark.parametrize("wrapped", ["> {}", "\x1b[31m{}\x1b[0m", "(worker pid=41) {}"])
def test_quotes_colours_and_loggers_change_nothing(name, wrapped):
    plain = read_out_of_memory(text_of(name), source=name)
    lines = [wrapped.format(line) for line in text_of(name).splitlines()]
    assert read_out_of_memory("\r\n".join(lines), source=name) == plain


def test_a_log_around_it_changes_nothing():
    around = "step 1 loss 3.2 program 4.0G\n" * 200
    alone = read_out_of_memory(text_of("tpu_v4_falcon_scores"), source="")
    inside = read_out_of_memory(around + text_of("tpu_v4_falcon_scores"), source="")
    assert (inside.need_bytes, inside.cap_bytes, inside.largest) == (alone.need_bytes, alone.cap_bytes, alone.largest)


def test_a_state_that_is_held_twice_is_seen():
    text = (
        "Ran out of memory in memory space hbm. Used 28.12G of 15.75G hbm. Exceeded hbm capacity by 12.37G.\n"
        "Total hbm usage >= 28.37G:\n    reserved 258.00M\n    program 14.12G\n    arguments 14.00G\n"
        "Output size 14.00G; shares 0B with arguments.\n"
    )
    answer = explanation(read_out_of_memory(text, source=""))
    assert answer["changes"][0]["set"] == "memory.donate=true"
    assert answer["changes"][0]["frees_bytes"] == 14 * 2**30
    shared = text.replace("shares 0B", "shares 14.00G")
    assert "memory.donate=true" not in [
        each["set"] for each in explanation(read_out_of_memory(shared, source=""))["changes"]
    ]


def test_other_processes_are_counted():
    text = (
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1024.00 MiB. GPU 0 has a total capacity of "
        "14.74 GiB of which 0.50 GiB is free. Process 4242 has 6.00 GiB memory in use. "
        "Process 4243 has 8.24 GiB memory in use."
    )
    found = read_out_of_memory(text, source="")
    assert found.others_bytes == round(6.00 * 2**30) + round(8.24 * 2**30)
    assert explanation(found)["changes"][0]["what"].startswith("End the other processes")


@given(st.text(alphabet=string.printable, max_size=2000))
def test_no_text_breaks_the_reader(text):
    assert explained_or_refused(text)


@given(st.sampled_from(sorted(ANSWERS)), st.data())
def test_no_part_of_a_real_text_breaks_the_reader(name, data):
    text = text_of(name)
    first = data.draw(st.integers(0, len(text)))
    last = data.draw(st.integers(first, len(text)))
    assert explained_or_refused(text[first:last])


def test_a_long_log_is_read_in_a_moment():
    """Ten times the text may take ten times as long, and no more than a few times that."""
    hostile = "1. Size: 4.00G\n  Shape: " + "Buffer 1:\n Size: 1\n" * 500 + "reserved " * 500 + "Killed process " * 500
    times = []
    for count in (5, 50):
        start = time.process_time()
        with pytest.raises(ProblemError):
            read_out_of_memory(hostile * count, source="x")
        times.append(time.process_time() - start)
    assert times[1] < 60 * max(times[0], 0.01)


def test_amounts():
    assert doctest.testmod(report).failed == 0


def test_a_full_cpu_is_told_what_a_device_is_told():
    settings = [each["set"] for each in explanation(read_out_of_memory(text_of("jax_cpu"), source=""))["changes"]]
    assert "memory.remat=layer" in settings
    assert "method.kind=lora" in settings


def test_the_sentence_is_whole():
    assert read_out_of_memory(text_of("gpu_bytes_2025"), source="").said.endswith(" bytes")

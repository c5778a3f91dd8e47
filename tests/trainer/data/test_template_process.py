"""A stranger's chat template takes no more time and memory than it is given, and the next one is not harmed."""

from collections.abc import Iterator

import pytest
from trainer.data.template_process import TemplateProcess

TALK = [{"role": "user", "content": "Hi."}]


@pytest.fixture(scope="module")
def templates() -> Iterator[TemplateProcess]:
    process = TemplateProcess(most_seconds=1.5)
    yield process
    process.close()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("template", "answer"),
    [
        (
            "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
            {"beyond": "more than 1.5 seconds of the processor"},
        ),
        ("{{ messages | length * 10 ** (10 ** 9) }}", {"beyond": "more than 1.5 seconds of the processor"}),
        ("{{ 'a' * 8000000000 }}", {"beyond": "more than 1,024 MiB of memory"}),
        ("{{ 'a' * 20000000 }}", {"beyond": "a text of 20,000,000 characters"}),
        (
            "{{ messages.__class__.__mro__ }}",
            {"refused": "access to attribute '__class__' of 'list' object is unsafe."},
        ),
        ("{% include '/etc/passwd' %}", {"refused": "no loader for this environment specified"}),
    ],
    ids=["loops", "power", "memory", "text", "class", "include"],
)
def test_a_template_that_takes_too_much_is_ended_and_the_next_is_written(
    templates: TemplateProcess, template: str, answer: dict[str, str]
) -> None:
    assert templates.written(TALK, template, {}, opened=True) == answer
    assert templates.written(TALK, "{{ messages[0].content }}{{ eos_token }}", {"eos_token": "<e>"}, opened=True) == {
        "text": "Hi.<e>"
    }

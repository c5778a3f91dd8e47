"""The example workflow of docs/: what it passes to our action the action takes, and its commands are commands."""

import re
import shlex
from pathlib import Path

import yaml
from typer.main import get_command

from schemas.problems import ProblemError
from trainer.config.load import load_config
from trainproof.cli import app as command

WORKFLOW = yaml.safe_load(Path("docs/smoke-attested.yml").read_text())
[JOB] = WORKFLOW["jobs"].values()
VERBS = get_command(command.app).commands


def steps_of(action: str) -> list[dict]:
    return [step for step in JOB["steps"] if step.get("uses", "").partition("@")[0] == action]


def commands() -> list[list[str]]:
    """Return the commands of ours in every step, without what a shell does with their output."""
    lines = [line for step in JOB["steps"] for line in step.get("run", "").splitlines()]
    return [shlex.split(line.partition(" > ")[0])[1:] for line in lines if line.startswith("trainproof ")]


def test_it_has_the_rights_that_attesting_needs():
    assert WORKFLOW["permissions"] == {"contents": "read", "id-token": "write", "attestations": "write"}


def test_our_action_takes_what_it_is_given():
    [ours] = steps_of("./")
    assert set(ours["with"]) <= set(yaml.safe_load(Path("action.yml").read_text())["inputs"])


def test_every_command_is_one():
    assert [words[0] for words in commands()] == ["train", "package", "verify"]
    for verb, *arguments in commands():
        context = VERBS[verb].make_context(verb, list(arguments), resilient_parsing=False)
        assert context.params


def test_each_step_names_what_another_made():
    made = dict(zip(["train", "package", "verify"], commands(), strict=True))
    folder = made["train"][made["train"].index("--output") + 1]
    zipped = made["package"][made["package"].index("--output") + 1]
    assert made["package"][1] == folder
    assert made["verify"][1] == zipped
    [attest], [upload] = steps_of("actions/attest-build-provenance"), steps_of("actions/upload-artifact")
    assert attest["with"]["subject-path"] == upload["with"]["path"] == zipped
    assert steps_of("./")[0]["with"]["runs"] == folder


def test_the_configuration_is_one_of_ours():
    made = dict(zip(["train", "package", "verify"], commands(), strict=True))
    try:
        load_config(Path(made["train"][made["train"].index("--config") + 1]))
    except ProblemError as error:
        raise AssertionError(error.problems) from error


def test_every_action_is_pinned_to_a_version():
    used = [step["uses"] for step in JOB["steps"] if "uses" in step]
    assert all(re.fullmatch(r"\./|[a-z-]+/[a-z-]+@v\d+", each) for each in used)

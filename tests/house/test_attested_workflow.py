"""The example workflow of docs/: its inputs are inputs of our action, and its commands exist."""

import re
import shlex
from pathlib import Path

import pytest
import yaml
from typer.main import get_command

from trainer.config.load import load_config
from trainproof.cli import app as command

WORKFLOW = yaml.safe_load(Path("docs/smoke-attested.yml").read_text())
[JOB] = WORKFLOW["jobs"].values()
VERBS = get_command(command.app).commands


def steps_of(action: str) -> list[dict]:
    return [step for step in JOB["steps"] if step.get("uses", "").partition("@")[0] == action]


@pytest.fixture(scope="module")
def commands() -> dict[str, list[str]]:
    """Return the arguments of our commands by verb, without what a shell does with their output."""
    lines = [line for step in JOB["steps"] for line in step.get("run", "").splitlines()]
    found = [shlex.split(line.partition(" > ")[0])[1:] for line in lines if line.startswith("trainproof ")]
    return {verb: arguments for verb, *arguments in found}


def test_it_has_the_rights_that_attesting_needs_and_every_action_is_pinned_to_a_version():
    assert WORKFLOW["permissions"] == {"contents": "read", "id-token": "write", "attestations": "write"}
    used = [step["uses"] for step in JOB["steps"] if "uses" in step]
    assert all(re.fullmatch(r"\./|[a-z-]+/[a-z-]+@v\d+", each) for each in used)


def test_every_command_is_one_and_the_configuration_is_one_of_ours(commands: dict[str, list[str]]):
    assert list(commands) == ["train", "package", "verify"]
    for verb, arguments in commands.items():
        assert VERBS[verb].make_context(verb, list(arguments), resilient_parsing=False).params
    load_config(Path(after("--config", commands["train"])))


def after(flag: str, arguments: list[str]) -> str:
    return arguments[arguments.index(flag) + 1]


def test_each_step_names_what_another_made_and_our_action_takes_what_it_is_given(commands: dict[str, list[str]]):
    folder, zipped = after("--output", commands["train"]), after("--output", commands["package"])
    assert (commands["package"][0], commands["verify"][0]) == (folder, zipped)
    [attest], [upload] = steps_of("actions/attest-build-provenance"), steps_of("actions/upload-artifact")
    assert attest["with"]["subject-path"] == upload["with"]["path"] == zipped
    [ours] = steps_of("./")
    assert ours["with"]["runs"] == folder
    assert set(ours["with"]) <= set(yaml.safe_load(Path("action.yml").read_text())["inputs"])

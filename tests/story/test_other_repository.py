"""A repository that is not ours has its runs checked: our GitHub Action and our pre-commit hook, run for real.

The action's steps are executed as `action.yml` has them, with the shell and the variables that GitHub gives; only
`actions/setup-python` is played by the Python that runs the tests. Both install this checkout from its own metadata, so
what they bring is the light set of packages, and the verbs that judge are run with nothing else.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml
from checkouts import REPOSITORY, checkout_in, git
from mutations import apply
from synthetic import write_run

HEAVY = ("flax", "jax", "jsonschema", "orbax-checkpoint", "pandas", "psutil", "streamlit", "transformers")

pytestmark = [pytest.mark.slow, pytest.mark.packaging]


@dataclass(frozen=True)
class Done:
    """How a command ended."""

    code: int
    out: str
    err: str


def ran(*command: object, cwd: Path, **environment: str) -> Done:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("GIT_", "PYTHON"))}
    done = subprocess.run(
        [str(word) for word in command],
        cwd=cwd,
        env=inherited | {"PIP_NO_COMPILE": "1", "PIP_DISABLE_PIP_VERSION_CHECK": "1", "NO_COLOR": "1"} | environment,
        capture_output=True,
        text=True,
        check=False,
    )
    return Done(done.returncode, done.stdout, done.stderr)


@pytest.fixture(scope="module")
def product(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return checkout_in(tmp_path_factory.mktemp("product"))


@pytest.fixture(scope="module")
def pins(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return a file of the lock's versions, so that a release of another project never fails this test."""
    lines = (REPOSITORY / "requirements.lock").read_text("utf-8").splitlines()
    file = tmp_path_factory.mktemp("pins") / "constraints.txt"
    file.write_text("".join(f"{line.removesuffix(chr(92))}\n" for line in lines if re.match(r"[a-z0-9]", line)))
    return str(file)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Return a repository of somebody with two good runs."""
    folder = tmp_path / "theirs"
    write_run(folder / "submission_runs", "first")
    write_run(folder / "submission_runs", "second", seed=1)
    (folder / ".gitattributes").write_text("submission_runs/** -text\n")
    git(folder, "init", "--quiet")
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "--message", "our runs")
    return folder


class Action:
    """The composite action, step by step."""

    def __init__(self, product: Path, temporary: Path, pins: str) -> None:
        self.steps = yaml.safe_load((product / "action.yml").read_text("utf-8"))
        self.environment = {
            "GITHUB_ACTIONS": "true",
            "GITHUB_ACTION_PATH": str(product),
            "RUNNER_TEMP": str(temporary),
            "PIP_CONSTRAINT": pins,
        }
        self.program = temporary / "trainproof" / "bin" / "trainproof"

    def run(self, name: str, workspace: Path, **inputs: str) -> Done:
        """Run the step of this name as GitHub does: its script in a file, under bash, stopping at an error."""
        step = next(step for step in self.steps["runs"]["steps"] if step.get("name") == name)
        assert step["shell"] == "bash"
        script = Path(self.environment["RUNNER_TEMP"]) / "step.sh"
        script.write_text(step["run"])
        known = {f"inputs.{key}": str(value["default"]) for key, value in self.steps["inputs"].items()}
        known |= {f"inputs.{key}": value for key, value in inputs.items()}
        known["steps.python.outputs.python-path"] = sys.executable
        own = {
            key: re.sub(r"\$\{\{ (\S+) \}\}", lambda match: known[match[1]], text) for key, text in step["env"].items()
        }
        places = {"GITHUB_WORKSPACE": str(workspace), "GITHUB_STEP_SUMMARY": str(workspace.parent / "summary.md")}
        return ran(
            *("bash", "--noprofile", "--norc", "-eo", "pipefail", script),
            cwd=workspace,
            **self.environment,
            **places,
            **own,
        )


@pytest.fixture(scope="module")
def action(product: Path, pins: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Action]:
    """Return the action after its install step, done once."""
    made = Action(product, tmp_path_factory.mktemp("runner"), pins)
    installed = made.run("Install trainproof", product)
    assert installed.code == 0, installed.out + installed.err
    yield made
    shutil.rmtree(made.environment["RUNNER_TEMP"])


def test_the_action_passes_good_runs(action: Action, repository: Path) -> None:
    assert action.run("Check the runs", repository) == Done(0, "", "")
    assert (repository.parent / "summary.md").read_text().startswith("```\nsubmission_runs/first   consistent\n")


def test_the_action_fails_and_annotates_a_broken_run(action: Action, repository: Path) -> None:
    apply(repository / "submission_runs/second", {"file": "eval_summary.json", "replace": ['"n": 12', '"n": 11']})
    done = action.run("Check the runs", repository, runs="submission_runs/first\nsubmission_runs/second\n")
    assert (done.code, done.err) == (1, "")
    assert re.search(r"^::error file=submission_runs/second/eval_summary\.json,line=\d+", done.out, re.MULTILINE)
    assert "submission_runs/first" not in done.out


def test_the_action_says_when_there_are_no_runs(action: Action, repository: Path) -> None:
    done = action.run("Check the runs", repository, runs="results")
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("error TP091: results: results does not exist.\n")


def test_judging_needs_the_light_packages_only(action: Action, repository: Path) -> None:
    listed = ran(action.program.with_name("python"), "-m", "pip", "list", "--format=json", cwd=repository)
    names = {package["name"].lower().replace("_", "-") for package in json.loads(listed.out)}
    assert {"trainproof", "numpy"} <= names
    assert not names & set(HEAVY)
    foreign = REPOSITORY / "tests/cases/foreign/hf_trainer"
    for verb, code in {
        "check submission_runs": 0,
        "check submission_runs --sarif": 0,
        "grade submission_runs --json": 0,
        "runs submission_runs": 0,
        "show submission_runs/first": 0,
        "compare submission_runs/first submission_runs/second": 0,
        "compare submission_runs/first --require exact_match>=0.99": 1,
        "package submission_runs/first submission_runs/second --output both.zip": 0,
        "verify both.zip": 0,
        f"import {foreign} --name theirs": 0,
    }.items():
        done = ran(action.program, *verb.split(), cwd=repository)
        assert done.code == code, (verb, done)


@pytest.mark.parametrize(
    ("verb", "lacking", "extras"),
    [
        ("train --config a.yaml", "flax, gguf, huggingface-hub and 9 more", "train"),
        ("plan --config a.yaml", "flax, gguf, huggingface-hub and 9 more", "train"),
        ("evaluate submission_runs/first", "flax, gguf, huggingface-hub and 9 more", "train"),
        ("export submission_runs/first", "flax, gguf, huggingface-hub and 9 more", "train"),
        ("demo", "flax, gguf, huggingface-hub and 13 more", "train,dashboard"),
        ("demo --no-serve", "flax, gguf, huggingface-hub and 9 more", "train"),
        ("dashboard", "pandas, plotly, psutil and 2 more", "dashboard"),
        ("queue list", "psutil", "queue"),
        ("queue add --config a.yaml", "flax, gguf, huggingface-hub and 9 more", "train"),
    ],
)
def test_a_verb_without_its_extra_says_what_to_install(action, product, repository, verb, lacking, extras):
    assert ran(action.program, *verb.split(), cwd=repository) == Done(
        2,
        "",
        f"error TP095: `trainproof {verb.split()[0]}` needs packages that are not installed: {lacking}.\n"
        "  The command needs a program or a package that is not installed.\n"
        f'  Next: Install them: pip install "{product}[{extras}]".\n',
    )


def test_the_pre_commit_hook_refuses_a_broken_run(product: Path, repository: Path, pins: str, tmp_path: Path) -> None:
    commit = ran("git", "rev-parse", "HEAD", cwd=product).out.strip()
    hooks = {"repos": [{"repo": str(product), "rev": commit, "hooks": [{"id": "trainproof-check"}]}]}
    (repository / ".pre-commit-config.yaml").write_text(yaml.safe_dump(hooks))
    environment = {"PRE_COMMIT_HOME": str(tmp_path / "hooks"), "PIP_CONSTRAINT": pins, "HOME": str(tmp_path)}

    def hook(*arguments: str) -> Done:
        return ran(sys.executable, "-m", "pre_commit", "run", *arguments, cwd=repository, **environment)

    git(repository, "add", ".")
    good = hook("--all-files")
    assert good.code == 0, good.out + good.err
    assert re.search(r"^trainproof check\.+Passed$", good.out, re.MULTILINE)

    apply(repository / "submission_runs/second", {"file": "metrics.jsonl", "remove_line": 7})
    git(repository, "add", ".")
    broken = hook()
    assert broken.code == 1
    assert "error TP201: submission_runs/second/metrics.jsonl: metrics.jsonl has the hash" in broken.out

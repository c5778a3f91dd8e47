"""Every method, killed with SIGKILL and continued, ends with the bits of a run that nobody stopped."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slow

METHOD_KILLS = Path(__file__).parents[2] / "support" / "method_kills.py"
METHODS = ("full", "lora", "nf4", "int8", "float16")


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    command = [sys.executable, str(METHOD_KILLS), str(tmp_path_factory.mktemp("methods")), *METHODS]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_a_killed_run_that_is_continued_ends_with_the_same_bits(method: str, outcomes: dict[str, Any]):
    outcome = outcomes[method]
    assert (outcome["ended"], outcome["exits"]) == (-9, [0, 0])
    whole, joined = outcome["rows"]
    assert [row[0] for row in whole] == list(range(1, 9))
    assert joined == whole
    assert outcome["states"][0] == outcome["states"][1]
    assert (whole[0][-1] is not None) == (method == "float16")

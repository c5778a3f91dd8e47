"""Without the fast validator, for which not every machine has a wheel, the other one says the same."""

import subprocess
import sys
from pathlib import Path

CASES = Path(__file__).parents[2] / "cases" / "documents"

WITHOUT = """
import sys
sys.modules["jsonschema_rs"] = None
from pathlib import Path
from schemas.catalog import is_rows
from schemas.explain.validators import _Slow, validator_of
from schemas.problems.render import as_text
from schemas.validate import read_document, read_rows

assert isinstance(validator_of("plan"), _Slow)
for path in sorted(Path().glob("*/*[!t]")):
    kind = path.name.partition(".")[0]
    read = read_rows if is_rows(kind) else read_document
    stated = path.with_suffix(".problem.txt")
    expected = stated.read_text(encoding="utf-8") if stated.exists() else ""
    if as_text(read(path, kind).problems).replace(f"{path.parent}/", "") != expected:
        print(path)
"""


def test_the_validator_that_is_everywhere_explains_each_case_alike():
    done = subprocess.run([sys.executable, "-c", WITHOUT], cwd=CASES, capture_output=True, text=True)
    assert (done.stdout, done.stderr, done.returncode) == ("", "", 0)

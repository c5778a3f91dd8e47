"""What the command line imports at once must be cheap: only the standard library, and little of it."""

import subprocess
import sys

HEAVY = ("jsonschema", "jsonschema_rs", "msgspec", "yaml", "numpy", "urllib.request", "asyncio", "xml")


def ran(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def test_saying_problems_imports_nothing_heavy():
    code = f"import sys, schemas.problems.render; print([one for one in {HEAVY!r} if one in sys.modules])"
    assert ran(code) == "[]"


def test_reading_runs_does_not_import_yaml():
    assert ran("import sys, schemas.validate; print('yaml' in sys.modules)") == "False"
